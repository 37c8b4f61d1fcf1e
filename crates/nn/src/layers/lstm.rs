//! A long short-term memory.

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

/// A long short-term memory: a sequence of hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lstm {
    /// The length of a hidden state.
    pub hidden: usize,
}

impl LayerType for Lstm {
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

impl PlannedOperation for Lstm {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let (gates, init) = (4 * self.hidden, Init::uniform_fan_in(self.hidden));
        vec![
            Parameter::new("weight_ih_l0", &[gates, input.width()], init),
            Parameter::new("weight_hh_l0", &[gates, self.hidden], init),
            Parameter::new("bias_ih_l0", &[gates], init),
            Parameter::new("bias_hh_l0", &[gates], init),
        ]
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let (inputs, hidden) = (site.input.width(), self.hidden);
        let gates = 4 * hidden;
        let (ih, hh) = (gates * inputs, gates * hidden);
        let gradient = Factored {
            outputs: gates,
            blocks: vec![
                Block { first: 0, width: inputs, offset: 0 },
                Block { first: inputs, width: hidden, offset: ih },
            ],
            biases: vec![ih + hh, ih + hh + gates],
            buffer: 0,
        };
        Box::new(LstmOperation { inputs, hidden, gradient })
    }
}

/// One layer, one direction, gates in PyTorch's order `i f g o`.
///
/// The input and the hidden state lie side by side in one row `x h 1`, so that both weight matrices are one factored
/// matrix and a step is one product; the 1 is multiplied by the biases.
struct LstmOperation {
    inputs: usize,
    hidden: usize,
    gradient: Factored,
}

impl LstmOperation {
    fn row(&self) -> usize {
        Storage::stride(self.inputs + self.hidden + 1)
    }

    fn gates(&self) -> usize {
        Storage::stride(4 * self.hidden)
    }

    fn factors<'a>(&self, terms: &[Term<'a>]) -> Vec<Factor<'a>> {
        let factor = |term: &Term<'a>| Factor {
            a: &term.buffers.activations,
            a_stride: self.row(),
            b: &term.buffers.gradients,
            b_stride: self.gates(),
            rows: term.context.steps,
            most_rows: term.context.most_steps,
            lengths: Some(term.context.lengths),
        };
        terms.iter().map(factor).collect()
    }

    /// The parts of a record's scratch: cells (one more than steps), their squashed values, gradients of rows, of a cell.
    fn parts(&self, steps: usize) -> [usize; 4] {
        [(steps + 1) * self.hidden, steps * self.hidden, steps * self.row(), self.hidden]
    }
}

impl Operation for LstmOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn buffer_sizes(&self, steps: usize) -> BufferSizes {
        BufferSizes {
            activations: steps * self.row(),
            gradients: steps * self.gates(),
            scratch: self.parts(steps).iter().sum(),
        }
    }

    fn work(&self, steps: usize) -> [usize; 3] {
        [steps * 4 * self.hidden * (self.inputs + self.hidden); 3]
    }

    /// The product of a step has one row per record; a tile of the kernel has at least six rows.
    fn enough_records(&self) -> usize {
        6
    }

    fn pack(&self, params: &[f32], _: bool, packs: &mut Vec<Packed>) {
        let (gates, inputs, hidden) = (4 * self.hidden, self.inputs, self.hidden);
        let (ih, rest) = params.split_at(gates * inputs);
        let (hh, biases) = rest.split_at(gates * hidden);
        let width = inputs + hidden + 1;
        let mut rows = vec![0.0; gates * width];
        for (gate, row) in rows.chunks_exact_mut(width).enumerate() {
            row[..inputs].copy_from_slice(&ih[gate * inputs..][..inputs]);
            row[inputs..inputs + hidden].copy_from_slice(&hh[gate * hidden..][..hidden]);
            row[inputs + hidden] = biases[gate] + biases[gates + gate];
        }
        packs.resize_with(2, Packed::default);
        packs[0].fill_columns(width, gates, &rows, width);
        packs[1].fill_rows(gates, inputs + hidden, &rows, width);
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], buffers: &mut LayerBuffers) {
        let (steps, inputs, hidden) = (context.steps, self.inputs, self.hidden);
        let (row, gates) = (self.row(), self.gates());
        let (x_stride, y_stride) = (Storage::stride(inputs), Storage::stride(hidden));
        let [cells, squashed, ..] = self.parts(steps);
        let scratch = self.parts(steps).iter().sum::<usize>();
        let rows = &mut buffers.activations;
        for place in 0..context.records * steps {
            let row = &mut rows[place * row..][..row];
            row[..inputs].copy_from_slice(&x[place * x_stride..][..inputs]);
            row[inputs + hidden] = 1.0;
            if place % steps == 0 {
                row[inputs..inputs + hidden].fill(0.0);
                buffers.scratch[place / steps * scratch..][..hidden].fill(0.0);
            }
        }
        for step in 0..steps {
            product(
                &rows[step * row..],
                Rows::Every { count: context.records, stride: steps * row },
                &[Segment { offset: 0, len: inputs + hidden + 1 }],
                &context.packs[0],
                &mut buffers.gradients[step * gates..],
                Rows::Every { count: context.records, stride: steps * gates },
                Store::default(),
            );
            for record in 0..context.records {
                let place = record * steps + step;
                let (cell, rest) = buffers.scratch[record * scratch..].split_at_mut(cells);
                let (old, new) = cell[step * hidden..].split_at_mut(hidden);
                let squashed = &mut rest[..squashed][step * hidden..];
                let state = &mut y[place * y_stride..][..hidden];
                if step < context.lengths[record] {
                    math::lstm_step(
                        &mut buffers.gradients[place * gates..][..4 * hidden],
                        old,
                        new,
                        squashed,
                        state,
                    );
                } else {
                    // Steps beyond a record's end exist only because of longer records in the chunk.
                    state.fill(0.0);
                }
                if step + 1 < steps {
                    rows[(place + 1) * row + inputs..][..hidden].copy_from_slice(state);
                }
            }
        }
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, buffers: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let (steps, inputs, hidden) = (context.steps, self.inputs, self.hidden);
        let (row, gates, y_stride) = (self.row(), self.gates(), Storage::stride(hidden));
        let [cells, squashed, drows, _] = self.parts(steps);
        let scratch = self.parts(steps).iter().sum::<usize>();
        for record in 0..context.records {
            buffers.scratch[record * scratch + cells + squashed + drows..][..hidden].fill(0.0);
        }
        for step in (0..steps).rev() {
            for record in 0..context.records {
                let place = record * steps + step;
                let (cell, rest) = buffers.scratch[record * scratch..].split_at_mut(cells);
                let (squashed, rest) = rest.split_at_mut(squashed);
                let (drow, dcell) = rest.split_at_mut(drows);
                let dh = &mut dy[place * y_stride..][..hidden];
                if step + 1 < context.lengths[record] {
                    vector::add(dh, &drow[(step + 1) * row + inputs..][..hidden]);
                }
                let gates = &mut buffers.gradients[place * gates..][..4 * hidden];
                if step >= context.lengths[record] {
                    gates.fill(0.0);
                    continue;
                }
                let (old, squashed) = (&cell[step * hidden..], &squashed[step * hidden..]);
                math::lstm_step_gradient(gates, old, squashed, dh, &mut dcell[..hidden]);
            }
            product(
                &buffers.gradients[step * gates..],
                Rows::Every { count: context.records, stride: steps * gates },
                &[Segment { offset: 0, len: 4 * hidden }],
                &context.packs[1],
                &mut buffers.scratch[cells + squashed + step * row..],
                Rows::Every { count: context.records, stride: scratch },
                Store::default(),
            );
        }
        let Some(dx) = dx else { return };
        let x_stride = Storage::stride(inputs);
        for place in 0..context.records * steps {
            let from = place / steps * scratch + cells + squashed + place % steps * row;
            dx[place * x_stride..][..inputs].copy_from_slice(&buffers.scratch[from..][..inputs]);
        }
    }
}

impl ParameterGradients for LstmOperation {
    fn written_sizes(&self, most: usize, steps: usize) -> [usize; 2] {
        [self.gradient.written_size(most * steps), 0]
    }

    fn squared_norms(&self, terms: &[Term<'_>], workspace: &mut Workspace<'_>, out: &mut [f64]) {
        self.gradient.squared_norms(&self.factors(terms), terms[0].context.bags, workspace, out);
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        workspace: &mut Workspace<'_>,
        sum: &mut [f32],
    ) {
        self.gradient.weighted_sum(&self.factors(terms), terms[0].context.bags, weights, workspace, sum);
    }

    fn sums_in_groups(&self, steps: usize) -> bool {
        self.gradient.sums_in_groups(steps)
    }
}
