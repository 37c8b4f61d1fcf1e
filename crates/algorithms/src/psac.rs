//! DP-PSAC: per-sample adaptive clipping, with weights that do not favour small gradients.
//!
//! The weight of a gradient with norm `n` is `C / (n + r / (n + r))`. It is about `C / n` for large gradients, as in automatic clipping, and
//! about `C` for small ones, where automatic clipping has `C / r`. The base takes the weights from a table and bounds each of them by
//! `C / n`. Departs from Xia et al. 2023 in that batches are Poisson and the divisor is the expected batch size.

use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_privacy::Gradients;

use crate::{
    About, Above0, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{OneSum, rule},
    options,
    plans::{calibrated, equal_steps, tightest_accountant},
};

options! {
    /// Gradients are scaled by C / (|g| + r / (|g| + r)): large ones to max_grad_norm, small ones by about max_grad_norm.
    pub struct Psac {
        /// r, in units of a gradient's norm.
        regulariser: f64 = 0.01, in Above0(1e6);
    }
}

impl Psac {
    fn weight(&self, clip: f64, norm: f64) -> f64 {
        clip / (norm + self.regulariser / (norm + self.regulariser))
    }

    /// (norm, weight) pairs. Neighbouring norms differ by 2 %, so that linear interpolation is accurate to 1 part in 10,000.
    fn table(&self, clip: f64) -> Vec<(f64, f64)> {
        let norms = (0..1600).map(|i| 1e-7 * 1.02_f64.powi(i));
        std::iter::once(0.0).chain(norms).map(|norm| (norm, self.weight(clip, norm))).collect()
    }
}

impl Algorithm for Psac {
    fn about(&self) -> About {
        About { name: "psac", reference: "Xia et al. 2023, Algorithm 1", verdict: Verdict::Sound("") }
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
        // Each of L layers is clipped to C / sqrt(L).
        let clip = facts.max_grad_norm.get() / (facts.layers.unwrap_or(1) as f64).sqrt();
        Ok(Box::new(OneSum(rule(facts, facts.max_grad_norm)?.weighted_by(&self.table(clip))?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_curve() {
        for regulariser in [1e-3, 0.01, 1.0, 30.0] {
            let psac = Psac { regulariser };
            let table = psac.table(0.5);
            for pair in table.windows(2) {
                let middle = 0.5 * (pair[0].0 + pair[1].0);
                let (interpolated, exact) = (0.5 * (pair[0].1 + pair[1].1), psac.weight(0.5, middle));
                assert!((interpolated / exact - 1.0).abs() < 1e-4, "{regulariser}: {middle}");
            }
            let last = table.last().unwrap();
            assert!(last.0 > 1e6 && (last.0 * last.1 / 0.5 - 1.0).abs() < 1e-6);
        }
        // C for vanishing gradients, and the largest weight in between.
        let psac = Psac::default();
        assert!((psac.weight(0.5, 0.0) - 0.5).abs() < 1e-12);
        assert!(psac.weight(0.5, 0.1) > 2.0 && psac.weight(0.5, 10.0) < 0.1);
    }
}
