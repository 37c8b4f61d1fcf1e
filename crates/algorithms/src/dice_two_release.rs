//! Error feedback from two releases (Dice-A): a sound form of DiceSGD.
//!
//! Both the clipped sum `a` and the sum of residuals `r` are released with noise, so that the error `e` is public and any use of it is
//! post-processing: `v = a + clip(e, C_2)`, `e <- e + r - clip(e, C_2)`. Departs from DiceSGD in that residuals are clipped for each record
//! and have noise.

use std::collections::BTreeMap;

use sordino_accounting::{Accountant, AccountingError, ClipNorm, NoiseMultiplier, Plan, Sampling};
use sordino_optim::State;
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{finite_vector, noise_std, norm, rule},
    options,
    plans::{calibrated, equal_steps, split_releases, tightest_accountant},
};

options! {
    /// Error feedback from two noisy sums, of clipped gradients and of what clipping removed, so that the error is public.
    pub struct DiceTwoRelease {
        /// The largest norm of a residual that is fed back.
        residual_clip: Option<f64> = None, as "9 times max_grad_norm", in 1e-9..=1e9;
        /// C_2, the clipping norm of the mean error.
        feedback_clip: Option<f64> = None, as "max_grad_norm + residual_clip", in 1e-9..=1e9;
    }
}

impl DiceTwoRelease {
    fn residual_clip(&self, clip: ClipNorm) -> Result<ClipNorm, AccountingError> {
        ClipNorm::new(self.residual_clip.unwrap_or(9.0 * clip.get()))
    }
}

impl Algorithm for DiceTwoRelease {
    fn about(&self) -> About {
        About {
            name: "dice-two-release",
            reference: "after Zhang et al. 2023, Algorithm 2",
            verdict: Verdict::Sound("as much noise as dp-sgd at the sum of the two clipping norms"),
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        let defaults = Defaults::clipped(max_grad_norm, 0.1)?;
        let clip = defaults.max_grad_norm;
        Ok(Defaults { contribution: Some(clip.get() + self.residual_clip(clip)?.get()), ..defaults })
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    fn kept_vectors(&self) -> u64 {
        1
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        let (clip, residual) = (facts.max_grad_norm, self.residual_clip(facts.max_grad_norm)?);
        rule(facts, residual)?;
        split_releases(&calibrated(&equal_steps(facts)?, noise)?, |z| {
            // The split that minimises z_a^2 C_1^2 + z_r^2 C_r^2.
            let total = clip.get() + residual.get();
            let share = |part: ClipNorm| NoiseMultiplier::new(z.get() * (total / part.get()).sqrt());
            Ok(vec![share(clip)?, share(residual)?])
        })
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let residual = self.residual_clip(facts.max_grad_norm)?;
        let feedback = self.feedback_clip.unwrap_or(facts.max_grad_norm.get() + residual.get());
        Ok(Box::new(DiceTwoReleaseSteps {
            rule: rule(facts, facts.max_grad_norm)?,
            residual: rule(facts, residual)?,
            feedback: feedback * facts.expected_batch_size,
            error: Vec::new(),
            error_noise: 0.0,
        }))
    }
}

struct DiceTwoReleaseSteps {
    rule: ClipRule,
    residual: ClipRule,
    /// `C_2`, in the scale of a sum.
    feedback: f64,
    error: Vec<f32>,
    /// The standard deviation of the noise in it.
    error_noise: f64,
}

impl<G: Gradients> Steps<G> for DiceTwoReleaseSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let (sum, residual) = round.gradients(at).clipped_and_residual_sums(&self.rule, &self.residual)?;
        let sum = round.release(sum)?;
        let residual = round.release(residual)?;
        self.error.resize(sum.len(), 0.0);
        let share = (self.feedback / norm(&self.error)).min(1.0) as f32;
        let update = sum.plus(share, &self.error, self.error_noise);
        self.error_noise = residual.noise_std().hypot(f64::from(1.0 - share) * self.error_noise);
        for (error, residual) in self.error.iter_mut().zip(residual.iter()) {
            *error += residual - share * *error;
        }
        Ok(Some(update))
    }

    fn state(&self) -> State {
        let vectors = BTreeMap::from([("error".to_owned(), self.error.clone())]);
        State { vectors, numbers: BTreeMap::from([("error_noise".to_owned(), self.error_noise)]) }
    }

    fn restore(&mut self, state: &State) {
        if let Some(error) = finite_vector(state, "error") {
            self.error = error;
            self.error_noise = noise_std(state, "error_noise");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_facts;

    #[test]
    fn both_releases_together_reveal_as_much_as_one() {
        let z = NoiseMultiplier::new(1.5).unwrap();
        let plan = DiceTwoRelease::default().plan(&test_facts(), NoiseSource::Multiplier(z)).unwrap();
        let entry = &plan.entries()[0];
        assert_eq!(entry.releases().len(), 2);
        assert!((entry.effective_noise_multiplier() / 1.5 - 1.0).abs() < 1e-12);
    }
}
