//! A gated recurrent unit.

use serde::{Deserialize, Serialize};

use super::{
    BufferSizes, Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients,
    PlannedOperation, Site, Term, Workspace,
};
use crate::gradients::{Block, Factor, Factored};
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::{Packed, Rows, Segment, Store, math, product, vector};
use crate::shape::{Shape, Storage};
use crate::shapes::positive;

/// A gated recurrent unit: a sequence of hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gru {
    /// The length of a hidden state.
    pub hidden: usize,
}

impl LayerType for Gru {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        positive("hidden", self.hidden)?;
        match input.shape() {
            Shape::Sequence { steps, .. } => Ok(Shape::Sequence { steps, width: self.hidden }),
            _ => Err(input.unsuitable("a sequence", "; for tokens put an embedding before it")),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for Gru {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let (gates, init) = (3 * self.hidden, Init::uniform_fan_in(self.hidden));
        vec![
            Parameter::new("weight_ih_l0", &[gates, input.width()], init),
            Parameter::new("bias_ih_l0", &[gates], init),
            Parameter::new("weight_hh_l0", &[gates, self.hidden], init),
            Parameter::new("bias_hh_l0", &[gates], init),
        ]
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let (inputs, hidden) = (site.input.width(), self.hidden);
        let gates = 3 * hidden;
        let matrix = |width: usize, offset: usize, buffer: usize| Factored {
            outputs: gates,
            blocks: vec![Block { first: 0, width, offset }],
            biases: vec![offset + gates * width],
            buffer,
        };
        let from_input = matrix(inputs, 0, 0);
        let from_state = matrix(hidden, from_input.len(), 1);
        Box::new(GruOperation { inputs, hidden, from_input, from_state })
    }
}

/// One layer, one direction, gates in PyTorch's order `r z n`.
///
/// The reset gate acts on the hidden state's part of the candidate, so the two weight matrices have different output
/// gradients and are factored one by one. A row of the layer's buffers holds both: the input's three gates, then the
/// state's.
struct GruOperation {
    inputs: usize,
    hidden: usize,
    from_input: Factored,
    from_state: Factored,
}

impl GruOperation {
    fn row(&self) -> usize {
        Storage::stride(6 * self.hidden)
    }

    /// The factors of the input's matrix, or of the state's.
    fn factors<'a>(&self, terms: &[Term<'a>], state: bool) -> Vec<Factor<'a>> {
        let factor = |term: &Term<'a>| {
            let (a, a_stride, first) = match state {
                false => (term.x, Storage::stride(self.inputs), 0),
                true => (&term.buffers.activations[..], Storage::stride(self.hidden), 3 * self.hidden),
            };
            let b = &term.buffers.gradients[first..];
            let Context { steps: rows, most_steps: most_rows, lengths, .. } = term.context;
            Factor { a, a_stride, b, b_stride: self.row(), rows, most_rows, lengths: Some(lengths) }
        };
        terms.iter().map(factor).collect()
    }
}

impl Operation for GruOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn buffer_sizes(&self, steps: usize) -> BufferSizes {
        BufferSizes {
            activations: steps * Storage::stride(self.hidden),
            gradients: steps * self.row(),
            scratch: Storage::stride(self.hidden),
        }
    }

    fn work(&self, steps: usize) -> [usize; 3] {
        [steps * 3 * self.hidden * (self.inputs + self.hidden); 3]
    }

    /// The product of a step has one row per record; a tile of the kernel has at least six rows.
    fn enough_records(&self) -> usize {
        6
    }

    fn pack(&self, params: &[f32], _: bool, packs: &mut Vec<Packed>) {
        let (gates, inputs, hidden) = (3 * self.hidden, self.inputs, self.hidden);
        let (ih, hh) = params.split_at(self.from_input.len());
        packs.resize_with(4, Packed::default);
        packs[0].fill_columns(inputs, gates, ih, inputs);
        packs[1].fill_columns(hidden, gates, hh, hidden);
        packs[2].fill_rows(gates, inputs, ih, inputs);
        packs[3].fill_rows(gates, hidden, hh, hidden);
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], buffers: &mut LayerBuffers) {
        let (steps, inputs, hidden, row) = (context.steps, self.inputs, self.hidden, self.row());
        let (state, gates) = (Storage::stride(hidden), 3 * hidden);
        let (ih, hh) = context.params.split_at(self.from_input.len());
        let count = context.records * steps;
        product(
            x,
            Rows::Every { count, stride: Storage::stride(inputs) },
            &[Segment { offset: 0, len: inputs }],
            &context.packs[0],
            &mut buffers.gradients,
            Rows::Every { count, stride: row },
            Store { accumulate: false, bias: Some(&ih[gates * inputs..]) },
        );
        for record in 0..context.records {
            buffers.activations[record * steps * state..][..hidden].fill(0.0);
        }
        for step in 0..steps {
            product(
                &buffers.activations[step * state..],
                Rows::Every { count: context.records, stride: steps * state },
                &[Segment { offset: 0, len: hidden }],
                &context.packs[1],
                &mut buffers.gradients[step * row + gates..],
                Rows::Every { count: context.records, stride: steps * row },
                Store { accumulate: false, bias: Some(&hh[gates * hidden..]) },
            );
            for record in 0..context.records {
                let place = record * steps + step;
                let (input, from_state) = buffers.gradients[place * row..][..2 * gates].split_at_mut(gates);
                let old = &buffers.activations[place * state..];
                let new = &mut y[place * state..][..hidden];
                if step < context.lengths[record] {
                    math::gru_step(input, from_state, old, new);
                } else {
                    // Steps beyond a record's end exist only because of longer records in the chunk.
                    new.fill(0.0);
                }
                if step + 1 < steps {
                    buffers.activations[(place + 1) * state..][..hidden].copy_from_slice(new);
                }
            }
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let (steps, inputs, hidden, row) = (context.steps, self.inputs, self.hidden, self.row());
        let (state, gates) = (Storage::stride(hidden), 3 * hidden);
        for step in (0..steps).rev() {
            for record in 0..context.records {
                let place = record * steps + step;
                let dh = &mut dy[place * state..][..hidden];
                if step + 1 < context.lengths[record] {
                    vector::add(dh, &buffers.scratch[record * state..][..hidden]);
                }
                let (input, from_state) = buffers.gradients[place * row..][..2 * gates].split_at_mut(gates);
                if step < context.lengths[record] {
                    math::gru_step_gradient(input, from_state, &buffers.activations[place * state..], dh);
                } else {
                    input.fill(0.0);
                    from_state.fill(0.0);
                }
                // The part of the gradient that bypasses the gates; the product below adds the rest.
                buffers.scratch[record * state..][..hidden].copy_from_slice(dh);
            }
            product(
                &buffers.gradients[step * row + gates..],
                Rows::Every { count: context.records, stride: steps * row },
                &[Segment { offset: 0, len: gates }],
                &context.packs[3],
                &mut buffers.scratch,
                Rows::Every { count: context.records, stride: state },
                Store { accumulate: true, bias: None },
            );
        }
        let Some(dx) = dx else { return };
        let count = context.records * steps;
        product(
            &buffers.gradients,
            Rows::Every { count, stride: row },
            &[Segment { offset: 0, len: gates }],
            &context.packs[2],
            dx,
            Rows::Every { count, stride: Storage::stride(inputs) },
            Store::default(),
        );
    }
}

impl ParameterGradients for GruOperation {
    fn written_sizes(&self, most: usize, steps: usize) -> [usize; 2] {
        [self.from_input.written_size(most * steps), self.from_state.written_size(most * steps)]
    }

    fn squared_norms(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>, out: &mut [f64]) {
        let bags = terms[0].context.bags;
        self.from_input.squared_norms(&self.factors(terms, false), bags, workspace, out);
        self.from_state.squared_norms(&self.factors(terms, true), bags, workspace, out);
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        workspace: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        let bags = terms[0].context.bags;
        self.from_input.weighted_sum(&self.factors(terms, false), bags, weights, workspace, sum);
        self.from_state.weighted_sum(&self.factors(terms, true), bags, weights, workspace, sum);
    }

    fn sums_in_groups(&self, steps: usize) -> bool {
        self.from_input.sums_in_groups(steps) && self.from_state.sums_in_groups(steps)
    }
}
