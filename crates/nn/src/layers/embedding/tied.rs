//! The gradient of a matrix that is both the embedding and the output layer.
//!
//! With the tokens `v_s` of a record, the gradients `d_s` of their vectors, and the inputs `h_t` and the output gradients `b_t` of the
//! output layer, it is `sum_s e(v_s) d_s^T + sum_t b_t h_t^T`, where `e(v)` is the unit vector of token `v`. Its norm contains the cross
//! term of the two sums. Each record adds one vector to a weighted sum: if it added the two sums one after the other, they might
//! cancel, and rounding could exceed the bound. For a bag, both sums are over the positions of all its records.

use std::ops::Range;

use super::{BagTokens, Equals};
use crate::cut::GROUP;
use crate::gradients::{RecordRows, Right, direct, gram_is_cheaper, norm_of_outer};
use crate::kernels::vector::{self, Strided};
use crate::kernels::{Matrix, Runs, WIDTH, outer_sum};
use crate::layers::{Context, Scratch, Term, Workspace};
use crate::shape::Storage;

pub(super) struct Tied {
    pub(super) vocabulary: usize,
    pub(super) width: usize,
    /// Steps that the output layer has beyond those of the embedding.
    pub(super) extra_steps: usize,
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

    /// Whether gradients of bags of at most `most` records, of at most `steps` steps, are written out. This must not depend on other records.
    fn written(&self, most: usize, steps: usize) -> bool {
        !gram_is_cheaper((steps + self.extra_steps) * most, self.width, self.vocabulary)
    }

    pub(super) fn written_size(&self, most: usize, steps: usize) -> usize {
        if self.written(most, steps) { self.len().next_multiple_of(16) } else { 0 }
    }

    pub(super) fn sums_in_groups(&self, steps: usize) -> bool {
        self.written(1, steps)
    }

    pub(super) fn squared_norms(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>, out: &mut [f64]) {
        let (uses, Context { bags, most_steps, .. }) = (Uses::new(terms), terms[0].context);
        let size = self.written_size(bags.most, most_steps);
        workspace.written[0].reserve(size * out.len());
        let operands: Vec<_> = uses.output.iter().map(|term| (term.dy, term.x)).collect();
        for (index, (bag, out)) in bags.iter().zip(out).enumerate() {
            if !self.written(bags.most, most_steps) {
                *out += self.norm_by_gram(&uses, bag, workspace.scratch);
                continue;
            }
            let gradient = &mut workspace.written[0][index * size..][..self.len()];
            for record in bag.clone() {
                self.add_outputs(&operands, &uses, record, gradient, record > bag.start);
            }
            for record in bag {
                let (tokens, rows) = uses.embedded(record, self.width);
                for (step, &token) in tokens.iter().enumerate() {
                    vector::add(&mut gradient[token as usize * self.width..][..self.width], rows.row(step));
                }
            }
            *out += vector::squared_norm(gradient);
        }
    }

    fn norm_by_gram(&self, uses: &Uses<'_, '_>, bag: Range<usize>, scratch: &mut Scratch) -> f64 {
        let (outputs, inputs) = self.strides();
        let Context { steps: rows, lengths, .. } = uses.output[0].context;
        let stack = |data, width, stride| {
            RecordRows { data, width, stride, rows, lengths: Some(lengths) }.of_bag(bag.clone())
        };
        let stacked = uses
            .output
            .iter()
            .map(|term| (stack(term.x, self.width, inputs), stack(term.dy, self.vocabulary, outputs)));
        let stacked: Vec<_> = stacked.collect();
        let mut tokens = BagTokens::default();
        tokens.collect(&uses.embedding.context, bag.clone());
        let Context { steps: rows, lengths, .. } = uses.embedding.context;
        let embedded = RecordRows {
            data: uses.embedding.dy,
            width: self.width,
            stride: inputs,
            rows,
            lengths: Some(lengths),
        };
        let rows = embedded.of_bag(bag);
        let mut parts: Vec<_> = stacked.iter().map(|(a, b)| (a.matrix(), Right::Rows(b.matrix()))).collect();
        parts.push((rows.matrix(), Right::Tokens { tokens: &tokens.tokens, vocabulary: self.vocabulary }));
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
        let context = uses.output[0].context;
        self.add_rows(operands, record * context.steps, context.lengths[record], sum, accumulate);
    }

    /// Adds `len` rows of the output layer from `first` on, summed separately.
    fn add_rows(
        &self,
        operands: &[(&[f32], &[f32])],
        first: usize,
        len: usize,
        sum: &mut [f32],
        accumulate: bool,
    ) {
        let (outputs, inputs) = self.strides();
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
        let (uses, Context { bags, most_steps, .. }) = (Uses::new(terms), terms[0].context);
        match weights {
            None => self.plain_sum(&uses, bags.records(), sum),
            Some(_) if self.written(bags.most, most_steps) => {
                let (size, sum) = (self.written_size(bags.most, most_steps), &mut sum[..self.len()]);
                direct::weighted_sum(&workspace.written[0], size, bags.len(), weights, sum);
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

    /// Adds bag by bag. The rows of a bag's tokens are set aside while the output layer's part is added to all others, and each
    /// of them then adds both parts at once.
    fn factored_sum(&self, uses: &Uses<'_, '_>, weights: &[f32], scratch: &mut Scratch, sum: &mut [f32]) {
        let ((_, inputs), Context { bags, steps, .. }) = (self.strides(), uses.output[0].context);
        let width = self.width;
        // The kernel reads a whole cache line at the last row.
        let part = bags.records() * steps * inputs + WIDTH;
        scratch.first.reserve(uses.output.len() * part);
        let mut scaled = Vec::with_capacity(uses.output.len());
        let of_records = bags.weights_of_records(weights);
        for (term, copy) in uses.output.iter().zip(scratch.first.chunks_exact_mut(part)) {
            vector::scale_rows(copy, term.x, Strided { width, stride: inputs }, steps, &of_records);
            scaled.push((term.dy, &*copy));
        }
        let (mut equals, mut tokens, mut own) = (Equals::default(), BagTokens::default(), vec![0.0; width]);
        let (embedded, stride, mut rows) = (uses.embedding.dy, Storage::stride(width), Vec::new());
        for (bag, &weight) in bags.iter().zip(weights) {
            tokens.collect(&uses.embedding.context, bag.clone());
            let BagTokens { tokens, places } = &tokens;
            equals.link(tokens);
            let row = |step: usize| tokens[step] as usize * width..(tokens[step] as usize + 1) * width;
            let different = || (0..tokens.len()).filter(|&step| !equals.again[step]);
            scratch.second.reserve(tokens.len() * width);
            for (aside, step) in scratch.second.chunks_exact_mut(width).zip(different()) {
                aside.copy_from_slice(&sum[row(step)]);
            }
            match bag.len() {
                1 => self.add_outputs(&scaled, uses, bag.start, sum, true),
                // Rows beyond the end of a record are zero.
                records => self.add_rows(&scaled, bag.start * steps, records * steps, sum, true),
            }
            for (aside, step) in scratch.second.chunks_exact(width).zip(different()) {
                equals.add(step, |step| &embedded[places[step] * stride..][..width], &mut rows, &mut own);
                for record in bag.clone() {
                    self.add_output_row(uses, record, tokens[step] as usize, &mut own);
                }
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
