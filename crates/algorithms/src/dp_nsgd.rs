//! DP-NSGD: every gradient is scaled to nearly the same norm. Departs from Yang et al. 2022 in that batches are Poisson, the divisor is
//! the expected batch size, and the norm is `C` in place of 1.

use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_privacy::Gradients;

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{OneSum, rule},
    options,
    plans::{calibrated, equal_steps, tightest_accountant},
};

options! {
    /// Every gradient, even a small one, is scaled to just below max_grad_norm: C g / (r + |g|).
    pub struct DpNsgd {
        /// r, in units of a gradient's norm.
        regulariser: f64 = 0.01, in 0.0..=1e6;
    }
}

impl Algorithm for DpNsgd {
    fn about(&self) -> About {
        About {
            name: "dp-nsgd",
            reference: "Yang et al. 2022, Algorithm 1",
            verdict: Verdict::Sound(
                "under add/remove; the paper states its epsilons for replace-one, where they are false",
            ),
        }
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
        Ok(Box::new(OneSum(rule(facts, facts.max_grad_norm)?.normalising(self.regulariser)?)))
    }
}
