//! DP-SGD.

use sordino_accounting::{Accountant, ClipNorm, NoiseMultiplier, Plan, Sampling};
use sordino_privacy::Gradients;

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseChoice, NoiseSource, PublishedNoise, RunFacts, Steps,
    Verdict,
    clipping::{OneSum, rule},
    options,
    plans::{calibrated, equal_steps, tightest_accountant},
    published_noise::dp_c4_unit,
};

options! {
    /// The sum of gradients, each clipped to max_grad_norm, with Gaussian noise.
    pub struct DpSgd {
        /// exact: the least noise for the budget; dp-c4-paper: the noise of the DP-C4 paper for a claimed epsilon, without amplification by sampling.
        noise: NoiseChoice = NoiseChoice::Exact;
    }
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
        let noise = match &self.published_noise(facts)?[..] {
            [published] => NoiseSource::Multiplier(NoiseMultiplier::new(published.noise_multiplier)?),
            _ => noise,
        };
        calibrated(&equal_steps(facts)?, noise)
    }

    fn noise_formula(&self) -> Option<&'static str> {
        (self.noise == NoiseChoice::DpC4Paper).then_some("equation 68 of the DP-C4 paper")
    }

    fn published_noise(&self, facts: &RunFacts) -> Result<Vec<PublishedNoise>, AlgorithmError> {
        if self.noise == NoiseChoice::Exact {
            return Ok(Vec::new());
        }
        let sigma = dp_c4_unit(facts, facts.claimed()?);
        Ok(vec![PublishedNoise::new("sigma", sigma, sigma * facts.expected_batch_size)])
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(OneSum(rule(facts, facts.max_grad_norm)?)))
    }
}
