//! Tests of the tests: for every rule of private training there is a check. The vault passes it, and a mechanism with one planted bug
//! does not.
//!
//! Seeds are fixed. Statistics must be within 5 standard deviations, which a sound mechanism exceeds once in 1.7 million.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use rand_distr::{Distribution, StandardNormal};
use sordino_accounting::{
    Accountant, Cap, ClipNorm, Delta, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps,
};
use sordino_privacy::{Account, ClipRule, Randomness, Ranks, Vault};
use sordino_testing::{Folder, Rows, on_ranks, rows, same_rows, terms};

/// What a mechanism is asked to do.
#[derive(Clone)]
struct Task {
    rows: Vec<Vec<f32>>,
    rate: f64,
    multiplier: f64,
    bound: f64,
    regulariser: Option<f64>,
    /// A table of (norm, weight) pairs in place of clipping.
    table: Option<Vec<(f64, f64)>>,
    steps: usize,
}

impl Task {
    /// One step over all records with hardly any noise, so that the release shows the sum.
    fn bare(rows: Vec<Vec<f32>>) -> Self {
        Self { rows, rate: 1.0, multiplier: 1e-6, bound: 1.0, regulariser: None, table: None, steps: 1 }
    }
}

/// A mechanism that gives a release for each step of a task.
trait Mechanism {
    fn releases(&mut self, task: &Task) -> Vec<Vec<f32>>;
}

/// The vault, on one rank or on several whose records are the shares of one task.
struct Sound {
    ranks: usize,
    calls: u64,
}

impl Mechanism for Sound {
    fn releases(&mut self, task: &Task) -> Vec<Vec<f32>> {
        self.calls += 1;
        let (count, calls) = (task.rows.len(), self.calls);
        let terms = terms(count, &[task.multiplier], task.rate, task.steps as u64);
        let mut rule = ClipRule::flat(ClipNorm::new(task.bound).unwrap()).unwrap();
        if let Some(regulariser) = task.regulariser {
            rule = rule.normalising(regulariser).unwrap();
        }
        if let Some(table) = &task.table {
            rule = rule.weighted_by(table).unwrap();
        }
        let dimension = task.rows.iter().map(Vec::len).max().unwrap();
        let mut releases = on_ranks(self.ranks, |communicator| {
            let ranks = Ranks::among(communicator, count);
            let share = Rows { dimension, ..rows(task.rows[ranks.share()].to_vec()) };
            let randomness = Randomness::seeded(calls);
            let mut vault = Vault::seal_among(&ranks, share, &terms, randomness, None).unwrap();
            let step = |_| {
                let release = vault.round(|round| {
                    let sum = round.gradients(&[]).clipped_sum(&rule)?;
                    round.release(sum)
                });
                release.unwrap().unwrap().unwrap().into_inner()
            };
            (0..task.steps).map(step).collect::<Vec<Vec<f32>>>()
        });
        let first = releases.remove(0);
        releases.iter().for_each(|other| assert_eq!(*other, first, "every rank has the same releases"));
        first
    }
}

/// Bugs that have been seen in private training, each against a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    DividesByRealisedSize,
    ClipsTheSum,
    ClipsChunks,
    TrustsTheRule,
    TrustsTheTable,
    MixesRecords,
    HalvesTheNoise,
    SavesATwentieth,
    NoiseForEveryChunk,
    NoiseByBatchSize,
    NoNoiseOnEmptyBatches,
    ReusesNoise,
    ReusesNoiseLater,
    FloatingNoise,
    ShufflesEpochs,
    FixedSizeBatches,
    SameBatchTwice,
    SamplesMoreOften,
    ZeroTimesNan,
    EnlargesNothing,
    // Bugs of two ranks, which hold one half of the records each.
    RankSkipsEmptyBatches,
    NoiseOnEveryRank,
    SameSeedOnRanks,
    CountsARankTwice,
    DividesByRanks,
}

/// DP-SGD in a few lines, with or without a bug.
struct Naive {
    bug: Option<Bug>,
    rng: ChaCha20Rng,
}

const CHUNK: usize = 4;

impl Naive {
    fn new(bug: Option<Bug>) -> Self {
        Self { bug, rng: ChaCha20Rng::seed_from_u64(17) }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn batch(&mut self, task: &Task, step: usize, last: &[usize]) -> Vec<usize> {
        let count = task.rows.len();
        if self.has(Bug::SameBatchTwice) && step % 2 == 1 {
            return last.to_vec();
        }
        let rate = if self.has(Bug::SamplesMoreOften) { (1.2 * task.rate).min(1.0) } else { task.rate };
        let size = (count as f64 * rate).round() as usize;
        if self.has(Bug::ShufflesEpochs) && size < count {
            // Walks through the records in a fixed order.
            return (0..size).map(|i| (step * size + i) % count).collect();
        }
        if self.has(Bug::FixedSizeBatches) && size < count {
            let mut keyed: Vec<(u64, usize)> = (0..count).map(|i| (self.rng.next_u64(), i)).collect();
            keyed.sort_unstable();
            return keyed.into_iter().take(size).map(|(_, i)| i).collect();
        }
        if self.has(Bug::SameSeedOnRanks) && count.is_multiple_of(2) {
            let half: Vec<usize> = (0..count / 2).filter(|_| self.uniform() < rate).collect();
            return half.iter().copied().chain(half.iter().map(|i| i + count / 2)).collect();
        }
        (0..count).filter(|_| self.uniform() < rate).collect()
    }

    fn clipped(&self, row: &[f32], task: &Task) -> Vec<f64> {
        let row: Vec<f64> = row.iter().copied().map(f64::from).collect();
        let norm = length(&row);
        if self.has(Bug::ZeroTimesNan) && !norm.is_finite() {
            return row.iter().map(|v| v * 0.0).collect();
        }
        if !norm.is_finite() {
            return vec![0.0; row.len()];
        }
        if norm == 0.0 && self.has(Bug::EnlargesNothing) && task.regulariser.is_some() {
            return row.iter().enumerate().map(|(i, _)| if i == 0 { task.bound } else { 0.0 }).collect();
        }
        // The tables of these checks are constant.
        let wanted = task.table.as_ref().map_or(1.0, |table| table[0].1);
        let weight = match task.regulariser {
            _ if self.has(Bug::TrustsTheRule) => 1.0,
            None if self.has(Bug::TrustsTheTable) && task.table.is_some() => wanted,
            None => (task.bound / norm.max(1e-300)).min(wanted),
            Some(r) => task.bound / (r + norm).max(1e-300),
        };
        row.iter().map(|v| v * weight).collect()
    }

    fn sum(&self, task: &Task, batch: &[usize]) -> Vec<f64> {
        let dimension = task.rows.iter().map(Vec::len).max().unwrap();
        let mut rows: Vec<Vec<f32>> = batch.iter().map(|&i| task.rows[i].clone()).collect();
        if self.has(Bug::MixesRecords) {
            // Like a normalisation over the batch.
            let count = rows.len() as f32;
            for at in 0..dimension {
                let mean = rows.iter().map(|row| row.get(at).unwrap_or(&0.0)).sum::<f32>() / count;
                rows.iter_mut().filter(|row| at < row.len()).for_each(|row| row[at] -= mean);
            }
        }
        let together = |rows: &[Vec<f32>]| {
            let mut sum = vec![0.0; dimension];
            for row in rows {
                sum.iter_mut().zip(row).for_each(|(sum, v)| *sum += f64::from(*v));
            }
            let weight = (task.bound / length(&sum).max(1e-300)).min(1.0);
            sum.into_iter().map(|v| v * weight).collect::<Vec<f64>>()
        };
        if self.has(Bug::ClipsTheSum) {
            return together(&rows);
        }
        let parts: Vec<Vec<f64>> = if self.has(Bug::ClipsChunks) {
            rows.chunks(CHUNK).map(together).collect()
        } else {
            rows.iter().map(|row| self.clipped(row, task)).collect()
        };
        let mut sum = vec![0.0; dimension];
        for part in parts {
            sum.iter_mut().zip(&part).for_each(|(sum, v)| *sum += v);
        }
        if self.has(Bug::CountsARankTwice) {
            let second = batch.iter().filter(|&&i| i >= task.rows.len() / 2);
            for part in second.map(|&i| self.clipped(&task.rows[i], task)) {
                sum.iter_mut().zip(&part).for_each(|(sum, v)| *sum += v);
            }
        }
        if self.has(Bug::DividesByRanks) {
            sum.iter_mut().for_each(|v| *v /= 2.0);
        }
        if self.has(Bug::DividesByRealisedSize) {
            sum.iter_mut().for_each(|v| *v /= batch.len().max(1) as f64);
        }
        sum
    }
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|v| v * v).sum::<f64>().sqrt()
}

impl Mechanism for Naive {
    fn releases(&mut self, task: &Task) -> Vec<Vec<f32>> {
        let mut batch = Vec::new();
        let mut kept: Option<Vec<f64>> = None;
        let mut releases = Vec::new();
        for step in 0..task.steps {
            batch = self.batch(task, step, &batch);
            let is_first = |i: &usize| *i < task.rows.len() / 2;
            let both_have_records = batch.iter().any(is_first) && !batch.iter().all(is_first);
            if self.has(Bug::RankSkipsEmptyBatches) && !both_have_records {
                continue;
            }
            let sum = self.sum(task, &batch);
            let chunks = batch.len().div_ceil(CHUNK).max(1) as f64;
            let std = task.multiplier
                * task.bound
                * match self.bug {
                    Some(Bug::HalvesTheNoise) => 0.5,
                    Some(Bug::SavesATwentieth) => 0.95,
                    Some(Bug::NoiseForEveryChunk) => chunks.sqrt(),
                    Some(Bug::NoiseOnEveryRank) => 2.0_f64.sqrt(),
                    Some(Bug::NoiseByBatchSize) => batch.len() as f64 / (task.rate * task.rows.len() as f64),
                    Some(Bug::NoNoiseOnEmptyBatches) if batch.is_empty() => 0.0,
                    _ => 1.0,
                };
            let fresh: Vec<f64> = sum.iter().map(|_| StandardNormal.sample(&mut self.rng)).collect();
            let normal = match self.bug {
                Some(Bug::ReusesNoise) => kept.get_or_insert(fresh).clone(),
                // As a generator would whose counter is too short.
                Some(Bug::ReusesNoiseLater) if step == 7 => kept.clone().unwrap(),
                Some(Bug::ReusesNoiseLater) if step == 0 => kept.insert(fresh).clone(),
                _ => fresh,
            };
            let grid = 2.0_f64.powi((task.multiplier * task.bound).log2().floor() as i32 - 22);
            let noised = |(v, n): (&f64, &f64)| match self.bug {
                Some(Bug::FloatingNoise) => (v + std * n) as f32,
                _ => (((v / grid).round() + (std * n / grid).round()) * grid) as f32,
            };
            releases.push(sum.iter().zip(&normal).map(noised).collect());
        }
        releases
    }
}

type Check = fn(&mut dyn Mechanism) -> Result<(), String>;

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Rule 1: a sum, by public numbers alone.
fn releases_are_sums(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    for count in [1, 3, 50] {
        let release = mechanism.releases(&Task::bare(vec![vec![0.5, 0.0]; count]));
        let expected = 0.5 * count as f64;
        let got = f64::from(release[0][0]);
        require((got - expected).abs() < 1e-3 * expected, || format!("{got} of {count} halves"))?;
    }
    Ok(())
}

/// Rules 1, 7, 12: clipping per record before summation; no record touches another.
fn a_record_moves_a_sum_by_its_bound(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    let crowd = |row: &[f32]| vec![row.to_vec(); 11];
    for (regulariser, table) in [(None, None), (Some(0.01), None), (None, Some(vec![(0.5, 1e9)]))] {
        for others in [crowd(&[1.0, 0.0]), crowd(&[0.3, -0.3]), crowd(&[1e4, 1e4])] {
            for canary in [[-1.0, 0.0], [-1e6, 1e5], [1e-3, 0.0], [0.7, 0.7], [3e18, -3e18]] {
                let mut rows = others.clone();
                let task = |rows: &[Vec<f32>]| Task {
                    regulariser,
                    table: table.clone(),
                    ..Task::bare(rows.to_vec())
                };
                let without = mechanism.releases(&task(&rows));
                rows.push(canary.to_vec());
                let with = mechanism.releases(&task(&rows));
                let moved: Vec<f64> =
                    with[0].iter().zip(&without[0]).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
                require(length(&moved) < 1.0001, || {
                    format!("{canary:?} moves {:?} by {moved:?}", others[0])
                })?;
            }
        }
    }
    Ok(())
}

/// Rule 7: noise of the planned deviation, once a step, whatever the batch was.
fn noise_has_the_planned_deviation(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    const DIMENSION: usize = 2000;
    for (count, rate) in [(1, 0.5), (40, 0.5), (40, 1.0)] {
        let rows = vec![vec![0.0; DIMENSION]; count];
        let task = Task { rate, multiplier: 2.0, bound: 0.5, steps: 20, ..Task::bare(rows) };
        for release in mechanism.releases(&task) {
            let variance = release.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / DIMENSION as f64;
            let tolerance = 5.0 * (2.0 / DIMENSION as f64).sqrt();
            require((variance - 1.0).abs() < tolerance, || {
                format!("variance {variance} for {count} records")
            })?;
        }
    }
    Ok(())
}

/// Rule 6: an empty batch is noised like any other.
fn empty_batches_are_noised(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    let task = Task { rate: 1e-9, multiplier: 1.0, steps: 20, ..Task::bare(vec![vec![1.0; 8]; 3]) };
    let releases = mechanism.releases(&task);
    require(releases.len() == 20, || "a step was skipped".to_owned())?;
    require(releases.iter().flatten().all(|v| *v != 0.0), || "an empty batch bears no noise".to_owned())
}

/// Rule 9: noise is fresh at every step.
fn noise_is_never_used_twice(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    let task = Task { multiplier: 1.0, steps: 20, ..Task::bare(vec![vec![0.0; 500]; 3]) };
    let releases = mechanism.releases(&task);
    for (number, one) in releases.iter().enumerate() {
        for other in &releases[..number] {
            let product: f64 = one.iter().zip(other).map(|(a, b)| f64::from(a * b)).sum();
            let correlation = product / 500.0;
            require(correlation.abs() < 5.0 / 500_f64.sqrt(), || format!("correlation {correlation}"))?;
        }
    }
    Ok(())
}

/// Rule 11: no digits below the lattice.
fn releases_lie_on_the_lattice(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    let rows = vec![vec![0.1 / 3.0; 1000]; 3];
    let task = Task { multiplier: 1.0, ..Task::bare(rows) };
    let step = 2.0_f64.powi(-22);
    let off = mechanism.releases(&task)[0].iter().filter(|v| (f64::from(**v) / step).fract() != 0.0).count();
    require(off == 0, || format!("{off} of 1000 numbers have digits below the lattice"))
}

/// Rules 1 and 9: every record joins with the planned probability, independently of others and of other steps.
fn batches_are_poisson(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    const COUNT: usize = 20;
    const STEPS: usize = 4000;
    const RATE: f64 = 0.25;
    let one_hot = |i| (0..COUNT).map(|j| if i == j { 1.0 } else { 0.0 }).collect();
    let task = Task { rate: RATE, steps: STEPS, ..Task::bare((0..COUNT).map(one_hot).collect()) };
    let chosen: Vec<Vec<bool>> =
        mechanism.releases(&task).iter().map(|release| release.iter().map(|v| *v > 0.5).collect()).collect();
    let near = |hits: usize, trials: usize, rate: f64, what: &str| {
        let deviation = (hits as f64 - trials as f64 * rate) / (trials as f64 * rate * (1.0 - rate)).sqrt();
        require(deviation.abs() < 5.0, || format!("{what}: {deviation:.1} standard deviations off"))
    };
    for i in 0..COUNT {
        near(chosen.iter().filter(|step| step[i]).count(), STEPS, RATE, "frequency")?;
        let next = (i + 1) % COUNT;
        near(chosen.iter().filter(|step| step[i] && step[next]).count(), STEPS, RATE * RATE, "pairs")?;
        let again = chosen.windows(2).filter(|pair| pair[0][i] && pair[1][i]).count();
        near(again, STEPS - 1, RATE * RATE, "steps in a row")?;
    }
    let sizes: Vec<f64> =
        chosen.iter().map(|step| step.iter().filter(|chosen| **chosen).count() as f64).collect();
    let mean = sizes.iter().sum::<f64>() / STEPS as f64;
    let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / STEPS as f64;
    let expected = COUNT as f64 * RATE * (1.0 - RATE);
    // The variance of a sample variance is about 2 sigma^4 / n.
    let deviation = (variance - expected) / (expected * (2.0 / STEPS as f64).sqrt());
    require(deviation.abs() < 6.0, || format!("sizes vary {deviation:.1} standard deviations off"))
}

/// Rule 8: a record that is not finite adds exactly nothing.
fn what_is_not_finite_adds_nothing(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    for bad in [[f32::NAN, 1.0], [f32::INFINITY, 0.0], [f32::NEG_INFINITY, f32::NAN]] {
        let release = &mechanism.releases(&Task::bare(vec![vec![0.5, 0.25], bad.to_vec()]))[0];
        let same = (release[0] - 0.5).abs() < 1e-3 && (release[1] - 0.25).abs() < 1e-3;
        require(same, || format!("{bad:?} leaves {release:?}"))?;
    }
    Ok(())
}

/// Rule 1: a zero gradient adds nothing, even if the rule enlarges small gradients.
fn zero_gradients_add_nothing(mechanism: &mut dyn Mechanism) -> Result<(), String> {
    for regulariser in [0.0, 0.01] {
        let task = Task { regulariser: Some(regulariser), ..Task::bare(vec![vec![0.0, 0.0]; 5]) };
        let release = &mechanism.releases(&task)[0];
        require(release.iter().all(|v| v.abs() < 1e-4), || format!("{release:?}"))?;
    }
    Ok(())
}

const CHECKS: [(&str, Check); 9] = [
    ("releases are sums", releases_are_sums),
    ("a record moves a sum by its bound", a_record_moves_a_sum_by_its_bound),
    ("noise has the planned deviation", noise_has_the_planned_deviation),
    ("empty batches are noised", empty_batches_are_noised),
    ("noise is never used twice", noise_is_never_used_twice),
    ("releases lie on the lattice", releases_lie_on_the_lattice),
    ("batches are Poisson", batches_are_poisson),
    ("what is not finite adds nothing", what_is_not_finite_adds_nothing),
    ("zero gradients add nothing", zero_gradients_add_nothing),
];

const BUGS: [(Bug, &str); 25] = [
    (Bug::DividesByRealisedSize, "releases are sums"),
    (Bug::ClipsTheSum, "a record moves a sum by its bound"),
    (Bug::ClipsChunks, "a record moves a sum by its bound"),
    (Bug::TrustsTheRule, "a record moves a sum by its bound"),
    (Bug::TrustsTheTable, "a record moves a sum by its bound"),
    (Bug::MixesRecords, "a record moves a sum by its bound"),
    (Bug::HalvesTheNoise, "noise has the planned deviation"),
    (Bug::SavesATwentieth, "noise has the planned deviation"),
    (Bug::NoiseForEveryChunk, "noise has the planned deviation"),
    (Bug::NoiseByBatchSize, "noise has the planned deviation"),
    (Bug::NoNoiseOnEmptyBatches, "empty batches are noised"),
    (Bug::ReusesNoise, "noise is never used twice"),
    (Bug::ReusesNoiseLater, "noise is never used twice"),
    (Bug::FloatingNoise, "releases lie on the lattice"),
    (Bug::ShufflesEpochs, "batches are Poisson"),
    (Bug::FixedSizeBatches, "batches are Poisson"),
    (Bug::SameBatchTwice, "batches are Poisson"),
    (Bug::SamplesMoreOften, "batches are Poisson"),
    (Bug::ZeroTimesNan, "what is not finite adds nothing"),
    (Bug::EnlargesNothing, "zero gradients add nothing"),
    (Bug::RankSkipsEmptyBatches, "empty batches are noised"),
    (Bug::NoiseOnEveryRank, "noise has the planned deviation"),
    (Bug::SameSeedOnRanks, "batches are Poisson"),
    (Bug::CountsARankTwice, "releases are sums"),
    (Bug::DividesByRanks, "releases are sums"),
];

#[test]
fn the_vault_passes_every_check() {
    for ranks in [1, 2, 3] {
        let mut sound = Sound { ranks, calls: 0 };
        for (name, check) in CHECKS {
            assert_eq!(check(&mut sound), Ok(()), "{name} on {ranks} ranks");
        }
    }
}

#[test]
fn the_naive_mechanism_without_a_bug_passes_every_check() {
    for (name, check) in CHECKS {
        assert_eq!(check(&mut Naive::new(None)), Ok(()), "{name}");
    }
}

#[test]
fn every_planted_bug_is_caught() {
    for (bug, caught_by) in BUGS {
        let (_, check) = CHECKS.into_iter().find(|(name, _)| *name == caught_by).unwrap();
        assert!(check(&mut Naive::new(Some(bug))).is_err(), "{bug:?} passes {caught_by:?}");
    }
}

// Rules 2, 4, 5 and 10: what is printed bounds what one step reveals, in both directions.

fn cumulative(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// The exact delta of one step at rate `q` with multiplier `z`: the worse of removing and adding a record.
fn exact_delta(q: f64, z: f64, epsilon: f64) -> f64 {
    let at = |l: f64| z * z * ((l.exp_m1() + q) / q).ln() + 0.5;
    let x = at(epsilon);
    let remove = q * cumulative((1.0 - x) / z) + (1.0 - q - epsilon.exp()) * cumulative(-x / z);
    let add = if epsilon < -(-q).ln_1p() {
        let x = at(-epsilon);
        (1.0 - (1.0 - q) * epsilon.exp()) * cumulative(x / z) - q * epsilon.exp() * cumulative((x - 1.0) / z)
    } else {
        0.0
    };
    remove.max(add)
}

/// `Pr[Bin(n, q) > k]`, term by term.
fn binomial_tail(n: u64, q: f64, k: u64) -> f64 {
    let ln_factorial = |m: u64| libm::lgamma(m as f64 + 1.0);
    let term = |i: u64| {
        let ways = ln_factorial(n) - ln_factorial(i) - ln_factorial(n - i);
        (ways + i as f64 * q.ln() + (n - i) as f64 * (-q).ln_1p()).exp()
    };
    (k + 1..=n).map(term).sum()
}

type Price = fn(&Entry, Delta) -> f64;

fn price(entry: &Entry, delta: Delta) -> f64 {
    Accountant::Pld.price(&Plan::new(vec![entry.clone()]), delta).unwrap().epsilon.get()
}

/// Composes the releases of a batch as if each had a batch of its own.
fn priced_apart(entry: &Entry, delta: Delta) -> f64 {
    let one = |z: &NoiseMultiplier| Entry::new(entry.sampling(), vec![*z], entry.steps()).unwrap();
    Accountant::Pld.price(&entry.releases().iter().map(one).collect(), delta).unwrap().epsilon.get()
}

/// Ignores the cost of a cap.
fn priced_without_cap(entry: &Entry, delta: Delta) -> f64 {
    let Sampling::Poisson { rate, .. } = entry.sampling() else { panic!("Poisson only") };
    let sampling = Sampling::Poisson { rate, cap: None };
    price(&Entry::new(sampling, entry.releases().to_vec(), entry.steps()).unwrap(), delta)
}

/// Prices the addition of a record and ignores its removal.
fn priced_in_one_direction(entry: &Entry, delta: Delta) -> f64 {
    let Sampling::Poisson { rate, .. } = entry.sampling() else { panic!("Poisson only") };
    price(entry, delta).min(-(-rate.get()).ln_1p())
}

fn prices_bound_what_is_revealed(price: Price) -> Result<(), String> {
    let delta = Delta::new(1e-5).unwrap();
    let cap = |size| Some(Cap { max_batch_size: size, population: 1000 });
    for (q, multipliers, cap) in [
        (0.1, vec![1.0], None),
        (0.5, vec![0.8, 1.2], None),
        (0.01, vec![1.0, 1.0, 1.0], None),
        (0.1, vec![2.0], cap(150)),
        (0.1, vec![2.0], cap(147)),
    ] {
        let z = multipliers.iter().map(|z: &f64| z.powi(-2)).sum::<f64>().powf(-0.5);
        let sampling = Sampling::Poisson { rate: SamplingRate::new(q).unwrap(), cap };
        let multipliers = multipliers.iter().map(|z| NoiseMultiplier::new(*z).unwrap()).collect();
        let entry = Entry::new(sampling, multipliers, Steps::new(1).unwrap()).unwrap();
        let epsilon = price(&entry, delta);
        let add_on = cap.map_or(0.0, |cap| {
            binomial_tail(cap.population + 1, q, cap.max_batch_size) * (1.0 + epsilon.exp())
        });
        let spent = exact_delta(q, z, epsilon) + add_on;
        require(spent <= delta.get() * (1.0 + 1e-9), || format!("{entry}: {spent} at {epsilon}"))?;
    }
    Ok(())
}

#[test]
fn prices_are_bounds_and_wrong_ones_are_caught() {
    assert_eq!(prices_bound_what_is_revealed(price), Ok(()));
    for (name, wrong) in [
        ("releases priced apart", priced_apart as Price),
        ("a cap for nothing", priced_without_cap),
        ("one direction", priced_in_one_direction),
    ] {
        assert!(prices_bound_what_is_revealed(wrong).is_err(), "{name}");
    }
}

// Rule 9: write-ahead charges and fresh randomness.

/// A run that stops after a step, is resumed, and takes another. For each step: what the ledger covered when its batch was
/// drawn, and what was released.
type Interrupted = fn(&Folder) -> Vec<(u64, Vec<f32>)>;

fn one_step(vault: &mut Vault<Rows>, ledger: &std::path::Path) -> (u64, Vec<f32>) {
    let step = vault.round(|round| {
        let covered = Account::read(ledger).unwrap().charged();
        let sum = round.gradients(&[]).clipped_sum(&ClipRule::flat(ClipNorm::new(1.0).unwrap()).unwrap());
        (covered, round.release(sum.unwrap()).unwrap().into_inner())
    });
    step.unwrap().unwrap()
}

fn interrupted_by(folder: &Folder, randomness: fn() -> Randomness) -> Vec<(u64, Vec<f32>)> {
    let (ledger, terms) = (folder.file("ledger"), terms(5, &[1.0], 1.0, 9));
    let records = || same_rows(5, &[0.5; 16]);
    let mut steps = Vec::new();
    let mut vault = Vault::seal(records(), &terms, randomness(), &ledger).unwrap();
    steps.push(one_step(&mut vault, &ledger));
    drop(vault);
    let mut vault = Vault::resume(records(), &terms, randomness(), &ledger).unwrap();
    steps.push(one_step(&mut vault, &ledger));
    steps
}

fn sound_run(folder: &Folder) -> Vec<(u64, Vec<f32>)> {
    interrupted_by(folder, || Randomness::from_os().unwrap())
}

/// Continues with a generator from a checkpoint: the same noise twice.
fn restores_its_generator(folder: &Folder) -> Vec<(u64, Vec<f32>)> {
    interrupted_by(folder, || Randomness::seeded(4))
}

/// Draws a step before it is charged: the ledger covers what it covered before the round.
fn charges_afterwards(folder: &Folder) -> Vec<(u64, Vec<f32>)> {
    let (ledger, terms) = (folder.file("ledger"), terms(5, &[1.0], 1.0, 9));
    let mut vault =
        Vault::seal(same_rows(5, &[0.5; 16]), &terms, Randomness::from_os().unwrap(), &ledger).unwrap();
    let step = |_| {
        let covered = Account::read(&ledger).unwrap().charged();
        (covered, one_step(&mut vault, &ledger).1)
    };
    (0..2).map(step).collect()
}

/// Creates a new ledger after a crash.
fn starts_over(folder: &Folder) -> Vec<(u64, Vec<f32>)> {
    let terms = terms(5, &[1.0], 1.0, 9);
    let life = |name| {
        let ledger = folder.file(name);
        let rows = same_rows(5, &[0.5; 16]);
        let mut vault = Vault::seal(rows, &terms, Randomness::from_os().unwrap(), &ledger).unwrap();
        one_step(&mut vault, &ledger)
    };
    ["first", "second"].map(life).to_vec()
}

fn resumes_without_harm(run: Interrupted) -> Result<(), String> {
    let steps = run(&Folder::new("interrupted"));
    for (number, (covered, _)) in steps.iter().enumerate() {
        require(*covered > number as u64, || {
            format!("step {number} was drawn with {covered} steps charged")
        })?;
    }
    require(steps[0].1 != steps[1].1, || "the same noise twice".to_owned())
}

#[test]
fn a_run_is_resumed_without_harm_and_planted_harm_is_caught() {
    assert_eq!(resumes_without_harm(sound_run), Ok(()));
    for (name, wrong) in [
        ("restores its generator", restores_its_generator as Interrupted),
        ("charges afterwards", charges_afterwards),
        ("starts over", starts_over),
    ] {
        assert!(resumes_without_harm(wrong).is_err(), "{name}");
    }
}
