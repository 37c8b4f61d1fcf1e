//! The gradient of a matrix that is both the embedding and the output layer.
//!
//! With the tokens `v_s` of a record, the gradients `d_s` of their vectors, and the inputs `h_t` and the output gradients `b_t` of the
//! output layer, it is `sum_s e(v_s) d_s^T + sum_t b_t h_t^T`, where `e(v)` is the unit vector of token `v`. Its norm contains the cross
//! term of the two sums. Each record adds one vector to a weighted sum: if it added the two sums one after the other, they might
//! cancel, and rounding could exceed the bound.

use super::Equals;
use crate::cut::GROUP;
use crate::gradients::{Right, direct, gram_is_cheaper, norm_of_outer};
use crate::kernels::vector::{self, Strided};
use crate::kernels::{Matrix, Runs, WIDTH, outer_sum};
use crate::layers::{Scratch, Term, Workspace};
use crate::shape::Storage;

pub(super) struct Tied {
    pub(super) vocabulary: usize,
    pub(super) width: usize,
    /// The largest number of steps of the output layer.
    pub(super) most_steps: usize,
}

/// The terms of both layers.
struct Uses<'t, 'a> {
    /// The term of the embedding that holds the gradient, or the difference of gradients.
    embedding: Term<'a>,
    /// The terms of the output layer.
    output: &'t [Term<'a>],
}

impl<'t, 'a> Uses<'t, 'a> {
    /// The embedding's terms come first.
    fn new(terms: &'t [Term<'a>]) -> Uses<'t, 'a> {
        let (embedding, output) = terms.split_at(terms.len() / 2);
        Uses { embedding: embedding[embedding.len() - 1], output }
    }

    /// The tokens of a record, and the gradients of their vectors.
    fn embedded(&self, record: usize, width: usize) -> (&'a [u32], Matrix<'a>) {
        let (Term { context, dy, .. }, stride) = (self.embedding, Storage::stride(width));
        let (first, count) = (record * context.steps, context.lengths[record]);
        (&context.tokens[first..first + count], Matrix { data: &dy[first * stride..], count, width, stride })
    }
}

impl Tied {
    fn strides(&self) -> (usize, usize) {
        (Storage::stride(self.vocabulary), Storage::stride(self.width))
    }

    fn len(&self) -> usize {
        self.vocabulary * self.width
    }

    /// Whether a record's gradient is written out; this must not depend on the records in the chunk.
    fn written(&self) -> bool {
        !gram_is_cheaper(self.most_steps, self.width, self.vocabulary)
    }

    pub(super) fn written_size(&self) -> usize {
        if self.written() { self.len().next_multiple_of(16) } else { 0 }
    }

    pub(super) fn sums_in_groups(&self) -> bool {
        self.written()
    }

    pub(super) fn squared_norms(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>, out: &mut [f64]) {
        let (uses, size) = (Uses::new(terms), self.written_size());
        workspace.written[0].reserve(size * out.len());
        for (record, out) in out.iter_mut().enumerate() {
            if !self.written() {
                *out += self.norm_by_gram(&uses, record, workspace.scratch);
                continue;
            }
            let gradient = &mut workspace.written[0][record * size..][..self.len()];
            let operands: Vec<_> = uses.output.iter().map(|term| (term.dy, term.x)).collect();
            self.add_outputs(&operands, &uses, record, gradient, false);
            let (tokens, rows) = uses.embedded(record, self.width);
            for (step, &token) in tokens.iter().enumerate() {
                vector::add(&mut gradient[token as usize * self.width..][..self.width], rows.row(step));
            }
            *out += vector::squared_norm(gradient);
        }
    }

    fn norm_by_gram(&self, uses: &Uses<'_, '_>, record: usize, scratch: &mut Scratch) -> f64 {
        let (outputs, inputs) = self.strides();
        let mut parts = Vec::with_capacity(uses.output.len() + 1);
        for term in uses.output {
            let (first, count) = (record * term.context.steps, term.context.lengths[record]);
            let a = Matrix { data: &term.x[first * inputs..], count, width: self.width, stride: inputs };
            let data = &term.dy[first * outputs..];
            parts.push((a, Right::Rows(Matrix { data, count, width: self.vocabulary, stride: outputs })));
        }
        let (tokens, rows) = uses.embedded(record, self.width);
        parts.push((rows, Right::Tokens { tokens, vocabulary: self.vocabulary }));
        norm_of_outer(&parts, scratch)
    }

    /// Adds the output layer's part of a record's gradient to a matrix, or replaces the matrix by it.
    fn add_outputs(
        &self,
        operands: &[(&[f32], &[f32])],
        uses: &Uses<'_, '_>,
        record: usize,
        sum: &mut [f32],
        accumulate: bool,
    ) {
        let (outputs, inputs) = self.strides();
        let context = uses.output[0].context;
        let (first, len) = (record * context.steps, context.lengths[record]);
        let starts = [(first * outputs, first * inputs)];
        let runs = Runs { starts: &starts, len, left_step: outputs, right_step: inputs, unit: len.max(1) };
        outer_sum((self.vocabulary, self.width), operands, runs, sum, self.width, accumulate);
    }

    pub(super) fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        workspace: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let (uses, records) = (Uses::new(terms), terms[0].context.records);
        match weights {
            None => self.plain_sum(&uses, records, sum),
            Some(_) if self.written() => {
                let sum = &mut sum[..self.len()];
                direct::weighted_sum(&workspace.written[0], self.written_size(), records, weights, sum);
            }
            Some(weights) => self.factored_sum(&uses, weights, workspace.scratch, sum),
        }
    }

    /// The sum without weights.
    fn plain_sum(&self, uses: &Uses<'_, '_>, records: usize, sum: &mut [f32]) {
        let (outputs, inputs) = self.strides();
        let operands: Vec<_> = uses.output.iter().map(|term| (term.dy, term.x)).collect();
        let len = records * uses.output[0].context.steps;
        let runs = Runs { starts: &[(0, 0)], len, left_step: outputs, right_step: inputs, unit: GROUP };
        outer_sum((self.vocabulary, self.width), &operands, runs, sum, self.width, true);
        for record in 0..records {
            let (tokens, rows) = uses.embedded(record, self.width);
            for (step, &token) in tokens.iter().enumerate() {
                vector::add(&mut sum[token as usize * self.width..][..self.width], rows.row(step));
            }
        }
    }

    /// Adds record by record. The rows of a record's tokens are set aside while the output layer's part is added to all others, and each
    /// of them then adds both parts at once.
    fn factored_sum(&self, uses: &Uses<'_, '_>, weights: &[f32], scratch: &mut Scratch, sum: &mut [f32]) {
        let ((_, inputs), steps, width) = (self.strides(), uses.output[0].context.steps, self.width);
        // The kernel reads a whole cache line at the last row.
        let part = weights.len() * steps * inputs + WIDTH;
        scratch.first.reserve(uses.output.len() * part);
        let mut scaled = Vec::with_capacity(uses.output.len());
        for (term, copy) in uses.output.iter().zip(scratch.first.chunks_exact_mut(part)) {
            vector::scale_rows(copy, term.x, Strided { width, stride: inputs }, steps, weights);
            scaled.push((term.dy, &*copy));
        }
        let (mut equals, mut own) = (Equals::default(), vec![0.0; width]);
        for (record, &weight) in weights.iter().enumerate() {
            let (tokens, rows) = uses.embedded(record, width);
            equals.link(tokens);
            let row = |step: usize| tokens[step] as usize * width..(tokens[step] as usize + 1) * width;
            let different = || (0..tokens.len()).filter(|&step| !equals.again[step]);
            scratch.second.reserve(tokens.len() * width);
            for (aside, step) in scratch.second.chunks_exact_mut(width).zip(different()) {
                aside.copy_from_slice(&sum[row(step)]);
            }
            self.add_outputs(&scaled, uses, record, sum, true);
            for (aside, step) in scratch.second.chunks_exact(width).zip(different()) {
                equals.add(step, |step| rows.row(step), &mut own);
                self.add_output_row(uses, record, tokens[step] as usize, &mut own);
                for ((sum, aside), own) in sum[row(step)].iter_mut().zip(aside).zip(&own) {
                    *sum = aside + (f64::from(weight) * own) as f32;
                }
            }
        }
    }

    /// Adds the output layer's part of one row of a record's gradient, in double precision.
    fn add_output_row(&self, uses: &Uses<'_, '_>, record: usize, token: usize, own: &mut [f64]) {
        let (outputs, inputs) = self.strides();
        for term in uses.output {
            let first = record * term.context.steps;
            for place in first..first + term.context.lengths[record] {
                let factor = f64::from(term.dy[place * outputs + token]);
                let x = &term.x[place * inputs..][..self.width];
                own.iter_mut().zip(x).for_each(|(own, x)| *own += factor * f64::from(*x));
            }
        }
    }
}
