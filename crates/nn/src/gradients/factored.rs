//! Gradients of weight matrices, as factors.

use std::ops::Range;

use super::direct;
use super::norm::{GREATEST_FACTOR, Right, norm_of_outer};
use super::stacked::RecordRows;
use crate::cut::GROUP;
use crate::kernels::vector::Strided;
use crate::kernels::{Runs, WIDTH, outer_sum, vector};
use crate::layers::{Scratch, Workspace};
use crate::units::Bags;

/// A weight matrix `outputs x inputs`, which may be stored as several matrices side by side, with its biases.
///
/// The gradient of a record is `sum_t b_t a_t^T` for the matrix and `sum_t b_t` for every bias. For a bag, the sum is over the rows of all its
/// records.
#[derive(Debug, Clone)]
pub(crate) struct Factored {
    pub(crate) outputs: usize,
    /// Each stored matrix: its columns among the inputs, and its offset in the layer's slice.
    pub(crate) blocks: Vec<Block>,
    /// The offset of each bias in the layer's slice.
    pub(crate) biases: Vec<usize>,
    /// The index of its buffer for written-out gradients.
    pub(crate) buffer: usize,
}

/// A stored matrix: columns `first .. first + width` of the inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) first: usize,
    pub(crate) width: usize,
    pub(crate) offset: usize,
}

/// The two factors of a term: `rows` rows for each record, one record after another.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a> {
    pub(crate) a: &'a [f32],
    pub(crate) a_stride: usize,
    pub(crate) b: &'a [f32],
    pub(crate) b_stride: usize,
    pub(crate) rows: usize,
    /// The largest number of rows of a record in the chunk's [class of lengths](crate::limits::LengthClass).
    pub(crate) most_rows: usize,
    /// The number of rows that each record uses; all by default.
    pub(crate) lengths: Option<&'a [usize]>,
}

/// Whether computing norms from dot products between positions is cheaper than writing out the gradient.
///
/// `rows^2 (inputs + outputs)` multiply-adds are compared with writing, reading and adding `inputs * outputs` floats, each of
/// which costs about 32 of them (measured: equal near 64 rows for 256 x 256).
pub(crate) fn gram_is_cheaper(rows: usize, inputs: usize, outputs: usize) -> bool {
    // A bag may have very many rows.
    rows.saturating_mul(rows).saturating_mul(inputs + outputs) <= 32 * inputs * outputs
}

impl Factored {
    fn inputs(&self) -> usize {
        self.blocks.iter().map(|block| block.width).sum()
    }

    fn first_input(&self) -> usize {
        self.blocks.first().map_or(0, |block| block.first)
    }

    /// The number of parameters: matrices, then biases, without gaps.
    pub(crate) fn len(&self) -> usize {
        self.inputs() * self.outputs + self.biases.len() * self.outputs
    }

    /// The offset of its first parameter in the layer's slice.
    fn offset(&self) -> usize {
        self.blocks.iter().map(|block| block.offset).chain(self.biases.iter().copied()).min().unwrap_or(0)
    }

    /// Whether gradients of bags of at most this many rows are written out. Writing a gradient out and Gram matrices round differently, so the choice must not depend on
    /// other records in the chunk: otherwise the presence of one record would change the norms of the others.
    fn written(&self, rows: usize) -> bool {
        !gram_is_cheaper(rows, self.inputs(), self.outputs)
    }

    /// Whether a weighted sum adds up records of at most this many rows in [groups](GROUP). This holds for single rows and for gradients that
    /// are written out.
    pub(crate) fn sums_in_groups(&self, rows: usize) -> bool {
        rows == 1 || self.written(rows)
    }

    /// Floats in [`Workspace::written`] for each bag of at most this many rows: its gradient, if that is written out, or the gradient of a bias.
    pub(crate) fn written_size(&self, rows: usize) -> usize {
        match (self.written(rows), rows > 1 && !self.biases.is_empty()) {
            (true, _) => self.len().next_multiple_of(16),
            (false, true) => self.outputs.next_multiple_of(16),
            (false, false) => 0,
        }
    }

    /// Adds each bag's squared gradient norm to `out`.
    pub(crate) fn squared_norms(
        &self,
        terms: &[Factor<'_>],
        bags: Bags<'_>,
        workspace: &mut Workspace<'_>,
        out: &mut [f64],
    ) {
        let rows = terms[0].most_rows * bags.most;
        if let ([term], 1) = (terms, rows) {
            return self.norms_of_single_rows(term, out);
        }
        let (size, written) = (self.written_size(rows), self.written(rows));
        workspace.written[self.buffer].reserve(size * out.len());
        for (index, (bag, out)) in bags.iter().zip(out).enumerate() {
            if written {
                let gradient = &mut workspace.written[self.buffer][index * size..][..self.len()];
                gradient.fill(0.0);
                self.add_bag(terms, bag.clone(), gradient);
                for &offset in &self.biases {
                    let gradient = &mut gradient[offset - self.offset()..][..self.outputs];
                    self.add_biases_of_bag(last(terms), bag.clone(), gradient);
                }
                *out += vector::squared_norm(gradient);
                continue;
            }
            *out += self.norm_by_gram(terms, bag.clone(), workspace.scratch);
            if !self.biases.is_empty() {
                let bias = match size {
                    0 => {
                        workspace.scratch.second.reserve(self.outputs);
                        &mut workspace.scratch.second[..self.outputs]
                    }
                    _ => &mut workspace.written[self.buffer][index * size..][..self.outputs],
                };
                bias.fill(0.0);
                self.add_biases_of_bag(last(terms), bag, bias);
                *out += self.biases.len() as f64 * vector::squared_norm(bias);
            }
        }
    }

    /// `|sum_terms sum_t b_t a_t^T|^2 = sum over pairs of positions of (a_t . a_s)(b_t . b_s)`, for one bag.
    fn norm_by_gram(&self, terms: &[Factor<'_>], bag: Range<usize>, scratch: &mut Scratch) -> f64 {
        let (first, inputs) = (self.first_input(), self.inputs());
        let mut stacked = Vec::with_capacity(terms.len());
        for &Factor { a, a_stride, b, b_stride, rows, lengths, .. } in terms {
            let a = RecordRows { data: &a[first..], width: inputs, stride: a_stride, rows, lengths };
            let b = RecordRows { data: b, width: self.outputs, stride: b_stride, rows, lengths };
            stacked.push((a.of_bag(bag.clone()), b.of_bag(bag.clone())));
        }
        let parts: Vec<_> = stacked.iter().map(|(a, b)| (a.matrix(), Right::Rows(b.matrix()))).collect();
        norm_of_outer(&parts, scratch)
    }

    /// Adds the matrix gradients of a bag, a few records at a time: their rows are summed before they are added to the matrix.
    fn add_bag(&self, terms: &[Factor<'_>], bag: Range<usize>, gradient: &mut [f32]) {
        /// Rows that are summed together, if records are short.
        const ROWS: usize = 128;
        let (mut record, rows) = (bag.start, terms[0].rows);
        while record < bag.end {
            let length = terms[0].length(record);
            let equal = (record..bag.end).take_while(|&other| terms[0].length(other) == length);
            let first: Vec<usize> = equal.map(|record| record * rows).collect();
            let together = (ROWS / length.max(1)).clamp(1, first.len());
            self.add_matrices(
                terms,
                RowRuns { first: &first, rows: length, unit: together * length },
                gradient,
            );
            record += first.len();
        }
    }

    /// `|b a^T| = |a| |b|`, and every bias adds `|b|` once more; infinite if one of the factors is [too large](GREATEST_FACTOR).
    fn norms_of_single_rows(&self, term: &Factor<'_>, out: &mut [f64]) {
        let a = Strided { width: self.inputs(), stride: term.a_stride };
        let b = Strided { width: self.outputs, stride: term.b_stride };
        let (mut left, mut right) = (vec![0.0; out.len()], vec![0.0; out.len()]);
        vector::squared_norms_of_rows(&term.a[self.first_input()..], a, &mut left);
        vector::squared_norms_of_rows(term.b, b, &mut right);
        for ((out, a), b) in out.iter_mut().zip(&left).zip(&right) {
            let usable = a.max(*b) <= GREATEST_FACTOR * GREATEST_FACTOR;
            *out += if usable { (a + self.biases.len() as f64) * b } else { f64::INFINITY };
        }
    }

    /// Adds the bias gradients of as many records as there are weights.
    fn add_biases(&self, term: Factor<'_>, sum: &mut [f32], weights: &[f32]) {
        vector::add_rows(
            sum,
            term.b,
            Strided { width: self.outputs, stride: term.b_stride },
            term.rows,
            weights,
        );
    }

    /// Adds the bias gradient of a bag.
    fn add_biases_of_bag(&self, term: Factor<'_>, bag: Range<usize>, sum: &mut [f32]) {
        bag.for_each(|record| self.add_biases(term.record(record), sum, &[1.0]));
    }

    /// Adds the weighted sum of all bags' gradients to the layer's slice of a sum.
    ///
    /// Each bag is first summed separately, over the rows of its records and the terms of a difference. Only single rows of one term, which
    /// need no such sum, are added up [in groups](GROUP).
    pub(crate) fn weighted_sum(
        &self,
        terms: &[Factor<'_>],
        bags: Bags<'_>,
        weights: Option<&[f32]>,
        workspace: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let (rows, records) = (terms[0].rows, bags.records());
        let most_rows = terms[0].most_rows * bags.most;
        let size = self.written_size(most_rows);
        let Some(weights) = weights else {
            let count = records * rows;
            for &offset in &self.biases {
                let all = Factor { rows: count, ..last(terms) };
                self.add_biases(all, &mut sum[offset..][..self.outputs], &[1.0]);
            }
            let runs = RowRuns { first: &[0], rows: count, unit: GROUP };
            return self.add_matrices(terms, runs, &mut sum[self.offset()..]);
        };
        if self.written(most_rows) {
            let sum = &mut sum[self.offset()..][..self.len()];
            return direct::weighted_sum(
                &workspace.written[self.buffer],
                size,
                bags.len(),
                Some(weights),
                sum,
            );
        }
        for &offset in &self.biases {
            let sum = &mut sum[offset..][..self.outputs];
            match size {
                0 => self.add_single_biases(last(terms), weights, workspace.scratch, sum),
                _ => direct::weighted_sum(
                    &workspace.written[self.buffer],
                    size,
                    bags.len(),
                    Some(weights),
                    sum,
                ),
            }
        }
        let weights = &*bags.weights_of_records(weights);
        // Scaling one factor scales the product. The narrower one is copied.
        let (first, inputs) = (self.first_input(), self.inputs());
        let narrow_outputs = self.outputs <= inputs;
        let stride = if narrow_outputs { terms[0].b_stride } else { terms[0].a_stride };
        // The kernel reads a whole cache line at the last row.
        let part = records * rows * stride + WIDTH;
        workspace.scratch.first.reserve(terms.len() * part);
        let mut copies = workspace.scratch.first.chunks_exact_mut(part);
        let mut scaled = Vec::with_capacity(terms.len());
        for (term, copy) in terms.iter().zip(&mut copies) {
            let (source, from, width) = match narrow_outputs {
                true => (term.b, 0, self.outputs),
                false => (term.a, first, inputs),
            };
            vector::scale_rows(&mut copy[from..], &source[from..], Strided { width, stride }, rows, weights);
            scaled.push(match narrow_outputs {
                true => Factor { b: copy, ..*term },
                false => Factor { a: copy, ..*term },
            });
        }
        let sum = &mut sum[self.offset()..];
        if (most_rows, terms.len()) == (1, 1) {
            return self.add_matrices(&scaled, RowRuns { first: &[0], rows: records, unit: GROUP }, sum);
        }
        // Rows beyond the end of a record are zero.
        for (size, records) in bags.by_size() {
            let first: Vec<usize> = records.iter().map(|record| record * rows).collect();
            self.add_matrices(&scaled, RowRuns { first: &first, rows: size * rows, unit: size * rows }, sum);
        }
    }

    /// Adds the weighted bias gradients of records with a single row, [in groups](GROUP).
    fn add_single_biases(&self, term: Factor<'_>, weights: &[f32], scratch: &mut Scratch, sum: &mut [f32]) {
        scratch.second.reserve(self.outputs);
        for (index, weights) in weights.chunks(GROUP).enumerate() {
            let own = &mut scratch.second[..self.outputs];
            own.fill(0.0);
            let b = &term.b[index * GROUP * term.b_stride..];
            self.add_biases(Factor { b, ..term }, own, weights);
            vector::add(sum, own);
        }
    }

    /// Adds `sum b a^T` over rows of all terms to every matrix in `sum`, which begins at [`offset`](Self::offset).
    fn add_matrices(&self, terms: &[Factor<'_>], rows: RowRuns<'_>, sum: &mut [f32]) {
        let Factor { a_stride, b_stride, .. } = terms[0];
        let operands: Vec<_> = terms.iter().map(|term| (term.b, term.a)).collect();
        for block in &self.blocks {
            let start = |first: &usize| (first * b_stride, first * a_stride + block.first);
            let starts: Vec<_> = rows.first.iter().map(start).collect();
            let runs = Runs {
                starts: &starts,
                len: rows.rows,
                left_step: b_stride,
                right_step: a_stride,
                unit: rows.unit.max(1),
            };
            let sum = &mut sum[block.offset - self.offset()..];
            outer_sum((self.outputs, block.width), &operands, runs, sum, block.width, true);
        }
    }
}

/// Rows that are added up: `rows` rows from each of `first` on, in units of `unit` rows that are summed separately.
#[derive(Clone, Copy)]
struct RowRuns<'a> {
    first: &'a [usize],
    rows: usize,
    unit: usize,
}

/// The term that holds the difference of output gradients, or the gradient itself.
fn last<'a>(terms: &[Factor<'a>]) -> Factor<'a> {
    terms[terms.len() - 1]
}

impl<'a> Factor<'a> {
    /// How many rows a record has.
    fn length(&self, record: usize) -> usize {
        self.lengths.map_or(self.rows, |lengths| lengths[record])
    }

    /// The part of one record.
    fn record(self, record: usize) -> Factor<'a> {
        let first = record * self.rows;
        let (a, b) = (&self.a[first * self.a_stride..], &self.b[first * self.b_stride..]);
        Factor { a, b, rows: self.length(record), lengths: None, ..self }
    }
}
