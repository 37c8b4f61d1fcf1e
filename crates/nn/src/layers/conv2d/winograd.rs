//! Convolutions with 3x3 filters by the Winograd algorithm, a few output tiles at a time.
//!
//! The tiles of consecutive records are processed together, since one small image has too few tiles for an efficient product. The rows of a
//! product are computed separately, so the result for a record does not depend on other records.

use std::cell::RefCell;

use super::Conv2dOperation;
use crate::kernels::winograd::{
    Filters, Source, Target, Tile, Window, from_frequencies, pack_filters, to_frequencies,
};
use crate::kernels::{Aligned, Packed, Rows, Segment, Store, product};
use crate::shape::{Image, Storage};

/// The number of output channels in a block. Blocks are multiplied and transformed back one after another, so that their frequencies stay in
/// the second-level cache.
const BLOCK: usize = 64;

/// Floats of the frequencies of tiles that are processed together. They take less than the second-level cache, which also holds filters.
pub(super) const FREQUENCIES: usize = 300 << 10;

thread_local! {
    /// The frequencies of inputs, of outputs or their gradients, and of gradients of filters. All layers of a worker use the same buffers,
    /// which stay in the second-level cache.
    pub(super) static FREQUENCY_BUFFERS: RefCell<[Aligned; 3]> = RefCell::default();
}

/// A convolution with stride 1 from one image to another: the output at `(y, x)` reads the 3x3 pixels from `(y + shift, x + shift)` on,
/// counted from the first pixel of the input's border.
#[derive(Debug, Clone, Copy)]
pub(super) struct Winograd {
    pub(super) from: Image,
    pub(super) to: Image,
    pub(super) shift: usize,
    pub(super) tile: Tile,
}

impl Conv2dOperation {
    /// Whether the convolution has 3x3 filters, stride 1 and one group.
    fn suits_winograd(&self) -> bool {
        self.kernel == 3 && self.stride == 1 && self.groups == 1
    }

    pub(super) fn winograd_forward(&self) -> Option<Winograd> {
        let shift = || self.input.border - self.padding;
        self.suits_winograd().then(|| Winograd::new(self.input, self.output, shift()))?
    }

    /// The gradient of the input is a convolution of the output's gradient with reversed filters.
    pub(super) fn winograd_backward(&self) -> Option<Winograd> {
        let shift = || self.output.border + self.padding - 2;
        self.suits_winograd().then(|| Winograd::new(self.output, self.input, shift()))?
    }
}

impl Winograd {
    /// The Winograd convolution between these images, if it is faster than a direct one. This depends on public shapes only.
    pub(super) fn new(from: Image, to: Image, shift: usize) -> Option<Winograd> {
        // For fewer channels the transforms take more time than they save.
        let worth = from.channels.min(to.channels) >= 16 && to.height.min(to.width) >= 3;
        // For tiles of 4x4, the frequencies of a filter take four times the memory of the filter. With one tile for each record, reading them
        // takes more time than the products.
        let tile = if to.pixels() <= 16 { Tile::Two } else { Tile::Four };
        worth.then_some(Winograd { from, to, shift, tile })
    }

    /// The number of packed matrices.
    pub(super) fn packs(&self) -> usize {
        self.to.channels.div_ceil(BLOCK) * self.tile.frequencies()
    }

    pub(super) fn pack(&self, filters: Filters<'_>, packs: &mut [Packed]) {
        pack_filters(self.tile, filters, BLOCK, packs);
    }

    /// Floats from one tile to the next in the frequencies of inputs and of outputs.
    fn widths(&self) -> [usize; 2] {
        [self.from.channels.next_multiple_of(16), self.to.channels.min(BLOCK).next_multiple_of(16)]
    }

    /// How many of all tiles are processed together. Each group of tiles reads all filters once, so its frequencies may take up to a quarter of
    /// the size of the filters, if that is more than [`FREQUENCIES`].
    fn together(&self, all: usize) -> usize {
        let filters = self.tile.frequencies() * self.from.channels * self.to.channels;
        let each = self.tile.frequencies() * self.widths().iter().sum::<usize>();
        let most = (FREQUENCIES.max(filters / 4) / each).max(1);
        let groups = all.div_ceil(most).max(1);
        // A product computes six rows at a time.
        all.div_ceil(groups).next_multiple_of(6)
    }

    /// Tiles of one record.
    pub(super) fn tiles(&self) -> usize {
        self.to.height.div_ceil(self.tile.side()) * self.to.width.div_ceil(self.tile.side())
    }

    /// The record of a tile, and the row and the column of its first output.
    fn place(&self, tile: usize) -> (usize, usize, usize) {
        let (side, place) = (self.tile.side(), tile % self.tiles());
        let columns = self.to.width.div_ceil(side);
        (tile / self.tiles(), place / columns * side, place % columns * side)
    }

    /// Computes the outputs of `records` records.
    pub(super) fn run(&self, x: &[f32], y: &mut [f32], records: usize, packs: &[Packed], store: Store<'_>) {
        FREQUENCY_BUFFERS.with_borrow_mut(|[inputs, outputs, _]| {
            let all = records * self.tiles();
            let together = self.together(all);
            let [input_width, output_width] = self.widths();
            // The stride between frequencies is an odd number of cache lines, so that they are distributed over all sets of the cache.
            let strides = [input_width, output_width].map(|width| Storage::stride(together * width));
            inputs.reserve(self.tile.frequencies() * strides[0]);
            outputs.reserve(self.tile.frequencies() * strides[1]);
            for first in (0..all).step_by(together) {
                let count = together.min(all - first);
                for index in 0..count {
                    let (window, place) = (self.input_window(first + index), index * input_width);
                    let channels = self.from.channels;
                    to_frequencies(
                        Source::Inputs(self.tile),
                        x,
                        window,
                        channels,
                        &mut inputs[place..],
                        strides[0],
                    );
                }
                for (block, packs) in packs.chunks_exact(self.tile.frequencies()).enumerate() {
                    for (frequency, pack) in packs.iter().enumerate() {
                        product(
                            &inputs[frequency * strides[0]..],
                            Rows::Every { count, stride: input_width },
                            &[Segment { offset: 0, len: self.from.channels }],
                            pack,
                            &mut outputs[frequency * strides[1]..],
                            Rows::Every { count, stride: output_width },
                            Store::default(),
                        );
                    }
                    let channels = BLOCK.min(self.to.channels - block * BLOCK);
                    let bias = store.bias.map(|bias| &bias[block * BLOCK..]);
                    for index in 0..count {
                        let (window, place) =
                            (self.output_window(first + index, block * BLOCK), index * output_width);
                        let store = Store { bias, ..store };
                        from_frequencies(
                            Target::Outputs(self.tile),
                            &outputs[place..],
                            strides[1],
                            y,
                            window,
                            channels,
                            store,
                        );
                    }
                }
            }
        });
    }

    /// The inputs of a tile.
    pub(super) fn input_window(&self, tile: usize) -> Window {
        let (record, y, x) = self.place(tile);
        let (y, x, border) = (y + self.shift, x + self.shift, 2 * self.from.border);
        Window {
            start: record * self.from.record() + y * self.from.row() + x * self.from.channels,
            row: self.from.row(),
            pixel: self.from.channels,
            rows: self.from.height + border - y,
            columns: self.from.width + border - x,
        }
    }

    /// The outputs of a tile, from a channel on.
    pub(super) fn output_window(&self, tile: usize, channel: usize) -> Window {
        let (record, y, x) = self.place(tile);
        Window {
            start: record * self.to.record() + self.to.at(y, x) + channel,
            row: self.to.row(),
            pixel: self.to.channels,
            rows: self.to.height - y,
            columns: self.to.width - x,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Shape;
    use crate::kernels::vector::tests::numbers;

    /// Records with random pixels and a border of zeros.
    pub(crate) fn pixels(image: Image, records: usize, seed: u64) -> Aligned {
        let Image { channels, height, width, border } = image;
        let storage = Storage { shape: Shape::Image { channels, height, width }, border, extra: 0 };
        let size = storage.record(1);
        let mut stored = Aligned::zeroed(records * size);
        let values = numbers(records * storage.shape.len(), seed);
        for (values, stored) in values.chunks(storage.shape.len()).zip(stored.chunks_exact_mut(size)) {
            storage.write(values, stored);
        }
        stored
    }

    /// A convolution in double precision, for output pixel `(y, x)` and all output channels.
    fn naive(
        conv: &Winograd,
        stored: &[f32],
        filters: Filters<'_>,
        (record, y, x): (usize, usize, usize),
    ) -> Vec<f64> {
        let tap = |channel: usize, t: usize| {
            let pixel =
                (y + t / 3 + conv.shift) * conv.from.row() + (x + t % 3 + conv.shift) * conv.from.channels;
            f64::from(stored[record * conv.from.record() + pixel + channel])
        };
        let one = |column: usize| {
            let taps = (0..filters.rows).flat_map(|row| (0..9).map(move |t| (row, t)));
            taps.map(|(row, t)| {
                let place = row * filters.row_step + column * filters.column_step;
                tap(row, t) * f64::from(filters.source[place + if filters.reversed { 8 - t } else { t }])
            })
            .sum()
        };
        (0..filters.columns).map(one).collect()
    }

    /// Sizes of images and numbers of channels, as `(height, width, padding, from, to)`.
    const SHAPES: [(usize, usize, usize, usize, usize); 9] = [
        (5, 7, 1, 3, 16),
        (1, 1, 1, 16, 16),
        (1, 1, 2, 1, 3),
        (4, 4, 1, 64, 65),
        (4, 4, 0, 65, 64),
        (33, 31, 1, 3, 1),
        (8, 6, 2, 16, 130),
        (3, 3, 0, 1, 1),
        (16, 16, 1, 64, 64),
    ];

    fn check(conv: &Winograd, filters: Filters<'_>, accumulate: bool, with_bias: bool) -> f64 {
        let records = 3;
        let x = pixels(conv.from, records, 1);
        let before = pixels(conv.to, records, 2);
        let mut y = Aligned::zeroed(records * conv.to.record());
        y.copy_from_slice(&before);
        let mut packs: Vec<Packed> = (0..conv.packs()).map(|_| Packed::default()).collect();
        conv.pack(filters, &mut packs);
        let bias = numbers(filters.columns, 3);
        let store = Store { accumulate, bias: with_bias.then_some(&bias) };
        conv.run(&x, &mut y, records, &packs, store);
        let mut squared = 0.0;
        for record in 0..records {
            for (row, column) in (0..conv.to.height).flat_map(|y| (0..conv.to.width).map(move |x| (y, x))) {
                let place = record * conv.to.record() + conv.to.at(row, column);
                for (channel, sum) in naive(conv, &x, filters, (record, row, column)).iter().enumerate() {
                    let old = if accumulate { f64::from(before[place + channel]) } else { 0.0 };
                    let bias = if with_bias { f64::from(bias[channel]) } else { 0.0 };
                    let error = f64::from(y[place + channel]) - (sum + old + bias);
                    assert!(error.abs() < 1e-5 * (filters.rows as f64).sqrt().max(2.0), "{conv:?}: {error}");
                    squared += error * error;
                    y[place + channel] = before[place + channel];
                }
            }
        }
        assert_eq!(y[..], before[..], "only the image is written, not its border");
        (squared / (records * conv.to.pixels() * conv.to.channels) as f64).sqrt()
    }

    #[test]
    fn a_winograd_convolution_equals_a_direct_one_in_double_precision() {
        for (height, width, padding, from, to) in SHAPES {
            let weights = numbers(from * to * 9, 5);
            let filters = Filters {
                source: &weights,
                rows: from,
                columns: to,
                row_step: 9,
                column_step: 9 * from,
                reversed: false,
            };
            for (tile, border) in [(Tile::Two, padding), (Tile::Four, padding), (Tile::Four, padding + 2)] {
                let input = Image { channels: from, height, width, border };
                let (rows, columns) = (height + 2 * padding - 2, width + 2 * padding - 2);
                let output = Image { channels: to, height: rows, width: columns, border: 2 };
                let forward = Winograd { from: input, to: output, shift: border - padding, tile };
                check(&forward, filters, false, true);
                let backward = Winograd { from: output, to: input, shift: padding, tile };
                check(&backward, filters.transposed(), true, false);
            }
        }
    }

    /// Measured here: 0.4 times the error of a direct sum for tiles of 2x2, 1.2 times for tiles of 4x4 (pixels at the edge have fewer terms).
    #[test]
    fn rounding_errors_are_close_to_those_of_a_direct_convolution() {
        let channels = 64;
        let image = Image { channels, height: 8, width: 8, border: 1 };
        let weights = numbers(channels * channels * 9, 5);
        let filters = Filters {
            source: &weights,
            rows: channels,
            columns: channels,
            row_step: 9,
            column_step: 9 * channels,
            reversed: false,
        };
        let values = numbers(9 * channels, 6);
        let direct = weights.chunks_exact(9 * channels).map(|filter| {
            let pairs = || values.iter().zip(filter);
            let exact: f64 = pairs().map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            (f64::from(pairs().fold(0.0_f32, |sum, (x, w)| x.mul_add(*w, sum))) - exact).powi(2)
        });
        let direct = (direct.sum::<f64>() / channels as f64).sqrt();
        for (tile, most) in [(Tile::Two, 1.5), (Tile::Four, 3.5)] {
            let error = check(&Winograd { from: image, to: image, shift: 0, tile }, filters, false, false);
            assert!(error < most * direct, "{tile:?}: {error:e}, direct: {direct:e}");
        }
    }
}
