//! A vector for each token.

use super::{Memory, Operation, Parameter, Pass, Room, Term};
use crate::init::Init;
use crate::kernels::vector;
use crate::shape::Place;

/// A table of vectors. Its gradient for a record has as many rows as the record has different tokens; norms and sums
/// touch only those.
pub(crate) struct Embedding {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
}

impl Operation for Embedding {
    fn parameters(&self) -> Vec<Parameter> {
        vec![Parameter::new("weight", &[self.vocabulary, self.width], Init::Normal(1.0))]
    }

    fn forward(&self, pass: &Pass<'_>, _: &[f32], y: &mut [f32], _: &mut Memory) {
        let stride = Place::stride(self.width);
        for (record, &length) in pass.lengths.iter().enumerate() {
            for step in 0..pass.steps {
                let place = record * pass.steps + step;
                let y = &mut y[place * stride..][..self.width];
                match step < length {
                    true => {
                        y.copy_from_slice(
                            &pass.params[pass.tokens[place] as usize * self.width..][..self.width],
                        );
                    }
                    false => y.fill(0.0),
                }
            }
        }
    }

    fn backward(
        &self,
        _: &Pass<'_>,
        _: &[f32],
        _: &[f32],
        _: &mut [f32],
        _: Option<&mut [f32]>,
        _: &mut Memory,
    ) {
    }

    fn squared_norms(&self, terms: &[Term<'_>], room: &mut Room<'_>, out: &mut [f64]) {
        let Term { pass, dy, .. } = terms[terms.len() - 1];
        let stride = Place::stride(self.width);
        room.scratch.first.reserve(self.width);
        let sum = &mut room.scratch.first[..self.width];
        let mut steps: Vec<(u32, usize)> = Vec::with_capacity(pass.steps);
        for (record, (out, &length)) in out.iter_mut().zip(pass.lengths).enumerate() {
            let first = record * pass.steps;
            // Equal tokens share a row of the table: their gradients add before they are squared.
            steps.clear();
            steps.extend((first..first + length).map(|place| (pass.tokens[place], place)));
            steps.sort_unstable();
            for same in steps.chunk_by(|one, other| one.0 == other.0) {
                let gradient = |place: usize| &dy[place * stride..][..self.width];
                if let [(_, place)] = same {
                    *out += vector::squared_norm(gradient(*place));
                    continue;
                }
                sum.fill(0.0);
                for (_, place) in same {
                    vector::add(sum, gradient(*place));
                }
                *out += vector::squared_norm(sum);
            }
        }
    }

    fn weighted_sum(&self, terms: &[Term<'_>], weights: Option<&[f32]>, _: &mut Room<'_>, sum: &mut [f32]) {
        let Term { pass, dy, .. } = terms[terms.len() - 1];
        let stride = Place::stride(self.width);
        for (record, &length) in pass.lengths.iter().enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[record]);
            for place in record * pass.steps..record * pass.steps + length {
                let row = &mut sum[pass.tokens[place] as usize * self.width..][..self.width];
                vector::add_scaled(row, weight, &dy[place * stride..][..self.width]);
            }
        }
    }
}
