//! The rows of all records of a bag, one after another.

use std::borrow::Cow;
use std::ops::Range;

use crate::kernels::Matrix;

/// Rows of floats, `rows` for each record of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct RecordRows<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) width: usize,
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    /// The number of rows that each record uses; all by default.
    pub(crate) lengths: Option<&'a [usize]>,
}

/// The rows that the records of a bag use: in their place if there are no gaps between them, otherwise copied.
pub(crate) struct Stacked<'a> {
    data: Cow<'a, [f32]>,
    count: usize,
    width: usize,
    stride: usize,
}

impl<'a> RecordRows<'a> {
    /// How many rows a record uses.
    fn length(&self, record: usize) -> usize {
        self.lengths.map_or(self.rows, |lengths| lengths[record])
    }

    /// The rows of a bag.
    pub(crate) fn of_bag(&self, bag: Range<usize>) -> Stacked<'a> {
        let RecordRows { data, width, stride, rows, .. } = *self;
        let count = bag.clone().map(|record| self.length(record)).sum();
        // Gaps are rows beyond the end of a record. The last one has none behind it.
        let gaps = bag.clone().rev().skip(1).any(|record| self.length(record) < rows);
        let data = if gaps {
            let mut copy = Vec::with_capacity(count * stride);
            for record in bag {
                for row in record * rows..record * rows + self.length(record) {
                    // The data may end with the last row, without its stride.
                    copy.extend_from_slice(&data[row * stride..][..width]);
                    copy.resize(copy.len() + stride - width, 0.0);
                }
            }
            Cow::Owned(copy)
        } else {
            Cow::Borrowed(&data[bag.start * rows * stride..])
        };
        Stacked { data, count, width, stride }
    }
}

impl Stacked<'_> {
    pub(crate) fn matrix(&self) -> Matrix<'_> {
        Matrix { data: &self.data, count: self.count, width: self.width, stride: self.stride }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three records with at most two rows of two floats, three apart. The last one ends with the data.
    #[test]
    fn rows_beyond_the_end_of_a_record_are_left_out() {
        let data: Vec<f32> = (0..17).map(|value| value as f32).collect();
        let rows = |stacked: &Stacked<'_>| {
            let matrix = stacked.matrix();
            (0..matrix.count).map(|row| matrix.row(row)[0]).collect::<Vec<f32>>()
        };
        let some = |lengths, bag| {
            let rows = RecordRows { data: &data, width: 2, stride: 3, rows: 2, lengths: Some(lengths) };
            rows.of_bag(bag)
        };
        let stacked = some(&[1, 2, 2], 0..3);
        assert_eq!(rows(&stacked), [0.0, 6.0, 9.0, 12.0, 15.0]);
        assert!(matches!(stacked.data, Cow::Owned(_)));
        for (lengths, bag, expected) in [
            (&[2, 2, 1], 0..3, &[0.0, 3.0, 6.0, 9.0, 12.0][..]),
            (&[1, 1, 1], 1..2, &[6.0]),
            (&[1, 2, 2], 1..3, &[6.0, 9.0, 12.0, 15.0]),
        ] {
            let stacked = some(lengths, bag);
            assert_eq!(rows(&stacked), expected);
            assert!(matches!(stacked.data, Cow::Borrowed(_)));
        }
    }
}
