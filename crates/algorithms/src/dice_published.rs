//! DiceSGD as published.
//!
//! `v = (1/B) sum_i clip(g_i, C_1) + clip(e, C_2)`, `x <- x - eta (v + noise)`, `e <- e + (1/B) sum_i g_i - v`. The error is hidden and has no
//! noise, and one record can move it forever: the claimed epsilon is false. Departs from Algorithm 2 in that batches are Poisson and `B` is
//! their expected size; with dropout, the clipped and the plain sum have different masks. The noise is that of Theorem 3.8 and, for the clipping norms of the experiments, of its automatic form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, calibrate::Budget};
use sordino_optim::State;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{finite_vector, norm, rule},
    options,
    plans::{log_inverse, poisson_rate, positive},
};

options! {
    /// DiceSGD as published, with its noise for a claimed epsilon: hidden error feedback without a bound on the influence of one record.
    pub struct DicePublished {
        /// experiments: C_1 = C_2 = max_grad_norm; theorem: both divided by the batch size.
        thresholds: Thresholds = Thresholds::Experiments;
        /// Normalise gradients and error instead of clipping them (Algorithm 4).
        automatic: bool = false;
    }
}

/// Clipping norms of DiceSGD, given `C`, which is `max_grad_norm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thresholds {
    /// `C_1 = C_2 = C`, as in the paper's experiments.
    #[default]
    Experiments,
    /// `C_1 = C_2 = C / B`, as its theorem requires.
    Theorem,
}

const PROBLEM: &str =
    "the claim of DiceSGD is false: a record that was sampled once moves all later releases";

impl DicePublished {
    /// `C_1`, which equals `C_2`.
    fn clip(&self, facts: &RunFacts) -> f64 {
        match self.thresholds {
            Thresholds::Experiments => facts.max_grad_norm.get(),
            Thresholds::Theorem => facts.max_grad_norm.get() / facts.expected_batch_size,
        }
    }

    fn rule(&self, facts: &RunFacts) -> Result<ClipRule, AlgorithmError> {
        let rule = rule(facts, ClipNorm::new(self.clip(facts))?)?;
        Ok(if self.automatic { rule.normalising(0.0)? } else { rule })
    }
}

impl Algorithm for DicePublished {
    fn about(&self) -> About {
        About {
            name: "dice-published",
            reference: "Zhang et al. 2023, Algorithms 2, 3 (with the optimizer adam) and 4 (automatic=true)",
            verdict: Verdict::AsPublished { problem: PROBLEM, instead: "dice" },
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        let defaults = Defaults::clipped(max_grad_norm, 0.1)?;
        Ok(Defaults { contribution: Some(2.0 * defaults.max_grad_norm.get()), ..defaults })
    }

    fn accountant(&self, _: Sampling) -> Accountant {
        Accountant::FirstParticipation
    }

    fn kept_vectors(&self) -> u64 {
        1
    }

    fn plan(&self, facts: &RunFacts, _: NoiseSource) -> Result<Plan, AlgorithmError> {
        self.rule(facts)?;
        let rate = poisson_rate(facts, "dice-published")?;
        let clip = self.clip(facts);
        let std = claimed_noise(facts, facts.claimed()?, clip);
        let z = NoiseMultiplier::new(std * facts.expected_batch_size / clip)?;
        Ok(Plan::new(vec![Entry::poisson(z, rate, facts.steps)]))
    }

    /// A record moves the release that samples it first by `C_1`, and every later one by up to `C_1 + 2 B C_2`.
    fn provable_plan(&self, facts: &RunFacts, plan: &Plan) -> Option<(Plan, Accountant)> {
        let later_shift = 1.0 + 2.0 * facts.expected_batch_size;
        let stateful = |entry: &Entry| match entry.sampling() {
            Sampling::Poisson { rate, .. } => {
                let sampling = Sampling::Stateful { rate, later_shift };
                Entry::new(sampling, entry.releases().to_vec(), entry.steps()).ok()
            }
            _ => None,
        };
        let plan = plan.entries().iter().map(stateful).collect::<Option<Plan>>()?;
        Some((plan, Accountant::FirstParticipation))
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, plan: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let multiplier = plan.entries().first().map_or(0.0, |entry| entry.releases()[0].get());
        Ok(Box::new(DicePublishedSteps {
            rule: self.rule(facts)?,
            noise_std: multiplier * self.clip(facts),
            feedback: self.clip(facts) * facts.expected_batch_size,
            automatic: self.automatic,
            error: Vec::new(),
        }))
    }
}

/// `sigma_1^2 = 32 T (C_1^2 + 2 C^2) ln(1/delta) / (N epsilon)^2`, on the mean.
fn claimed_noise(facts: &RunFacts, Budget { epsilon, delta }: Budget, clip: f64) -> f64 {
    let (steps, records) = (facts.steps.get() as f64, facts.records as f64);
    let squares = clip * clip + 2.0 * facts.max_grad_norm.get().powi(2);
    (32.0 * steps * squares * log_inverse(delta)).sqrt() / (records * positive(epsilon))
}

struct DicePublishedSteps {
    rule: ClipRule,
    /// The standard deviation of the noise on a sum.
    noise_std: f64,
    /// `C_2`, in the scale of a sum.
    feedback: f64,
    automatic: bool,
    /// `e`, in the scale of a sum.
    error: Vec<f32>,
}

impl<G: Gradients> Steps<G> for DicePublishedSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let clipped = round.gradients(at).clipped_sum(&self.rule)?.unbounded();
        let clipped = round.disclose(clipped, PROBLEM)?;
        let plain = round.gradients(at).plain_sum()?;
        let plain = round.disclose(plain, PROBLEM)?;
        self.error.resize(plain.len(), 0.0);
        let length = norm(&self.error);
        let share = match self.automatic {
            _ if length == 0.0 => 0.0,
            true => self.feedback / length,
            false => (self.feedback / length).min(1.0),
        };
        let sum = clipped.plus(share as f32, &self.error, 0.0);
        for ((error, plain), sum) in self.error.iter_mut().zip(plain.iter()).zip(sum.iter()) {
            *error += plain - sum;
        }
        let noise = round.noise(self.noise_std);
        let noise_std = noise.noise_std();
        Ok(Some(sum.plus(1.0, &noise, noise_std)))
    }

    fn state(&self) -> State {
        State { vectors: BTreeMap::from([("error".to_owned(), self.error.clone())]), ..State::default() }
    }

    fn restore(&mut self, state: &State) {
        if let Some(error) = finite_vector(state, "error") {
            self.error = error;
        }
    }
}
