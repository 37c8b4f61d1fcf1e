//! Norms and weighted sums of the per-record gradients of a convolution.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::Conv2dOperation;
use super::standardised::Standardised;
use crate::gradients::{Right, direct, gram_is_cheaper, norm_of_outer};
use crate::kernels::{Aligned, Matrix, Runs, WIDTH, outer_sum, vector};
use crate::layers::{ParameterGradients, Scratch, Term, Workspace};
use crate::shape::Storage;

/// The number of floats that take about half of the second-level cache.
const LARGE: usize = 1 << 18;

impl Conv2dOperation {
    /// Whether norms of bags of at most `most` records come from dot products between patches.
    fn by_gram(&self, most: usize) -> bool {
        // Patches overlap and must be copied, so the number of rows is doubled, unless a written-out gradient would not stay in the cache.
        let rows = self.output.pixels() * most * if self.len() < LARGE { 2 } else { 1 };
        // The gradient of a standardised filter is a map of the written-out one.
        self.groups == 1 && !self.standardised && gram_is_cheaper(rows, self.taps(), self.output.channels)
    }

    /// Floats of each bag's gradient, if it is written out.
    fn written_size(&self, most: usize) -> usize {
        if self.by_gram(most) { 0 } else { self.len().next_multiple_of(16) }
    }

    /// Adds the gradients of some records, each summed over all terms separately, to `sum`, or replaces it by them.
    fn add_gradient(
        &self,
        terms: &[(&[f32], &[f32])],
        records: Range<usize>,
        sum: &mut [f32],
        accumulate: bool,
    ) {
        match (self.winograd_gradient(), self.adjacent_outputs()) {
            (Some(winograd), _) => {
                for record in records.clone() {
                    winograd.gradient(terms, record, sum, accumulate || record > records.start);
                }
            }
            (None, 1) => self.add_direct(terms, records, 1, sum, accumulate),
            (None, adjacent) => {
                for record in records.clone() {
                    let accumulate = accumulate || record > records.start;
                    self.add_adjacent(terms, record, adjacent, sum, accumulate);
                }
            }
        }
    }

    /// The same for one record, with several adjacent outputs in each pair of rows, so that few channels fill the tiles of the kernel.
    ///
    /// The sum of outer products has a row for each value that any of these outputs reads, and a column for each of their gradients. The rows that
    /// one output reads and its own columns are its part. The parts of all outputs are added up; the rest of the sum is not used.
    fn add_adjacent(
        &self,
        terms: &[(&[f32], &[f32])],
        record: usize,
        adjacent: usize,
        sum: &mut [f32],
        accumulate: bool,
    ) {
        let (inputs, outputs, k) = (self.input.channels, self.output.channels, self.kernel);
        let (height, width) = ((k + (adjacent - 1) * self.stride) * inputs, adjacent * outputs);
        PRODUCTS.with_borrow_mut(|products| {
            products.reserve(height * width);
            let products = &mut products[..height * width];
            for (row, sum) in sum[..self.weights()].chunks_exact_mut(k * inputs * outputs).enumerate() {
                let start = |y: usize| {
                    let x = self.window(y, 0) + row * self.input.row();
                    (record * self.input.record() + x, record * self.output.record() + self.output.at(y, 0))
                };
                let starts: Vec<_> = (0..self.output.height).map(start).collect();
                let runs = Runs {
                    starts: &starts,
                    len: self.output.width / adjacent,
                    left_step: adjacent * self.stride * inputs,
                    right_step: width,
                    unit: self.output.pixels() / adjacent,
                };
                outer_sum((height, width), terms, runs, products, width, false);
                for (tap, sum) in sum.chunks_exact_mut(outputs).enumerate() {
                    for (channel, sum) in sum.iter_mut().enumerate() {
                        let part = |output: usize| {
                            let row = tap + output * self.stride * inputs;
                            products[row * width + output * outputs + channel]
                        };
                        let own = (1..adjacent).fold(part(0), |sum, output| sum + part(output));
                        *sum = if accumulate { *sum + own } else { own };
                    }
                }
            }
        });
    }

    /// Adds the gradients of some records to `sum`, or replaces it by them. `together` consecutive records are summed over all terms separately.
    fn add_direct(
        &self,
        terms: &[(&[f32], &[f32])],
        records: Range<usize>,
        together: usize,
        sum: &mut [f32],
        accumulate: bool,
    ) {
        let (inputs, outputs) = (self.group_inputs(), self.group_outputs());
        let mut starts = Vec::with_capacity(records.len() * self.output.height);
        // The taps of one filter row are contiguous in the image; with groups, those of one tap.
        let (columns, width) =
            if self.groups == 1 { (1, self.kernel * inputs) } else { (self.kernel, inputs) };
        for group in 0..self.groups {
            for row in 0..self.kernel {
                for column in 0..columns {
                    starts.clear();
                    let tap = row * self.input.row() + column * self.input.channels + group * inputs;
                    for record in records.clone() {
                        let (x, dy) = (record * self.input.record() + tap, record * self.output.record());
                        starts.extend(
                            (0..self.output.height).map(|y| {
                                (x + self.window(y, 0), dy + self.output.at(y, 0) + group * outputs)
                            }),
                        );
                    }
                    let runs = Runs {
                        starts: &starts,
                        len: self.output.width,
                        left_step: self.stride * self.input.channels,
                        right_step: self.output.channels,
                        unit: together * self.output.pixels(),
                    };
                    let place = ((group * self.kernel + row) * columns + column) * width * outputs;
                    outer_sum((width, outputs), terms, runs, &mut sum[place..], outputs, accumulate);
                }
            }
        }
    }

    /// Adds the gradient of the bias of some records to `sum`, if there is a bias: first over all rows, then over the pixels of a row.
    fn add_bias_gradient(&self, dy: &[f32], records: Range<usize>, sum: &mut [f32]) {
        if !self.bias {
            return;
        }
        let (channels, width) = (self.output.channels, self.output.width * self.output.channels);
        PRODUCTS.with_borrow_mut(|row| {
            row.reserve(width);
            let row = &mut row[..width];
            row.fill(0.0);
            for record in records {
                for y in 0..self.output.height {
                    let place = record * self.output.record() + self.output.at(y, 0);
                    vector::add(row, &dy[place..][..width]);
                }
            }
            row.chunks_exact(channels).for_each(|pixel| vector::add(&mut sum[..channels], pixel));
        });
    }

    /// Writes out the gradients of all bags.
    fn write_gradients(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>) {
        let bags = terms[0].context.bags;
        let kept = self.written_size(bags.most);
        workspace.written[0].reserve(kept * bags.len());
        let factors: Vec<_> = terms.iter().map(|term| (term.x, term.dy)).collect();
        let filters: Vec<_> = match self.standardised {
            true => terms.iter().map(|term| Standardised::new(self, term.context.params)).collect(),
            false => Vec::new(),
        };
        for (index, bag) in bags.iter().enumerate() {
            let gradient = &mut workspace.written[0][index * kept..][..self.len()];
            gradient[self.weights()..].fill(0.0);
            self.add_gradient(&factors, bag.clone(), gradient, false);
            self.add_bias_gradient(terms[terms.len() - 1].dy, bag.clone(), &mut gradient[self.weights()..]);
            if self.standardised {
                self.map_gradient(&filters, &factors, bag, gradient, workspace.scratch);
            }
        }
    }

    /// Turns the gradient of standardised filters into the gradient of the weights.
    ///
    /// With the map `P` at the first point and `P'` at the second, the difference `P g - P' g'` is `P (g - g') + (P - P') g'`. From the
    /// factors `a' b` and `a' (b - b')` follows `g' = a' b'`.
    fn map_gradient(
        &self,
        filters: &[Standardised],
        factors: &[(&[f32], &[f32])],
        bag: Range<usize>,
        gradient: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let mut mapped = vec![0.0; self.weights()];
        filters[0].add_mapped(self, &gradient[..self.weights()], 1.0, &mut mapped);
        if let ([here, there], [(_, b), (a, change)]) = (filters, factors) {
            scratch.first.reserve(2 * self.weights());
            let (whole, difference) = scratch.first.split_at_mut(self.weights());
            self.add_gradient(&[(a, b)], bag.clone(), whole, false);
            self.add_gradient(&[(a, change)], bag, difference, false);
            vector::subtract(&mut whole[..], &difference[..self.weights()]);
            here.add_mapped(self, whole, 1.0, &mut mapped);
            there.add_mapped(self, whole, -1.0, &mut mapped);
        }
        gradient.iter_mut().zip(&mapped).for_each(|(g, mapped)| *g = *mapped as f32);
    }

    /// The patches of all records of a bag, row by row.
    fn patches<'a>(&self, x: &[f32], bag: Range<usize>, out: &'a mut [f32]) -> Matrix<'a> {
        let (taps, stride, count) =
            (self.taps(), Storage::stride(self.taps()), bag.len() * self.output.pixels());
        let places = bag.flat_map(|record| self.positions().map(move |(y, column)| (record, y, column)));
        for ((record, y, column), out) in places.zip(out.chunks_exact_mut(stride)) {
            let (x, row) = (&x[record * self.input.record()..], self.kernel * self.input.channels);
            for (tap, out) in out[..taps].chunks_exact_mut(row).enumerate() {
                out.copy_from_slice(&x[self.window(y, column) + tap * self.input.row()..][..row]);
            }
        }
        Matrix { data: out, count, width: taps, stride }
    }

    /// The output gradients of all records of a bag, row by row.
    fn rows<'a>(&self, dy: &[f32], bag: Range<usize>, out: &'a mut [f32]) -> Matrix<'a> {
        let (width, stride) = (self.output.channels, Storage::stride(self.output.channels));
        let count = bag.len() * self.output.pixels();
        let places = bag.flat_map(|record| self.positions().map(move |(y, x)| (record, y, x)));
        for ((record, y, x), out) in places.zip(out.chunks_exact_mut(stride)) {
            out[..width]
                .copy_from_slice(&dy[record * self.output.record() + self.output.at(y, x)..][..width]);
        }
        Matrix { data: out, count, width, stride }
    }

    fn norm_by_gram(&self, terms: &[Term<'_>], bag: Range<usize>, scratch: &mut Scratch) -> f64 {
        let channels = self.output.channels;
        let pixels = bag.len() * self.output.pixels();
        let (patches, rows) = (pixels * Storage::stride(self.taps()), pixels * Storage::stride(channels));
        scratch.first.reserve(terms.len() * patches);
        scratch.second.reserve(terms.len() * rows + channels);
        let mut left = std::mem::take(&mut scratch.first);
        let mut right = std::mem::take(&mut scratch.second);
        let (right_rows, bias) = right.split_at_mut(terms.len() * rows);
        let mut parts = Vec::with_capacity(terms.len());
        for ((term, left), right) in
            terms.iter().zip(left.chunks_exact_mut(patches)).zip(right_rows.chunks_exact_mut(rows))
        {
            let a = self.patches(term.x, bag.clone(), left);
            parts.push((a, Right::Rows(self.rows(term.dy, bag.clone(), right))));
        }
        let mut norm = norm_of_outer(&parts, scratch);
        if self.bias {
            // The same sum as in `factored_sum`, bit by bit.
            let bias = &mut bias[..channels];
            bias.fill(0.0);
            self.add_bias_gradient(terms[terms.len() - 1].dy, bag, bias);
            norm += vector::squared_norm(bias);
        }
        (scratch.first, scratch.second) = (left, right);
        norm
    }
}

/// Sums of gradients that are not written out.
impl Conv2dOperation {
    /// The sum without weights.
    fn plain_sum(&self, terms: &[Term<'_>], sum: &mut [f32]) {
        let records = terms[0].context.records;
        self.add_bias_gradient(terms[terms.len() - 1].dy, 0..records, &mut sum[self.weights()..]);
        let factors: Vec<_> = terms.iter().map(|term| (term.x, term.dy)).collect();
        // Few enough records at a time that they stay in the first-level cache for all taps.
        let some = (128 / self.output.pixels()).max(1);
        for first in (0..records).step_by(some) {
            let records = first..records.min(first + some);
            match self.by_gram(1) {
                true => self.add_direct(&factors, records, 1, sum, true),
                false => self.add_gradient(&factors, records, sum, true),
            }
        }
    }

    /// The weighted sum, with scaled output gradients.
    fn factored_sum(&self, terms: &[Term<'_>], weights: &[f32], scratch: &mut Scratch, sum: &mut [f32]) {
        let (bags, dy) = (terms[0].context.bags, terms[terms.len() - 1].dy);
        if self.bias {
            // Positions are added before they are weighted, as for the norm: if they were weighted one by one, they might cancel differently.
            scratch.second.reserve(self.output.channels);
            let own = &mut scratch.second[..self.output.channels];
            for (bag, weight) in bags.iter().zip(weights) {
                own.fill(0.0);
                self.add_bias_gradient(dy, bag, own);
                vector::add_scaled(&mut sum[self.weights()..self.len()], *weight, own);
            }
        }
        let size = self.output.record();
        // The kernel reads a whole cache line at the last pixel.
        let part = bags.records() * size + WIDTH;
        scratch.first.reserve(terms.len() * part);
        let mut scaled = scratch.first.chunks_exact_mut(part);
        let mut factors = Vec::with_capacity(terms.len());
        let weights = bags.weights_of_records(weights);
        for (term, scaled) in terms.iter().zip(&mut scaled) {
            let records = scaled.chunks_exact_mut(size).zip(term.dy.chunks(size));
            for ((own, dy), weight) in records.zip(&*weights) {
                vector::scaled(own, *weight, dy);
            }
            factors.push((term.x, &*scaled));
        }
        for (size, firsts) in bags.by_size() {
            let end = firsts[firsts.len() - 1] + size;
            self.add_direct(&factors, firsts[0]..end, size, sum, true);
        }
    }
}

impl ParameterGradients for Conv2dOperation {
    fn written_sizes(&self, most: usize, _: usize) -> [usize; 2] {
        [self.written_size(most), 0]
    }

    fn squared_norms(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>, out: &mut [f64]) {
        let bags = terms[0].context.bags;
        if self.by_gram(bags.most) {
            for (bag, out) in bags.iter().zip(out) {
                *out += self.norm_by_gram(terms, bag, workspace.scratch);
            }
            return;
        }
        self.write_gradients(terms, workspace);
        direct::squared_norms(&workspace.written[0], self.len(), self.written_size(bags.most), out);
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        workspace: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let bags = terms[0].context.bags;
        if weights.is_none() && self.standardised {
            self.write_gradients(terms, workspace);
        }
        if (weights.is_some() || self.standardised) && !self.by_gram(bags.most) {
            let (written, size) = (&workspace.written[0], self.written_size(bags.most));
            return direct::weighted_sum(written, size, bags.len(), weights, &mut sum[..self.len()]);
        }
        match weights {
            Some(weights) => self.factored_sum(terms, weights, workspace.scratch, sum),
            None => self.plain_sum(terms, sum),
        }
    }

    fn sums_in_groups(&self, _: usize) -> bool {
        !self.by_gram(1)
    }

    fn reorder(&self, sum: &mut [f64]) {
        let (k, inputs, outputs, taps) =
            (self.kernel, self.group_inputs(), self.group_outputs(), self.taps());
        // The buffer is taken, not borrowed: while it is in use, this thread may run the same function for another engine.
        let mut own = OWN_ORDER.take();
        own.clear();
        own.extend_from_slice(&sum[..self.weights()]);
        let groups = own.chunks_exact(taps * outputs).zip(sum.chunks_exact_mut(taps * outputs));
        for (own, sum) in groups {
            // One cache line of output channels at a time: each line is read once, and the filters that are written stay in the first-level
            // cache.
            let filters = |(number, filters): (usize, &mut [f64])| {
                let (first, count) = (number * LINE, filters.len() / taps);
                for input in 0..inputs {
                    for tap in 0..k * k {
                        let line = &own[(tap * inputs + input) * outputs + first..][..count];
                        for (output, value) in line.iter().enumerate() {
                            filters[output * taps + input * k * k + tap] = *value;
                        }
                    }
                }
            };
            // For small layers, distribution costs more time than it saves.
            match sum.len() < 1 << 16 {
                true => sum.chunks_mut(LINE * taps).enumerate().for_each(filters),
                false => sum.par_chunks_mut(LINE * taps).enumerate().for_each(filters),
            }
        }
        OWN_ORDER.set(own);
    }
}

/// Double-precision numbers in a cache line.
const LINE: usize = 8;

thread_local! {
    /// A buffer for a row of output gradients, or for the products of adjacent outputs.
    static PRODUCTS: RefCell<Aligned> = RefCell::default();

    /// A buffer for a sum in a layer's own order. It is reused by all layers and passes: new memory costs more time than the reordering.
    static OWN_ORDER: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}
