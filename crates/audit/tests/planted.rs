//! Planted bugs: each is caught in at least 99 % of audits, and a sound mechanism rarely causes a false alarm.
//!
//! Seeds are fixed. `bench/audit.py` sets the number of audits of each bug, which is 100 otherwise.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{convert::Infallible, ops::Range};

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use rand_distr::{Distribution, StandardNormal};
use sordino_accounting::{Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
use sordino_audit::{
    AuditError, Content, Kind, Mechanism, Observations, ObservedRelease, ObservedStep, Projections,
    StepEvidence, copies, kinds, largest_contribution,
};
use sordino_privacy::{Gradients, Sum, WeightRule};

const CLIP: f64 = 0.5;
const MULTIPLIER: f64 = 1.5;
const RATE: f64 = 0.4;
const STEPS: u64 = 300;
const FREE: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    HalfTheNoise,
    NoiseReused,
    NoiseReusedEverySecondStep,
    NoClipping,
    RateDoubled,
    OneCoinForTheBatch,
    CoinsReused,
    DividesByRealisedBatch,
    ResidualsWithoutBound,
    LedgerLineMissing,
}

/// DP-SGD on canaries, with a bug. It is written for clarity, not for speed.
struct Naive {
    bug: Bug,
    rng: ChaCha20Rng,
    norms: Vec<f64>,
    copies: usize,
    taken: u64,
    noise: Vec<f64>,
    older_noise: Vec<f64>,
    residual: Vec<f64>,
    last: Vec<u32>,
}

impl Naive {
    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 * 2.0_f64.powi(-53)
    }

    fn draw(&mut self) -> Vec<u32> {
        let slots = (self.norms.len() * self.copies) as u32;
        let rate = if self.bug == Bug::RateDoubled { 2.0 * RATE } else { RATE };
        match self.bug {
            // Slots with the same last digit share a coin.
            Bug::OneCoinForTheBatch => {
                let coins: Vec<bool> = (0..10).map(|_| self.uniform() < rate).collect();
                (0..slots).filter(|slot| coins[(slot % 10) as usize]).collect()
            }
            Bug::CoinsReused if self.taken % 2 == 1 => self.last.clone(),
            _ => (0..slots).filter(|_| self.uniform() < rate).collect(),
        }
    }
}

impl Mechanism for Naive {
    fn step(&mut self) -> Result<Option<ObservedStep>, AuditError> {
        if self.taken == STEPS {
            return Ok(None);
        }
        let drawn = self.draw();
        let mut sums = vec![0.0; self.norms.len()];
        for &slot in &drawn {
            let canary = slot as usize / self.copies;
            let norm = self.norms[canary];
            sums[canary] += if self.bug == Bug::NoClipping { norm } else { norm.min(CLIP) };
            self.residual[canary] += norm - norm.min(CLIP);
        }
        if self.bug == Bug::ResidualsWithoutBound {
            sums.iter_mut().zip(&self.residual).for_each(|(sum, residual)| *sum += residual.min(CLIP));
        }
        let reuses = match self.bug {
            Bug::NoiseReused => self.taken > 0,
            Bug::NoiseReusedEverySecondStep => self.taken % 4 >= 2,
            _ => false,
        };
        std::mem::swap(&mut self.noise, &mut self.older_noise);
        if self.bug == Bug::NoiseReused && self.taken > 0 {
            std::mem::swap(&mut self.noise, &mut self.older_noise);
        }
        if !reuses {
            let scale = MULTIPLIER * CLIP * if self.bug == Bug::HalfTheNoise { 0.5 } else { 1.0 };
            let count = self.norms.len() + FREE;
            let rng = &mut self.rng;
            self.noise =
                (0..count).map(|_| scale * Distribution::<f64>::sample(&StandardNormal, rng)).collect();
        }
        let expected = RATE * (self.norms.len() * self.copies) as f64;
        let divisor = match self.bug {
            Bug::DividesByRealisedBatch => drawn.len().max(1) as f64 / expected,
            _ => 1.0,
        };
        let values: Vec<f32> = sums
            .iter()
            .copied()
            .chain(std::iter::repeat(0.0))
            .zip(&self.noise)
            .map(|(sum, noise)| ((sum + noise) / divisor) as f32)
            .collect();
        let (canaries, free) = values.split_at(self.norms.len());
        let content = Content::Gradients(Projections { canaries: canaries.to_vec(), free: free.to_vec() });
        let releases = vec![ObservedRelease { noise_std: MULTIPLIER * CLIP, content }];
        self.taken += 1;
        self.last.clone_from(&drawn);
        Ok(Some(ObservedStep { drawn, releases, update: None }))
    }

    fn charged(&self) -> Result<Option<u64>, AuditError> {
        Ok(Some(self.taken - u64::from(self.bug == Bug::LedgerLineMissing)))
    }
}

fn plan() -> Plan {
    let (multiplier, rate) = (NoiseMultiplier::new(MULTIPLIER).unwrap(), SamplingRate::new(RATE).unwrap());
    Plan::dp_sgd(multiplier, rate, Steps::new(STEPS).unwrap())
}

fn naive(bug: Bug, seed: u64, norms: Vec<f64>, copies: usize) -> Naive {
    let residual = vec![0.0; norms.len()];
    let rng = ChaCha20Rng::seed_from_u64(seed);
    let (noise, older_noise, last) = (Vec::new(), Vec::new(), Vec::new());
    Naive { bug, rng, norms, copies, taken: 0, noise, older_noise, residual, last }
}

fn audit(bug: Bug, seed: u64, level: f64) -> StepEvidence {
    let (plan, kinds) = (plan(), kinds(20));
    let norms: Vec<f64> = kinds.iter().flat_map(|kind| vec![kind.norm * CLIP; kind.coordinates]).collect();
    let copies = copies(&plan);
    let mut mechanism = naive(bug, seed, norms, copies);
    let observed = Observations::gather(&mut mechanism, &plan, &kinds, copies, 0, STEPS, &mut || true);
    observed.unwrap().evidence(0.001, level)
}

#[test]
fn every_planted_bug_is_caught_in_at_least_99_of_100_audits() {
    let audits = std::env::var("SORDINO_AUDITS").map_or(100, |audits| audits.parse().unwrap());
    for bug in [
        Bug::HalfTheNoise,
        Bug::NoiseReused,
        Bug::NoiseReusedEverySecondStep,
        Bug::NoClipping,
        Bug::RateDoubled,
        Bug::OneCoinForTheBatch,
        Bug::CoinsReused,
        Bug::DividesByRealisedBatch,
        Bug::ResidualsWithoutBound,
        Bug::LedgerLineMissing,
    ] {
        let caught = (0..audits).filter(|&seed| !audit(bug, seed, 1e-5).passed()).count();
        println!("{bug:?}: caught in {caught} of {audits} audits");
        assert!(100 * caught >= 99 * audits as usize, "{bug:?}: {caught} of {audits}");
    }
}

/// A gross error gives a large bound, although the accountant does not price plans with hardly any noise.
#[test]
fn without_clipping_the_bound_is_large() {
    let bound = audit(Bug::NoClipping, 1, 0.001).lower_bound(&plan(), Delta::new(1e-5).unwrap()).unwrap();
    assert!(bound > 100.0, "{bound}");
}

/// Observations that are too few for a test are listed, and do not count as passed silently.
#[test]
fn tests_without_enough_observations_are_listed() {
    assert!(audit(Bug::None, 1, 0.001).untested.is_empty());
    let (plan, kinds) = (plan(), kinds(20));
    let norms = kinds.iter().flat_map(|kind| vec![kind.norm * CLIP; kind.coordinates]).collect();
    let mut mechanism = naive(Bug::None, 1, norms, 1);
    let observed = Observations::gather(&mut mechanism, &plan, &kinds, 1, 0, 3, &mut || true).unwrap();
    assert!(!observed.evidence(0.001, 0.001).untested.is_empty());
}

/// At level 0.02, at most 6 of 300 audits are expected to raise a false alarm; more than 20 have a probability below 1e-5.
#[test]
fn a_sound_mechanism_is_accused_as_rarely_as_is_stated() {
    let accused = (0..300).filter(|&seed| !audit(Bug::None, seed, 0.02).passed()).count();
    assert!(accused <= 20, "{accused} of 300");
}

/// A mechanism that makes no release for an empty batch.
struct DropsEmptyBatches(ChaCha20Rng, u64);

impl Mechanism for DropsEmptyBatches {
    fn step(&mut self) -> Result<Option<ObservedStep>, AuditError> {
        self.1 += 1;
        let mut noise = || Distribution::<f32>::sample(&StandardNormal, &mut self.0);
        let content = Content::Gradients(Projections {
            canaries: vec![noise()],
            free: (0..FREE).map(|_| noise()).collect(),
        });
        let drawn = if self.1.is_multiple_of(3) { vec![0] } else { Vec::new() };
        let releases =
            if drawn.is_empty() { Vec::new() } else { vec![ObservedRelease { noise_std: 1.0, content }] };
        Ok(Some(ObservedStep { drawn, releases, update: None }))
    }
}

#[test]
fn dropped_empty_batches_are_caught() {
    let (plan, kinds) = (plan(), [Kind { name: "C", norm: 1.0, coordinates: 1 }]);
    let mut mechanism = DropsEmptyBatches(ChaCha20Rng::seed_from_u64(1), 0);
    let observed = Observations::gather(&mut mechanism, &plan, &kinds, 1, 0, 60, &mut || true).unwrap();
    let evidence = observed.noise_evidence(0.001);
    let missing = evidence.checks.iter().find(|check| check.name == "missing releases").unwrap();
    assert_eq!(missing.measured, 40.0);
    assert!(!missing.passed());
}

/// Gradients of a model with two weights and a bias. The engine may leave the bias out of the norm.
struct Biased {
    gradients: Vec<[f32; 3]>,
    forgets_bias: bool,
}

impl Gradients for Biased {
    type Point = [f32; 3];
    type Error = Infallible;

    fn records(&self) -> usize {
        self.gradients.len()
    }

    fn dimension(&self) -> usize {
        3
    }

    fn trainable(&self) -> Vec<Range<usize>> {
        std::iter::once(0..3).collect()
    }

    fn layers(&self) -> usize {
        1
    }

    fn rounding(&self, _: bool) -> f64 {
        0.0
    }

    fn pass(
        &mut self,
        _: &[f32; 3],
        _: Option<&[f32; 3]>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        _: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), Infallible> {
        for gradient in chosen.iter().map(|&record| self.gradients[record]) {
            let counted = if self.forgets_bias { &gradient[..2] } else { &gradient[..] };
            let norm = counted.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            let mut weights = [1.0];
            if let Some(rule) = rule {
                rule(&[norm], &mut weights);
            }
            for (sum, g) in sums[0].values.iter_mut().zip(gradient) {
                *sum += f64::from(weights[0] * g);
            }
        }
        Ok(())
    }
}

#[test]
fn a_norm_without_the_bias_is_caught() {
    let gradients = vec![[0.1, 0.2, 0.3], [3.0, 4.0, 2.0], [0.0, 0.0, 9.0]];
    let mut engine = Biased { gradients, forgets_bias: false };
    assert!(largest_contribution(&mut engine, &[0.0; 3], 0..3, 1.0).unwrap() <= 1.0 + 1e-6);
    engine.forgets_bias = true;
    assert!(largest_contribution(&mut engine, &[0.0; 3], 0..3, 1.0).unwrap() > 1.05);
}
