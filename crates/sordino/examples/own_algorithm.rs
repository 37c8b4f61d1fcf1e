//! A custom algorithm: DP-SGD with smooth clipping, `w(n) = C / sqrt(C^2 + n^2)`.
//!
//! The weights are a table that the trusted base bounds, so a wrong table costs accuracy, never privacy.
//!
//! ```sh
//! cargo run --release -p sordino --example own_algorithm
//! ```

use sordino::{
    Accountant, Model, Trainer,
    accounting::{ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, calibrate},
    algorithms::{
        About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict, options,
    },
    data::embedded,
    optim::State,
    own_loop::{ClipRule, Gradients, PrivacyError, Release, Round},
};

options! {
    /// Every gradient is scaled by C / sqrt(C^2 + |g|^2), so that the weight has no kink at the clipping norm.
    pub struct SmoothClip {
        /// Pairs of norm and weight in the table.
        pairs: u64 = 1000, in 2..=65_536;
    }
}

impl Algorithm for SmoothClip {
    fn about(&self) -> About {
        About { name: "smooth-clip", reference: "this example", verdict: Verdict::Sound("") }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 0.1)
    }

    fn accountant(&self, _: Sampling) -> Accountant {
        Accountant::Pld
    }

    /// One release in each step, with the least noise that the budget allows.
    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        let unit = Entry::new(facts.sampling, vec![NoiseMultiplier::new(1.0)?], facts.steps)?;
        let unit = Plan::new(vec![unit]);
        let factor = match noise {
            NoiseSource::Multiplier(multiplier) => multiplier.get(),
            NoiseSource::Budget(budget, accountant) => {
                calibrate::noise_scale(&unit, budget, accountant)?.value
            }
        };
        Ok(unit.scaled(factor)?)
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let clip = facts.max_grad_norm.get();
        let norm = |i: u64| 20.0 * clip * i as f64 / self.pairs as f64;
        let weight = |norm: f64| clip / clip.hypot(norm);
        let table: Vec<(f64, f64)> = (0..self.pairs).map(|i| (norm(i), weight(norm(i)))).collect();
        Ok(Box::new(SmoothClipSteps { rule: ClipRule::flat(facts.max_grad_norm)?.weighted_by(&table)? }))
    }
}

struct SmoothClipSteps {
    rule: ClipRule,
}

impl<G: Gradients> Steps<G> for SmoothClipSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).clipped_sum(&self.rule)?;
        round.release(sum).map(Some)
    }

    fn state(&self) -> State {
        State::default()
    }

    fn restore(&mut self, _: &State) {}
}

fn main() -> Result<(), sordino::Error> {
    let (data, test) = embedded::mushroom()?.split(0.2, 0)?;
    let mut trainer =
        Trainer::new(Model::logistic()).budget(1.0, 1e-5)?.with_algorithm(SmoothClip::default()).epochs(20.0);
    if let Some(test) = &test {
        trainer = trainer.test_data(test);
    }
    let fitted = trainer.fit(&data)?;
    println!("{}", fitted.guarantee());
    Ok(())
}
