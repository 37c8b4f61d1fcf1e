//! The values of records in memory.

use rayon::prelude::*;
use sordino_nn::{Inputs, Shape};

use crate::error::DataError;

/// The inputs of all records of a data set, one record after another.
pub(crate) enum RecordValues {
    /// As many numbers for each record as its shape has.
    Floats(Vec<f32>),
    /// Sequences of tokens; record `i` is `tokens[starts[i] .. starts[i + 1]]`.
    Tokens { tokens: Vec<u32>, starts: Vec<usize> },
}

impl RecordValues {
    /// The number of records of this shape.
    pub(crate) fn records(&self, shape: Shape) -> usize {
        match self {
            Self::Floats(values) => values.len() / shape.len(),
            Self::Tokens { starts, .. } => starts.len().saturating_sub(1),
        }
    }

    /// The inputs of a network.
    pub(crate) fn inputs(&self) -> Inputs<'_> {
        match self {
            Self::Floats(values) => Inputs::Dense(values),
            Self::Tokens { tokens, starts } => Inputs::Tokens { tokens, starts },
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
            // Images are never tokens.
            Self::Tokens { .. } => return Ok(()),
        };
        let plane = shape.len() / channels.len();
        values.par_chunks_exact_mut(shape.len()).for_each(|image| {
            for (plane, (mean, std)) in image.chunks_exact_mut(plane).zip(channels) {
                plane.iter_mut().for_each(|value| *value = ((f64::from(*value) - mean) / std) as f32);
            }
        });
        match values.par_iter().position_first(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => Err(DataError::value(
                format!("{file}, record {}, value {}", at / shape.len() + 1, at % shape.len() + 1),
                "finite after normalisation",
                values[at].to_string(),
                "give a larger {std}",
            )),
        }
    }

    /// The records whose entry in `side` equals `wanted`.
    pub(crate) fn part(&self, shape: Shape, side: &[bool], wanted: bool) -> RecordValues {
        match self {
            Self::Floats(values) => Self::Floats(keep(values, shape.len(), side, wanted)),
            Self::Tokens { tokens, starts } => {
                let (mut kept, mut ends) = (Vec::new(), vec![0]);
                for (record, _) in starts.windows(2).zip(side).filter(|&(_, &s)| s == wanted) {
                    kept.extend_from_slice(&tokens[record[0]..record[1]]);
                    ends.push(kept.len());
                }
                Self::Tokens { tokens: kept, starts: ends }
            }
        }
    }
}

impl From<Vec<f32>> for RecordValues {
    fn from(values: Vec<f32>) -> Self {
        Self::Floats(values)
    }
}

/// Of records with `width` values each, those whose entry in `side` equals `wanted`.
pub(crate) fn keep<T: Copy>(values: &[T], width: usize, side: &[bool], wanted: bool) -> Vec<T> {
    let records = values.chunks_exact(width).zip(side).filter(|&(_, &s)| s == wanted);
    records.flat_map(|(record, _)| record.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
