//! How noise, clipping norm and learning rate change along a run, from public settings and the plan.

use serde::Serialize;
use sordino_accounting::Plan;
use sordino_algorithms::AlgorithmConfig;
use sordino_train::{Settings, parse_algorithm_config, parse_schedule};

/// The largest number of steps at which a schedule is shown.
const MOST: u64 = 60;

/// A value at some steps, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AtStep {
    /// The step.
    pub step: u64,
    /// The value at this step.
    pub value: f64,
}

/// What changes along a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schedules {
    /// The noise multiplier of all releases of a step together; empty without a priced plan.
    pub noise_multiplier: Vec<AtStep>,
    /// The clipping norm; empty if there is none, or if it follows from releases.
    pub clipping_norm: Vec<AtStep>,
    /// Whether the algorithm adapts the clipping norm to releases. Its values are then not known in advance and are not stored.
    pub clipping_norm_adapts: bool,
    /// The learning rate.
    pub learning_rate: Vec<AtStep>,
}

impl Schedules {
    /// The schedules of a run of this many steps. Paths in the settings must be absolute, or relative to the current folder.
    pub fn new(settings: &Settings, plan: Option<&Plan>, steps: u64) -> Self {
        let noise = |plan: &Plan| {
            let steps: Vec<u64> = shown(steps).collect();
            multipliers(plan, &steps)
        };
        let clip = Clip::of(settings);
        Self {
            noise_multiplier: plan.map(noise).unwrap_or_default(),
            clipping_norm: clip.values(settings, steps),
            clipping_norm_adapts: matches!(clip, Clip::Adapts),
            learning_rate: learning_rate(settings, steps).unwrap_or_default(),
        }
    }
}

/// At most [`MOST`] steps at equal distances, with the first and the last.
pub(super) fn shown(steps: u64) -> impl Iterator<Item = u64> {
    let points = steps.min(MOST);
    let last = points.saturating_sub(1).max(1);
    (0..points).map(move |point| 1 + (u128::from(steps - 1) * u128::from(point) / u128::from(last)) as u64)
}

/// The multipliers of a plan at ascending steps.
fn multipliers(plan: &Plan, steps: &[u64]) -> Vec<AtStep> {
    let mut wanted = steps.iter().copied().peekable();
    let (mut end, mut values) = (0_u64, Vec::new());
    for entry in plan.entries() {
        end = end.saturating_add(entry.steps().get());
        while let Some(step) = wanted.next_if(|step| *step <= end) {
            values.push(AtStep { step, value: entry.effective_noise_multiplier() });
        }
    }
    values
}

/// How an algorithm sets its clipping norm.
enum Clip {
    /// By a public schedule of factors.
    Scheduled(Box<dyn Fn(f64) -> f64>),
    /// From releases.
    Adapts,
    /// There is none, or the algorithm is not one of Sordino's.
    Unknown,
}

impl Clip {
    fn of(settings: &Settings) -> Self {
        let text = settings.algorithm.as_deref().unwrap_or("dp-sgd");
        match parse_algorithm_config(text) {
            Ok(AlgorithmConfig::Dynamic(dynamic)) => {
                Self::Scheduled(Box::new(move |part| dynamic.clip_factor(part)))
            }
            Ok(AlgorithmConfig::DpSvrg(svrg)) => Self::Scheduled(Box::new(move |part| {
                svrg.clip_schedule.as_ref().map_or(1.0, |clip| clip.at(part))
            })),
            Ok(
                AlgorithmConfig::Quantile(_)
                | AlgorithmConfig::DcSgdP(_)
                | AlgorithmConfig::DcSgdE(_)
                | AlgorithmConfig::DpC4(_)
                | AlgorithmConfig::DpC4Published(_)
                | AlgorithmConfig::DpC4PlusPublished(_),
            ) => Self::Adapts,
            Ok(AlgorithmConfig::PlainSgd(_)) | Err(_) => Self::Unknown,
            Ok(_) => Self::Scheduled(Box::new(|_| 1.0)),
        }
    }

    fn values(&self, settings: &Settings, steps: u64) -> Vec<AtStep> {
        match (self, settings.max_grad_norm) {
            (Self::Scheduled(factor), Some(norm)) => shown(steps)
                .map(|step| AtStep { step, value: norm.get() * factor(step as f64 / steps as f64) })
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn learning_rate(settings: &Settings, steps: u64) -> Option<Vec<AtStep>> {
    let (rate, schedule) = (settings.learning_rate?, parse_schedule(settings.schedule.as_deref()?).ok()?);
    // A schedule counts steps from 0.
    Some(shown(steps).map(|step| AtStep { step, value: rate * schedule.factor(step - 1, steps) }).collect())
}

#[cfg(test)]
mod tests {
    use sordino_accounting::{Entry, NoiseMultiplier, SamplingRate, Steps};

    use super::*;

    #[test]
    fn shown_steps_begin_with_the_first_and_end_with_the_last() {
        assert_eq!(shown(3).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(shown(1).collect::<Vec<_>>(), [1]);
        let many: Vec<u64> = shown(100_001).collect();
        assert_eq!((many.len(), many[0], many[59]), (60, 1, 100_001));
        assert!(many.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_multiplier_is_that_of_the_entry_of_the_step() {
        let entry = |z, steps| {
            Entry::poisson(
                NoiseMultiplier::new(z).unwrap(),
                SamplingRate::new(0.1).unwrap(),
                Steps::new(steps).unwrap(),
            )
        };
        let plan = Plan::new(vec![entry(3.0, 2), entry(2.0, 1), entry(1.0, 2)]);
        let values: Vec<f64> = multipliers(&plan, &[1, 2, 3, 4, 5]).iter().map(|at| at.value).collect();
        assert_eq!(values, [3.0, 3.0, 2.0, 1.0, 1.0]);
    }

    #[test]
    fn norms_and_rates_follow_their_schedules() {
        let settings = |text: &str| Settings::parse(text).unwrap();
        let dynamic = settings(
            "algorithm = 'dynamic,clip_decay=4'\nmax_grad_norm = 2.0\nlearning_rate = 8.0\nschedule = 'linear'",
        );
        let schedules = Schedules::new(&dynamic, None, 10);
        assert_eq!((schedules.clipping_norm[9].value, schedules.learning_rate[0].value), (0.5, 8.0));
        assert!(
            (schedules.learning_rate[9].value - 0.8).abs() < 1e-12 && schedules.noise_multiplier.is_empty()
        );
        let adaptive = Schedules::new(&settings("algorithm = 'quantile'\nmax_grad_norm = 1.0"), None, 10);
        assert!(adaptive.clipping_norm_adapts && adaptive.clipping_norm.is_empty());
        let plain = Schedules::new(&settings("algorithm = 'none'"), None, 10);
        assert!(!plain.clipping_norm_adapts && plain.clipping_norm.is_empty());
    }
}
