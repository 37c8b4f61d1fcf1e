//! Data sets of several files as one.

use crate::dataset::Dataset;
use crate::error::DataError;
use crate::labels::LabelValues;
use crate::values::RecordValues;

impl Dataset {
    /// The records of this data set, followed by those of another one with the same description. Neither has units.
    ///
    /// # Errors
    ///
    /// Records of another shape, encoding or normalisation; other labels; records that stay in their file.
    ///
    /// ```
    /// use sordino_data::Dataset;
    ///
    /// let first = Dataset::from_rows(&[[0.1], [0.7]], &[true, false])?;
    /// let second = Dataset::from_rows(&[[0.4]], &[true])?;
    /// assert_eq!(first.joined_with(&second)?.len(), 3);
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn joined_with(mut self, other: &Dataset) -> Result<Dataset, DataError> {
        let refuse = |problem: &str, hint: &str| Err(DataError::file("the files", problem, hint));
        let description = |data: &Dataset| (data.shape(), data.encoding(), data.normalisation().to_vec());
        if description(&self) != description(other) || self.units.is_some() || other.units.is_some() {
            return refuse("have records of different shapes", "give files with the same columns and scales");
        }
        match (&mut self.labels, &other.labels) {
            (LabelValues::Absent, LabelValues::Absent) => {}
            (
                LabelValues::Classes { classes, names },
                LabelValues::Classes { classes: more, names: same },
            ) if names == same => {
                classes.extend(more);
            }
            (
                LabelValues::Numbers { values, scales },
                LabelValues::Numbers { values: more, scales: same },
            ) if scales == same => {
                values.extend(more);
            }
            (LabelValues::NextTokens { from }, LabelValues::NextTokens { from: more }) => from.extend(more),
            _ => return refuse("have different kinds of labels", "give files with the same target"),
        }
        match (&mut self.values, &other.values) {
            (RecordValues::Floats(values), RecordValues::Floats(more)) => values.extend(more),
            (
                RecordValues::Sequences { values, starts },
                RecordValues::Sequences { values: more, starts: others },
            ) => {
                values.extend(more);
                append(starts, others);
            }
            (
                RecordValues::Tokens { tokens, starts },
                RecordValues::Tokens { tokens: more, starts: others },
            ) => {
                tokens.extend(more);
                append(starts, others);
            }
            _ => {
                return refuse(
                    "have records that stay in their file",
                    "give CSV, JSON Lines, Parquet, NPZ or SVMLight files",
                );
            }
        }
        Ok(self)
    }
}

/// Adds the starts of more sequences, which follow the last one.
fn append(starts: &mut Vec<usize>, others: &[usize]) {
    let end = starts.last().copied().unwrap_or(0);
    starts.extend(others.iter().skip(1).map(|start| end + start));
}

#[cfg(test)]
mod tests {
    use sordino_nn::{Inputs, Targets};

    use super::*;
    use crate::{Labels, TextEncoder};

    #[test]
    fn records_and_labels_follow_each_other() {
        let numbers = |first: f32| Dataset::from_rows(&[[first], [first + 1.0]], &[first, 0.5]).unwrap();
        let both = numbers(1.0).joined_with(&numbers(7.0)).unwrap();
        let (Inputs::Dense(values), Some(Targets::Values { values: targets, .. })) =
            (both.inputs(), both.targets())
        else {
            panic!("numbers")
        };
        assert_eq!((values, targets), (&[1.0, 2.0, 7.0, 8.0][..], &[1.0, 0.5, 7.0, 0.5][..]));
    }

    #[test]
    fn texts_keep_their_borders() {
        let encoder = TextEncoder::new("bytes", 8).unwrap();
        let texts =
            |texts: &[&str]| Dataset::from_texts(texts, Labels::classes(&[0, 1], 2), &encoder).unwrap();
        let both = texts(&["ab", "c"]).joined_with(&texts(&["def", "g"])).unwrap();
        let Inputs::Tokens { tokens, starts } = both.inputs() else { panic!("tokens") };
        let length = |place: usize| starts[place + 1] - starts[place];
        assert_eq!((both.len(), *starts.last().unwrap()), (4, tokens.len()));
        assert_eq!(length(2) - length(3), 2);
    }

    #[test]
    fn other_records_are_refused() {
        let one = || Dataset::from_rows(&[[1.0]], &[true]).unwrap();
        let wide = Dataset::from_rows(&[[1.0, 2.0]], &[true]).unwrap();
        let numbers = Dataset::from_rows(&[[1.0]], &[0.5]).unwrap();
        let message = |other: &Dataset| one().joined_with(other).unwrap_err().to_string();
        assert_eq!(message(&wide), "the files: have records of different shapes");
        assert_eq!(message(&numbers), "the files: have different kinds of labels");
        assert!(one().in_units("client", &[1]).unwrap().joined_with(&one()).is_err());
    }
}
