//! `y = W x + b`, on a vector or on each step of a sequence.

use serde::{Deserialize, Serialize};

use super::{
    Context, Flow, Form, LayerBuffers, LayerType, Operation, ParameterGradients, PlannedOperation, Site,
    Term, Workspace,
};
use crate::gradients::{Block, Factor, Factored};
use crate::graph_builder::Source;
use crate::init::{Init, Parameter};
use crate::kernels::{Packed, Rows, Segment, Store, product};
use crate::shape::{Shape, Storage};
use crate::shapes::positive;

/// `y = W x + b`, on a vector or on each step of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// The length of `y`.
    pub outputs: usize,
    /// The length of `x`; inferred, and checked if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<usize>,
    /// Whether there is a `b`.
    #[serde(default = "super::yes")]
    pub bias: bool,
}

impl Linear {
    /// A linear layer with a bias.
    pub fn new(outputs: usize) -> Linear {
        Linear { outputs, inputs: None, bias: true }
    }
}

impl LayerType for Linear {
    fn output_shape(&self, input: &Source) -> Result<Shape, String> {
        let outputs = self.outputs;
        positive("outputs", outputs)?;
        let needed = "a vector or a sequence";
        let (width, shape) = match input.shape() {
            Shape::Features(n) => (n, Shape::Features(outputs)),
            Shape::Sequence { steps, width } => (width, Shape::Sequence { steps, width: outputs }),
            Shape::Image { .. } => return Err(input.unsuitable(needed, "; put a flatten before it")),
            Shape::Tokens { .. } => return Err(input.unsuitable(needed, "; put an embedding before it")),
        };
        match self.inputs {
            Some(inputs) if inputs != width => {
                Err(format!("expects {inputs} inputs, gets {width} from {}", input.producer))
            }
            _ => Ok(shape),
        }
    }

    fn form(&self) -> Form<'_> {
        Form::Operation(Box::new(*self))
    }
}

impl PlannedOperation for Linear {
    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let inputs = input.width();
        let init = Init::uniform_fan_in(inputs);
        let mut parameters = vec![Parameter::new("weight", &[self.outputs, inputs], init)];
        if self.bias {
            parameters.push(Parameter::new("bias", &[self.outputs], init));
        }
        parameters
    }

    fn backward_reads_output(&self) -> bool {
        false
    }

    fn build(&self, site: &Site) -> Box<dyn Operation> {
        let (input, outputs) = (site.input.shape, self.outputs);
        let inputs = input.width();
        let gradient = Factored {
            outputs,
            blocks: vec![Block { first: 0, width: inputs, offset: 0 }],
            biases: if self.bias { vec![inputs * outputs] } else { Vec::new() },
            buffer: 0,
        };
        let sequence = matches!(input, Shape::Sequence { .. });
        Box::new(LinearOperation { inputs, outputs, bias: self.bias, sequence, gradient })
    }
}

struct LinearOperation {
    inputs: usize,
    outputs: usize,
    bias: bool,
    sequence: bool,
    gradient: Factored,
}

impl LinearOperation {
    fn rows(&self, steps: usize) -> usize {
        if self.sequence { steps } else { 1 }
    }

    fn factors<'a>(&self, terms: &[Term<'a>]) -> Vec<Factor<'a>> {
        let (a_stride, b_stride) = (Storage::stride(self.inputs), Storage::stride(self.outputs));
        let factor = |term: &Term<'a>| Factor {
            a: term.x,
            a_stride,
            b: term.dy,
            b_stride,
            rows: self.rows(term.context.steps),
            most_rows: self.rows(term.context.most_steps),
            lengths: self.sequence.then_some(term.context.lengths),
        };
        terms.iter().map(factor).collect()
    }
}

impl Operation for LinearOperation {
    fn parameter_gradients(&self) -> Option<&dyn ParameterGradients> {
        Some(self)
    }

    fn work(&self, steps: usize) -> [usize; 3] {
        [self.rows(steps) * self.inputs * self.outputs; 3]
    }

    fn pack(&self, params: &[f32], input_gradient: bool, packs: &mut Vec<Packed>) {
        packs.resize_with(2, Packed::default);
        packs[0].fill_columns(self.inputs, self.outputs, params, self.inputs);
        if input_gradient {
            packs[1].fill_rows(self.outputs, self.inputs, params, self.inputs);
        }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut LayerBuffers) {
        let count = context.records * self.rows(context.steps);
        product(
            x,
            Rows::Every { count, stride: Storage::stride(self.inputs) },
            &[Segment { offset: 0, len: self.inputs }],
            &context.packs[0],
            y,
            Rows::Every { count, stride: Storage::stride(self.outputs) },
            Store {
                accumulate: false,
                bias: self.bias.then(|| &context.params[self.inputs * self.outputs..]),
            },
        );
    }

    fn can_accumulate(&self) -> bool {
        true
    }

    fn backward(&self, context: &Context<'_>, flow: Flow<'_>, _: &mut LayerBuffers) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let count = context.records * self.rows(context.steps);
        product(
            dy,
            Rows::Every { count, stride: Storage::stride(self.outputs) },
            &[Segment { offset: 0, len: self.outputs }],
            &context.packs[1],
            dx,
            Rows::Every { count, stride: Storage::stride(self.inputs) },
            Store { accumulate: context.accumulate, bias: None },
        );
    }
}

impl ParameterGradients for LinearOperation {
    fn written_sizes(&self, most: usize, steps: usize) -> [usize; 2] {
        [self.gradient.written_size(most * self.rows(steps)), 0]
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
        self.gradient.sums_in_groups(self.rows(steps))
    }
}
