//! A public schedule of factors along a run.

use serde::{Deserialize, Serialize};
use sordino_accounting::Steps as StepCount;

use crate::AlgorithmError;

/// The word before the factors of a schedule with one factor for each step.
const STEPS: &str = "steps:";

/// A schedule of factors, in one of two forms.
///
/// - `0:1/0.5:2/1:4`: fractions of the run, and the factor at each of them. Between two fractions the factor grows or decays exponentially.
///   Before the first fraction and after the last it is constant.
/// - `steps:1/1.1/1.3`: a factor for each step. The run must have as many steps as there are factors.
///
/// Factors are between 0.001 and 1000.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FactorSchedule(Form);

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Points(Vec<(f64, f64)>),
    Steps(Vec<f64>),
}

impl FactorSchedule {
    /// The factor after this fraction of the run.
    pub fn at(&self, part: f64) -> f64 {
        match &self.0 {
            Form::Points(points) => between(points, part),
            // Step t of T ends at the fraction t / T.
            Form::Steps(factors) => {
                let step = (part * factors.len() as f64).round() as usize;
                factors.get(step.max(1) - 1).or(factors.last()).copied().unwrap_or(1.0)
            }
        }
    }

    /// The number of steps of a list of factors; none if the schedule fits any number of steps.
    pub fn steps(&self) -> Option<u64> {
        match &self.0 {
            Form::Points(_) => None,
            Form::Steps(factors) => Some(factors.len() as u64),
        }
    }

    /// Refuses a list of factors for another number of steps. `name` is the name of the option.
    pub(crate) fn check_steps(&self, name: &str, steps: StepCount) -> Result<(), AlgorithmError> {
        match self.steps() {
            Some(listed) if listed != steps.get() => Err(AlgorithmError::Plan {
                problem: format!(
                    "{name} lists a factor for each of {listed} steps, but the run has {steps} steps"
                ),
                hint: "set {steps} to the number of factors, or list a factor for each step",
            }),
            _ => Ok(()),
        }
    }

    /// The smallest and the largest factor.
    pub(crate) fn range(&self) -> [f64; 2] {
        let wider = |[low, high]: [f64; 2], factor: f64| [low.min(factor), high.max(factor)];
        let start = [f64::INFINITY, 0.0];
        match &self.0 {
            Form::Points(points) => points.iter().map(|(_, factor)| *factor).fold(start, wider),
            Form::Steps(factors) => factors.iter().copied().fold(start, wider),
        }
    }

    /// Reads a file with one factor on each line, for one step each. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// The first line that is not a factor; a file without factors.
    pub fn from_lines(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).enumerate();
        let factors =
            lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(number, line)| {
                factor(line).ok_or_else(|| {
                    format!("line {}: expected one factor between 0.001 and 1000, got {line:?}", number + 1)
                })
            });
        match factors.collect::<Result<Vec<_>, _>>()? {
            none if none.is_empty() => Err("the file has no factors".to_owned()),
            factors => Ok(Self(Form::Steps(factors))),
        }
    }
}

/// The factor at a fraction of the run, between points.
fn between(points: &[(f64, f64)], part: f64) -> f64 {
    let after = points.partition_point(|(place, _)| *place <= part);
    match (points.get(after.wrapping_sub(1)), points.get(after)) {
        (Some((left, from)), Some((right, to))) => from * (to / from).powf((part - left) / (right - left)),
        (Some((_, factor)), None) | (None, Some((_, factor))) => *factor,
        (None, None) => 1.0,
    }
}

fn factor(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|factor| (1e-3..=1e3).contains(factor))
}

impl TryFrom<String> for FactorSchedule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(factors) = text.strip_prefix(STEPS) {
            let factors: Option<Vec<f64>> = factors.split('/').map(factor).collect();
            return factors.map(|factors| Self(Form::Steps(factors))).ok_or_else(|| {
                "a schedule of steps is written steps:FACTOR/FACTOR/..., with factors from 0.001 to 1000"
                    .to_owned()
            });
        }
        let point = |point: &str| -> Option<(f64, f64)> {
            let (part, at) = point.split_once(':')?;
            let part = part.trim().parse().ok().filter(|part| (0.0..=1.0).contains(part))?;
            Some((part, factor(at)?))
        };
        let points: Option<Vec<_>> = text.split('/').map(point).collect();
        match points {
            Some(points) if points.windows(2).all(|pair| pair[0].0 < pair[1].0) => {
                Ok(Self(Form::Points(points)))
            }
            _ => Err(format!(
                "a schedule is written FRACTION:FACTOR/FRACTION:FACTOR/..., with increasing fractions of the run, each from 0 to 1, and factors from 0.001 to \
                 1000, such as 0:1/0.5:2/1:4, or @FILE for a file with a factor for each step; got {text:?}"
            )),
        }
    }
}

impl From<FactorSchedule> for String {
    fn from(schedule: FactorSchedule) -> Self {
        match schedule.0 {
            Form::Points(points) => {
                points.iter().map(|(part, factor)| format!("{part}:{factor}")).collect::<Vec<_>>().join("/")
            }
            Form::Steps(factors) => {
                STEPS.to_owned() + &factors.iter().map(f64::to_string).collect::<Vec<_>>().join("/")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_pass_through_their_points_exponentially() {
        let curve = FactorSchedule::try_from("0.2:1/0.6:4/1:2".to_owned()).unwrap();
        for (part, factor) in
            [(0.0, 1.0), (0.2, 1.0), (0.4, 2.0), (0.6, 4.0), (0.8, 8.0_f64.sqrt()), (1.0, 2.0)]
        {
            assert!((curve.at(part) - factor).abs() < 1e-12, "{part}: {}", curve.at(part));
        }
        for bad in ["", "0.5", "0:1/0:2", "1:1/0:2", "0:0", "-1:1", "0:NaN", "0:1/", "steps:", "steps:1/0"] {
            assert!(FactorSchedule::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        assert_eq!((curve.range(), curve.steps()), ([1.0, 4.0], None));
        assert_eq!(String::from(curve), "0.2:1/0.6:4/1:2");
    }

    #[test]
    fn listed_schedules_have_a_factor_for_each_step() {
        let listed = FactorSchedule::from_lines("# mu_t / mu_0\n1\n\n 0.5 \n2.25\n").unwrap();
        assert_eq!((listed.steps(), listed.range()), (Some(3), [0.5, 2.25]));
        assert!(listed.check_steps("clip_schedule", StepCount::new(3).unwrap()).is_ok());
        let refused =
            listed.check_steps("clip_schedule", StepCount::new(4).unwrap()).unwrap_err().to_string();
        assert!(refused.contains("each of 3 steps, but the run has 4"), "{refused}");
        assert_eq!([1, 2, 3].map(|t| listed.at(f64::from(t) / 3.0)), [1.0, 0.5, 2.25]);
        let text = String::from(listed.clone());
        assert_eq!(
            (text.as_str(), FactorSchedule::try_from(text.clone()).unwrap()),
            ("steps:1/0.5/2.25", listed)
        );
        // The fraction t / T gives step t for any number of steps.
        let many =
            FactorSchedule::from_lines(&(1..=997).map(|t| format!("{t}\n")).collect::<String>()).unwrap();
        assert!((1..=997).all(|t| many.at(f64::from(t) / 997.0) == f64::from(t)));
        for (bad, part) in [("", "no factors"), ("1\n2,3\n", "line 2"), ("0\n", "line 1"), ("nan", "line 1")]
        {
            assert!(FactorSchedule::from_lines(bad).unwrap_err().contains(part), "{bad}");
        }
    }
}
