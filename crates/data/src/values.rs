//! The values of records, in memory or in a file.

use std::ops::Range;

use rayon::prelude::*;
use sordino_nn::{Inputs, RecordStore, Shape};

use crate::error::DataError;
use crate::stored::StoredRecords;

/// The inputs of all records of a data set, one record after another.
pub(crate) enum RecordValues {
    /// As many numbers for each record as its shape has.
    Floats(Vec<f32>),
    /// Sequences of vectors; record `i` is the steps `starts[i] .. starts[i + 1]`.
    Sequences { values: Vec<f32>, starts: Vec<usize> },
    /// Sequences of tokens; record `i` is `tokens[starts[i] .. starts[i + 1]]`.
    Tokens { tokens: Vec<u32>, starts: Vec<usize> },
    /// Records that stay in their file.
    Stored(StoredRecords),
}

impl RecordValues {
    /// The number of records of this shape.
    pub(crate) fn records(&self, shape: Shape) -> usize {
        match self {
            Self::Floats(values) => values.len() / shape.len(),
            Self::Sequences { starts, .. } | Self::Tokens { starts, .. } => starts.len().saturating_sub(1),
            Self::Stored(records) => records.records(),
        }
    }

    /// The inputs of a network.
    pub(crate) fn inputs(&self) -> Inputs<'_> {
        match self {
            Self::Floats(values) => Inputs::Dense(values),
            Self::Sequences { values, starts } => Inputs::Sequences { values, starts },
            Self::Tokens { tokens, starts } => Inputs::Tokens { tokens, starts },
            Self::Stored(records) => Inputs::Stored(records),
        }
    }

    /// Replaces a value `x` of channel `c` by `(x - mean) / std`, where `channels[c]` is `(mean, std)`.
    pub(crate) fn normalise(
        &mut self,
        file: &str,
        shape: Shape,
        channels: &[(f64, f64)],
    ) -> Result<(), DataError> {
        let values = match self {
            Self::Floats(values) => values,
            Self::Stored(records) => return records.normalise(channels),
            // Images are never sequences.
            Self::Sequences { .. } | Self::Tokens { .. } => return Ok(()),
        };
        let finite = |image: &mut [f32]| normalise(image, channels);
        match values.par_chunks_exact_mut(shape.len()).map(finite).position_first(|finite| !finite) {
            None => Ok(()),
            Some(record) => Err(not_finite(file, record)),
        }
    }

    /// The records whose entry in `side` is false, and those whose entry is true. The first ones are moved together within the same memory.
    pub(crate) fn split(self, shape: Shape, side: &[bool]) -> (RecordValues, RecordValues) {
        match self {
            Self::Floats(values) => {
                let (rest, taken) = separate(values, shape.len(), side);
                (Self::Floats(rest), Self::Floats(taken))
            }
            other => (other.part(shape, side, false), other.part(shape, side, true)),
        }
    }

    /// The records whose entry in `side` equals `wanted`.
    pub(crate) fn part(&self, shape: Shape, side: &[bool], wanted: bool) -> RecordValues {
        match self {
            Self::Floats(values) => Self::Floats(keep(values, shape.len(), side, wanted)),
            Self::Sequences { values, starts } => {
                let width = shape.len() / shape.steps();
                let (values, starts) = keep_sequences(values, starts, width, side, wanted);
                Self::Sequences { values, starts }
            }
            Self::Tokens { tokens, starts } => {
                let (tokens, starts) = keep_sequences(tokens, starts, 1, side, wanted);
                Self::Tokens { tokens, starts }
            }
            Self::Stored(records) => Self::Stored(records.part(side, wanted)),
        }
    }
}

impl From<Vec<f32>> for RecordValues {
    fn from(values: Vec<f32>) -> Self {
        Self::Floats(values)
    }
}

impl From<StoredRecords> for RecordValues {
    fn from(records: StoredRecords) -> Self {
        Self::Stored(records)
    }
}

/// Replaces a value `x` of channel `c` of an image by `(x - mean) / std`, where `channels[c]` is `(mean, std)`; returns false if a result
/// is not finite.
pub(crate) fn normalise(image: &mut [f32], channels: &[(f64, f64)]) -> bool {
    let plane = image.len() / channels.len();
    for (plane, (mean, std)) in image.chunks_exact_mut(plane).zip(channels) {
        plane.iter_mut().for_each(|value| *value = ((f64::from(*value) - mean) / std) as f32);
    }
    image.iter().all(|value| value.is_finite())
}

/// The error for an image that cannot be normalised.
pub(crate) fn not_finite(file: &str, record: usize) -> DataError {
    DataError::file(
        format!("{file}, record {}", record + 1),
        "a value is not finite after normalisation",
        "give a larger {std}",
    )
}

/// Selects the records, of `width` values each, whose entry in `side` equals `wanted`.
pub(crate) fn keep<T: Copy>(values: &[T], width: usize, side: &[bool], wanted: bool) -> Vec<T> {
    let count = side.iter().filter(|&&side| side == wanted).count();
    let mut kept = Vec::with_capacity(count * width);
    for (range, side) in runs(width, side) {
        if side == wanted {
            kept.extend_from_slice(&values[range]);
        }
    }
    kept
}

/// The records, of `width` values each, whose entry in `side` is false, and those whose entry is true. The first ones are moved together
/// in place. New memory is needed for the second ones only, unless the allocator moves the first ones when their memory shrinks.
pub(crate) fn separate<T: Copy>(mut values: Vec<T>, width: usize, side: &[bool]) -> (Vec<T>, Vec<T>) {
    let count = side.iter().filter(|&&side| side).count();
    let (mut rest, mut taken) = (0, Vec::with_capacity(count * width));
    for (range, side) in runs(width, side) {
        if side {
            taken.extend_from_slice(&values[range]);
        } else {
            let length = range.len();
            values.copy_within(range, rest);
            rest += length;
        }
    }
    values.truncate(rest);
    values.shrink_to_fit();
    (values, taken)
}

/// The ranges of values of consecutive records, of `width` values each, that have the same entry in `side`.
fn runs(width: usize, side: &[bool]) -> impl Iterator<Item = (Range<usize>, bool)> {
    let mut start = 0;
    side.chunk_by(|a, b| a == b).map(move |run| {
        let range = start..start + run.len() * width;
        start = range.end;
        (range, run[0])
    })
}

/// Selects the sequences, with `width` values in each step, whose entry in `side` equals `wanted`.
fn keep_sequences<T: Copy>(
    values: &[T],
    starts: &[usize],
    width: usize,
    side: &[bool],
    wanted: bool,
) -> (Vec<T>, Vec<usize>) {
    let (mut kept, mut ends) = (Vec::new(), vec![0]);
    for (record, _) in starts.windows(2).zip(side).filter(|&(_, &s)| s == wanted) {
        kept.extend_from_slice(&values[record[0] * width..record[1] * width]);
        ends.push(kept.len() / width);
    }
    (kept, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_separated_as_one_by_one() {
        let sides: [&[bool]; 5] =
            [&[], &[true], &[false, false], &[true, false, true, true, false], &[false, true, true, false]];
        for side in sides {
            for width in [1, 3] {
                let values: Vec<usize> = (0..side.len() * width).collect();
                let naive = |wanted: bool| -> Vec<usize> {
                    values.iter().copied().filter(|place| side[place / width] == wanted).collect()
                };
                assert_eq!(separate(values.clone(), width, side), (naive(false), naive(true)));
                for wanted in [false, true] {
                    assert_eq!(keep(&values, width, side, wanted), naive(wanted));
                }
            }
        }
    }

    #[test]
    fn a_part_of_token_sequences_keeps_whole_records() {
        let values = RecordValues::Tokens { tokens: vec![1, 2, 3, 4, 5, 6], starts: vec![0, 2, 3, 6] };
        let shape = Shape::Tokens { steps: 3, vocabulary: 7 };
        assert_eq!(values.records(shape), 3);
        let part = values.part(shape, &[true, false, true], true);
        let Inputs::Tokens { tokens, starts } = part.inputs() else { panic!("tokens") };
        assert_eq!((tokens, starts), (&[1, 2, 4, 5, 6][..], &[0, 2, 5][..]));
        assert_eq!(values.part(shape, &[true, false, true], false).records(shape), 1);
    }

    #[test]
    fn a_part_of_vector_sequences_keeps_whole_records() {
        let values =
            RecordValues::Sequences { values: (0..12).map(|i| i as f32).collect(), starts: vec![0, 2, 3, 6] };
        let shape = Shape::Sequence { steps: 3, width: 2 };
        let part = values.part(shape, &[false, true, true], true);
        let Inputs::Sequences { values, starts } = part.inputs() else { panic!("sequences") };
        assert_eq!((values, starts), (&[4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0][..], &[0, 1, 4][..]));
    }
}
