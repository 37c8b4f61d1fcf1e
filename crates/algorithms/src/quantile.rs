//! The clipping norm follows a quantile of the gradient norms.
//!
//! With `b_i = 1` for `|g_i| <= C` and 0 otherwise, `sum_i (b_i - 1/2)` is released next to the clipped sum. The share of gradients that are
//! not clipped is estimated as `b = 1/2 + (released sum) / B`, and `C <- C exp(-rate (b - quantile))`. The 1/2 is subtracted for each
//! record, so that a record moves the sum by 1/2 and not by 1. Departs from Algorithm 1 of Andrew et al. 2021 in its unit of privacy, a
//! record, and in that the divisor is the expected batch size. With unit steps, which are the default, the sum is divided by the growth of
//! the clipping norm, so that one learning rate works for all clipping norms.

use std::collections::BTreeMap;

use sordino_accounting::{Accountant, ClipNorm, NoiseMultiplier, Plan, Sampling, calibrate};
use sordino_optim::State;
use sordino_privacy::{Gradients, NormStatistic, PrivacyError, Release, Round};

use crate::{
    About, Above0, Algorithm, AlgorithmError, Below1, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{positive_number, rule, unit_step, usable},
    options,
    plans::{calibrated, equal_steps, split_releases, tightest_accountant},
};

options! {
    /// The clipping norm follows a quantile of the gradient norms, by a private count.
    pub struct Quantile {
        /// Share of gradients that are not clipped.
        quantile: f64 = 0.5, in Below1;
        /// Speed at which the clipping norm follows.
        rate: f64 = 0.2, in Above0(10.0);
        /// Standard deviation of the noise on the count.
        count_noise: Option<f64> = None,
            as "a twentieth of the batch, or twice the multiplier if that is more", in Above0(1e6);
        /// Divide by the growth of the clipping norm, so that steps keep their length; false as in the paper.
        unit_steps: bool = true;
    }
}

impl Algorithm for Quantile {
    fn about(&self) -> About {
        About { name: "quantile", reference: "Andrew et al. 2021, Algorithm 1", verdict: Verdict::Sound("") }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 1.0)
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        split_releases(&calibrated(&equal_steps(facts)?, noise)?, |z| {
            // The count moves by 1/2, so its multiplier is twice its standard deviation.
            let default = (facts.expected_batch_size / 10.0).max(4.0 * z.get());
            let count = NoiseMultiplier::new(self.count_noise.map_or(default, |std| 2.0 * std))?;
            let gradients =
                calibrate::remaining_noise_multiplier(z, count).map_err(|_| AlgorithmError::Plan {
                    problem: format!(
                        "count_noise must be above {} to leave noise for the gradients, got {}",
                        0.5 * z.get(),
                        0.5 * count.get()
                    ),
                    hint: "leave it out for a value that suits the budget",
                })?;
            Ok(vec![gradients, count])
        })
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(QuantileSteps::new(facts, self)))
    }
}

struct QuantileSteps {
    facts: RunFacts,
    options: Quantile,
    clip: f64,
}

impl QuantileSteps {
    fn new(facts: &RunFacts, options: &Quantile) -> Self {
        Self { facts: *facts, options: options.clone(), clip: facts.max_grad_norm.get() }
    }

    /// Adapts to a released balance: half the difference between the number of norms below the clipping norm and the number above it.
    fn follow(&mut self, balance: f64) {
        let below = 0.5 + balance / self.facts.expected_batch_size;
        let moved = self.clip * (-self.options.rate * (below - self.options.quantile)).exp();
        // Extreme noise must not make the clipping norm unusable.
        if moved.is_finite() {
            self.clip = usable(moved, &self.facts);
        }
    }
}

impl<G: Gradients> Steps<G> for QuantileSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let clip = ClipNorm::new(self.clip)?;
        let (sum, balance) =
            round.gradients(at).clipped_sum_and(&rule(&self.facts, clip)?, &NormStatistic::balance(clip))?;
        let mut sum = round.release(sum)?;
        if self.options.unit_steps {
            sum = unit_step(sum, self.clip, &self.facts);
        }
        self.follow(f64::from(round.release(balance)?[0]));
        Ok(Some(sum))
    }

    fn state(&self) -> State {
        State { numbers: BTreeMap::from([("clip".to_owned(), self.clip)]), ..State::default() }
    }

    fn restore(&mut self, state: &State) {
        if let Some(clip) = positive_number(state, "clip") {
            self.clip = usable(clip, &self.facts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_facts;

    #[test]
    fn the_clipping_norm_rises_while_too_many_are_clipped_and_falls_while_too_few_are() {
        let mut quantile = QuantileSteps::new(&test_facts(), &Quantile::default());
        // All of a batch of 100 are above the clipping norm: the balance is -50, the share 0.
        quantile.follow(-50.0);
        assert!((quantile.clip - (0.1_f64).exp()).abs() < 1e-12);
        quantile.follow(50.0);
        assert!((quantile.clip - 1.0).abs() < 1e-12);
        quantile.follow(0.0);
        assert!((quantile.clip - 1.0).abs() < 1e-12);
        for absurd in [1e300, -1e300, f64::NAN] {
            quantile.follow(absurd);
            assert!(quantile.clip.is_finite() && quantile.clip > 0.0);
        }
    }
}
