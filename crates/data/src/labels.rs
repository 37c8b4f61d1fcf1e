//! The labels of records, and their public classes.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{DataError, quoted};
use crate::field::listed;
use crate::values::separate;

/// The largest number of classes.
pub(crate) const MAX_CLASSES: usize = 1 << 16;

/// The labels of the records of a [`Dataset`](crate::Dataset), one for each record in the same order.
///
/// | labels | made from | the model predicts |
/// | --- | --- | --- |
/// | yes or no | `&[bool]` | one of the classes `false` and `true` |
/// | class numbers | [`Labels::classes`] | one of the classes `0`, `1`, ... |
/// | class names | [`Labels::named`], [`Labels::numbered`] | one of the names |
/// | numbers | `&[f32]`, [`Labels::scaled`] | a number in the same unit |
/// | none | [`Labels::none`] | |
///
/// Slices, arrays and vectors convert by `From`, so `Dataset::from_rows(&x, &y)` accepts them directly.
///
/// # Guarantees
///
/// The number of classes and their names are public. They must be stated, because a class that exists only because of one
/// record would reveal that record. A caller that takes them from the labels must declare it with
/// [`Dataset::with_observed_classes`](crate::Dataset::with_observed_classes). `Debug` shows counts, but no labels.
///
/// # Errors
///
/// Labels are checked when they are made. Errors in them are reported by the function that makes the data set.
///
/// ```
/// use sordino_data::{Dataset, Labels};
///
/// let x = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]];
/// let digits = Dataset::from_rows(&x, Labels::classes(&[7, 0, 9], 10))?;
/// assert_eq!(digits.classes().len(), 10);
///
/// let pets = Dataset::from_rows(&x, Labels::named(&["cat", "dog"], &["dog", "dog", "cat"]))?;
/// assert_eq!(pets.classes(), ["cat", "dog"]);
/// # Ok::<(), sordino_data::DataError>(())
/// ```
#[derive(Clone)]
pub struct Labels(pub(crate) Result<LabelValues, DataError>);

/// Labels that have been checked.
#[derive(Clone)]
pub(crate) enum LabelValues {
    Absent,
    /// A class for each record, below the number of names.
    Classes {
        classes: Vec<u32>,
        names: Vec<String>,
    },
    /// A finite number for each record and each of `scales`.
    Numbers {
        values: Vec<f32>,
        scales: Vec<Scale>,
    },
    /// For a language model: record `i` has at least 1 token before `from[i]`, and predicts each token from there on from those
    /// before it.
    NextTokens {
        from: Vec<usize>,
    },
}

/// The public scale of a number `x`, which is stored as `(x - center) / scale`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// The number that becomes 0.
    pub center: f64,
    /// The difference from the center that becomes 1.
    pub scale: f64,
}

impl Scale {
    /// No scaling.
    pub const NONE: Scale = Scale { center: 0.0, scale: 1.0 };

    /// The scale that maps a public range to the range from -1 to 1.
    ///
    /// # Errors
    ///
    /// `low` must be below `high`, and both must be finite.
    pub fn of_range(low: f64, high: f64) -> Result<Scale, DataError> {
        let (center, scale) = (low / 2.0 + high / 2.0, high / 2.0 - low / 2.0);
        if low < high && scale.is_finite() && scale > 0.0 && center.is_finite() {
            return Ok(Scale { center, scale });
        }
        Err(DataError::Setting {
            what: "target range",
            permitted: "two finite numbers, the smaller one first".to_owned(),
            got: format!("({low}, {high})"),
            hint: "{target_range} is public: give a range that does not depend on the records".to_owned(),
        })
    }

    /// The number before scaling.
    pub fn undo(&self, number: f32) -> f64 {
        self.center + self.scale * f64::from(number)
    }
}

impl Labels {
    /// No labels: the records are for prediction.
    pub fn none() -> Labels {
        Labels(Ok(LabelValues::Absent))
    }

    /// Class numbers from 0 to `count - 1`; `count` is public.
    ///
    /// # Errors
    ///
    /// `count` must be in 2..=65536, and every label below it.
    pub fn classes<'a>(labels: impl IntoIterator<Item = &'a u32>, count: usize) -> Labels {
        Labels(check_classes(count).and_then(|count| {
            let check = |(place, &class): (usize, &u32)| match class as usize {
                found if found < count => Ok(class),
                _ => Err(outside(
                    place,
                    format!("a class from 0 to {}", count - 1),
                    class.to_string(),
                    "declare a larger number of classes, or correct the label",
                )),
            };
            let classes = labels.into_iter().enumerate().map(check).collect::<Result<_, _>>()?;
            Ok(LabelValues::Classes { classes, names: numbered(count) })
        }))
    }

    /// Class names; `names` lists all classes and is public. The number of a class is its place in `names`.
    ///
    /// # Errors
    ///
    /// There must be 2 to 65536 different names, and every label must be one of them.
    pub fn named<N: AsRef<str>, L: AsRef<str>>(names: &[N], labels: &[L]) -> Labels {
        let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
        Labels(check_names(&names).and_then(|()| {
            let numbers: HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
            let find = |(place, label): (usize, &L)| {
                numbers.get(label.as_ref()).copied().ok_or_else(|| {
                    outside(
                        place,
                        format!("one of {}", listed(&names)),
                        quoted(label.as_ref().as_bytes()),
                        "add the name to the classes, or correct the label",
                    )
                })
            };
            let classes = labels.iter().enumerate().map(find).collect::<Result<_, _>>()?;
            Ok(LabelValues::Classes { classes, names })
        }))
    }

    /// Class indices for these names. `names` is the public list of all classes.
    ///
    /// # Errors
    ///
    /// There must be 2 to 65536 different names, and every label must be below their number.
    pub fn numbered<N: AsRef<str>>(names: &[N], labels: &[u32]) -> Labels {
        let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
        Labels(check_names(&names).and_then(|()| match Labels::classes(labels, names.len()).0? {
            LabelValues::Classes { classes, .. } => Ok(LabelValues::Classes { classes, names }),
            other => Ok(other),
        }))
    }

    /// Targets of a regression: for each record, one number for each of these public scales. Predictions are in the units of `values`.
    ///
    /// # Errors
    ///
    /// There must be at least one scale, and all scales must be positive and finite. `values` must have one number for each record and each scale.
    /// Every number must be finite in single precision after scaling.
    ///
    /// ```
    /// use sordino_data::{Dataset, Labels, Scale};
    ///
    /// let prices = Labels::scaled(&[150_000.0, 420_000.0], &[Scale::of_range(0.0, 500_000.0)?]);
    /// let houses = Dataset::from_rows(&[[0.3], [0.9]], prices)?;
    /// assert_eq!(houses.scales()[0].undo(1.0), 500_000.0);
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn scaled(values: &[f64], scales: &[Scale]) -> Labels {
        Labels(check_scales(values, scales).and_then(|()| {
            let scaled = |(place, &value): (usize, &f64)| {
                let Scale { center, scale } = scales[place % scales.len()];
                let number = ((value - center) / scale) as f32;
                let place = match scales.len() {
                    1 => format!("y[{place}]"),
                    width => format!("y[{}, {}]", place / width, place % width),
                };
                match number.is_finite() {
                    true => Ok(number),
                    false => Err(DataError::value(
                        place,
                        "a finite number",
                        value.to_string(),
                        "leave the record out; a missing label cannot be learnt from",
                    )),
                }
            };
            let values = values.iter().enumerate().map(scaled).collect::<Result<_, _>>()?;
            Ok(LabelValues::Numbers { values, scales: scales.to_vec() })
        }))
    }

    /// The classes `false` and `true`.
    pub(crate) fn binary<'a>(labels: impl IntoIterator<Item = &'a bool>) -> Labels {
        let classes = labels.into_iter().map(|&label| u32::from(label)).collect();
        let names = ["false", "true"].map(str::to_owned).to_vec();
        Labels(Ok(LabelValues::Classes { classes, names }))
    }

    /// One number for each record, not scaled.
    pub(crate) fn numbers(values: Vec<f32>) -> Labels {
        let bad = values.iter().enumerate().find(|(_, value)| !value.is_finite());
        Labels(match bad {
            Some((place, value)) => Err(outside(
                place,
                "a finite number".to_owned(),
                value.to_string(),
                "leave the record out; a missing label cannot be learnt from",
            )),
            None => Ok(LabelValues::Numbers { values, scales: vec![Scale::NONE] }),
        })
    }
}

impl LabelValues {
    /// The number of records that they label; `None` if there are no labels.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            LabelValues::Absent => None,
            LabelValues::Classes { classes, .. } => Some(classes.len()),
            LabelValues::Numbers { values, scales } => Some(values.len() / scales.len()),
            LabelValues::NextTokens { from } => Some(from.len()),
        }
    }

    /// The labels of the records whose entry in `side` is false, and of those whose entry is true.
    pub(crate) fn split(self, side: &[bool]) -> (LabelValues, LabelValues) {
        match self {
            LabelValues::Absent => (LabelValues::Absent, LabelValues::Absent),
            LabelValues::Classes { classes, names } => {
                let (rest, taken) = separate(classes, 1, side);
                let labels = |classes, names| LabelValues::Classes { classes, names };
                (labels(rest, names.clone()), labels(taken, names))
            }
            LabelValues::Numbers { values, scales } => {
                let (rest, taken) = separate(values, scales.len(), side);
                let labels = |values, scales| LabelValues::Numbers { values, scales };
                (labels(rest, scales.clone()), labels(taken, scales))
            }
            LabelValues::NextTokens { from } => {
                let (rest, taken) = separate(from, 1, side);
                (LabelValues::NextTokens { from: rest }, LabelValues::NextTokens { from: taken })
            }
        }
    }

    /// What they are, without their values.
    pub(crate) fn describe(&self) -> String {
        match self {
            LabelValues::Absent => "none".to_owned(),
            LabelValues::Classes { names, .. } => format!("{} classes", names.len()),
            LabelValues::Numbers { scales, .. } => format!("{} numbers", scales.len()),
            LabelValues::NextTokens { .. } => "next tokens to predict".to_owned(),
        }
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(labels) => {
                write!(f, "Labels {{ labels: {:?}, count: {:?} }}", labels.describe(), labels.len())
            }
            Err(_) => f.write_str("Labels { refused }"),
        }
    }
}

/// Slices, vectors and arrays of `$label`.
macro_rules! from_slices {
    ($label:ty, $make:expr) => {
        impl From<&[$label]> for Labels {
            fn from(labels: &[$label]) -> Labels {
                $make(labels)
            }
        }

        impl From<&Vec<$label>> for Labels {
            fn from(labels: &Vec<$label>) -> Labels {
                $make(labels)
            }
        }

        impl<const N: usize> From<&[$label; N]> for Labels {
            fn from(labels: &[$label; N]) -> Labels {
                $make(labels)
            }
        }
    };
}

from_slices!(bool, |labels: &[bool]| Labels::binary(labels));
from_slices!(f32, |labels: &[f32]| Labels::numbers(labels.to_vec()));

/// Checks a declared number of classes.
pub(crate) fn check_classes(classes: usize) -> Result<usize, DataError> {
    if (2..=MAX_CLASSES).contains(&classes) {
        return Ok(classes);
    }
    Err(DataError::Setting {
        what: "number of classes",
        permitted: format!("2 to {MAX_CLASSES}"),
        got: classes.to_string(),
        hint: "leave out {classes} to predict a number".to_owned(),
    })
}

fn check_scales(values: &[f64], scales: &[Scale]) -> Result<(), DataError> {
    let good = |scale: &Scale| scale.center.is_finite() && scale.scale.is_finite() && scale.scale > 0.0;
    if scales.is_empty() || !scales.iter().all(good) || !values.len().is_multiple_of(scales.len()) {
        return Err(DataError::Setting {
            what: "scales of the numbers to predict",
            permitted: format!(
                "positive and finite, and their number must divide the {} numbers evenly",
                values.len()
            ),
            got: format!("{scales:?}"),
            hint: "give one scale for each target".to_owned(),
        });
    }
    Ok(())
}

/// The names of classes that are numbers.
pub(crate) fn numbered(classes: usize) -> Vec<String> {
    (0..classes).map(|class| class.to_string()).collect()
}

fn check_names(names: &[String]) -> Result<(), DataError> {
    check_classes(names.len())?;
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(DataError::Setting {
            what: "names of classes",
            permitted: "different".to_owned(),
            got: format!("{} twice", quoted(name.as_bytes())),
            hint: "list each class once".to_owned(),
        }),
        None => Ok(()),
    }
}

fn outside(place: usize, permitted: String, got: String, hint: &str) -> DataError {
    DataError::value(format!("y[{place}]"), permitted, got, hint)
}
