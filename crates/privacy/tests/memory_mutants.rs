//! Tests of the tests of sums over several steps: the vault passes every check, and a mechanism with one planted bug does not.
//!
//! Seeds are fixed. Statistics must be within 5 standard deviations, which a sound mechanism exceeds by chance once in 1.7 million.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::{Arc, Mutex};

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use rand_distr::{Distribution, StandardNormal};
use sordino_accounting::{ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps};
use sordino_privacy::{ClipRule, Coefficients, Randomness, Terms, Vault};
use sordino_testing::{Folder, Rows, rows};

/// Correlated releases with clipping norm 1.
struct Task {
    rows: Vec<Vec<f32>>,
    coefficients: Vec<f64>,
    rate: f64,
    multiplier: f64,
    steps: usize,
    /// The process is killed and the run is resumed after this many steps.
    killed_after: usize,
}

/// What is released in each step, and the standard deviation that is stated.
type Releases = Vec<(Vec<f32>, f64)>;

trait Mechanism {
    fn releases(&self, task: &Task) -> Releases;
}

struct Sound;

impl Mechanism for Sound {
    fn releases(&self, task: &Task) -> Releases {
        let count = task.rows.len() as u64;
        let sampling = Sampling::Rotating {
            rate: SamplingRate::new(task.rate).unwrap(),
            groups: task.coefficients.len() as u64,
        };
        let noise = vec![NoiseMultiplier::new(task.multiplier).unwrap()];
        let entry = Entry::new(sampling, noise, Steps::new(task.steps as u64).unwrap()).unwrap();
        let terms = Terms::unprotected(Plan::new(vec![entry]), count, "a test");
        let (rule, folder) =
            (ClipRule::flat(ClipNorm::new(1.0).unwrap()).unwrap(), Folder::new("memory-mutants"));
        let coefficients = Coefficients::new(&task.coefficients).unwrap();
        let dimension = task.rows.iter().map(Vec::len).max().unwrap();
        let engine = || Rows { dimension, ..rows(task.rows.clone()) };
        let seen: Arc<Mutex<Releases>> = Arc::default();
        let ledger = folder.file("ledger");
        let mut vault = Vault::seal(engine(), &terms, Randomness::seeded(3), &ledger).unwrap();
        for step in 0..task.steps {
            if step == task.killed_after {
                drop(vault);
                vault = Vault::resume(engine(), &terms, Randomness::seeded(4), &ledger).unwrap();
            }
            let sink = Arc::clone(&seen);
            vault.observe_releases(move |values, std| sink.lock().unwrap().push((values.to_vec(), std)));
            let release = vault.round(|round| {
                let sum = round.gradients(&[]).correlated_sum(&rule, &coefficients)?;
                round.release(sum)
            });
            let _ = release.unwrap().unwrap().unwrap();
        }
        seen.lock().unwrap().clone()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// The noise is scaled to the first coefficient, as if a record moved one release.
    ScalesNoiseToOneCoefficient,
    /// The noise is scaled to the largest coefficient.
    ScalesNoiseToTheLargest,
    /// A sum is kept for one step too many.
    KeepsASumTooLong,
    /// There is one group fewer than there are coefficients.
    HasTooFewGroups,
    /// Batches are drawn from all records.
    SamplesFromAll,
    /// The group of a record depends on its place among the records that are present.
    CountsPresentRecords,
    /// The hidden sums are restored when a run is resumed, and the steps since the checkpoint are taken again, beyond the plan.
    RepeatsStepsWithMemory,
    /// Noise is correlated by adding the same noise to several releases.
    ReusesNoise,
}

/// Correlated releases in a few lines, with or without a bug.
struct Naive(Option<Bug>);

impl Mechanism for Naive {
    fn releases(&self, task: &Task) -> Releases {
        let has = |bug| self.0 == Some(bug);
        let (mut coins, mut normals) = (ChaCha20Rng::seed_from_u64(5), ChaCha20Rng::seed_from_u64(6));
        let mut c = task.coefficients.clone();
        let groups = c.len() - usize::from(has(Bug::HasTooFewGroups));
        let largest = c.iter().fold(0.0, |most: f64, c| most.max(c.abs()));
        let scale = match self.0 {
            Some(Bug::ScalesNoiseToOneCoefficient) => c[0],
            Some(Bug::ScalesNoiseToTheLargest) => largest,
            _ => length(&c),
        };
        if has(Bug::KeepsASumTooLong) {
            c.push(c[c.len() - 1]);
        }
        let dimension = task.rows.iter().map(Vec::len).max().unwrap();
        let present = |i: &usize| !has(Bug::CountsPresentRecords) || !task.rows[*i].is_empty();
        let places: Vec<usize> = (0..task.rows.len()).filter(present).collect();
        let (mut sums, mut releases): (Vec<Vec<f64>>, Releases) = (Vec::new(), Vec::new());
        let mut last = vec![0.0; dimension];
        let mut step = 0;
        let mut killed = false;
        while step < task.steps {
            if step == task.killed_after && !killed {
                killed = true;
                if has(Bug::RepeatsStepsWithMemory) {
                    // The last two steps are taken again, and their releases are added to the earlier ones.
                    step -= 2;
                    sums.truncate(step);
                } else {
                    sums.iter_mut().for_each(|sum| sum.fill(0.0));
                }
            }
            let mut sum = vec![0.0; dimension];
            for (place, &record) in places.iter().enumerate() {
                let coin = (coins.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                let own_turn = place % groups == step % groups || has(Bug::SamplesFromAll);
                let row: Vec<f64> = task.rows[record].iter().copied().map(f64::from).collect();
                if own_turn && coin < task.rate && !row.is_empty() {
                    let weight = (1.0 / length(&row)).min(1.0);
                    sum.iter_mut().zip(&row).for_each(|(sum, x)| *sum += weight * x);
                }
            }
            sums.push(sum);
            let std = task.multiplier * scale;
            let fresh: Vec<f64> = (0..dimension).map(|_| StandardNormal.sample(&mut normals)).collect();
            let noise = if has(Bug::ReusesNoise) && step % 2 == 1 { last.clone() } else { fresh.clone() };
            last = fresh;
            let value = |at: usize| {
                let earlier = c.iter().zip(sums.iter().rev()).map(|(c, sum)| c * sum[at]).sum::<f64>();
                (earlier + std * noise[at]) as f32
            };
            releases.push(((0..dimension).map(value).collect(), std));
            step += 1;
        }
        releases
    }
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

const COEFFICIENTS: [f64; 4] = [0.6, 0.5, 0.45, 0.4];

/// Almost no noise, so that releases show the sums. Every record of a group is drawn.
fn bare(killed_after: usize) -> Task {
    let row = |i: usize| vec![3.0 + i as f32, 2.0 - i as f32];
    Task {
        rows: (0..12).map(row).collect(),
        coefficients: COEFFICIENTS.to_vec(),
        rate: 1.0,
        multiplier: 1e-6,
        steps: 22,
        killed_after,
    }
}

/// In every block from one turn of a record to the next, leaving out the record moves the releases together by at most the noise divided
/// by the multiplier. It moves nothing before its first turn.
fn blocks_move_by_at_most_what_the_noise_is_for(mechanism: &dyn Mechanism) -> Result<(), String> {
    for killed_after in [usize::MAX, 9, 10] {
        for removed in 0..12 {
            let (whole, mut lacking) = (bare(killed_after), bare(killed_after));
            lacking.rows[removed] = Vec::new();
            let (with, without) = (mechanism.releases(&whole), mechanism.releases(&lacking));
            require(with.len() == 22, || format!("{} releases of 22 steps", with.len()))?;
            let apart = |a: &[f32], b: &[f32]| {
                length(&a.iter().zip(b).map(|(a, b)| f64::from(a - b)).collect::<Vec<_>>())
            };
            let moves: Vec<f64> =
                with.iter().zip(&without).map(|(with, without)| apart(&with.0, &without.0)).collect();
            let (before, blocks) = moves.split_at(removed % COEFFICIENTS.len());
            require(before.iter().all(|moved| *moved < 1e-4), || {
                format!("{before:?} before the first turn")
            })?;
            for block in blocks.chunks(COEFFICIENTS.len()) {
                let permitted = with[0].1 / whole.multiplier;
                let total = length(block);
                require(total <= permitted * (1.0 + 1e-4), || {
                    format!("record {removed} moves a block by {total}, and the noise is for {permitted}")
                })?;
            }
        }
    }
    Ok(())
}

/// The noise of all releases is fresh and has the deviation that is stated: `z |c|_2`.
fn noise_is_fresh_and_as_stated(mechanism: &dyn Mechanism) -> Result<(), String> {
    const DIMENSION: usize = 2000;
    let rows = vec![vec![0.0; DIMENSION]; 8];
    let task = Task { rows, multiplier: 2.0, ..bare(usize::MAX) };
    let releases = mechanism.releases(&task);
    for (number, (release, std)) in releases.iter().enumerate() {
        let stated = 2.0 * length(&COEFFICIENTS);
        require((std / stated - 1.0).abs() < 1e-4, || format!("{std} is stated, {stated} is needed"))?;
        let one: Vec<f64> = release.iter().map(|v| f64::from(*v) / std).collect();
        let variance = one.iter().map(|v| v * v).sum::<f64>() / DIMENSION as f64;
        require((variance - 1.0).abs() < 5.0 * (2.0 / DIMENSION as f64).sqrt(), || format!("{variance}"))?;
        for (other, other_std) in &releases[..number] {
            let product: f64 = one.iter().zip(other).map(|(a, b)| a * f64::from(*b) / other_std).sum();
            let correlation = product / DIMENSION as f64;
            require(correlation.abs() < 5.0 / (DIMENSION as f64).sqrt(), || format!("{correlation}"))?;
        }
    }
    Ok(())
}

type Check = fn(&dyn Mechanism) -> Result<(), String>;

const BLOCKS: Check = blocks_move_by_at_most_what_the_noise_is_for;
const NOISE: Check = noise_is_fresh_and_as_stated;

const BUGS: [(Bug, Check); 8] = [
    (Bug::ScalesNoiseToOneCoefficient, BLOCKS),
    (Bug::ScalesNoiseToTheLargest, BLOCKS),
    (Bug::KeepsASumTooLong, BLOCKS),
    (Bug::HasTooFewGroups, BLOCKS),
    (Bug::SamplesFromAll, BLOCKS),
    (Bug::CountsPresentRecords, BLOCKS),
    (Bug::RepeatsStepsWithMemory, BLOCKS),
    (Bug::ReusesNoise, NOISE),
];

#[test]
fn the_vault_and_the_naive_mechanism_pass_every_check() {
    for check in [BLOCKS, NOISE] {
        assert_eq!(check(&Sound), Ok(()));
        assert_eq!(check(&Naive(None)), Ok(()));
    }
}

#[test]
fn every_planted_bug_is_caught() {
    for (bug, check) in BUGS {
        assert!(check(&Naive(Some(bug))).is_err(), "{bug:?}");
    }
}
