//! A factor of a clipping norm: a number, or a public schedule of numbers along the run.

use serde::{Deserialize, Serialize};
use sordino_accounting::Steps as StepCount;

use crate::{AlgorithmError, FactorSchedule, options::OptionValue};

/// A factor that is constant, written `100`, or follows a schedule, written `0:1/1:100`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Scale {
    /// The same number in all steps.
    Constant(f64),
    /// Fractions of the run, and the factor at each of them.
    Scheduled(FactorSchedule),
}

impl Scale {
    /// The factor after this fraction of the run.
    pub fn at(&self, part: f64) -> f64 {
        match self {
            Self::Constant(factor) => *factor,
            Self::Scheduled(schedule) => schedule.at(part),
        }
    }

    /// Refuses a list of factors for another number of steps. `name` is the name of the option.
    pub(crate) fn check_steps(&self, name: &str, steps: StepCount) -> Result<(), AlgorithmError> {
        match self {
            Self::Constant(_) => Ok(()),
            Self::Scheduled(schedule) => schedule.check_steps(name, steps),
        }
    }
}

impl From<f64> for Scale {
    fn from(factor: f64) -> Self {
        Self::Constant(factor)
    }
}

impl From<FactorSchedule> for Scale {
    fn from(schedule: FactorSchedule) -> Self {
        Self::Scheduled(schedule)
    }
}

/// The range of an option applies to a constant; a schedule has its own range.
impl OptionValue for Scale {
    type Number = f64;

    fn number(&self) -> Option<f64> {
        match self {
            Self::Constant(factor) => Some(*factor),
            Self::Scheduled(_) => None,
        }
    }
}

/// A scale as it is written in files.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Text(String),
}

impl TryFrom<Written> for Scale {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(factor) => Ok(Self::Constant(factor)),
            Written::Text(text) => FactorSchedule::try_from(text)
                .map(Self::Scheduled)
                .map_err(|problem| format!("neither a number nor a schedule: {problem}")),
        }
    }
}

impl From<Scale> for Written {
    fn from(scale: Scale) -> Self {
        match scale {
            Scale::Constant(factor) => Self::Number(factor),
            Scale::Scheduled(schedule) => Self::Text(schedule.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_a_number_or_a_schedule_and_is_read_back() {
        let read = |json: &str| serde_json::from_str::<Scale>(json);
        for (json, start, end) in [("1.7", 1.7, 1.7), ("100", 100.0, 100.0), (r#""0:1/1:4""#, 1.0, 4.0)] {
            let scale = read(json).unwrap();
            assert_eq!((scale.at(0.0), scale.at(1.0)), (start, end), "{json}");
            assert_eq!(read(&serde_json::to_string(&scale).unwrap()).unwrap(), scale, "{json}");
        }
        assert!((read(r#""0:1/1:4""#).unwrap().at(0.5) - 2.0).abs() < 1e-12);
        let wrong = read(r#""growing""#).unwrap_err().to_string();
        assert!(wrong.contains("FRACTION:FACTOR") && wrong.contains("growing"), "{wrong}");
    }
}
