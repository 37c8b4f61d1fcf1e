//! Variance reduction: a gradient at an anchor, known well, plus differences to it.

use std::collections::BTreeMap;

use sordino_accounting::{Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps};
use sordino_optim::State;
use sordino_privacy::{Gradients, PrivacyError, Release, Round};

use crate::{
    Algorithm, AlgorithmError, Setting,
    dp_sgd::rule,
    error::require,
    plan::{check_steps, poisson_rate},
};

/// When anchors move, and how many records they see.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Anchoring {
    /// The expected number of records of an anchor's batch.
    pub(crate) batch: f64,
    /// How likely or how often the anchor moves.
    pub(crate) probability: f64,
    /// 1: to the point before, by chance; 2: to the point before, regularly; 3 and 4: to the newest point, by chance and regularly.
    pub(crate) routine: u8,
}

/// What a step of the plan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Looks at a new anchor, which is where the model stands: a step of training by itself.
    Here,
    /// Looks at a new anchor, where the model stood before; the next turn uses it.
    Before,
    /// Looks at differences to the anchor: a step of training.
    Difference,
}

impl Anchoring {
    /// From options. Where nothing is said: sixteen batches, an anchor as often as the paper has it, `2 B / B_a`, and the routine that is
    /// regular and needs no extra step.
    pub(crate) fn new(
        batch: Option<u64>,
        probability: Option<f64>,
        routine: Option<u8>,
        setting: &Setting,
    ) -> Result<Self, AlgorithmError> {
        Self::check(batch, probability, routine)?;
        check_steps(setting.steps.get())?;
        #[expect(clippy::cast_precision_loss, reason = "counts of records")]
        let (given, records) = (batch.map(|batch| batch as f64), setting.records as f64);
        let batch = given.unwrap_or((16.0 * setting.expected_batch_size).max(1.0).min(records));
        require(batch <= records, "anchor_batch", "at most the number of records", batch)?;
        let probability = probability.unwrap_or((2.0 * setting.expected_batch_size / batch).clamp(1e-3, 1.0));
        Ok(Self { batch, probability, routine: routine.unwrap_or(4) })
    }

    pub(crate) fn check(
        batch: Option<u64>,
        probability: Option<f64>,
        routine: Option<u8>,
    ) -> Result<(), AlgorithmError> {
        require(batch != Some(0), "anchor_batch", "at least 1", 0.0)?;
        let probability = probability.unwrap_or(1.0);
        let permitted = (1e-6..=1.0).contains(&probability);
        require(permitted, "update_probability", "between 1e-6 and 1", probability)?;
        let routine = routine.unwrap_or(1);
        require((1..=4).contains(&routine), "routine", "1, 2, 3 or 4", f64::from(routine))
    }

    /// What the steps of the plan do, for so many steps of training. Public: coins of routines 1 and 3 are the same in every run.
    fn turns(&self, steps: Steps) -> Vec<Turn> {
        let mut turns = vec![Turn::Here];
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 1, at most 1e9"
        )]
        let period = (1.0 / self.probability.max(1e-9)).round().max(1.0) as u64;
        let to_newest = self.routine >= 3;
        for step in 0..steps.get() - 1 {
            let moves = match self.routine {
                1 | 3 => public_coin(step) < self.probability,
                _ => step % period == 1 % period,
            };
            match moves {
                true if to_newest => turns.push(Turn::Here),
                // After the first step the point before is the anchor itself.
                true if step > 0 => turns.extend([Turn::Before, Turn::Difference]),
                _ => turns.push(Turn::Difference),
            }
        }
        turns
    }

    /// The rate at which an anchor samples, and how many anchors and differences there are.
    pub(crate) fn phases(&self, setting: &Setting) -> Result<(SamplingRate, u64, u64), AlgorithmError> {
        let turns = self.turns(setting.steps);
        let differences = turns.iter().filter(|turn| **turn == Turn::Difference).count() as u64;
        #[expect(clippy::cast_precision_loss, reason = "a count of records")]
        let rate = SamplingRate::new((self.batch / setting.records as f64).min(1.0))?;
        Ok((rate, turns.len() as u64 - differences, differences))
    }

    /// The plan with these multipliers of a difference's releases and of an anchor.
    pub(crate) fn plan(
        &self,
        setting: &Setting,
        differences: &[NoiseMultiplier],
        anchor: NoiseMultiplier,
    ) -> Result<Plan, AlgorithmError> {
        let rate = poisson_rate(setting, "variance reduction")?;
        let (anchor_rate, ..) = self.phases(setting)?;
        let turns = self.turns(setting.steps);
        let entry = |run: &[Turn]| -> Result<Entry, AlgorithmError> {
            let steps = Steps::new(run.len() as u64)?;
            let (rate, releases) = match run[0] {
                Turn::Difference => (rate, differences.to_vec()),
                Turn::Here | Turn::Before => (anchor_rate, vec![anchor]),
            };
            Ok(Entry::new(Sampling::Poisson { rate, cap: None }, releases, steps)?)
        };
        turns.chunk_by(|a, b| (*a == Turn::Difference) == (*b == Turn::Difference)).map(entry).collect()
    }
}

/// Uniform in [0, 1), the same for the same number: a fixed public sequence (the SplitMix64 generator).
#[expect(clippy::cast_precision_loss, reason = "53 bits")]
fn public_coin(number: u64) -> f64 {
    let mut bits = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((bits ^ (bits >> 31)) >> 11) as f64 * 2.0_f64.powi(-53)
}

/// How an estimate of the gradient is made of an anchor and differences to it.
pub(crate) trait Estimate<G: Gradients> {
    /// Looks at an anchor and keeps its gradient.
    fn anchor(&mut self, round: &mut Round<'_, G>, anchor: &G::Point) -> Result<(), PrivacyError>;

    /// The gradient at `at`, in the scale of a sum over a batch, given the anchor that was looked at last; none if that is `at`.
    fn gradient(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        anchor: Option<&G::Point>,
    ) -> Result<Release<Vec<f32>>, PrivacyError>;

    /// What is kept.
    fn state(&self) -> State;

    /// Takes it up.
    fn restore(&mut self, state: &State);
}

/// Training with an estimate of this kind.
pub(crate) struct Anchored<P, E> {
    setting: Setting,
    turns: Vec<Turn>,
    /// Where anchors move to is known one step later in routines 1 and 2.
    remembers: bool,
    previous: Option<P>,
    anchor: Option<P>,
    /// Points from a checkpoint, until there is a point to copy their shape from.
    restored: BTreeMap<String, Vec<f32>>,
    estimate: E,
}

impl<P: Clone + AsRef<[f32]> + AsMut<[f32]>, E> Anchored<P, E> {
    pub(crate) fn new(setting: &Setting, anchoring: &Anchoring, estimate: E) -> Self {
        Self {
            setting: *setting,
            turns: anchoring.turns(setting.steps),
            remembers: anchoring.routine <= 2,
            previous: None,
            anchor: None,
            restored: BTreeMap::new(),
            estimate,
        }
    }

    /// Points of a checkpoint become points like this one.
    fn take_up(&mut self, like: &P) {
        // Points are of no use without the gradient that was kept with them.
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

impl<G: Gradients, E: Estimate<G>> Algorithm<G> for Anchored<G::Point, E> {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        self.take_up(at);
        let turn = usize::try_from(number).ok().and_then(|number| self.turns.get(number).copied());
        if turn == Some(Turn::Before) {
            // Where the model stood before its last step; where it stands, if that was lost.
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
            // The first anchor was lost when the run was killed: until the next one, plain clipped gradients.
            (_, None) => {
                let sum = round.gradients(at).clipped_sum(&rule(&self.setting, self.setting.clip)?)?;
                round.release(sum)?
            }
        };
        if self.remembers {
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

/// A vector that is kept, as state.
pub(crate) fn kept(vector: &[f32], numbers: &[(&str, f64)]) -> State {
    State {
        vectors: BTreeMap::from([("anchor_gradient".to_owned(), vector.to_vec())]),
        numbers: numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    }
}

/// The kept vector of a state, if it is one.
pub(crate) fn taken(state: &State) -> Option<Vec<f32>> {
    state
        .vectors
        .get("anchor_gradient")
        .filter(|vector| vector.iter().all(|value| value.is_finite()))
        .cloned()
}

/// A standard deviation of a state; 0 if it is none.
pub(crate) fn noise_of(state: &State, name: &str) -> f64 {
    state.numbers.get(name).copied().filter(|noise| noise.is_finite() && *noise >= 0.0).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::tests::setting;

    fn anchoring(routine: u8) -> Anchoring {
        Anchoring::new(None, Some(0.25), Some(routine), &setting()).unwrap()
    }

    #[test]
    fn anchors_move_as_their_routine_says() {
        let turns = |routine| anchoring(routine).turns(Steps::new(8).unwrap());
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
            let turns = anchoring(routine).turns(Steps::new(20_000).unwrap());
            let anchors = turns.iter().filter(|turn| **turn != Difference).count() as f64;
            // Fixed coins; 5 standard deviations.
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
            let plan = anchoring(routine).plan(&setting(), &[z(1.0), z(1.0)], z(3.0)).unwrap();
            let (_, anchors, differences) = anchoring(routine).phases(&setting()).unwrap();
            let of =
                |count: usize| plan.entries().iter().filter(move |entry| entry.releases().len() == count);
            assert_eq!(of(1).map(|entry| entry.steps().get()).sum::<u64>(), anchors);
            assert_eq!(of(2).map(|entry| entry.steps().get()).sum::<u64>(), differences);
            // As many steps of training as were asked for: differences, and anchors that stand for themselves.
            assert!(differences < 30 && anchors + differences >= 30);
        }
    }

    #[test]
    fn anchors_larger_than_the_data_are_refused() {
        assert!(Anchoring::new(Some(1_000_000), None, None, &setting()).is_err());
        assert_eq!(Anchoring::new(None, None, None, &setting()).unwrap().batch, 1600.0);
    }
}
