//! DP-SGD.

use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_privacy::Gradients;

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{OneSum, rule},
    options,
    plans::{calibrated, equal_steps, tightest_accountant},
};

options! {
    /// The sum of gradients, each clipped to max_grad_norm, with Gaussian noise.
    pub struct DpSgd {}
}

impl Algorithm for DpSgd {
    fn about(&self) -> About {
        About { name: "dp-sgd", reference: "Abadi et al. 2016, Algorithm 1", verdict: Verdict::Sound("") }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 0.1)
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        calibrated(&equal_steps(facts)?, noise)
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(OneSum(rule(facts, facts.max_grad_norm)?)))
    }
}
