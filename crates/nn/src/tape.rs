//! One evaluation of a network on a chunk: all values, all gradients, and what the layers remember.

use crate::batch::Unlabelled;
use crate::kernels::{Aligned, Packed, vector};
use crate::layers::{Flow, Masks, Memory, Pass, Sizes, Term};
use crate::network::{Network, Node, Step};
use crate::shape::{Place, Shape};

/// The records that a worker is busy with.
#[derive(Default)]
pub(crate) struct Chunk {
    pub(crate) records: usize,
    /// Steps of the longest record; 1 if the records are no sequences.
    pub(crate) steps: usize,
    pub(crate) lengths: Vec<usize>,
    /// `steps` tokens for each record; 0 beyond a record's length.
    pub(crate) tokens: Vec<u32>,
    /// The slot of each record in the data set.
    pub(crate) slots: Vec<usize>,
    /// The key of dropout masks, if training.
    pub(crate) dropout: Option<[u8; 32]>,
}

/// Where a network is evaluated: parameters, and their packed forms for each node.
#[derive(Clone, Copy)]
pub(crate) struct Point<'a> {
    pub(crate) params: &'a [f32],
    pub(crate) packs: &'a [Vec<Packed>],
}

impl Chunk {
    fn pass<'a>(&'a self, point: Point<'a>, node: &Node, index: usize) -> Pass<'a> {
        Pass {
            params: &point.params[node.params.clone()],
            packs: &point.packs[index],
            records: self.records,
            steps: self.steps,
            lengths: &self.lengths,
            tokens: &self.tokens,
            dropout: self.dropout.map(|key| Masks { key, layer: index, slots: &self.slots }),
            accumulate: false,
        }
    }

    /// Reads the lengths and tokens of the chosen records.
    pub(crate) fn load(&mut self, inputs: &Unlabelled<'_>, chosen: &[usize]) {
        self.records = chosen.len();
        self.slots.clear();
        self.slots.extend(chosen);
        self.lengths.clear();
        self.lengths.extend(chosen.iter().map(|&record| inputs.steps(record)));
        self.steps = self.lengths.iter().copied().max().unwrap_or(1);
        self.tokens.clear();
        if let Shape::Tokens { .. } = inputs.shape() {
            for &record in chosen {
                let tokens = inputs.tokens(record);
                self.tokens.extend(tokens);
                self.tokens.extend(std::iter::repeat_n(0, self.steps - tokens.len()));
            }
        }
    }
}

/// All values and gradients of one evaluation.
pub(crate) struct Tape {
    values: Vec<Aligned>,
    gradients: Vec<Aligned>,
    memories: Vec<Memory>,
}

impl Tape {
    /// Room for `records` records of `steps` steps.
    pub(crate) fn new(network: &Network, records: usize, steps: usize) -> Tape {
        let room = |place: &Place| Aligned::zeroed(records * place.record(steps));
        let memory = |node: &Node| {
            let Sizes { activations, gradients, scratch } = sizes(network, node, steps);
            Memory {
                activations: Aligned::zeroed(records * activations),
                gradients: Aligned::zeroed(records * gradients),
                scratch: Aligned::zeroed(records * scratch),
                packed: Packed::default(),
            }
        };
        let gradient =
            |(place, wanted): (&Place, &bool)| if *wanted { room(place) } else { Aligned::default() };
        Tape {
            values: network.places.iter().map(room).collect(),
            gradients: network.places.iter().zip(&network.wanted).map(gradient).collect(),
            memories: network.nodes.iter().map(memory).collect(),
        }
    }

    /// Floats for each record.
    pub(crate) fn size(network: &Network, steps: usize) -> usize {
        let values = network.places.iter().zip(&network.wanted);
        let values = values.map(|(place, wanted)| place.record(steps) * if *wanted { 2 } else { 1 });
        let memories = network.nodes.iter().map(|node| {
            let Sizes { activations, gradients, scratch } = sizes(network, node, steps);
            activations + gradients + scratch
        });
        values.chain(memories).sum()
    }

    /// Copies the chosen records into the first value.
    pub(crate) fn load(
        &mut self,
        network: &Network,
        chunk: &Chunk,
        inputs: &Unlabelled<'_>,
        chosen: &[usize],
    ) {
        let place = network.places[0];
        let size = place.record(chunk.steps);
        for (index, &record) in chosen.iter().enumerate() {
            let values = inputs.values(record);
            let room = &mut self.values[0][index * size..][..size];
            match place.shape {
                Shape::Features(n) => room[..n].copy_from_slice(values),
                Shape::Sequence { width, .. } => {
                    let (rows, rest) = room.split_at_mut(chunk.lengths[index] * Place::stride(width));
                    for (row, values) in
                        rows.chunks_exact_mut(Place::stride(width)).zip(values.chunks_exact(width))
                    {
                        row[..width].copy_from_slice(values);
                    }
                    rest.fill(0.0);
                }
                Shape::Image { channels, height, width } => {
                    let image = place.image();
                    for (channel, plane) in values.chunks_exact(height * width).enumerate() {
                        for (y, row) in plane.chunks_exact(width).enumerate() {
                            let start = image.at(y, 0) + channel;
                            let pixels = room[start..].iter_mut().step_by(channels);
                            pixels.zip(row).for_each(|(pixel, value)| *pixel = *value);
                        }
                    }
                }
                Shape::Tokens { .. } => {}
            }
        }
    }

    /// Runs the network; afterwards [`outputs`](Self::outputs) has its answers.
    pub(crate) fn forward(&mut self, network: &Network, point: Point<'_>, chunk: &Chunk) {
        for (index, node) in network.nodes.iter().enumerate() {
            let pass = chunk.pass(point, node, index);
            let memory = &mut self.memories[index];
            match &node.step {
                Step::Operation { operation, x, y } => {
                    let (before, after) = self.values.split_at_mut(*y);
                    operation.forward(&pass, &before[*x], &mut after[0], memory);
                    clear_tails(&mut after[0], network.places[*y], chunk);
                }
                Step::Pointwise { operation, value } => {
                    let place = network.places[*value];
                    let len = chunk.records * place.record(chunk.steps);
                    operation.forward(&pass, &mut self.values[*value][..len], &mut memory.scratch);
                    if !operation.keeps_zero() {
                        clear_border(&mut self.values[*value], place, chunk.records);
                    }
                }
                Step::Copy { from, to } => self.move_value(network, chunk, *from, *to, false),
                Step::Add { other, into } => self.move_value(network, chunk, *other, *into, true),
            }
        }
    }

    fn move_value(&mut self, network: &Network, chunk: &Chunk, from: usize, to: usize, add: bool) {
        let [source, target] = self.values.get_disjoint_mut([from, to]).expect("two different values");
        transfer(source, network.places[from], target, network.places[to], chunk, add);
    }

    /// The answer for a record.
    pub(crate) fn outputs(&self, network: &Network, record: usize) -> &[f32] {
        let width = network.outputs();
        &self.values[network.output][record * Place::stride(width)..][..width]
    }

    /// The answer for a record, and room for the gradient of its loss.
    pub(crate) fn loss_gradient(&mut self, network: &Network, record: usize) -> (&[f32], &mut [f32]) {
        let width = network.outputs();
        let range = record * Place::stride(width)..record * Place::stride(width) + width;
        (&self.values[network.output][range.clone()], &mut self.gradients[network.output][range])
    }

    /// Runs backward from the gradients of the losses. `visit` is called for each node with trained parameters as soon as
    /// its gradients' factors are known.
    pub(crate) fn backward(
        &mut self,
        network: &Network,
        point: Point<'_>,
        chunk: &Chunk,
        spare: &mut Aligned,
        mut visit: impl FnMut(usize, usize, Term<'_>),
    ) {
        for (index, node) in network.nodes.iter().enumerate().rev() {
            let mut pass = chunk.pass(point, node, index);
            match &node.step {
                Step::Operation { operation, x, y } if network.wanted[*y] => {
                    let (before, after) = self.gradients.split_at_mut(*y);
                    let memory = &mut self.memories[index];
                    let (x_value, y_value, dy) = (&self.values[*x], &self.values[*y], &mut after[0]);
                    pass.accumulate = node.accumulate && operation.can_accumulate();
                    let through_spare = node.accumulate && !pass.accumulate;
                    let dx = match (network.wanted[*x], through_spare) {
                        (false, _) => None,
                        (true, false) => Some(&mut before[*x][..]),
                        (true, true) => {
                            spare.reserve(chunk.records * network.places[*x].record(chunk.steps));
                            Some(&mut spare[..])
                        }
                    };
                    operation.backward(&pass, Flow { x: x_value, y: y_value, dy, dx }, memory);
                    if network.wanted[*x] && through_spare {
                        transfer(spare, network.places[*x], &mut before[*x], network.places[*x], chunk, true);
                    }
                    if let Some(layer) = node.layer {
                        visit(index, layer, self.term(network, point, chunk, index));
                    }
                }
                Step::Pointwise { operation, value } if network.wanted[*value] => {
                    let len = chunk.records * network.places[*value].record(chunk.steps);
                    let gradient = &mut self.gradients[*value][..len];
                    let memory = &mut self.memories[index].scratch;
                    operation.backward(&pass, &self.values[*value][..len], gradient, memory);
                }
                Step::Copy { from, to } | Step::Add { other: from, into: to } if network.wanted[*from] => {
                    let [target, source] =
                        self.gradients.get_disjoint_mut([*from, *to]).expect("two different values");
                    transfer(
                        source,
                        network.places[*to],
                        target,
                        network.places[*from],
                        chunk,
                        node.accumulate,
                    );
                }
                _ => {}
            }
        }
    }

    /// What a node's gradients are made of.
    pub(crate) fn term<'a>(
        &'a self,
        network: &Network,
        point: Point<'a>,
        chunk: &'a Chunk,
        index: usize,
    ) -> Term<'a> {
        let node = &network.nodes[index];
        let Step::Operation { x, y, .. } = node.step else { unreachable!("only operations have parameters") };
        Term {
            pass: chunk.pass(point, node, index),
            x: &self.values[x],
            dy: &self.gradients[y],
            memory: &self.memories[index],
        }
    }

    /// Turns two evaluations into the two terms of their difference: `a - a'` stays here, `b - b'` goes there.
    pub(crate) fn subtract(&mut self, anchor: &mut Tape) {
        for (here, there) in self.values.iter_mut().zip(&anchor.values) {
            vector::subtract(here, there);
        }
        for (here, there) in self.gradients.iter().zip(&mut anchor.gradients) {
            vector::subtract_from(there, here);
        }
        for (here, there) in self.memories.iter_mut().zip(&mut anchor.memories) {
            vector::subtract(&mut here.activations, &there.activations);
            vector::subtract_from(&mut there.gradients, &here.gradients);
        }
    }

    /// Sets everything that a record's gradient is made of to zero.
    pub(crate) fn erase(&mut self, network: &Network, chunk: &Chunk, record: usize) {
        let wipe = |buffer: &mut Aligned, size: usize| {
            let end = ((record + 1) * size).min(buffer.len());
            buffer[(record * size).min(end)..end].fill(0.0);
        };
        for ((value, gradient), place) in self.values.iter_mut().zip(&mut self.gradients).zip(&network.places)
        {
            wipe(value, place.record(chunk.steps));
            wipe(gradient, place.record(chunk.steps));
        }
        for (memory, node) in self.memories.iter_mut().zip(&network.nodes) {
            let sizes = sizes(network, node, chunk.steps);
            wipe(&mut memory.activations, sizes.activations);
            wipe(&mut memory.gradients, sizes.gradients);
        }
    }
}

fn sizes(network: &Network, node: &Node, steps: usize) -> Sizes {
    match &node.step {
        Step::Operation { operation, .. } => operation.memory(steps),
        Step::Pointwise { operation, value } => {
            Sizes { scratch: operation.memory(network.places[*value].record(steps)), ..Sizes::default() }
        }
        _ => Sizes::default(),
    }
}

/// Copies or adds one value to another of the same shape; images may differ in their borders.
fn transfer(source: &[f32], from: Place, target: &mut [f32], to: Place, chunk: &Chunk, add: bool) {
    let mut one = |from: usize, to: usize, len: usize| match add {
        true => vector::add(&mut target[to..to + len], &source[from..from + len]),
        false => target[to..to + len].copy_from_slice(&source[from..from + len]),
    };
    let Shape::Image { height, width, channels } = from.shape else {
        return one(0, 0, chunk.records * from.record(chunk.steps));
    };
    let (from, to) = (from.image(), to.image());
    for record in 0..chunk.records {
        for y in 0..height {
            one(record * from.record() + from.at(y, 0), record * to.record() + to.at(y, 0), width * channels);
        }
    }
}

/// Sets steps beyond the records' lengths to zero: what a record gives must not depend on how long others are.
fn clear_tails(value: &mut [f32], place: Place, chunk: &Chunk) {
    let Shape::Sequence { width, .. } = place.shape else { return };
    let stride = Place::stride(width);
    for (record, &length) in chunk.lengths.iter().enumerate() {
        value[(record * chunk.steps + length) * stride..(record + 1) * chunk.steps * stride].fill(0.0);
    }
}

/// Sets the border of images back to zero.
fn clear_border(value: &mut [f32], place: Place, records: usize) {
    if place.border == 0 {
        return;
    }
    let image = place.image();
    for record in value.chunks_exact_mut(image.record()).take(records) {
        let row = image.row();
        for (y, row) in record.chunks_exact_mut(row).take(image.height + 2 * image.border).enumerate() {
            let inside = (image.border..image.border + image.height).contains(&y);
            let edge = if inside { image.border * image.channels } else { row.len() };
            row[..edge].fill(0.0);
            let end = row.len() - edge;
            row[end..].fill(0.0);
        }
    }
}
