//! The dynamic schedule: noise and clip norm that change along the run, by public formulas.

use crate::{ClipNorm, Entry, Growth, Mu, NoiseMultiplier, Plan, SamplingRate, Steps};

/// `mu_t = mu_0 rho_mu^(t/T)`, `C_t = C_0 rho_c^(-t/T)`, noise of standard deviation `C_t / mu_t` on the sum of step
/// `t = 1..T`.
///
/// # Guarantees
/// Both sequences are public and depend on no record, so the plan is priced like any other. Only `mu_t` matters to
/// privacy: clip norms scale the noise along.
///
/// # References
/// Du, Li, Feng and Chen, "Dynamic Differential-Privacy Preserving SGD" (2021), equations 9 and 12.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DynamicSchedule {
    /// `mu_0`, positive.
    pub mu_0: Mu,
    /// `rho_mu`, how much `mu_t` grows along the run.
    pub mu_growth: Growth,
    /// `C_0`.
    pub clip: ClipNorm,
    /// `rho_c`, how much `C_t` shrinks along the run.
    pub clip_decay: Growth,
    /// The sampling rate of all steps.
    pub rate: SamplingRate,
    /// `T`.
    pub steps: Steps,
}

impl DynamicSchedule {
    #[expect(clippy::cast_precision_loss, reason = "a count of steps")]
    fn progress(&self, step: u64) -> f64 {
        step as f64 / self.steps.get() as f64
    }

    /// `1 / mu_t`, or `None` if that is not a noise multiplier.
    pub fn noise_multiplier(&self, step: u64) -> Option<NoiseMultiplier> {
        let mu = self.mu_0.get() * self.mu_growth.get().powf(self.progress(step));
        NoiseMultiplier::new(1.0 / mu).ok()
    }

    /// `C_t`.
    pub fn clip_norm(&self, step: u64) -> f64 {
        self.clip.get() * self.clip_decay.get().powf(-self.progress(step))
    }

    /// `sigma_t = C_t / mu_t`.
    pub fn noise_std(&self, step: u64) -> Option<f64> {
        self.noise_multiplier(step).map(|z| z.get() * self.clip_norm(step))
    }

    /// The plan of all steps, or `None` if a step's noise is not a multiplier.
    pub fn plan(&self) -> Option<Plan> {
        if (self.mu_growth.get() - 1.0).abs() < f64::EPSILON {
            return self.noise_multiplier(1).map(|z| Plan::dp_sgd(z, self.rate, self.steps));
        }
        let one = Steps::new(1).expect("one step");
        let entry = |t| self.noise_multiplier(t).map(|z| Entry::poisson(z, self.rate, one));
        (1..=self.steps.get()).map(entry).collect::<Option<Vec<_>>>().map(Plan::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_ends_where_its_growth_says() {
        let schedule = DynamicSchedule {
            mu_0: Mu::new(0.5).unwrap(),
            mu_growth: Growth::new(4.0).unwrap(),
            clip: ClipNorm::new(3.0).unwrap(),
            clip_decay: Growth::new(2.0).unwrap(),
            rate: SamplingRate::new(0.01).unwrap(),
            steps: Steps::new(100).unwrap(),
        };
        assert!((schedule.noise_multiplier(100).unwrap().get() - 0.5).abs() < 1e-12);
        assert!((schedule.clip_norm(100) - 1.5).abs() < 1e-12);
        assert!((schedule.noise_std(100).unwrap() - 0.75).abs() < 1e-12);
        assert!((schedule.noise_std(50).unwrap() - 3.0 / 2.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(schedule.plan().unwrap().steps(), 100);
    }
}
