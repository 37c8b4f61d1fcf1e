//! SGD without privacy, for comparison.

use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict, options,
    plans::{equal_steps, tightest_accountant},
};

options! {
    /// Plain SGD on the same batches.
    pub struct PlainSgd {}
}

const PROBLEM: &str = "plain training: gradients are used without clipping and without noise";

impl Algorithm for PlainSgd {
    fn about(&self) -> About {
        About { name: "none", reference: "", verdict: Verdict::NotPrivate(PROBLEM) }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Ok(Defaults { contribution: None, ..Defaults::clipped(max_grad_norm, 0.1)? })
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    fn plan(&self, facts: &RunFacts, _: NoiseSource) -> Result<Plan, AlgorithmError> {
        equal_steps(facts)
    }

    fn start<G: Gradients>(&self, _: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(PlainSum))
    }
}

struct PlainSum;

impl<G: Gradients> Steps<G> for PlainSum {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).plain_sum()?;
        round.disclose(sum, PROBLEM).map(Some)
    }

    fn state(&self) -> State {
        State::default()
    }

    fn restore(&mut self, _: &State) {}
}
