//! `y = W x + b`, on a vector or on each step of a sequence.

use super::{Flow, Memory, Operation, Parameter, Pass, Room, Term};
use crate::gradients::{Block, Factor, Factored};
use crate::init::Init;
use crate::kernels::{Packed, Rows, Segment, Store, product};
use crate::shape::{Place, Shape};

/// A linear layer.
pub(crate) struct Linear {
    inputs: usize,
    outputs: usize,
    bias: bool,
    sequence: bool,
    init: Init,
    gradient: Factored,
}

impl Linear {
    pub(crate) fn new(input: Shape, outputs: usize, bias: bool) -> Linear {
        let place = Place { shape: input, border: 0 };
        let inputs = place.width();
        let gradient = Factored {
            outputs,
            most_rows: input.steps(),
            blocks: vec![Block { first: 0, width: inputs, offset: 0 }],
            biases: if bias { vec![inputs * outputs] } else { Vec::new() },
            site: 0,
        };
        let sequence = matches!(input, Shape::Sequence { .. });
        Linear { inputs, outputs, bias, sequence, init: Init::uniform_fan_in(inputs), gradient }
    }

    /// The projection to queries, keys and values, which begins by Xavier's rule.
    pub(crate) fn for_attention(self) -> Linear {
        Linear { init: Init::xavier(self.inputs, self.outputs), ..self }
    }

    fn rows(&self, steps: usize) -> usize {
        if self.sequence { steps } else { 1 }
    }

    fn factors<'a>(&self, terms: &[Term<'a>]) -> Vec<Factor<'a>> {
        let (a_stride, b_stride) = (Place::stride(self.inputs), Place::stride(self.outputs));
        let factor = |term: &Term<'a>| Factor {
            a: term.x,
            a_stride,
            b: term.dy,
            b_stride,
            rows: self.rows(term.pass.steps),
            lengths: self.sequence.then_some(term.pass.lengths),
        };
        terms.iter().map(factor).collect()
    }
}

impl Operation for Linear {
    fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = vec![Parameter::new("weight", &[self.outputs, self.inputs], self.init)];
        if self.bias {
            parameters.push(Parameter::new("bias", &[self.outputs], Init::uniform_fan_in(self.inputs)));
        }
        parameters
    }

    fn kept(&self) -> [usize; 2] {
        [self.gradient.kept(), 0]
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

    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], _: &mut Memory) {
        let count = pass.records * self.rows(pass.steps);
        product(
            x,
            Rows::Every { count, stride: Place::stride(self.inputs) },
            &[Segment { offset: 0, len: self.inputs }],
            &pass.packs[0],
            y,
            Rows::Every { count, stride: Place::stride(self.outputs) },
            Store { accumulate: false, bias: self.bias.then(|| &pass.params[self.inputs * self.outputs..]) },
        );
    }

    fn can_accumulate(&self) -> bool {
        true
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, _: &mut Memory) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let count = pass.records * self.rows(pass.steps);
        product(
            dy,
            Rows::Every { count, stride: Place::stride(self.outputs) },
            &[Segment { offset: 0, len: self.outputs }],
            &pass.packs[1],
            dx,
            Rows::Every { count, stride: Place::stride(self.inputs) },
            Store { accumulate: pass.accumulate, bias: None },
        );
    }

    fn sums_in_groups(&self) -> bool {
        self.gradient.sums_in_groups()
    }

    fn squared_norms(&self, terms: &[Term<'_>], room: &mut Room<'_>, out: &mut [f64]) {
        self.gradient.squared_norms(&self.factors(terms), room, out);
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        room: &mut Room<'_>,
        sum: &mut [f32],
    ) {
        self.gradient.weighted_sum(&self.factors(terms), terms[0].pass.records, weights, room, sum);
    }
}
