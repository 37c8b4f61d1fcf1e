//! A gated recurrent unit.

use super::{Flow, Memory, Operation, Parameter, Pass, Room, Sizes, Term};
use crate::gradients::{Block, Factor, Factored};
use crate::init::Init;
use crate::kernels::{Packed, Rows, Segment, Store, math, product, vector};
use crate::shape::Place;

/// One layer, one direction, gates in PyTorch's order `r z n`.
///
/// The reset gate acts on the hidden state's part of the candidate, so the two weight matrices have different output
/// gradients and are factored one by one. A row of the layer's memory holds both: the input's three gates, then the
/// state's.
pub(crate) struct Gru {
    inputs: usize,
    hidden: usize,
    from_input: Factored,
    from_state: Factored,
}

impl Gru {
    pub(crate) fn new(inputs: usize, hidden: usize, most_steps: usize) -> Gru {
        let gates = 3 * hidden;
        let matrix = |width: usize, offset: usize, site: usize| Factored {
            outputs: gates,
            most_rows: most_steps,
            blocks: vec![Block { first: 0, width, offset }],
            biases: vec![offset + gates * width],
            site,
        };
        let from_input = matrix(inputs, 0, 0);
        let from_state = matrix(hidden, from_input.len(), 1);
        Gru { inputs, hidden, from_input, from_state }
    }

    fn row(&self) -> usize {
        Place::stride(6 * self.hidden)
    }

    /// The factors of the input's matrix, or of the state's.
    fn factors<'a>(&self, terms: &[Term<'a>], state: bool) -> Vec<Factor<'a>> {
        let factor = |term: &Term<'a>| {
            let (a, a_stride, first) = match state {
                false => (term.x, Place::stride(self.inputs), 0),
                true => (&term.memory.activations[..], Place::stride(self.hidden), 3 * self.hidden),
            };
            let b = &term.memory.gradients[first..];
            let lengths = Some(term.pass.lengths);
            Factor { a, a_stride, b, b_stride: self.row(), rows: term.pass.steps, lengths }
        };
        terms.iter().map(factor).collect()
    }
}

impl Operation for Gru {
    fn parameters(&self) -> Vec<Parameter> {
        let (gates, init) = (3 * self.hidden, Init::uniform_fan_in(self.hidden));
        vec![
            Parameter::new("weight_ih_l0", &[gates, self.inputs], init),
            Parameter::new("bias_ih_l0", &[gates], init),
            Parameter::new("weight_hh_l0", &[gates, self.hidden], init),
            Parameter::new("bias_hh_l0", &[gates], init),
        ]
    }

    fn memory(&self, steps: usize) -> Sizes {
        Sizes {
            activations: steps * Place::stride(self.hidden),
            gradients: steps * self.row(),
            scratch: Place::stride(self.hidden),
        }
    }

    fn kept(&self) -> [usize; 2] {
        [self.from_input.kept(), self.from_state.kept()]
    }

    fn work(&self, steps: usize) -> [usize; 3] {
        [steps * 3 * self.hidden * (self.inputs + self.hidden); 3]
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

    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], memory: &mut Memory) {
        let (steps, inputs, hidden, row) = (pass.steps, self.inputs, self.hidden, self.row());
        let (state, gates) = (Place::stride(hidden), 3 * hidden);
        let (ih, hh) = pass.params.split_at(self.from_input.len());
        let count = pass.records * steps;
        product(
            x,
            Rows::Every { count, stride: Place::stride(inputs) },
            &[Segment { offset: 0, len: inputs }],
            &pass.packs[0],
            &mut memory.gradients,
            Rows::Every { count, stride: row },
            Store { accumulate: false, bias: Some(&ih[gates * inputs..]) },
        );
        for record in 0..pass.records {
            memory.activations[record * steps * state..][..hidden].fill(0.0);
        }
        for step in 0..steps {
            product(
                &memory.activations[step * state..],
                Rows::Every { count: pass.records, stride: steps * state },
                &[Segment { offset: 0, len: hidden }],
                &pass.packs[1],
                &mut memory.gradients[step * row + gates..],
                Rows::Every { count: pass.records, stride: steps * row },
                Store { accumulate: false, bias: Some(&hh[gates * hidden..]) },
            );
            for record in 0..pass.records {
                let place = record * steps + step;
                let (input, from_state) = memory.gradients[place * row..][..2 * gates].split_at_mut(gates);
                let old = &memory.activations[place * state..];
                let new = &mut y[place * state..][..hidden];
                if step < pass.lengths[record] {
                    math::gru_step(input, from_state, old, new);
                } else {
                    // Steps beyond a record's end exist only because of longer records in the chunk.
                    new.fill(0.0);
                }
                if step + 1 < steps {
                    memory.activations[(place + 1) * state..][..hidden].copy_from_slice(new);
                }
            }
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, memory: &mut Memory) {
        let Flow { dy, dx, .. } = flow;
        let (steps, inputs, hidden, row) = (pass.steps, self.inputs, self.hidden, self.row());
        let (state, gates) = (Place::stride(hidden), 3 * hidden);
        for step in (0..steps).rev() {
            for record in 0..pass.records {
                let place = record * steps + step;
                let dh = &mut dy[place * state..][..hidden];
                if step + 1 < pass.lengths[record] {
                    vector::add(dh, &memory.scratch[record * state..][..hidden]);
                }
                let (input, from_state) = memory.gradients[place * row..][..2 * gates].split_at_mut(gates);
                if step < pass.lengths[record] {
                    math::gru_step_gradient(input, from_state, &memory.activations[place * state..], dh);
                } else {
                    input.fill(0.0);
                    from_state.fill(0.0);
                }
                // What flows past the gates; the product below adds what flows through them.
                memory.scratch[record * state..][..hidden].copy_from_slice(dh);
            }
            product(
                &memory.gradients[step * row + gates..],
                Rows::Every { count: pass.records, stride: steps * row },
                &[Segment { offset: 0, len: gates }],
                &pass.packs[3],
                &mut memory.scratch,
                Rows::Every { count: pass.records, stride: state },
                Store { accumulate: true, bias: None },
            );
        }
        let Some(dx) = dx else { return };
        let count = pass.records * steps;
        product(
            &memory.gradients,
            Rows::Every { count, stride: row },
            &[Segment { offset: 0, len: gates }],
            &pass.packs[2],
            dx,
            Rows::Every { count, stride: Place::stride(inputs) },
            Store::default(),
        );
    }

    fn sums_in_groups(&self) -> bool {
        self.from_input.sums_in_groups() && self.from_state.sums_in_groups()
    }

    fn squared_norms(&self, terms: &[Term<'_>], room: &mut Room<'_>, out: &mut [f64]) {
        self.from_input.squared_norms(&self.factors(terms, false), room, out);
        self.from_state.squared_norms(&self.factors(terms, true), room, out);
    }

    fn weighted_sum(
        &self,
        terms: &[Term<'_>],
        weights: Option<&[f32]>,
        room: &mut Room<'_>,
        sum: &mut [f32],
    ) {
        let records = terms[0].pass.records;
        self.from_input.weighted_sum(&self.factors(terms, false), records, weights, room, sum);
        self.from_state.weighted_sum(&self.factors(terms, true), records, weights, room, sum);
    }
}
