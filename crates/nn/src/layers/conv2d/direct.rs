//! Convolutions as products over the padded image itself: the taps of one filter row are contiguous, so a position is a row of a few
//! segments, and no patch is copied.

use super::Conv2dOperation;
use crate::kernels::winograd::Filters;
use crate::kernels::{Packed, Segment, Starts, Store, WIDTH, product};
use crate::shape::Image;

/// The most records whose positions are multiplied in one product, so that small images fill the kernel's tiles.
const TOGETHER: usize = 16;

/// Positions that fill the tiles. Larger images are multiplied one by one, because every position of the product takes memory for as long
/// as the network exists.
const ENOUGH: usize = 1 << 16;

/// The number of records with this many positions that are multiplied in one product.
fn together(positions: usize) -> usize {
    (ENOUGH / positions.max(1)).clamp(1, TOGETHER)
}

/// The most adjacent pixels of a row that are computed together.
const MOST_ADJACENT: usize = 4;

/// The number of adjacent pixels that are computed together, for images with few channels: one pixel alone would leave most columns of a
/// panel empty.
///
/// `columns` is the number of filter columns, and `step` the distance between the windows of adjacent pixels. Together, `g` pixels read
/// `columns + (g - 1) step` columns and have `g` times the channels. For each pixel, some of these columns have weight zero.
fn adjacent(channels: usize, width: usize, columns: usize, step: usize) -> usize {
    // The number of multiplications of whole panels, for each pixel.
    let cost = |g: usize| ((g * channels).div_ceil(WIDTH) * (columns + (g - 1) * step)) as f64 / g as f64;
    let divisors = (2..=MOST_ADJACENT).filter(|g| width.is_multiple_of(*g));
    let best = divisors.min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    best.filter(|&g| 1.25 * cost(g) <= cost(1)).unwrap_or(1)
}

/// One product of a group of channels: the starts of its rows, the taps that they read, and the starts of the results.
pub(super) struct Walk {
    pub(super) group: usize,
    rows: Starts,
    segments: Vec<Segment>,
    out: Starts,
    /// The filter rows and the filter columns of a pixel's taps, in the order of the segments.
    taps: [Vec<usize>; 2],
    /// The number of adjacent pixels that a row of the product computes.
    adjacent: usize,
    /// Columns from the window of a pixel to that of the next one.
    step: usize,
    /// Floats of a record that is read and of one that is written.
    records: [usize; 2],
    /// The records of one product.
    together: usize,
}

impl Walk {
    /// The size of the packed matrix, as a multiple of the number of weights.
    pub(super) fn expansion(&self) -> f64 {
        let own = self.taps[1].len().max(1);
        (self.adjacent * (own + (self.adjacent - 1) * self.step)) as f64 / own as f64
    }

    /// Packs the filters, which have `kernel` rows, as a matrix with a row for each tap and channel that is read, and a column for each pixel and
    /// channel that is written.
    pub(super) fn pack(&self, kernel: usize, filters: Filters<'_>, pack: &mut Packed) {
        let [rows, columns] = &self.taps;
        let wide = match columns.len() {
            0 => 0,
            own => own + (self.adjacent - 1) * self.step,
        };
        let width = self.adjacent * filters.columns;
        let mut matrix = vec![0.0; rows.len() * wide * filters.rows * width];
        let mut entries = matrix.chunks_exact_mut(filters.columns);
        for y in rows {
            for column in 0..wide {
                for channel in 0..filters.rows {
                    for (pixel, entries) in entries.by_ref().take(self.adjacent).enumerate() {
                        let tap = column.checked_sub(pixel * self.step).and_then(|tap| columns.get(tap));
                        let Some(x) = tap else { continue };
                        let source = &filters.source[channel * filters.row_step + y * kernel + x..];
                        let source = source.iter().step_by(filters.column_step);
                        entries.iter_mut().zip(source).for_each(|(entry, weight)| *entry = *weight);
                    }
                }
            }
        }
        pack.fill_rows(rows.len() * wide * filters.rows, width, &matrix, width);
    }

    pub(super) fn run(&self, from: &[f32], to: &mut [f32], records: usize, pack: &Packed, store: Store<'_>) {
        let channels = pack.n() / self.adjacent;
        let bias = store.bias.map(|bias| bias[self.group * channels..][..channels].repeat(self.adjacent));
        let store = Store { bias: bias.as_deref(), ..store };
        for first in (0..records).step_by(self.together) {
            let records = (records - first).min(self.together);
            let (from, to) = (&from[first * self.records[0]..], &mut to[first * self.records[1]..]);
            product(from, self.rows.of(records), &self.segments, pack, to, self.out.of(records), store);
        }
    }
}

impl Conv2dOperation {
    /// The number of adjacent outputs that are computed together.
    pub(super) fn adjacent_outputs(&self) -> usize {
        match self.groups {
            1 => adjacent(self.output.channels, self.output.width, self.kernel, self.stride),
            _ => 1,
        }
    }

    /// The products of the forward pass, one for each group.
    pub(super) fn direct_forward(&self) -> Vec<Walk> {
        (0..self.groups).map(|group| self.forward_walk(group)).collect()
    }

    /// The products that give the input gradient. In each of them, the coordinates of all pixels have the same remainders modulo the stride,
    /// so the same taps reach all of them.
    pub(super) fn direct_backward(&self) -> Vec<Walk> {
        let remainders = |size: usize| {
            let (stride, padding) = (self.stride, self.padding);
            (0..stride).filter(move |r| (0..size).any(|x| (x + padding) % stride == *r))
        };
        let mut walks = Vec::new();
        for group in 0..self.groups {
            for y in remainders(self.input.height) {
                walks.extend(remainders(self.input.width).map(|x| self.backward_walk(group, y, x)));
            }
        }
        walks
    }

    /// The taps of a filter with `rows` rows and `columns` columns, as segments of an image: whole rows of taps are contiguous
    /// unless there are several groups.
    fn segments(&self, image: &Image, rows: usize, columns: usize, group: usize) -> Vec<Segment> {
        let channels = image.channels / self.groups;
        if self.groups == 1 {
            return (0..rows).map(|y| Segment { offset: y * image.row(), len: columns * channels }).collect();
        }
        let tap = |y: usize, x: usize| y * image.row() + x * image.channels + group * channels;
        let taps = (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x)));
        taps.map(|(y, x)| Segment { offset: tap(y, x), len: channels }).collect()
    }

    fn forward_walk(&self, group: usize) -> Walk {
        let (k, step) = (self.kernel, self.stride);
        let adjacent = self.adjacent_outputs();
        let positions = || self.positions().filter(|(_, x)| x % adjacent == 0);
        let rows: Vec<usize> = positions().map(|(y, x)| self.window(y, x)).collect();
        let first = group * self.group_outputs();
        let out: Vec<usize> = positions().map(|(y, x)| self.output.at(y, x) + first).collect();
        let together = together(rows.len());
        Walk {
            group,
            together,
            rows: Starts::new(&rows, self.input.record(), together),
            segments: self.segments(&self.input, k, k + (adjacent - 1) * step, group),
            out: Starts::new(&out, self.output.record(), together),
            taps: [(0..k).collect(), (0..k).collect()],
            adjacent,
            step,
            records: [self.input.record(), self.output.record()],
        }
    }

    /// Pixel `y` with `(y + padding) % stride == remainder` is reached by the taps `remainder + j stride` from the output
    /// rows `(y + padding) / stride - j`. In ascending order of output rows the taps descend.
    fn backward_walk(&self, group: usize, remainder_y: usize, remainder_x: usize) -> Walk {
        let (k, s, p) = (self.kernel, self.stride, self.padding);
        let taps = |remainder: usize| -> Vec<usize> { (remainder..k).step_by(s).collect() };
        let (rows, columns) = (taps(remainder_y), taps(remainder_x));
        // With a stride, the pixels of one remainder are not adjacent.
        let adjacent = match (self.groups, s) {
            (1, 1) => adjacent(self.input.channels, self.input.width, k, 1),
            _ => 1,
        };
        let pixels: Vec<(usize, usize)> = (0..self.input.height)
            .filter(|y| (y + p) % s == remainder_y)
            .flat_map(|y| (0..self.input.width).filter(|x| (x + p) % s == remainder_x).map(move |x| (y, x)))
            .filter(|(_, x)| s > 1 || x % adjacent == 0)
            .collect();
        // The first output row that takes part, shifted by the border so that it cannot be negative.
        let first = |at: usize, taps: usize| (at + p) / s + self.output.border + 1 - taps;
        let reached = !rows.is_empty() && !columns.is_empty();
        let start = |&(y, x): &(usize, usize)| match reached {
            true => first(y, rows.len()) * self.output.row() + first(x, columns.len()) * self.output.channels,
            false => 0,
        };
        let starts: Vec<usize> = pixels.iter().map(start).collect();
        let offset = group * self.group_inputs();
        let out: Vec<usize> = pixels.iter().map(|&(y, x)| self.input.at(y, x) + offset).collect();
        let segments = match reached {
            true => self.segments(&self.output, rows.len(), columns.len() + adjacent - 1, group),
            false => Vec::new(),
        };
        let taps = [rows, columns].map(|taps| taps.into_iter().rev().collect());
        let together = together(pixels.len());
        Walk {
            group,
            together,
            rows: Starts::new(&starts, self.output.record(), together),
            segments,
            out: Starts::new(&out, self.input.record(), together),
            taps,
            adjacent,
            step: 1,
            records: [self.output.record(), self.input.record()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results are compared with those of single records in double precision by `tests/per_record.rs`.
    #[test]
    fn pixels_are_computed_together_if_their_channels_fill_a_panel_and_the_width_permits_it() {
        let chosen = |channels, width, columns, step| adjacent(channels, width, columns, step);
        assert_eq!([chosen(6, 28, 5, 1), chosen(8, 10, 3, 1), chosen(4, 28, 3, 1)], [2, 2, 4]);
        // Sixteen channels fill a panel; an odd width cannot be divided; distant windows share too few columns.
        assert_eq!([chosen(16, 28, 8, 2), chosen(6, 25, 5, 1), chosen(8, 28, 3, 3)], [1; 3]);
    }

    #[test]
    fn small_images_are_multiplied_together_and_large_ones_alone() {
        assert_eq!([0, 1, 1024, 4096].map(together), [TOGETHER; 4]);
        assert_eq!([224 * 224, 32 << 16, 1 << 27].map(together), [1; 3]);
        // The memory of a product is bounded by its own image.
        assert!(
            (1..200)
                .map(|side| side * side)
                .all(|positions| together(positions) * positions <= ENOUGH.max(positions))
        );
    }
}
