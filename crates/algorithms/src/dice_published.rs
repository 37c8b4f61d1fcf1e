//! DiceSGD as published.
//!
//! `v = (1/B) sum_i clip(g_i, C_1) + clip(e, C_2)`, `x <- x - eta (v + noise)`, `e <- e + (1/B) sum_i g_i - v`. The error is hidden and has no
//! noise, and one record can move it forever: the claimed epsilon is false. Departs from Algorithm 2 in that batches are Poisson and `B` is
//! their expected size; with dropout, the clipped and the plain sum have different masks. The noise is that of Theorem 3.8,
//! of section C.4 (for the clipping norms of the experiments), or of Algorithm 5 of the DP-C4 paper.
//!
//! Departs from Algorithm 3 (with the optimizer adam) in two places. Its bias correction `1 - beta^t` begins at `t = 0` and divides by zero:
//! here `t` begins at 1. Its `epsilon_1` is added under the square root: here it is added to the root, as in Adam.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sordino_accounting::{Accountant, ClipNorm, Entry, NoiseMultiplier, Plan, Sampling};
use sordino_optim::State;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, Options, PublishedNoise, RunFacts, Steps,
    Verdict,
    clipping::{finite_vector, norm, rule},
    options,
    plans::poisson_rate,
    published_noise,
};

options! {
    /// DiceSGD as published, with its noise for a claimed epsilon: hidden error feedback without a bound on the influence of one record.
    /// With adam it is Algorithm 3 with two corrections: the first step is t = 1, because t = 0 divides by zero, and epsilon is added to the
    /// square root instead of under it.
    pub struct DicePublished {
        /// experiments: C_1 = C_2 = max_grad_norm by default; theorem: C_1 = C_2 = max_grad_norm / B by default.
        thresholds: Thresholds = Thresholds::Experiments;
        /// C_1 with thresholds=theorem, at most max_grad_norm / B; otherwise C_1 is max_grad_norm.
        gradient_clip: Option<f64> = None, as "max_grad_norm / B", in 1e-9..=1e9;
        /// C_2, the clipping norm of the mean error. If it is below C_1, clipping bias can remain.
        feedback_clip: Option<f64> = None, as "C_1", in 1e-9..=1e9;
        /// Normalise gradients and error instead of clipping them (Algorithm 4).
        automatic: bool = false;
        /// dice-paper: Theorem 3.8; dp-c4-paper: Algorithm 5 of the DP-C4 paper.
        noise: DiceNoise = DiceNoise::DicePaper;
    }
}

/// Clipping norms of DiceSGD, given `C`, which is `max_grad_norm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thresholds {
    /// `C_1 = C_2 = C`, as in the paper's experiments.
    #[default]
    Experiments,
    /// `C_1 <= C_2 <= C / B`, as its theorem requires; both are `C / B` by default.
    Theorem,
}

/// The formula that sets the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiceNoise {
    /// Theorem 3.8 of DiceSGD, and section C.4 for the clipping norms of the experiments.
    #[default]
    DicePaper,
    /// Algorithm 5 of the DP-C4 paper.
    DpC4Paper,
}

/// The clipping norms of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Norms {
    /// `C_1`, of a record's gradient.
    gradient: f64,
    /// `C_2`, of the mean error.
    feedback: f64,
    /// The norm whose square is doubled in the formula of the noise: `C` in the theorem, and otherwise `C_2`.
    doubled: f64,
}

const PROBLEM: &str =
    "the claim of DiceSGD is false: a record that was sampled once moves all later releases";

/// The largest rate, and the least multiplier, that the proof of Theorem 3.8 covers (Lemma A.11).
const LARGEST_RATE: f64 = 0.2;
const LEAST_MULTIPLIER: f64 = 8.0;

impl DicePublished {
    fn norms(&self, facts: &RunFacts) -> Result<Norms, AlgorithmError> {
        let whole = facts.max_grad_norm.get();
        if self.thresholds == Thresholds::Experiments {
            let feedback = self.feedback_clip.unwrap_or(whole);
            return Ok(Norms { gradient: whole, feedback, doubled: feedback });
        }
        let most = whole / facts.expected_batch_size;
        let gradient = self.gradient_clip.unwrap_or(most);
        let feedback = self.feedback_clip.unwrap_or(gradient);
        // Decimal numbers and quotients differ in their last bits.
        if gradient > feedback * (1.0 + 1e-9) || feedback > most * (1.0 + 1e-9) {
            return Err(AlgorithmError::Plan {
                problem: format!(
                    "the theorem of DiceSGD needs C_1 <= C_2 <= C / B, and C / B is {most}; got C_1 = {gradient} and C_2 = {feedback}"
                ),
                hint: "change the options gradient_clip (C_1) and feedback_clip (C_2), raise {max_grad_norm} (C), or leave out thresholds=theorem",
            });
        }
        Ok(Norms { gradient, feedback, doubled: whole })
    }

    fn rule(&self, facts: &RunFacts) -> Result<ClipRule, AlgorithmError> {
        let rule = rule(facts, ClipNorm::new(self.norms(facts)?.gradient)?)?;
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

    fn check(&self) -> Result<(), AlgorithmError> {
        self.check_ranges()?;
        if self.automatic && self.thresholds == Thresholds::Theorem {
            return Err(AlgorithmError::Plan {
                problem:
                    "Theorem 3.8 of DiceSGD assumes clipped gradients, but automatic=true normalises them"
                        .to_owned(),
                hint: "leave out thresholds=theorem or automatic=true",
            });
        }
        match (self.thresholds, self.gradient_clip) {
            (Thresholds::Experiments, Some(clip)) => Err(AlgorithmError::Plan {
                problem: format!(
                    "gradient_clip={clip} needs thresholds=theorem; otherwise C_1 is max_grad_norm"
                ),
                hint: "set {max_grad_norm} to C_1, or set the option thresholds=theorem",
            }),
            _ => Ok(()),
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        let defaults = Defaults::clipped(max_grad_norm, 0.1)?;
        let gradient = defaults.max_grad_norm.get();
        let feedback = match self.thresholds {
            Thresholds::Experiments => self.feedback_clip.unwrap_or(gradient),
            // The size of a batch is not known yet.
            Thresholds::Theorem => gradient,
        };
        Ok(Defaults { contribution: Some(gradient + feedback), ..defaults })
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
        let z = NoiseMultiplier::new(self.published_noise(facts)?[0].noise_multiplier)?;
        Ok(Plan::new(vec![Entry::poisson(z, rate, facts.steps)]))
    }

    /// A record moves the release that samples it first by `C_1`, and every later one by up to `C_1 + 2 B C_2`.
    fn provable_plan(&self, facts: &RunFacts, plan: &Plan) -> Option<(Plan, Accountant)> {
        let norms = self.norms(facts).ok()?;
        let later_shift = 1.0 + 2.0 * facts.expected_batch_size * norms.feedback / norms.gradient;
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

    fn noise_formula(&self) -> Option<&'static str> {
        Some(match self.noise {
            DiceNoise::DicePaper if self.automatic => "section C.4 of Zhang et al. 2023",
            DiceNoise::DicePaper if self.thresholds == Thresholds::Theorem => {
                "Theorem 3.8 of Zhang et al. 2023"
            }
            DiceNoise::DicePaper => {
                "Theorem 3.8 of Zhang et al. 2023 (whose conditions exclude these clipping norms)"
            }
            DiceNoise::DpC4Paper => "Algorithm 5 of the DP-C4 paper",
        })
    }

    fn published_noise(&self, facts: &RunFacts) -> Result<Vec<PublishedNoise>, AlgorithmError> {
        let (claim, norms) = (facts.claimed()?, self.norms(facts)?);
        let sigma = match self.noise {
            DiceNoise::DicePaper => published_noise::dice(facts, claim, norms.gradient, norms.doubled),
            DiceNoise::DpC4Paper => published_noise::dp_c4_dice(facts, claim, norms.gradient, norms.feedback),
        };
        let multiplier = sigma * facts.expected_batch_size / norms.gradient;
        Ok(vec![PublishedNoise::new("sigma_1", sigma, multiplier)])
    }

    fn notes(&self, facts: &RunFacts, plan: &Plan) -> Vec<String> {
        let own = |norms: Norms| norms.gradient != norms.feedback;
        let general = self.norms(facts).is_ok_and(own).then(|| {
            "the paper's formula for the noise of the experiments has C_1 = C_2; for C_1 != C_2 it is Sordino's generalisation".to_owned()
        });
        let unstable = self.norms(facts).is_ok_and(|norms| norms.feedback < norms.gradient).then(|| {
            "with C_2 below C_1 the error can grow without limit, and the paper's fixed point may not exist".to_owned()
        });
        // The formula of the DP-C4 paper has both clipping norms.
        if self.noise == DiceNoise::DpC4Paper {
            return unstable.into_iter().collect();
        }
        let general = general.filter(|_| self.thresholds == Thresholds::Experiments);
        let rate = facts.expected_batch_size / facts.records as f64;
        let multiplier = plan.entries().first().map_or(f64::INFINITY, Entry::effective_noise_multiplier);
        let large = (rate > LARGEST_RATE).then(|| {
            format!("Theorem 3.8 of DiceSGD needs B / N <= 1/5, and B / N is {rate:.3}; lower {{batch_size}}")
        });
        let quiet = (multiplier <= LEAST_MULTIPLIER).then(|| {
            format!("the proof of Theorem 3.8 of DiceSGD needs a noise multiplier above 8, and its formula gives {multiplier:.3}")
        });
        [large, quiet, general, unstable].into_iter().flatten().collect()
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, plan: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let multiplier = plan.entries().first().map_or(0.0, |entry| entry.releases()[0].get());
        let norms = self.norms(facts)?;
        Ok(Box::new(DicePublishedSteps {
            rule: self.rule(facts)?,
            noise_std: multiplier * norms.gradient,
            feedback: norms.feedback * facts.expected_batch_size,
            automatic: self.automatic,
            error: Vec::new(),
        }))
    }
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
        let noise = round.noise(self.noise_std)?;
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
