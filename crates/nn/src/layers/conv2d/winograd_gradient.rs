//! The gradient of 3x3 filters by the Winograd algorithm, for one record at a time.
//!
//! The frequencies of the gradient are summed over the tiles of the record and transformed to the taps. The frequencies of several records
//! must not be added up before they are transformed: the last bits of a record's contribution would then depend on the other records, and its
//! norm would not be known.

use super::Conv2dOperation;
use super::winograd::{FREQUENCIES, FREQUENCY_BUFFERS, Winograd};
use crate::kernels::winograd::{Source, Target, Tile, Window, from_frequencies, to_frequencies};
use crate::kernels::{Aligned, Runs, Store, outer_sum};
use crate::shape::Storage;

/// Floats of the frequencies of a gradient that are summed together: a part of the second-level cache.
const SUMS: usize = 96 << 10;

/// The smallest number of tiles with which the algorithm saves more time than the transform of the sums takes.
const FEWEST_TILES: usize = 9;

impl Conv2dOperation {
    /// The tiles over which the gradient of a record is summed, if this is faster than a direct sum. This depends on public shapes only.
    pub(super) fn winograd_gradient(&self) -> Option<Winograd> {
        let winograd = Winograd { tile: Tile::Four, ..self.winograd_forward()? };
        (winograd.tiles() >= FEWEST_TILES).then_some(winograd)
    }
}

/// The frequencies of some tiles of a record: those of the inputs for each term, then those of the output gradients for each term.
struct Operands<'a> {
    buffers: [&'a mut Aligned; 2],
    widths: [usize; 2],
    strides: [usize; 2],
}

impl Winograd {
    /// Writes the gradient of a record, summed over all terms, to `gradient`, or adds it.
    pub(super) fn gradient(
        &self,
        terms: &[(&[f32], &[f32])],
        record: usize,
        gradient: &mut [f32],
        accumulate: bool,
    ) {
        let (inputs, outputs, frequencies) = (self.from.channels, self.to.channels, self.tile.frequencies());
        FREQUENCY_BUFFERS.with_borrow_mut(|[left, right, sums]| {
            let widths = [inputs, outputs].map(|channels| channels.next_multiple_of(16));
            let together =
                (FREQUENCIES / (frequencies * terms.len() * (widths[0] + widths[1]))).clamp(1, self.tiles());
            let strides = widths.map(|width| Storage::stride(together * width));
            let mut operands = Operands { buffers: [left, right], widths, strides };
            operands.reserve(terms.len() * frequencies);
            // With several groups of tiles, the sums of all blocks of inputs are kept from one group to the next.
            let rows = (SUMS / (frequencies * outputs)).next_multiple_of(12).min(inputs);
            let stride = Storage::stride(rows * outputs);
            let single = together >= self.tiles();
            let blocks = if single { 1 } else { inputs.div_ceil(rows) };
            sums.reserve(blocks * frequencies * stride);
            for first in (0..self.tiles()).step_by(together) {
                let count = together.min(self.tiles() - first);
                self.transform(terms, record * self.tiles() + first, count, &mut operands);
                for row in (0..inputs).step_by(rows) {
                    let height = rows.min(inputs - row);
                    let block = if single { 0 } else { row / rows };
                    let sums = &mut sums[block * frequencies * stride..];
                    for frequency in 0..frequencies {
                        let out = &mut sums[frequency * stride..];
                        operands.add(frequency, terms.len(), count, (row, height, outputs), out, first > 0);
                    }
                    if first + count == self.tiles() {
                        let store = Store { accumulate, bias: None };
                        self.taps(sums, stride, row..row + height, gradient, store);
                    }
                }
            }
        });
    }

    /// Transforms `count` tiles from `first` on.
    fn transform(&self, terms: &[(&[f32], &[f32])], first: usize, count: usize, operands: &mut Operands<'_>) {
        let Operands { buffers: [left, right], widths, strides } = operands;
        let frequencies = self.tile.frequencies();
        for (number, (x, dy)) in terms.iter().enumerate() {
            for index in 0..count {
                let place = number * frequencies * strides[0] + index * widths[0];
                let (source, window) = (Source::Inputs(self.tile), self.input_window(first + index));
                to_frequencies(source, x, window, self.from.channels, &mut left[place..], strides[0]);
                let place = number * frequencies * strides[1] + index * widths[1];
                let window = self.output_window(first + index, 0);
                to_frequencies(
                    Source::Gradients,
                    dy,
                    window,
                    self.to.channels,
                    &mut right[place..],
                    strides[1],
                );
            }
        }
    }

    /// Transforms the sums of some input channels to taps, in the order of written-out gradients.
    fn taps(
        &self,
        sums: &[f32],
        stride: usize,
        inputs: std::ops::Range<usize>,
        gradient: &mut [f32],
        store: Store<'_>,
    ) {
        let outputs = self.to.channels;
        let pixel = self.from.channels * outputs;
        for (index, input) in inputs.enumerate() {
            let window = Window { start: input * outputs, row: 3 * pixel, pixel, rows: 3, columns: 3 };
            from_frequencies(
                Target::Taps,
                &sums[index * outputs..],
                stride,
                gradient,
                window,
                outputs,
                store,
            );
        }
    }
}

impl Operands<'_> {
    fn reserve(&mut self, frequencies: usize) {
        for (buffer, stride) in self.buffers.iter_mut().zip(self.strides) {
            buffer.reserve(frequencies * stride);
        }
    }

    /// Sums one frequency over tiles and terms, for `height` input channels from `row` on and all `outputs`.
    fn add(
        &self,
        frequency: usize,
        terms: usize,
        tiles: usize,
        (row, height, outputs): (usize, usize, usize),
        out: &mut [f32],
        accumulate: bool,
    ) {
        let [left, right] = &self.buffers;
        let frequencies = Tile::Four.frequencies();
        let part = |number: usize| {
            let place = number * frequencies + frequency;
            (&left[place * self.strides[0]..], &right[place * self.strides[1]..])
        };
        let runs = Runs {
            starts: &[(row, 0)],
            len: tiles,
            left_step: self.widths[0],
            right_step: self.widths[1],
            unit: tiles,
        };
        match terms {
            1 => outer_sum((height, outputs), &[part(0)], runs, out, outputs, accumulate),
            _ => {
                let parts: Vec<_> = (0..terms).map(part).collect();
                outer_sum((height, outputs), &parts, runs, out, outputs, accumulate);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::winograd::tests::pixels;
    use super::*;
    use crate::kernels::vector::tests::numbers;
    use crate::shape::Image;

    /// The gradient of a record in double precision, and the square root of the sum of the squares of its terms.
    fn naive(conv: &Winograd, terms: &[(&[f32], &[f32])], record: usize) -> Vec<(f64, f64)> {
        let (inputs, outputs) = (conv.from.channels, conv.to.channels);
        let mut gradient = vec![(0.0, 0.0); 9 * inputs * outputs];
        for (x, dy) in terms {
            let (x, dy) = (&x[record * conv.from.record()..], &dy[record * conv.to.record()..]);
            for (y, column) in (0..conv.to.height).flat_map(|y| (0..conv.to.width).map(move |x| (y, x))) {
                let dy = &dy[conv.to.at(y, column)..][..outputs];
                for tap in 0..9 {
                    let (y, column) = (y + conv.shift + tap / 3, column + conv.shift + tap % 3);
                    let x = &x[y * conv.from.row() + column * inputs..][..inputs];
                    let rows = gradient[tap * inputs * outputs..].chunks_exact_mut(outputs);
                    for (x, row) in x.iter().zip(rows) {
                        for (sum, dy) in row.iter_mut().zip(dy) {
                            let product = f64::from(*x) * f64::from(*dy);
                            *sum = (sum.0 + product, sum.1 + product * product);
                        }
                    }
                }
            }
        }
        gradient.into_iter().map(|(sum, squares)| (sum, squares.sqrt())).collect()
    }

    /// Images of few tiles and of several groups of tiles, with one term and with two.
    #[test]
    fn the_gradient_of_a_record_equals_a_direct_sum_in_double_precision() {
        for (height, width, padding, from, to) in [
            (5, 7, 1, 3, 16),
            (1, 1, 1, 1, 1),
            (4, 4, 0, 16, 65),
            (33, 31, 2, 3, 5),
            (40, 36, 1, 64, 64),
            (16, 16, 1, 130, 20),
        ] {
            let input = Image { channels: from, height, width, border: padding + 1 };
            let (rows, columns) = (height + 2 * padding - 2, width + 2 * padding - 2);
            let output = Image { channels: to, height: rows, width: columns, border: 1 };
            let conv = Winograd { from: input, to: output, shift: 1, tile: Tile::Four };
            let records = 2;
            let operands =
                [1, 2].map(|seed| (pixels(input, records, seed), pixels(output, records, seed + 2)));
            for terms in 1..=2 {
                let terms: Vec<_> = operands[..terms].iter().map(|(x, dy)| (&x[..], &dy[..])).collect();
                for (record, accumulate) in [(0, false), (1, true)] {
                    let before = numbers(9 * from * to, 7);
                    let mut gradient = before.clone();
                    conv.gradient(&terms, record, &mut gradient, accumulate);
                    let truth = naive(&conv, &terms, record);
                    for ((own, before), (sum, scale)) in gradient.iter().zip(&before).zip(truth) {
                        let truth = sum + if accumulate { f64::from(*before) } else { 0.0 };
                        let error = (f64::from(*own) - truth).abs();
                        assert!(error < 1e-5 * scale.max(1.0), "{conv:?}: {error} of {scale}");
                    }
                }
            }
        }
    }
}
