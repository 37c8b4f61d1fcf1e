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
                let first = record * rows * stride;
                copy.extend_from_slice(&data[first..first + self.length(record) * stride]);
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
