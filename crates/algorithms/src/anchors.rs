//! Variance reduction: a gradient at an anchor, estimated well, plus differences to it. Shared by `dp-svrg` and the forms of DP-C4.

use std::collections::BTreeMap;

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use sordino_accounting::{
    Accountant, AccountingError, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps as StepCount,
    calibrate::{self, Budget},
    search,
};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    AlgorithmError, NoiseSource, RunFacts, Steps,
    clipping::{finite_vector, rule},
    plans::{check_steps, poisson_rate},
};

/// When anchors move, and how many records their batches have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Anchoring {
    /// The expected number of records of an anchor's batch.
    pub(crate) batch: f64,
    /// The probability or the frequency with which the anchor moves.
    pub(crate) probability: f64,
    /// 1: to the previous point, at random; 2: to the previous point, regularly; 3 and 4: to the newest point, at random and regularly.
    pub(crate) routine: u8,
}

/// What a step of the plan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Evaluates a new anchor at the current point; this is itself a training step.
    Here,
    /// Evaluates a new anchor at the previous point; the next step uses it.
    Before,
    /// Evaluates differences to the anchor: a training step.
    Difference,
}

impl Anchoring {
    /// From options. The defaults are an anchor batch of sixteen batches, the paper's probability `2 B / B_a`, and the regular routine
    /// that needs no extra step.
    pub(crate) fn new(
        batch: Option<u64>,
        probability: Option<f64>,
        routine: Option<u8>,
        facts: &RunFacts,
    ) -> Result<Self, AlgorithmError> {
        check_steps(facts.steps.get())?;
        Self::for_batches(batch, probability, routine, facts.expected_batch_size, facts.records)
    }

    /// The same from the expected batch size, before the number of steps is known.
    pub(crate) fn for_batches(
        batch: Option<u64>,
        probability: Option<f64>,
        routine: Option<u8>,
        batch_size: f64,
        records: u64,
    ) -> Result<Self, AlgorithmError> {
        let batch = match batch {
            Some(batch) if batch > records => {
                return Err(AlgorithmError::OutOfRange {
                    name: "anchor_batch",
                    permitted: format!("at most the number of records, {records}"),
                    got: batch.to_string(),
                });
            }
            Some(batch) => batch as f64,
            None => (16.0 * batch_size).max(1.0).min(records as f64),
        };
        let probability = probability.unwrap_or((2.0 * batch_size / batch).clamp(1e-3, 1.0));
        Ok(Self { batch, probability, routine: routine.unwrap_or(4) })
    }

    /// The steps between two moves of the anchor, in routines 2 and 4.
    fn period(&self) -> u64 {
        (1.0 / self.probability.max(1e-9)).round().max(1.0) as u64
    }

    /// The expected number of records that a training step draws: `B + p B_a` in routines 1 and 2, and `(1 - p) B + p B_a` in routines 3
    /// and 4, where a step that moves the anchor evaluates no differences.
    pub(crate) fn records_per_step(&self, batch_size: f64) -> f64 {
        let p = if self.routine % 2 == 1 { self.probability } else { 1.0 / self.period() as f64 };
        let differences = if self.routine <= 2 { 1.0 } else { 1.0 - p };
        differences * batch_size + p * self.batch
    }

    /// What the steps of the plan do, for this many training steps. Public: routines 1 and 3 use the same sequence of random numbers in
    /// every run.
    fn turns(&self, steps: StepCount) -> Vec<Turn> {
        let mut turns = vec![Turn::Here];
        let mut random = ChaCha20Rng::from_seed([0; 32]);
        let period = self.period();
        let to_newest = self.routine >= 3;
        for step in 0..steps.get() - 1 {
            let moves = match self.routine {
                1 | 3 => uniform(&mut random) < self.probability,
                _ => step % period == 1 % period,
            };
            match moves {
                true if to_newest => turns.push(Turn::Here),
                // After the first step the previous point is the anchor itself.
                true if step > 0 => turns.extend([Turn::Before, Turn::Difference]),
                _ => turns.push(Turn::Difference),
            }
        }
        turns
    }

    /// The steps that evaluate anchors and those that evaluate differences, if there are any.
    fn phases(&self, facts: &RunFacts) -> Result<(Phase, Option<Phase>), AlgorithmError> {
        let rate = poisson_rate(facts, "variance reduction")?;
        let anchor_rate = SamplingRate::new((self.batch / facts.records as f64).min(1.0))?;
        let turns = self.turns(facts.steps);
        let differences = turns.iter().filter(|turn| **turn == Turn::Difference).count() as u64;
        let anchors = StepCount::new(turns.len() as u64 - differences)?;
        let anchors = Phase { rate: anchor_rate, steps: anchors, batch: self.batch };
        let differences = StepCount::new(differences).ok();
        Ok((anchors, differences.map(|steps| Phase { rate, steps, batch: facts.expected_batch_size })))
    }

    /// The plan with these multipliers of a difference's releases and of an anchor. Where all steps move the anchor, as with `p = 1` in
    /// routines 3 and 4, there are no differences, and their multipliers are not used.
    pub(crate) fn plan_with(
        &self,
        facts: &RunFacts,
        differences: &[NoiseMultiplier],
        anchor: NoiseMultiplier,
    ) -> Result<Plan, AlgorithmError> {
        rule(facts, facts.max_grad_norm)?;
        let rate = poisson_rate(facts, "variance reduction")?;
        let (anchors, _) = self.phases(facts)?;
        let turns = self.turns(facts.steps);
        let entry = |run: &[Turn]| -> Result<Entry, AlgorithmError> {
            let steps = StepCount::new(run.len() as u64)?;
            let (rate, releases) = match run[0] {
                Turn::Difference => (rate, differences.to_vec()),
                Turn::Here | Turn::Before => (anchors.rate, vec![anchor]),
            };
            Ok(Entry::new(Sampling::Poisson { rate, cap: None }, releases, steps)?)
        };
        turns.chunk_by(|a, b| (*a == Turn::Difference) == (*b == Turn::Difference)).map(entry).collect()
    }

    /// The plan with the least noise, where a step that evaluates differences has this many releases.
    pub(crate) fn plan(
        &self,
        facts: &RunFacts,
        noise: NoiseSource,
        releases: u8,
    ) -> Result<Plan, AlgorithmError> {
        let (coupled, anchor) = match noise {
            NoiseSource::Multiplier(z) => {
                (z, NoiseMultiplier::new(z.get() * self.batch / facts.expected_batch_size)?)
            }
            NoiseSource::Budget(budget, accountant) => match self.phases(facts)? {
                (_, None) => {
                    let unit = NoiseMultiplier::new(1.0)?;
                    let anchors = self.plan_with(facts, &[unit], unit)?;
                    let least = calibrate::noise_scale(&anchors, budget, accountant)?.value;
                    return Ok(anchors.scaled(NoiseMultiplier::new(least)?.shortened().get())?);
                }
                (anchors, Some(differences)) => {
                    // Two releases with multiplier z each reveal as much as one with z / sqrt(2), and their noises add up.
                    let releases = f64::from(releases);
                    let batch = differences.batch / releases;
                    let (coupled, anchor) =
                        least_noise(Phase { batch, ..differences }, anchors, budget, accountant)?;
                    (NoiseMultiplier::new(coupled.get() * releases.sqrt())?.shortened(), anchor.shortened())
                }
            },
        };
        self.plan_with(facts, &vec![coupled; usize::from(releases)], anchor)
    }
}

/// Steps of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Phase {
    rate: SamplingRate,
    steps: StepCount,
    /// The public divisor of its sums.
    batch: f64,
}

/// The multipliers `z_1` of differences and `z_2` of anchors that spend a budget with the least noise per step,
/// `(z_1/B)^2 + (z_2/B_a)^2`.
///
/// Renyi's bound, which is fast, chooses the ratio of the two, and the accountant meets the budget. The optimum is flat, so a small error
/// in the ratio hardly matters.
fn least_noise(
    differences: Phase,
    anchors: Phase,
    budget: Budget,
    accountant: Accountant,
) -> Result<(NoiseMultiplier, NoiseMultiplier), AccountingError> {
    let plan = |ratio: f64| -> Result<Plan, AccountingError> {
        Ok(Plan::new(vec![
            Entry::poisson(NoiseMultiplier::new(1.0)?, differences.rate, differences.steps),
            Entry::poisson(NoiseMultiplier::new(ratio)?, anchors.rate, anchors.steps),
        ]))
    };
    let noise = |ratio: f64| -> f64 {
        let scale = plan(ratio).and_then(|plan| calibrate::noise_scale(&plan, budget, Accountant::Rdp));
        let per_step = differences.batch.powi(-2) + (ratio / anchors.batch).powi(2);
        scale.map_or(f64::INFINITY, |scale| scale.value.powi(2) * per_step)
    };
    let (ratio, _) = search::minimum(noise, anchors.rate.get() / differences.rate.get(), 0.02);
    let scale = calibrate::noise_scale(&plan(ratio)?, budget, accountant)?.value;
    Ok((NoiseMultiplier::new(scale)?, NoiseMultiplier::new(scale * ratio)?))
}

/// Uniform in [0, 1).
fn uniform(random: &mut impl Rng) -> f64 {
    (random.next_u64() >> 11) as f64 * 2.0_f64.powi(-53)
}

/// How a gradient is estimated from an anchor and differences to it.
pub(crate) trait Estimate<G: Gradients> {
    /// Begins a step of the plan. `part` is the fraction of the plan that is complete after this step.
    fn begin(&mut self, _part: f64) {}

    /// Evaluates an anchor and keeps its gradient.
    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError>;

    /// The gradient at `at`, in the scale of a sum over a batch, given the anchor that was evaluated last; none if that is `at`.
    fn gradient(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        anchor: Option<&G::Point>,
    ) -> Result<Release<Vec<f32>>, PrivacyError>;

    /// The anchor's gradient, for a checkpoint.
    fn state(&self) -> State;

    /// Restores it.
    fn restore(&mut self, state: &State);
}

/// Steps with an estimate of this kind.
pub(crate) struct AnchoredSteps<P, E> {
    facts: RunFacts,
    turns: Vec<Turn>,
    /// Whether anchors move to the previous point, as in routines 1 and 2.
    keeps_previous: bool,
    previous: Option<P>,
    anchor: Option<P>,
    /// Points from a checkpoint, until there is a point to copy their shape from.
    restored: BTreeMap<String, Vec<f32>>,
    estimate: E,
}

impl<P: Clone + AsRef<[f32]> + AsMut<[f32]>, E> AnchoredSteps<P, E> {
    pub(crate) fn new(
        facts: &RunFacts,
        plan: &Plan,
        anchoring: &Anchoring,
        estimate: E,
    ) -> Result<Self, AlgorithmError> {
        let turns = anchoring.turns(facts.steps);
        let lengths = turns.chunk_by(|a, b| (*a == Turn::Difference) == (*b == Turn::Difference));
        if !lengths.map(|run| run.len() as u64).eq(plan.entries().iter().map(|entry| entry.steps().get())) {
            return Err(AlgorithmError::Plan {
                problem:
                    "the plan was made by an earlier version of Sordino and moves its anchors at other steps"
                        .to_owned(),
                hint: "start a new run",
            });
        }
        Ok(Self {
            facts: *facts,
            turns,
            keeps_previous: anchoring.routine <= 2,
            previous: None,
            anchor: None,
            restored: BTreeMap::new(),
            estimate,
        })
    }

    /// Makes points from the vectors of a checkpoint, in the shape of this point.
    fn restore_points(&mut self, like: &P) {
        // Points are useless without the gradient that was kept with them.
        let length = like.as_ref().len();
        if self.restored.get("anchor_gradient").is_none_or(|kept| kept.len() != length) {
            self.restored.clear();
            return;
        }
        let mut point = |name: &str| {
            let values = self.restored.remove(name)?;
            let mut point = like.clone();
            if values.len() != length || !values.iter().all(|value| value.is_finite()) {
                return None;
            }
            point.as_mut().copy_from_slice(&values);
            Some(point)
        };
        if let Some(anchor) = point("anchor") {
            self.anchor = Some(anchor);
        }
        if let Some(previous) = point("previous") {
            self.previous = Some(previous);
        }
        self.restored.clear();
    }
}

impl<G: Gradients, E: Estimate<G>> Steps<G> for AnchoredSteps<G::Point, E> {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        self.restore_points(at);
        self.estimate.begin((number + 1) as f64 / self.turns.len() as f64);
        let turn = usize::try_from(number).ok().and_then(|number| self.turns.get(number).copied());
        if turn == Some(Turn::Before) {
            // The point before the last step, or the current point if a crash has lost that point.
            let anchor = self.previous.as_ref().unwrap_or(at).clone();
            self.estimate.anchor(round, &anchor)?;
            self.anchor = Some(anchor);
            return Ok(None);
        }
        let release = match (turn, &self.anchor) {
            (Some(Turn::Here), _) => {
                self.estimate.anchor(round, at)?;
                self.anchor = Some(at.clone());
                self.estimate.gradient(round, at, None)?
            }
            (_, Some(anchor)) => self.estimate.gradient(round, at, Some(anchor))?,
            // A crash has lost the first anchor. Until the next one, steps use clipped gradients.
            (_, None) => {
                let sum = round.gradients(at).clipped_sum(&rule(&self.facts, self.facts.max_grad_norm)?)?;
                round.release(sum)?
            }
        };
        if self.keeps_previous {
            match &mut self.previous {
                Some(previous) => previous.as_mut().copy_from_slice(at.as_ref()),
                None => self.previous = Some(at.clone()),
            }
        }
        Ok(Some(release))
    }

    fn state(&self) -> State {
        let mut state = self.estimate.state();
        for (name, point) in [("anchor", &self.anchor), ("previous", &self.previous)] {
            if let Some(point) = point {
                state.vectors.insert(name.to_owned(), point.as_ref().to_vec());
            }
        }
        state
    }

    fn restore(&mut self, state: &State) {
        self.restored.clone_from(&state.vectors);
        self.estimate.restore(state);
    }
}

/// The state of an estimate: the anchor's gradient and numbers.
pub(crate) fn anchor_state(gradient: &[f32], numbers: &[(&str, f64)]) -> State {
    State {
        vectors: BTreeMap::from([("anchor_gradient".to_owned(), gradient.to_vec())]),
        numbers: numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    }
}

/// The anchor's gradient of a state; none if it is missing or not finite.
pub(crate) fn anchor_gradient(state: &State) -> Option<Vec<f32>> {
    finite_vector(state, "anchor_gradient")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sordino_accounting::{Delta, Epsilon};

    use crate::test_facts;

    fn anchoring(routine: u8) -> Anchoring {
        Anchoring::new(None, Some(0.25), Some(routine), &test_facts()).unwrap()
    }

    #[test]
    fn anchors_move_as_their_routine_says() {
        let turns = |routine| anchoring(routine).turns(StepCount::new(8).unwrap());
        use Turn::{Before, Difference, Here};
        // Steps with number 1 and 5 move the anchor of the step after them.
        assert_eq!(
            turns(2),
            [
                Here, Difference, Before, Difference, Difference, Difference, Difference, Before, Difference,
                Difference
            ]
        );
        assert_eq!(turns(4), [Here, Difference, Here, Difference, Difference, Difference, Here, Difference]);
        for (routine, share) in [(1, 1.25), (3, 1.0)] {
            let turns = anchoring(routine).turns(StepCount::new(20_000).unwrap());
            let anchors = turns.iter().filter(|turn| **turn != Difference).count() as f64;
            // A fixed sequence; 5 standard deviations.
            assert!(
                (anchors / 20_000.0 - 0.25).abs() < 5.0 * (0.25 * 0.75 / 20_000.0_f64).sqrt(),
                "{anchors}"
            );
            assert!((turns.len() as f64 / 20_000.0 - share).abs() < 0.02);
        }
    }

    #[test]
    fn the_plan_counts_every_anchor_and_every_difference() {
        for routine in 1..=4 {
            let z = |value| NoiseMultiplier::new(value).unwrap();
            let plan = anchoring(routine).plan_with(&test_facts(), &[z(1.0), z(1.0)], z(3.0)).unwrap();
            let (anchors, differences) = anchoring(routine).phases(&test_facts()).unwrap();
            let (anchors, differences) = (anchors.steps.get(), differences.unwrap().steps.get());
            let of =
                |count: usize| plan.entries().iter().filter(move |entry| entry.releases().len() == count);
            assert_eq!(of(1).map(|entry| entry.steps().get()).sum::<u64>(), anchors);
            assert_eq!(of(2).map(|entry| entry.steps().get()).sum::<u64>(), differences);
            // All training steps are there: differences, and anchors that are training steps by themselves.
            assert!(differences < 30 && anchors + differences >= 30);
        }
    }

    #[test]
    fn records_per_step_are_those_of_the_plan() {
        let facts = RunFacts { steps: StepCount::new(20_000).unwrap(), ..test_facts() };
        for (routine, probability) in [(1, 0.25), (2, 0.25), (3, 0.25), (4, 0.3), (3, 1.0), (4, 1.0)] {
            let anchoring = Anchoring::new(None, Some(probability), Some(routine), &facts).unwrap();
            let (anchors, differences) = anchoring.phases(&facts).unwrap();
            let drawn = |phase: Phase| phase.steps.get() as f64 * phase.batch;
            let drawn = drawn(anchors) + differences.map_or(0.0, drawn);
            let expected = anchoring.records_per_step(facts.expected_batch_size);
            // A fixed sequence of random numbers; 5 standard deviations of routine 1 are 5 %.
            assert!(
                (drawn / 20_000.0 / expected - 1.0).abs() < 0.05,
                "routine {routine}: {drawn} {expected}"
            );
        }
    }

    #[test]
    fn anchors_larger_than_the_data_are_refused() {
        assert!(Anchoring::new(Some(1_000_000), None, None, &test_facts()).is_err());
        assert_eq!(Anchoring::new(None, None, None, &test_facts()).unwrap().batch, 1600.0);
    }

    #[test]
    fn both_phases_spend_the_budget() {
        // An example that was worked out by hand: z_1 = 0.958 and z_2 = 7.06, at an optimum that is flat.
        let phase = |batch: f64, steps: u64| Phase {
            rate: SamplingRate::new(batch / 50_000.0).unwrap(),
            steps: StepCount::new(steps).unwrap(),
            batch,
        };
        let budget = Budget { epsilon: Epsilon::new(5.0).unwrap(), delta: Delta::new(1e-5).unwrap() };
        let (differences, anchors) = (phase(256.0, 17_062), phase(4096.0, 2438));
        let (coupled, anchor) = least_noise(differences, anchors, budget, Accountant::Pld).unwrap();
        let plan = Plan::new(vec![
            Entry::poisson(coupled, differences.rate, differences.steps),
            Entry::poisson(anchor, anchors.rate, anchors.steps),
        ]);
        let spent = Accountant::Pld.price(&plan, budget.delta).unwrap().epsilon.get();
        assert!((4.995..=5.0).contains(&spent), "{spent}");
        assert!((coupled.get() / 0.958 - 1.0).abs() < 0.02, "{coupled} {anchor}");
        assert!((anchor.get() / 7.06 - 1.0).abs() < 0.1, "{coupled} {anchor}");
    }

    #[test]
    fn a_plan_with_other_anchors_is_refused() {
        let z = NoiseMultiplier::new(1.0).unwrap();
        let plan = anchoring(3).plan_with(&test_facts(), &[z], z).unwrap();
        let start =
            |routine| AnchoredSteps::<[f32; 2], ()>::new(&test_facts(), &plan, &anchoring(routine), ());
        assert!(start(3).is_ok());
        assert!(start(4).is_err());
    }
}
