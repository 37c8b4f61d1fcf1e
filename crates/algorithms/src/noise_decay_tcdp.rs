//! Decaying noise, priced by truncated concentrated differential privacy.
//!
//! The theorem is about batches of a fixed size without replacement, which `sampling=fixed-size` draws. For Poisson batches the accountant
//! `tcdp` never states less than the exact price (`accounting/src/concentrated.rs`).

use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_privacy::Gradients;

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{OneSum, rule},
    options,
    plans::{calibrated, growing_steps},
};

options! {
    /// The noise decays along the run. Priced by truncated concentrated differential privacy by default.
    pub struct NoiseDecayTcdp {
        /// Factor by which the noise is smaller at the end.
        noise_decay: f64 = 2.0, in 1e-3..=1e3;
    }
}

impl Algorithm for NoiseDecayTcdp {
    fn about(&self) -> About {
        About {
            name: "noise-decay-tcdp",
            reference: "Zhang, Ding et al. 2021, as in Du et al., section 4.1",
            verdict: Verdict::Sound(
                "a baseline; it needs sampling rates up to 0.1 and multipliers of at least 2.24, or 4.48 for fixed-size batches",
            ),
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 0.1)
    }

    fn accountant(&self, _: Sampling) -> Accountant {
        Accountant::Tcdp
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        calibrated(&growing_steps(facts, |part| self.noise_decay.powf(part))?, noise)
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(OneSum(rule(facts, facts.max_grad_norm)?)))
    }
}
