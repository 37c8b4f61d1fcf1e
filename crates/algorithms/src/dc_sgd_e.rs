//! DC-SGD-E: the clipping norm of the least expected squared error, from a private histogram of norms.

use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_privacy::Gradients;

use crate::{
    About, Above0, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    histogram::{self, DcSgd, Search},
    options,
    plans::tightest_accountant,
};

options! {
    /// The clipping norm minimises the expected squared error of clipping and noise, estimated from a private histogram.
    pub struct DcSgdE {
        /// Bins of the histogram.
        bins: usize = 20, in 2..=4096;
        /// Noise on each bin.
        histogram_noise: Option<f64> = None,
            as "5; 8 at multipliers from 2, 12 above 3, 2.25 times those above 5.33", in Above0(1e6);
        /// Keep the clipping norm if batches are too small for the histogram's noise; false as in the paper.
        freeze: bool = true;
        /// Divide by the growth of the clipping norm, so that steps keep their length; false as in the paper.
        unit_steps: bool = true;
        /// Use the sum of recent histograms, and change their range only if the counts differ from the threshold by at least two standard deviations of their noise.
        steady: bool = false;
    }
}

impl Algorithm for DcSgdE {
    fn about(&self) -> About {
        About {
            name: "dc-sgd-e",
            reference: "Wei et al. 2025, Algorithms 1, 2 and 4",
            verdict: Verdict::Sound("with the histogram's own sum in place of the batch size"),
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 1.0)
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        histogram::plan(facts, noise, self.histogram_noise)
    }

    fn notes(&self, facts: &RunFacts, plan: &Plan) -> Vec<String> {
        // The sum of k histograms is distinguishable from its noise if k B is at least sqrt(k) times the smallest batch.
        let together = if self.steady && !self.freeze { facts.steps.get() as f64 } else { 1.0 };
        histogram::notes(facts, plan, self.bins, self.freeze, together)
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, plan: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let search = Search::LeastError { steady: self.steady };
        Ok(Box::new(DcSgd::new(facts, plan, search, self.bins, self.freeze, self.unit_steps)))
    }
}
