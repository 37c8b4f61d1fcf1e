//! Data sets made from arrays in memory.

use std::sync::Arc;

use rayon::prelude::*;
use sordino_nn::{RecordStore, Shape};

use crate::dataset::{Dataset, MAX_VALUES, check_size, no_records};
use crate::encoding::Encoding;
use crate::error::DataError;
use crate::input::unreadable;
use crate::labels::{LabelValues, Labels};
use crate::stored::{MAX_RECORDS, StoredRecords};
use crate::values::RecordValues;

/// Data sets from arrays in memory.
///
/// Values are used unchanged. Scale them by constants that are known without the records, for example to 0 ..= 1; a mean or
/// a maximum computed from the records is private.
impl Dataset {
    /// A data set of the rows `x`, each a record of equal length, with the labels `y`.
    ///
    /// # Guarantees
    ///
    /// The length of a row and the classes are public. The classes come from the type of `y` or from [`Labels`], never from
    /// the values.
    ///
    /// # Errors
    ///
    /// There must be at least 1 row, every row must have the length of the first and at least 1 value, every value must be
    /// finite, and `y` must have one valid label for each row. The error names the first place where this fails.
    ///
    /// ```
    /// use sordino_data::Dataset;
    ///
    /// let x = vec![vec![0.2, 1.0], vec![0.7, 0.0], vec![0.1, 1.0]];
    /// let y = vec![false, true, false];
    /// let data = Dataset::from_rows(&x, &y)?;
    /// assert_eq!((data.len(), data.classes()), (3, &["false".to_owned(), "true".to_owned()][..]));
    ///
    /// let error = Dataset::from_rows(&[[f32::NAN]], &[1.5]).unwrap_err();
    /// assert_eq!(error.to_string(), "x[0][0]: must be a finite number, got NaN");
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn from_rows<R: AsRef<[f32]>>(x: &[R], y: impl Into<Labels>) -> Result<Dataset, DataError> {
        let width = x.first().ok_or_else(|| no_records("x"))?.as_ref().len();
        check_size(|| "x".to_owned(), x.len().saturating_mul(width))?;
        let mut values = Vec::with_capacity(x.len() * width);
        for (place, row) in x.iter().map(AsRef::as_ref).enumerate() {
            if row.len() != width {
                return Err(DataError::file(
                    format!("x[{place}]"),
                    format!("the row has length {}, but x[0] has length {width}", row.len()),
                    "all rows must have the same length; fill missing values with a public constant",
                ));
            }
            values.extend_from_slice(row);
        }
        checked(values, Shape::Features(width), y.into(), |place| {
            format!("x[{}][{}]", place / width, place % width)
        })
    }

    /// A data set of the rows `x` without labels, for prediction.
    ///
    /// # Errors
    ///
    /// Those of [`from_rows`](Self::from_rows).
    pub fn unlabelled<R: AsRef<[f32]>>(x: &[R]) -> Result<Dataset, DataError> {
        Dataset::from_rows(x, Labels::none())
    }

    /// A data set of records that lie one after another in `values`, which is not copied.
    ///
    /// `shape` is the shape of one record. An image is given channel by channel and row by row, as PyTorch does. Use
    /// [`Labels::none`] for records to predict.
    ///
    /// # Errors
    ///
    /// The shape must be features or an image with at least 1 value, `values` must be a whole number of records and finite,
    /// and `y` must have one valid label for each record.
    ///
    /// ```
    /// use sordino_data::{Dataset, Labels};
    /// use sordino_nn::Shape;
    ///
    /// let pixels = vec![0.5; 2 * 3 * 8 * 8];
    /// let shape = Shape::Image { channels: 3, height: 8, width: 8 };
    /// let images = Dataset::from_flat(pixels, shape, Labels::classes(&[4, 2], 10))?;
    /// assert_eq!(images.len(), 2);
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn from_flat(values: Vec<f32>, shape: Shape, y: impl Into<Labels>) -> Result<Dataset, DataError> {
        checked(values, shape, y.into(), |place| format!("values[{place}]"))
    }

    /// Records in a store, such as a NumPy array. They are not copied, but read when a pass needs them. `place_of` returns the name of a value for
    /// error messages, given the index of the record and the index of the value in the record. All sequences have the maximum length.
    ///
    /// All values are read once to check that they are finite, unless the encoding is that of integers. A store may return other values later. If the
    /// gradient of a record is then not finite, the record contributes nothing to the step.
    ///
    /// # Errors
    ///
    /// Those of [`from_flat`](Self::from_flat), a record that cannot be read, and more than 4,294,967,295 records.
    pub fn from_store(
        store: Arc<dyn RecordStore>,
        encoding: Encoding,
        y: impl Into<Labels>,
        place_of: impl Fn(usize, usize) -> String,
    ) -> Result<Dataset, DataError> {
        let (shape, records) = (store.shape(), store.records());
        let width = match shape {
            Shape::Sequence { steps, width } => record_length(Shape::Features(steps.saturating_mul(width)))?,
            _ => record_length(shape)?,
        };
        if records > MAX_RECORDS {
            let problem = format!("{records} records; at most {MAX_RECORDS} are permitted");
            return Err(DataError::file("x", problem, "use fewer records"));
        }
        let bad = |values: &mut Vec<f32>, record| match store.read_values(record, values) {
            Err(error) => Some((record, Err(unreadable("x", &error)))),
            Ok(()) => {
                let place = values.iter().position(|value| !value.is_finite())?;
                Some((record, Ok((place, values[place]))))
            }
        };
        let bad = (0..records).into_par_iter().map_init(|| vec![0.0; width], bad);
        let integers = matches!(encoding, Encoding::Bytes | Encoding::Integers);
        match if integers { None } else { bad.find_map_first(|bad| bad) } {
            Some((record, Ok((place, value)))) => {
                return Err(not_finite(place_of(record, place), value));
            }
            Some((_, Err(error))) => return Err(error),
            None => {}
        }
        let labels = y.into().0?;
        check_count(&labels, records)?;
        Dataset::new("x", shape, encoding, StoredRecords::all(store, "x".to_owned()), labels)
    }

    /// Records that are sequences of tokens; record `i` is `tokens[starts[i] .. starts[i + 1]]`. `steps`, the largest length of a record,
    /// and `vocabulary`, the number of different tokens, are public.
    ///
    /// # Errors
    ///
    /// Every record must have 1 to `steps` tokens below `vocabulary`, and `y` one valid label for each record.
    ///
    /// ```
    /// use sordino_data::Dataset;
    ///
    /// let texts = Dataset::from_tokens(vec![3, 1, 4, 1, 5], vec![0, 2, 5], 8, 256, &[true, false])?;
    /// assert_eq!(texts.len(), 2);
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    pub fn from_tokens(
        tokens: Vec<u32>,
        starts: Vec<usize>,
        steps: usize,
        vocabulary: usize,
        y: impl Into<Labels>,
    ) -> Result<Dataset, DataError> {
        check_tokens(&tokens, &starts, steps, vocabulary)?;
        let (records, labels) = (starts.len() - 1, y.into().0?);
        check_count(&labels, records)?;
        let (shape, values) = (Shape::Tokens { steps, vocabulary }, RecordValues::Tokens { tokens, starts });
        Dataset::new("tokens", shape, Encoding::Text, values, labels)
    }
}

fn check_tokens(tokens: &[u32], starts: &[usize], steps: usize, vocabulary: usize) -> Result<(), DataError> {
    let refuse = |problem: String| {
        let hint =
            "starts has the first token of each record, in ascending order, and then the number of tokens";
        Err(DataError::file("tokens", problem, hint))
    };
    if starts.len() < 2 {
        return Err(no_records("tokens"));
    }
    if starts[0] != 0 || starts[starts.len() - 1] != tokens.len() {
        return refuse(format!("starts must begin with 0 and end with {}", tokens.len()));
    }
    for (record, pair) in starts.windows(2).enumerate() {
        let length = pair[1].saturating_sub(pair[0]);
        if !(1..=steps).contains(&length) {
            return refuse(format!("record {record} must have 1 to {steps} tokens, got {length}"));
        }
    }
    match tokens.iter().position(|&token| token as usize >= vocabulary) {
        None => Ok(()),
        Some(place) => Err(DataError::value(
            format!("tokens[{place}]"),
            format!("below the vocabulary of {vocabulary}"),
            tokens[place].to_string(),
            "the vocabulary is the number of different tokens, and tokens begin at 0",
        )),
    }
}

/// Checks that there is a label for each record, if there are labels.
fn check_count(labels: &LabelValues, records: usize) -> Result<(), DataError> {
    match labels.len().filter(|&count| count != records) {
        None => Ok(()),
        Some(count) => Err(DataError::file(
            "y",
            format!("there are {count} labels for {records} records"),
            "give one label for each record, in the same order",
        )),
    }
}

/// Checks everything that a data set guarantees; `place_of` names a value for errors.
fn checked(
    values: Vec<f32>,
    shape: Shape,
    labels: Labels,
    place_of: impl Fn(usize) -> String,
) -> Result<Dataset, DataError> {
    let width = record_length(shape)?;
    if values.is_empty() {
        return Err(no_records("x"));
    }
    check_size(|| "x".to_owned(), values.len())?;
    if !values.len().is_multiple_of(width) {
        return Err(DataError::file(
            "values",
            format!("{} values are not a whole number of records of {width} values", values.len()),
            "check the shape of a record, and that the last record is complete",
        ));
    }
    if let Some(place) = values.iter().position(|value| !value.is_finite()) {
        return Err(not_finite(place_of(place), values[place]));
    }
    let (records, labels) = (values.len() / width, labels.0?);
    check_count(&labels, records)?;
    Dataset::new("x", shape, Encoding::Floats, values, labels)
}

fn not_finite(place: String, value: f32) -> DataError {
    DataError::value(
        place,
        "a finite number",
        value.to_string(),
        "replace it by a public constant such as 0, or leave the record out",
    )
}

/// The number of values of a record.
fn record_length(shape: Shape) -> Result<usize, DataError> {
    let length = match shape {
        Shape::Features(features) => Some(features),
        Shape::Image { channels, height, width } => {
            channels.checked_mul(height).and_then(|size| size.checked_mul(width))
        }
        Shape::Sequence { .. } | Shape::Tokens { .. } => None,
    };
    length.filter(|length| (1..=MAX_VALUES).contains(length)).ok_or_else(|| DataError::Setting {
        what: "shape of a record",
        permitted: format!("features or an image with 1 to {MAX_VALUES} values"),
        got: format!("{shape:?}"),
        hint: "Shape::Features(n) is a vector of n values".to_owned(),
    })
}

#[cfg(feature = "ndarray")]
mod from_ndarray {
    use ndarray::{ArrayView, ArrayView1, Dimension};

    use super::*;

    impl Dataset {
        /// A data set of an array whose first axis counts the records. Requires the feature `ndarray`.
        ///
        /// | axes | record |
        /// | --- | --- |
        /// | `records, features` | a vector |
        /// | `records, height, width` | an image with 1 channel |
        /// | `records, channels, height, width` | an image |
        ///
        /// The view may have any strides. The values are copied.
        ///
        /// # Errors
        ///
        /// Those of [`from_flat`](Self::from_flat); an array with another number of axes.
        ///
        /// ```
        /// use ndarray::array;
        /// use sordino_data::Dataset;
        ///
        /// let (x, y) = (array![[0.2, 1.0], [0.7, 0.0]], array![3.5, 1.25]);
        /// let data = Dataset::from_array(x.view(), y.view())?;
        /// assert_eq!(data.len(), 2);
        /// # Ok::<(), sordino_data::DataError>(())
        /// ```
        pub fn from_array<D: Dimension>(
            x: ArrayView<'_, f32, D>,
            y: impl Into<Labels>,
        ) -> Result<Dataset, DataError> {
            let shape = match *x.shape() {
                [_, features] => Shape::Features(features),
                [_, height, width] => Shape::Image { channels: 1, height, width },
                [_, channels, height, width] => Shape::Image { channels, height, width },
                _ => {
                    return Err(DataError::Setting {
                        what: "number of axes of x",
                        permitted: "2 (features), 3 or 4 (images)".to_owned(),
                        got: x.ndim().to_string(),
                        hint: "the first axis counts the records; reshape the array".to_owned(),
                    });
                }
            };
            let axes = x.shape().to_vec();
            checked(x.iter().copied().collect(), shape, y.into(), |place| element(place, &axes))
        }
    }

    /// The element at `place` in logical order: `x[1, 0, 2]`.
    fn element(mut place: usize, axes: &[usize]) -> String {
        let mut indices = vec![0; axes.len()];
        for (index, length) in indices.iter_mut().zip(axes).rev() {
            (*index, place) = (place % length, place / length);
        }
        format!("x{indices:?}")
    }

    impl From<ArrayView1<'_, bool>> for Labels {
        fn from(labels: ArrayView1<'_, bool>) -> Labels {
            Labels::binary(labels)
        }
    }

    impl From<ArrayView1<'_, f32>> for Labels {
        fn from(labels: ArrayView1<'_, f32>) -> Labels {
            Labels::numbers(labels.to_vec())
        }
    }
}
