//! A vector for each token.

mod tied;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use tied::Tied;

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
    Term, Workspace,
};
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::vector;
use crate::shape::{Shape, Storage};
use crate::shapes::positive;

/// A learned vector for each token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// The length of a vector.
    pub width: usize,
}

impl LayerType for Embedding {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        positive("width", self.width)?;
        match input.shape() {
            Shape::Tokens { steps, .. } => Ok(Shape::Sequence { steps, width: self.width }),
            _ => Err(input.unsuitable("tokens", "; it must be the first layer")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for Embedding {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let Shape::Tokens { vocabulary, .. } = input else {
            unreachable!("the shape rule permits tokens only")
        };
        vec![Parameter::new("weight", &[vocabulary, self.width], Init::Normal(1.0))]
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn is_embedding(&self) -> bool {
        true
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let tied = site.shared_with.map(|output| Tied {
            vocabulary: output.width(),
            width: self.width,
            extra_steps: output.extra,
        });
        Box::new(EmbeddingOperation { width: self.width, tied })
    }
}

/// A table of vectors. Its gradient for a bag has as many rows as the bag has different tokens; norms and
/// sums use only those.
struct EmbeddingOperation {
    width: usize,
    /// The gradient if the output layer has the same parameters.
    tied: Option<Tied>,
}

impl Operation for EmbeddingOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn work(&self, steps: usize) -> [usize; 3] {
        let gradient = self.tied.as_ref().map_or(0, |tied| steps * tied.vocabulary * tied.width);
        [0, 0, gradient]
    }

    fn forward(&self, context: &Context<'_>, _: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let stride = Storage::stride(self.width);
        for (record, &length) in context.lengths.iter().enumerate() {
            for step in 0..context.steps {
                let place = record * context.steps + step;
                let y = &mut y[place * stride..][..self.width];
                match step < length {
                    true => {
                        y.copy_from_slice(
                            &context.params[context.tokens[place] as usize * self.width..][..self.width],
                        );
                    }
                    false => y.fill(0.0),
                }
            }
        }
    }

    fn backward(&self, _: &Context<'_>, _: Flow<'_>, _: &mut LayerBuffers) {}
}

impl ParameterGradients for EmbeddingOperation {
    fn written_sizes(&self, most: usize, steps: usize) -> [usize; 2] {
        [self.tied.as_ref().map_or(0, |tied| tied.written_size(most, steps)), 0]
    }

    fn squared_norms(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>, out: &mut [f64]) {
        if let Some(tied) = &self.tied {
            return tied.squared_norms(terms, workspace, out);
        }
        let Term { context, dy, .. } = terms[terms.len() - 1];
        let stride = Storage::stride(self.width);
        // In double precision, since a token may be repeated very often.
        let mut sum = vec![0.0f64; self.width];
        let (mut equals, mut tokens) = (Equals::default(), BagTokens::default());
        let mut rows_of_token = Vec::new();
        for (out, bag) in out.iter_mut().zip(context.bags.iter()) {
            tokens.collect(&context, bag);
            let gradient = |step: usize| &dy[tokens.places[step] * stride..][..self.width];
            equals.link(&tokens.tokens);
            for step in (0..tokens.tokens.len()).filter(|&step| !equals.again[step]) {
                if equals.next[step] == NONE {
                    *out += vector::squared_norm(gradient(step));
                    continue;
                }
                // Equal tokens share a row of the table: their gradients add before they are squared.
                equals.add(step, gradient, &mut rows_of_token, &mut sum);
                *out += vector::squared_norm_of_doubles(&sum);
            }
        }
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        workspace: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        if let Some(tied) = &self.tied {
            return tied.weighted_sum(terms, weights, workspace, sum);
        }
        let Term { context, dy, .. } = terms[terms.len() - 1];
        let stride = Storage::stride(self.width);
        let mut own = vec![0.0f64; self.width];
        let (mut equals, mut tokens) = (Equals::default(), BagTokens::default());
        let mut rows_of_token = Vec::new();
        for (index, bag) in context.bags.iter().enumerate() {
            tokens.collect(&context, bag);
            let weight = weights.map_or(1.0, |weights| weights[index]);
            let gradient = |step: usize| &dy[tokens.places[step] * stride..][..self.width];
            equals.link(&tokens.tokens);
            for (step, &token) in tokens.tokens.iter().enumerate().filter(|(step, _)| !equals.again[*step]) {
                let row = &mut sum[token as usize * self.width..][..self.width];
                if equals.next[step] == NONE {
                    vector::add_scaled(row, weight, gradient(step));
                    continue;
                }
                // As for the norm: if they were weighted one by one, they might cancel differently.
                equals.add(step, gradient, &mut rows_of_token, &mut own);
                vector::add_scaled_doubles(row, weight, &own);
            }
        }
    }

    fn sums_in_groups(&self, steps: usize) -> bool {
        self.tied.as_ref().is_some_and(|tied| tied.sums_in_groups(steps))
    }
}

/// The tokens of all records of a bag, one after another.
#[derive(Default)]
struct BagTokens {
    tokens: Vec<u32>,
    /// The place of each token among the steps of the chunk.
    places: Vec<usize>,
}

impl BagTokens {
    fn collect(&mut self, context: &Context<'_>, bag: Range<usize>) {
        self.tokens.clear();
        self.places.clear();
        for record in bag {
            let first = record * context.steps;
            let places = first..first + context.lengths[record];
            self.tokens.extend(&context.tokens[places.clone()]);
            self.places.extend(places);
        }
    }
}

const NONE: usize = usize::MAX;

/// Which steps of a bag have the same token, as chains through the bag.
#[derive(Default)]
struct Equals {
    /// The next step with the same token.
    next: Vec<usize>,
    /// Whether an earlier step has the same token.
    again: Vec<bool>,
    /// Tokens by hash, each with its last step so far.
    slots: Vec<Option<(u32, usize)>>,
}

impl Equals {
    /// The sum of the gradients of all steps with this one's token, in double precision. `rows` is a buffer.
    fn add<'a>(
        &self,
        step: usize,
        gradient: impl Fn(usize) -> &'a [f32],
        rows: &mut Vec<&'a [f32]>,
        sum: &mut [f64],
    ) {
        rows.clear();
        let mut other = step;
        while other != NONE {
            rows.push(gradient(other));
            other = self.next[other];
        }
        vector::sum_in_doubles(sum, rows);
    }

    fn link(&mut self, tokens: &[u32]) {
        let size = (2 * tokens.len()).next_power_of_two();
        self.slots.clear();
        self.slots.resize(size, None);
        self.next.clear();
        self.next.resize(tokens.len(), NONE);
        self.again.clear();
        self.again.resize(tokens.len(), false);
        for (step, &token) in tokens.iter().enumerate() {
            let mut slot = (u64::from(token).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % size;
            loop {
                match self.slots[slot] {
                    Some((known, last)) if known == token => {
                        (self.next[last], self.again[step]) = (step, true);
                        break;
                    }
                    Some(_) => slot = (slot + 1) % size,
                    None => break,
                }
            }
            self.slots[slot] = Some((token, step));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Aligned;
    use crate::layers::Scratch;
    use crate::units::Bags;

    /// Gradients of one token that cancel: what is added has the norm that was reported, however small.
    #[test]
    fn equal_tokens_cancel_in_the_sum_as_in_the_norm() {
        let (embedding, steps) = (EmbeddingOperation { width: 1, tied: None }, 9);
        let stride = Storage::stride(1);
        let mut dy = vec![0.0; steps * stride];
        // All cancel except 0.1, which single precision would lose when it is added to 1e7.
        for (step, value) in [1e7, 0.1, 1.1e7, -1e7, 1.3e7, -1.1e7, -1.3e7, 3e6, -3e6].into_iter().enumerate()
        {
            dy[step * stride] = value;
        }
        let context = Context {
            params: &[0.0; 2],
            packs: &[],
            records: 1,
            bags: Bags { starts: &[0, 1], most: 1 },
            steps,
            most_steps: steps,
            lengths: &[steps],
            tokens: &[1; 9],
            dropout: None,
            accumulate: false,
        };
        let (buffers, mut written, mut scratch) =
            (LayerBuffers::default(), <[Aligned; 2]>::default(), Scratch::default());
        let terms = [Term { context, x: &[], dy: &dy, buffers: &buffers }];
        let mut workspace = Workspace { written: &mut written, scratch: &mut scratch };
        let mut squared = [0.0];
        embedding.squared_norms(&terms, &mut workspace, &mut squared);
        let weight = (1.0 / squared[0].sqrt()) as f32;
        let mut sum = [0.0; 2];
        embedding.weighted_sum(&terms, Some(&[weight]), &mut workspace, &mut sum);
        assert!((squared[0].sqrt() - 0.1).abs() < 1e-6 && (f64::from(sum[1]) - 1.0).abs() < 1e-5, "{sum:?}");
    }
}
