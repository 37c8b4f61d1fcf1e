//! Decaying noise, priced by zero-concentrated differential privacy.
//!
//! By default the records are divided into `k = ceil(N / B)` fixed batches that are taken in turn. A record is in exactly one batch of each
//! epoch, so an epoch costs as much as one Gaussian release (parallel composition). Only the noise is random. The noise is constant within an
//! epoch and decays from epoch to epoch, `z_e = z_0 d^(-e / E)` for `e = 1 .. E`. The last epoch may be incomplete and costs as much as a
//! complete one.
//!
//! The partition is by the position of a record and is public. The sizes of its batches differ by at most one record. Sums are divided by the
//! batch size `B`, as for every other algorithm, and never by the size of a batch that was taken.

use serde::{Deserialize, Serialize};
use sordino_accounting::{
    Accountant, ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps as StepCount,
};
use sordino_privacy::Gradients;

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{OneSum, rule},
    options,
    plans::{calibrated, check_steps, growing_steps},
};

options! {
    /// The noise decays from epoch to epoch. By default, the batches of an epoch are a fixed partition of the records, and an epoch costs as
    /// much as one full batch. There is no amplification by sampling.
    pub struct NoiseDecayZcdp {
        /// Factor by which the noise is smaller at the end.
        noise_decay: f64 = 2.0, in 1e-3..=1e3;
        /// disjoint: the batches of a fixed partition, taken in turn; sampled: batches drawn by the setting sampling, each as costly as a full batch.
        batches: Batches = Batches::Disjoint;
    }
}

/// How the batches of an epoch relate to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Batches {
    /// A fixed public partition of the records, whose parts are taken in turn.
    #[default]
    Disjoint,
    /// Batches are drawn at each step, as the setting `sampling` says. A record may be in every batch.
    Sampled,
}

impl NoiseDecayZcdp {
    /// One entry for each epoch, with the multiplier `1 / d^(e / E)`.
    fn epochs(&self, facts: &RunFacts) -> Result<Plan, AlgorithmError> {
        rule(facts, facts.max_grad_norm)?;
        if !matches!(facts.sampling, Sampling::Poisson { cap: None, .. }) {
            return Err(AlgorithmError::Plan {
                problem: format!("noise-decay-zcdp uses disjoint batches, not {}", facts.sampling),
                hint: "leave out {sampling} and {max_batch_size}, or set {algorithm=noise-decay-zcdp,batches=sampled}",
            });
        }
        let groups = (facts.records as f64 / facts.expected_batch_size).ceil() as u64;
        let sampling = match groups {
            0 | 1 => Sampling::FullBatch,
            groups => Sampling::Rotating { rate: SamplingRate::new(1.0)?, groups },
        };
        let (steps, per_epoch) = (facts.steps.get(), groups.max(1));
        let epochs = steps.div_ceil(per_epoch);
        check_steps(epochs)?;
        let entry = |epoch: u64| -> Result<Entry, AlgorithmError> {
            let part = (epoch + 1) as f64 / epochs as f64;
            let multiplier = NoiseMultiplier::new(1.0 / self.noise_decay.powf(part))?;
            let taken = StepCount::new((steps - epoch * per_epoch).min(per_epoch))?;
            Ok(Entry::new(sampling, vec![multiplier], taken)?)
        };
        (0..epochs).map(entry).collect()
    }
}

impl Algorithm for NoiseDecayZcdp {
    fn about(&self) -> About {
        About {
            name: "noise-decay-zcdp",
            reference: "Yu et al. 2019, as in Du et al., section 4.1",
            verdict: Verdict::Sound("a baseline without amplification by sampling"),
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 0.1)
    }

    fn accountant(&self, _: Sampling) -> Accountant {
        Accountant::Zcdp
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        let unit = match self.batches {
            Batches::Disjoint => self.epochs(facts)?,
            Batches::Sampled => growing_steps(facts, |part| self.noise_decay.powf(part))?,
        };
        calibrated(&unit, noise)
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(OneSum(rule(facts, facts.max_grad_norm)?)))
    }
}

#[cfg(test)]
mod tests {
    use sordino_accounting::{Delta, Epsilon, calibrate::Budget};

    use super::*;
    use crate::test_facts;

    fn facts(records: u64, batch: u64, steps: u64) -> RunFacts {
        let rate = SamplingRate::new(batch as f64 / records as f64).unwrap();
        RunFacts {
            sampling: Sampling::Poisson { rate, cap: None },
            steps: StepCount::new(steps).unwrap(),
            expected_batch_size: batch as f64,
            records,
            ..test_facts()
        }
    }

    fn plan(facts: &RunFacts, batches: Batches, epsilon: f64) -> Plan {
        let delta = Delta::new(1.0 / 600_000.0).unwrap();
        let budget = Budget { epsilon: Epsilon::new(epsilon).unwrap(), delta };
        let algorithm = NoiseDecayZcdp { noise_decay: 1.0, batches };
        algorithm.plan(facts, NoiseSource::Budget(budget, Accountant::Zcdp)).unwrap()
    }

    /// The setting of Table 1 of the dynamic DP-SGD paper, with constant noise.
    #[test]
    fn disjoint_batches_need_the_noise_of_their_epochs_and_not_of_their_steps() {
        let facts = facts(60_000, 250, 5000);
        let z = |batches| plan(&facts, batches, 1.2).entries()[0].effective_noise_multiplier();
        assert!((z(Batches::Disjoint) / 17.13 - 1.0).abs() < 2e-3, "{}", z(Batches::Disjoint));
        assert!((z(Batches::Sampled) / 264.3 - 1.0).abs() < 2e-3, "{}", z(Batches::Sampled));
    }

    #[test]
    fn every_epoch_is_one_entry_and_the_last_may_be_incomplete() {
        let noise = NoiseSource::Multiplier(NoiseMultiplier::new(8.0).unwrap());
        // 2,003 records in batches of 100: 21 batches of 95 or 96 records.
        let plan = NoiseDecayZcdp::default().plan(&facts(2003, 100, 50), noise).unwrap();
        let entries: Vec<_> = plan
            .entries()
            .iter()
            .map(|entry| (entry.steps().get(), entry.exposures(), entry.effective_noise_multiplier()))
            .collect();
        let expected =
            [(21, 1, 8.0 / 2.0_f64.powf(1.0 / 3.0)), (21, 1, 8.0 / 2.0_f64.powf(2.0 / 3.0)), (8, 1, 4.0)];
        assert_eq!(entries.len(), 3);
        for (found, expected) in entries.iter().zip(expected) {
            assert_eq!((found.0, found.1), (expected.0, expected.1));
            assert!((found.2 / expected.2 - 1.0).abs() < 1e-12, "{found:?}");
        }
        let sampling = Sampling::Rotating { rate: SamplingRate::new(1.0).unwrap(), groups: 21 };
        assert!(plan.entries().iter().all(|entry| entry.sampling() == sampling));
        // Batches that divide the records evenly.
        for (records, batch) in [(60_000, 250), (6499, 67), (49, 1), (1_000_000, 10)] {
            let plan = NoiseDecayZcdp::default().plan(&facts(records, batch, 1), noise).unwrap();
            let Sampling::Rotating { groups, .. } = plan.entries()[0].sampling() else { panic!() };
            assert_eq!(groups, records / batch);
        }
        let full = NoiseDecayZcdp::default().plan(&facts(100, 100, 3), noise).unwrap();
        assert!(full.entries().len() == 3 && full.entries()[0].sampling() == Sampling::FullBatch);
    }
}
