//! Scaled dot-product attention over the projections `q k v`.

use super::{Flow, Memory, Operation, Pass, Sizes};
use crate::kernels::{Rows, Runs, Segment, Store, math, outer_sum, product};
use crate::shape::Place;

/// From rows `q k v` side by side to the heads' outputs side by side. Steps beyond a record's length see nothing, are not
/// seen, and come out as zeros.
///
/// The projections before and after it are linear layers of their own.
pub(crate) struct Attention {
    pub(crate) width: usize,
    pub(crate) heads: usize,
}

impl Attention {
    fn head(&self) -> usize {
        self.width / self.heads
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head() as f32).sqrt()
    }

    /// Floats from one row of probabilities to the next.
    fn row(steps: usize) -> usize {
        steps.next_multiple_of(16)
    }
}

impl Operation for Attention {
    fn memory(&self, steps: usize) -> Sizes {
        // Probabilities of every head, and the gradient of one.
        Sizes { scratch: (self.heads + 1) * steps * Attention::row(steps), ..Sizes::default() }
    }

    fn work(&self, steps: usize) -> [usize; 3] {
        let one = steps * steps * self.width;
        [2 * one, 4 * one, 0]
    }

    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], memory: &mut Memory) {
        let (head, steps, row) = (self.head(), pass.steps, Attention::row(pass.steps));
        let (x_stride, y_stride) = (Place::stride(3 * self.width), Place::stride(self.width));
        for (record, &length) in pass.lengths.iter().enumerate() {
            let x = &x[record * steps * x_stride..];
            let y = &mut y[record * steps * y_stride..];
            for step in length..steps {
                y[step * y_stride..][..self.width].fill(0.0);
            }
            let queries = Rows::Every { count: length, stride: x_stride };
            let table = Rows::Every { count: length, stride: row };
            for h in 0..self.heads {
                let p = &mut memory.scratch[(record * (self.heads + 1) + h) * steps * row..];
                memory.packed.fill_columns(head, length, &x[self.width + h * head..], x_stride);
                let segment = [Segment { offset: h * head, len: head }];
                product(x, queries, &segment, &memory.packed, p, table, Store::default());
                for p in p.chunks_exact_mut(row).take(length) {
                    let p = &mut p[..length];
                    let greatest = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let sum = math::exp_shifted(p, greatest, self.scale());
                    for p in p {
                        *p /= sum;
                    }
                }
                memory.packed.fill_rows(length, head, &x[2 * self.width + h * head..], x_stride);
                let all = [Segment { offset: 0, len: length }];
                let out = Rows::Every { count: length, stride: y_stride };
                product(p, table, &all, &memory.packed, &mut y[h * head..], out, Store::default());
            }
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, memory: &mut Memory) {
        let Flow { x, dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let (head, steps, row) = (self.head(), pass.steps, Attention::row(pass.steps));
        let (x_stride, y_stride) = (Place::stride(3 * self.width), Place::stride(self.width));
        for (record, &length) in pass.lengths.iter().enumerate() {
            let x = &x[record * steps * x_stride..];
            let dx = &mut dx[record * steps * x_stride..];
            let dy = &dy[record * steps * y_stride..];
            for step in length..steps {
                dx[step * x_stride..][..3 * self.width].fill(0.0);
            }
            let table = Rows::Every { count: length, stride: row };
            let all = [Segment { offset: 0, len: length }];
            for h in 0..self.heads {
                let (q, k, v) = (h * head, self.width + h * head, 2 * self.width + h * head);
                let scratch = &mut memory.scratch[record * (self.heads + 1) * steps * row..];
                let (p, ds) = scratch.split_at_mut(self.heads * steps * row);
                let p = &p[h * steps * row..];
                // dP = dO V^T, then through the softmax to the scores.
                memory.packed.fill_columns(head, length, &x[v..], x_stride);
                let outputs = Rows::Every { count: length, stride: y_stride };
                let segment = [Segment { offset: h * head, len: head }];
                product(dy, outputs, &segment, &memory.packed, ds, table, Store::default());
                for (p, ds) in p.chunks_exact(row).zip(ds.chunks_exact_mut(row)).take(length) {
                    math::softmax_gradient(&p[..length], ds, self.scale());
                }
                // dV = P^T dO and dK = dS^T Q are sums of outer products over the queries; dQ = dS K.
                let unit = length;
                let starts = [(0, h * head)];
                let runs = Runs { starts: &starts, len: length, left_step: row, right_step: y_stride, unit };
                outer_sum((length, head), &[(p, dy)], runs, &mut dx[v..], x_stride, false);
                let starts = [(0, q)];
                let runs = Runs { starts: &starts, len: length, left_step: row, right_step: x_stride, unit };
                outer_sum((length, head), &[(ds, x)], runs, &mut dx[k..], x_stride, false);
                memory.packed.fill_rows(length, head, &x[k..], x_stride);
                let out = Rows::Every { count: length, stride: x_stride };
                product(ds, table, &all, &memory.packed, &mut dx[q..], out, Store::default());
            }
        }
    }
}
