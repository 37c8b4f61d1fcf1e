//! Algorithms that users write: they train, and the vault protects the records from their mistakes.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "../examples/own_algorithm.rs"]
#[expect(dead_code, reason = "the example's main function")]
mod example;

use sordino::{
    Accountant, Dataset, GuaranteeStatus, Model, Trainer,
    accounting::{ClipNorm, Entry, NoiseMultiplier, Plan, Sampling},
    algorithms::{
        About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict, options,
    },
    optim::State,
    own_loop::{ClipRule, Gradients, PrivacyError, Release, Round},
};

options! {
    /// Releases one sum in each step, and does something else.
    pub struct Misbehaving {
        /// What it does: 1 releases twice, 2 discloses the sum of raw gradients, 3 has the name of another algorithm.
        misdeed: u8 = 1, in 1..=3;
    }
}

impl Algorithm for Misbehaving {
    fn about(&self) -> About {
        // A false claim: the statement does not follow from it.
        let name = if self.misdeed == 3 { "dp-sgd" } else { "misbehaving" };
        About { name, reference: "a test", verdict: Verdict::Sound("") }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 0.1)
    }

    fn accountant(&self, _: Sampling) -> Accountant {
        Accountant::Pld
    }

    fn plan(&self, facts: &RunFacts, _: NoiseSource) -> Result<Plan, AlgorithmError> {
        Ok(Plan::new(vec![Entry::new(facts.sampling, vec![NoiseMultiplier::new(20.0)?], facts.steps)?]))
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, _: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        Ok(Box::new(MisbehavingSteps { rule: ClipRule::flat(facts.max_grad_norm)?, misdeed: self.misdeed }))
    }
}

struct MisbehavingSteps {
    rule: ClipRule,
    misdeed: u8,
}

impl<G: Gradients> Steps<G> for MisbehavingSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        _: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).clipped_sum(&self.rule)?;
        let release = round.release(sum)?;
        if self.misdeed == 1 {
            let again = round.gradients(at).clipped_sum(&self.rule)?;
            return round.release(again).map(Some);
        }
        let plain = round.gradients(at).plain_sum()?;
        let plain = round.disclose(plain, "a test discloses gradients")?;
        Ok(Some(release.plus(1.0, &plain, 0.0)))
    }

    fn state(&self) -> State {
        State::default()
    }

    fn restore(&mut self, _: &State) {}
}

fn data() -> Dataset {
    let x: Vec<[f32; 2]> = (0..2000).map(|i| [(i % 10) as f32 / 10.0, (i % 7) as f32 / 7.0]).collect();
    let y: Vec<bool> = x.iter().map(|row| row[0] > 0.5).collect();
    Dataset::from_rows(&x, &y).unwrap()
}

fn trainer<'a>() -> Trainer<'a> {
    Trainer::new(Model::logistic()).budget(1.0, 1e-5).unwrap().epochs(5.0)
}

#[test]
fn an_own_algorithm_trains_within_its_budget() {
    let fitted = trainer().with_algorithm(example::SmoothClip::default()).fit(&data()).unwrap();
    assert!(fitted.guarantee().epsilon().unwrap().get() <= 1.0);
    assert!(fitted.guarantee().to_string().contains("smooth-clip"), "{}", fitted.guarantee());
    assert_eq!(fitted.predict(&[[0.95, 0.5], [0.05, 0.5]]).unwrap(), ["true", "false"]);
}

#[test]
fn options_of_an_own_algorithm_are_checked() {
    let error = trainer().with_algorithm(example::SmoothClip { pairs: 1 }).fit(&data()).err().unwrap();
    assert_eq!(error.to_string(), "pairs must be between 2 and 65536, got 1");
}

#[test]
fn settings_have_the_options_of_an_algorithm_that_is_a_value() {
    let priced = trainer().with_algorithm(example::SmoothClip { pairs: 50 }).price(&data()).unwrap();
    assert_eq!(priced.settings().algorithm.unwrap(), "smooth-clip,pairs=50");
    let quantile = sordino::algorithms::Quantile { quantile: 0.7, ..Default::default() };
    let priced = trainer().with_algorithm(quantile).price(&data()).unwrap();
    assert_eq!(priced.settings().algorithm.unwrap(), "quantile,quantile=0.7");
}

#[test]
fn the_name_of_an_algorithm_of_sordino_is_refused() {
    let error = trainer().with_algorithm(Misbehaving { misdeed: 3 }).fit(&data()).err().unwrap();
    assert_eq!(error.to_string(), "an algorithm of Sordino has the name dp-sgd");
}

#[test]
fn a_second_release_is_refused() {
    let error = trainer().with_algorithm(Misbehaving { misdeed: 1 }).fit(&data()).err().unwrap();
    assert!(error.to_string().contains("1 release"), "{error}");
}

#[test]
fn a_disclosure_makes_the_run_not_private_whatever_the_verdict_claims() {
    let fitted = trainer().with_algorithm(Misbehaving { misdeed: 2 }).fit(&data()).unwrap();
    assert!(fitted.guarantee().epsilon().is_none());
    let GuaranteeStatus::NotPrivate(why) = fitted.guarantee().status() else { panic!("not private") };
    assert!(why.contains("a test discloses gradients"), "{why}");
    assert!(fitted.guarantee().to_string().contains("NOT PRIVATE"), "{}", fitted.guarantee());
}
