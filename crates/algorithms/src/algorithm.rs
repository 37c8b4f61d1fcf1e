//! What an algorithm is: a configuration that makes a plan, and steps that carry it out.

use std::fmt;

use serde::Serialize;
use sordino_accounting::{
    Accountant, ClipNorm, NoiseMultiplier, Plan, Sampling, Steps as StepCount, calibrate::Budget,
};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{AlgorithmError, PublishedNoise};

/// The configuration of an algorithm: its options, and everything that follows from them.
///
/// The options are a struct made by [`options!`](crate::options), which writes down each option once: its default, its permitted
/// range and its help text. The methods below are required, except where leaving one out cannot choose a wrong setting.
///
/// # Guarantees
/// The [vault](sordino_privacy::Vault) protects the records, not this trait. Every step sees the batch through a
/// [`Round`] and obtains only releases that are charged to the plan. A mistake here costs accuracy or causes an
/// error, but never costs privacy.
pub trait Algorithm: Options + fmt::Debug + Send + Sync {
    /// Its name, where it comes from, and what is proved about it.
    fn about(&self) -> About;

    /// Checks the options, before any data is read.
    ///
    /// # Errors
    /// The first option that is outside its range. Override this method to also refuse options that contradict each other.
    fn check(&self) -> Result<(), AlgorithmError> {
        self.check_ranges()
    }

    /// The clipping norm and the size of a record's contribution, given the clipping norm if the user has set it.
    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError>;

    /// The accountant that prices the plan by default.
    fn accountant(&self, sampling: Sampling) -> Accountant;

    /// How many vectors of the model's size it keeps from one step to the next, for an estimate of memory.
    fn kept_vectors(&self) -> u64 {
        0
    }

    /// The expected number of records that a training step draws, from which the number of steps of an epoch follows.
    ///
    /// # Errors
    /// Options that do not fit the number of records.
    fn records_per_step(&self, batch_size: f64, _records: u64) -> Result<f64, AlgorithmError> {
        Ok(batch_size)
    }

    /// The plan of the run: how each step draws its batch, and the noise of each of its releases. For an algorithm that is not
    /// [sound](Verdict::Sound), the plan describes how batches are drawn and is not priced.
    ///
    /// # Errors
    /// No noise meets the budget; options that leave no noise for the gradients; sampling that the algorithm does not support.
    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError>;

    /// For an algorithm that runs without a guarantee: a plan for an accountant, used as a calculator, whose price can be proved for the
    /// algorithm as its paper prints it.
    fn provable_plan(&self, _facts: &RunFacts, _plan: &Plan) -> Option<(Plan, Accountant)> {
        None
    }

    /// The formula of a paper that sets the noise for an epsilon that the paper claims; none if an accountant or the user sets the noise.
    fn noise_formula(&self) -> Option<&'static str> {
        None
    }

    /// The noise of a step by that formula, part by part; empty if there is no formula.
    ///
    /// # Errors
    /// No claimed epsilon; options that contradict the facts.
    fn published_noise(&self, _facts: &RunFacts) -> Result<Vec<PublishedNoise>, AlgorithmError> {
        Ok(Vec::new())
    }

    /// What the user should know about a run with this plan, before it starts: a condition of its paper that the settings do not meet, or a
    /// part of the algorithm that has no effect with them. Notes are sentences without a full stop. Settings are in braces, as in an
    /// [`AlgorithmError`]'s hint: `raise {batch_size}`.
    fn notes(&self, _facts: &RunFacts, _plan: &Plan) -> Vec<String> {
        Vec::new()
    }

    /// The steps of a run with this plan.
    ///
    /// # Errors
    /// A clipping norm that the trusted base refuses; a plan of another algorithm.
    fn start<G: Gradients>(&self, facts: &RunFacts, plan: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        Self: Sized,
        G::Point: 'static;
}

/// The options of an algorithm. [`options!`](crate::options) implements it.
pub trait Options {
    /// What the algorithm does, in one or two sentences.
    fn summary(&self) -> &'static str;

    /// The options with their defaults and help texts.
    fn options(&self) -> Vec<OptionDescription>;

    /// The options that differ from their defaults, as text.
    fn set_options(&self) -> Vec<(&'static str, String)>;

    /// Checks the range of each option.
    ///
    /// # Errors
    /// The first option outside its range.
    fn check_ranges(&self) -> Result<(), AlgorithmError>;
}

/// The steps of one run.
pub trait Steps<G: Gradients> {
    /// Takes one step of the plan: the sum of gradients that the optimizer sees, or nothing if the step only prepares the next.
    ///
    /// # Errors
    /// Those of the trusted base.
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError>;

    /// What the algorithm has learned from releases, for a checkpoint.
    fn state(&self) -> State;

    /// Restores a checkpoint. Unknown names and values that cannot be used are ignored.
    fn restore(&mut self, state: &State);
}

/// An option of an algorithm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OptionDescription {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: String,
    /// What it does.
    pub meaning: &'static str,
}

/// The description of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The name in settings and files, such as `dp-sgd`.
    pub name: &'static str,
    /// Authors, year and number of the algorithm.
    pub reference: &'static str,
    /// What is proved about it.
    pub verdict: Verdict,
}

/// What is proved about an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The printed epsilon is proved and is at most the budget. The text gives details of the proof.
    Sound(&'static str),
    /// Implemented as its paper prints it, for comparison. The paper's epsilon is not a bound, and the run has no guarantee.
    AsPublished {
        /// Why the claim is false.
        problem: &'static str,
        /// The sound algorithm to use instead.
        instead: &'static str,
    },
    /// It uses gradients without noise; the text explains how.
    NotPrivate(&'static str),
}

impl Verdict {
    /// Why a run has no guarantee; none for a sound algorithm.
    pub fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Sound(_) => None,
            Self::AsPublished { problem, .. } | Self::NotPrivate(problem) => Some(problem),
        }
    }

    /// Whether the printed epsilon is proved.
    pub fn is_sound(&self) -> bool {
        matches!(self, Self::Sound(_))
    }

    /// The kind, as it appears in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sound(_) => "sound",
            Self::AsPublished { .. } => "as-published",
            Self::NotPrivate(_) => "not-private",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound("") => f.write_str("sound"),
            Self::Sound(text) => write!(f, "sound ({text})"),
            Self::AsPublished { problem, instead } => write!(f, "NOT PRIVATE: {problem}; use {instead}"),
            Self::NotPrivate(problem) => write!(f, "NOT PRIVATE: {problem}"),
        }
    }
}

/// Settings that depend on the algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// The clipping norm, or its value at the first step if it adapts.
    pub max_grad_norm: ClipNorm,
    /// The largest norm of what one record adds to a step, summed over its parts; none if it has no bound. The default learning
    /// rate is inversely proportional to it.
    pub contribution: Option<f64>,
}

impl Defaults {
    /// Each record adds at most the clipping norm, which is `otherwise` if the user has not set it.
    ///
    /// # Errors
    /// `otherwise` is not a clipping norm.
    pub fn clipped(max_grad_norm: Option<ClipNorm>, otherwise: f64) -> Result<Self, AlgorithmError> {
        let max_grad_norm = max_grad_norm.map_or_else(|| ClipNorm::new(otherwise), Ok)?;
        Ok(Self { max_grad_norm, contribution: Some(max_grad_norm.get()) })
    }
}

/// Public facts about a run that plans and steps depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunFacts {
    /// How batches are drawn.
    pub sampling: Sampling,
    /// The number of training steps.
    pub steps: StepCount,
    /// The expected size of a batch.
    pub expected_batch_size: f64,
    /// The clipping norm, or its value at the first step if it adapts.
    pub max_grad_norm: ClipNorm,
    /// The number of layers, if each of them is clipped to its share.
    pub layers: Option<usize>,
    /// The number of trained parameters.
    pub dimension: usize,
    /// The public number of records.
    pub records: u64,
    /// The momentum of the optimizer; 0 if it has none.
    pub momentum: f64,
    /// The guarantee that a paper claims, where the noise follows from it.
    pub claim: Option<Budget>,
}

impl RunFacts {
    /// The claim from which the noise of an algorithm as published follows.
    pub(crate) fn claimed(&self) -> Result<Budget, AlgorithmError> {
        const LEAST: f64 = 1e-6;
        let refused =
            |problem: String| AlgorithmError::Plan { problem, hint: "set {epsilon} to the paper's claim" };
        match self.claim {
            None => Err(refused(
                "the noise of an algorithm as published follows from its claimed epsilon".to_owned(),
            )),
            Some(claim) if claim.epsilon.get() < LEAST => {
                Err(refused(format!("a claimed epsilon must be at least {LEAST:e}, got {}", claim.epsilon)))
            }
            Some(claim) => Ok(claim),
        }
    }
}

/// Where the noise comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoiseSource {
    /// The least noise that a budget allows, by this accountant.
    Budget(Budget, Accountant),
    /// This multiplier for all releases of a step together. Where the noise changes along the run it is `1 / mu_0`.
    Multiplier(NoiseMultiplier),
}
