//! One evaluation of a network on a chunk: all values, all gradients, and the buffers of the layers.

use crate::batch::Unlabelled;
use crate::error::NetworkError;
use crate::kernels::{Aligned, Packed, vector};
use crate::layers::{BufferSizes, Context, Flow, LayerBuffers, Masks, Term};
use crate::limits::LengthClass;
use crate::network::{Action, Network, Node};
use crate::shape::{Shape, Storage};
use crate::units::{Bags, Member};
use crate::views::Views;

/// The records of a chunk.
#[derive(Default)]
pub(crate) struct Chunk {
    pub(crate) records: usize,
    /// The start of each bag among the records, and the end of the last one.
    bags: Vec<usize>,
    /// The largest number of records in a bag of any chunk.
    pub(crate) most: usize,
    /// Steps of the longest record; 1 if the records are not sequences.
    pub(crate) steps: usize,
    /// The largest number of steps of a record in the class of the chunk.
    pub(crate) most_steps: usize,
    /// For each number of [extra steps](Storage::extra) in the network, the lengths of all records.
    lengths: Vec<(usize, Vec<usize>)>,
    /// `steps` tokens for each record; 0 beyond a record's length.
    pub(crate) tokens: Vec<u32>,
    /// The place of each record in the data set.
    pub(crate) members: Vec<Member>,
    /// The key of the dropout masks in a training pass.
    pub(crate) dropout: Option<[u8; 32]>,
    /// The views of the records in a training pass, with their key.
    pub(crate) views: Option<([u8; 32], Views)>,
    /// Buffers for a record that is not in memory.
    read_values: Vec<f32>,
    read_tokens: Vec<u32>,
    /// Buffer for a view of a record.
    view: Vec<f32>,
}

/// Where a network is evaluated: parameters, and their packed forms for each node.
#[derive(Clone, Copy)]
pub(crate) struct Point<'a> {
    pub(crate) params: &'a [f32],
    pub(crate) packs: &'a [Vec<Packed>],
}

impl Chunk {
    /// The context of a node whose input is stored in this way.
    fn context<'a>(&'a self, point: Point<'a>, node: &Node, index: usize, input: Storage) -> Context<'a> {
        Context {
            params: &point.params[node.params.clone()],
            packs: &point.packs[index],
            records: self.records,
            bags: self.bags(),
            steps: self.steps + input.extra,
            most_steps: self.most_steps + input.extra,
            lengths: self.lengths(input),
            tokens: &self.tokens,
            dropout: self.dropout.map(|key| Masks { key, layer: index, members: &self.members }),
            accumulate: false,
        }
    }

    /// The bags that the records form.
    pub(crate) fn bags(&self) -> Bags<'_> {
        Bags { starts: &self.bags, most: self.most }
    }

    /// The length of each record in a value.
    pub(crate) fn lengths(&self, storage: Storage) -> &[usize] {
        let found = self.lengths.iter().find(|(extra, _)| *extra == storage.extra);
        found.map_or(&[], |(_, lengths)| lengths)
    }

    /// The tokens of the record at this place in the chunk, of this length; none if records are not tokens.
    pub(crate) fn tokens_of(&self, index: usize, length: usize) -> &[u32] {
        self.tokens.get(index * self.steps..index * self.steps + length).unwrap_or_default()
    }

    /// Reads the lengths and tokens of records, which form bags with these starts.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub(crate) fn load(
        &mut self,
        network: &Network,
        inputs: &Unlabelled<'_>,
        members: &[Member],
        bags: &[usize],
    ) -> Result<(), NetworkError> {
        self.records = members.len();
        self.members.clear();
        self.members.extend(members);
        self.bags.clear();
        self.bags.extend(bags);
        let steps = members.iter().map(|member| inputs.steps(member.record));
        self.steps = steps.clone().max().unwrap_or(1);
        for &extra in &network.extras {
            if self.lengths.iter().all(|(known, _)| *known != extra) {
                self.lengths.push((extra, Vec::new()));
            }
        }
        for (extra, lengths) in &mut self.lengths {
            lengths.clear();
            lengths.extend(steps.clone().map(|steps| steps + *extra));
        }
        self.tokens.clear();
        if let Shape::Tokens { .. } = inputs.shape() {
            for member in members {
                let tokens = inputs.tokens(member.record, &mut self.read_tokens)?;
                self.tokens.extend(tokens);
                self.tokens.extend(std::iter::repeat_n(0, self.steps - tokens.len()));
            }
        }
        Ok(())
    }
}

/// All values and gradients of one evaluation.
pub(crate) struct Tape {
    values: Vec<Aligned>,
    gradients: Vec<Aligned>,
    buffers: Vec<LayerBuffers>,
}

impl Tape {
    /// Buffers for a chunk of any class.
    pub(crate) fn new(network: &Network, classes: &[LengthClass]) -> Tape {
        let buffer = |floats: &dyn Fn(usize) -> usize| {
            let of_class = |class: &LengthClass| class.records * floats(class.steps);
            Aligned::zeroed(classes.iter().map(of_class).max().unwrap_or(0))
        };
        let values = |storage: &Storage| buffer(&|steps| storage.in_chunk(steps));
        let gradients = |(storage, needed): (&Storage, &bool)| match needed {
            true => values(storage),
            false => Aligned::default(),
        };
        let buffers = |node: &Node| {
            let sizes = |steps| buffer_sizes(network, node, steps);
            LayerBuffers {
                activations: buffer(&|steps| sizes(steps).activations),
                gradients: buffer(&|steps| sizes(steps).gradients),
                scratch: buffer(&|steps| sizes(steps).scratch),
                packed: Packed::default(),
            }
        };
        Tape {
            values: network.storage.iter().map(values).collect(),
            gradients: network.storage.iter().zip(&network.needs_gradient).map(gradients).collect(),
            buffers: network.nodes.iter().map(buffers).collect(),
        }
    }

    /// Floats for each record of this many steps, in each buffer.
    pub(crate) fn sizes(network: &Network, steps: usize) -> impl Iterator<Item = usize> {
        let values = network.storage.iter().zip(&network.needs_gradient);
        let values =
            values.map(move |(storage, needed)| storage.in_chunk(steps) * if *needed { 2 } else { 1 });
        let buffers = network.nodes.iter().flat_map(move |node| {
            let BufferSizes { activations, gradients, scratch } = buffer_sizes(network, node, steps);
            [activations, gradients, scratch]
        });
        values.chain(buffers)
    }

    /// Copies the records of a chunk, or views of them, into the first value.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub(crate) fn load(
        &mut self,
        network: &Network,
        chunk: &mut Chunk,
        inputs: &Unlabelled<'_>,
    ) -> Result<(), NetworkError> {
        let storage = network.storage[0];
        let stored = self.values[0].chunks_exact_mut(storage.in_chunk(chunk.steps).max(1));
        for (stored, member) in stored.zip(&chunk.members) {
            let values = inputs.values(member.record, &mut chunk.read_values)?;
            let values = match chunk.views {
                None => values,
                Some((key, views)) => {
                    views.apply(key, *member, storage.shape, values, &mut chunk.view);
                    &chunk.view
                }
            };
            storage.write(values, stored);
        }
        Ok(())
    }

    /// Runs the network; then [`outputs`](Self::outputs) returns its outputs.
    pub(crate) fn forward(&mut self, network: &Network, point: Point<'_>, chunk: &Chunk) {
        for (index, node) in network.nodes.iter().enumerate() {
            let context = chunk.context(point, node, index, network.input_of(node));
            let buffers = &mut self.buffers[index];
            match &node.action {
                Action::Operation { operation, x, y } => {
                    let (before, after) = self.values.split_at_mut(*y);
                    operation.forward(&context, &before[*x], &mut after[0], buffers);
                    clear_tails(&mut after[0], network.storage[*y], chunk);
                }
                Action::Pointwise { operation, value } => {
                    let storage = network.storage[*value];
                    let len = chunk.records * storage.in_chunk(chunk.steps);
                    operation.forward(&context, &mut self.values[*value][..len], &mut buffers.scratch);
                    if !operation.keeps_zero() {
                        clear_border(&mut self.values[*value], storage, chunk.records);
                    }
                }
                Action::Copy { from, to } => self.move_value(network, chunk, *from, *to, false),
                Action::Add { other, into } => self.move_value(network, chunk, *other, *into, true),
            }
        }
    }

    fn move_value(&mut self, network: &Network, chunk: &Chunk, from: usize, to: usize, add: bool) {
        let [source, target] = self.values.get_disjoint_mut([from, to]).expect("two different values");
        transfer(source, network.storage[from], target, network.storage[to], chunk, add);
    }

    /// Copies the outputs of the network for a record, without gaps: as many steps as there is space for.
    pub(crate) fn outputs(&self, network: &Network, chunk: &Chunk, record: usize, outputs: &mut [f32]) {
        let storage = network.storage[network.output];
        storage.read(&self.values[network.output][record * storage.in_chunk(chunk.steps)..], outputs);
    }

    /// The outputs of the network for a record, as they are stored, and the buffer for the gradient of its loss.
    pub(crate) fn loss_gradient(
        &mut self,
        network: &Network,
        chunk: &Chunk,
        record: usize,
    ) -> (&[f32], &mut [f32]) {
        let size = network.storage[network.output].in_chunk(chunk.steps);
        let range = record * size..(record + 1) * size;
        (&self.values[network.output][range.clone()], &mut self.gradients[network.output][range])
    }

    /// Runs backward from the gradients of the losses. `visit` is called for each trained node as soon as the factors of its
    /// gradients are known.
    pub(crate) fn backward(
        &mut self,
        network: &Network,
        point: Point<'_>,
        chunk: &Chunk,
        spare: &mut Aligned,
        mut visit: impl FnMut(usize, &[Term<'_>]),
    ) {
        for (index, node) in network.nodes.iter().enumerate().rev() {
            let mut context = chunk.context(point, node, index, network.input_of(node));
            match &node.action {
                Action::Operation { operation, x, y } if network.needs_gradient[*y] => {
                    let (before, after) = self.gradients.split_at_mut(*y);
                    let buffers = &mut self.buffers[index];
                    let (x_value, y_value, dy) = (&self.values[*x], &self.values[*y], &mut after[0]);
                    context.accumulate = node.accumulate && operation.can_accumulate();
                    let through_spare = node.accumulate && !context.accumulate;
                    let dx = match (network.needs_gradient[*x], through_spare) {
                        (false, _) => None,
                        (true, false) => Some(&mut before[*x][..]),
                        (true, true) => {
                            spare.reserve(chunk.records * network.storage[*x].in_chunk(chunk.steps));
                            Some(&mut spare[..])
                        }
                    };
                    operation.backward(&context, Flow { x: x_value, y: y_value, dy, dx }, buffers);
                    if network.needs_gradient[*x] {
                        let (storage, target) = (network.storage[*x], &mut before[*x]);
                        let dx = if through_spare { &mut *spare } else { &mut *target };
                        clear_tails(dx, storage, chunk);
                        if through_spare {
                            transfer(spare, storage, target, storage, chunk, true);
                        }
                    }
                    if node.layer.is_some() {
                        visit(
                            index,
                            &terms(network, index, |node| vec![self.term(network, point, chunk, node)]),
                        );
                    }
                }
                Action::Pointwise { operation, value } if network.needs_gradient[*value] => {
                    let len = chunk.records * network.storage[*value].in_chunk(chunk.steps);
                    let gradient = &mut self.gradients[*value][..len];
                    let scratch = &mut self.buffers[index].scratch;
                    operation.backward(&context, &self.values[*value][..len], gradient, scratch);
                }
                Action::Copy { from, to } | Action::Add { other: from, into: to }
                    if network.needs_gradient[*from] =>
                {
                    let [target, source] =
                        self.gradients.get_disjoint_mut([*from, *to]).expect("two different values");
                    transfer(
                        source,
                        network.storage[*to],
                        target,
                        network.storage[*from],
                        chunk,
                        node.accumulate,
                    );
                }
                _ => {}
            }
        }
    }

    /// One term of a node's per-record gradients.
    pub(crate) fn term<'a>(
        &'a self,
        network: &Network,
        point: Point<'a>,
        chunk: &'a Chunk,
        index: usize,
    ) -> Term<'a> {
        let node = &network.nodes[index];
        let Action::Operation { x, y, .. } = node.action else {
            unreachable!("only operations have parameters")
        };
        Term {
            context: chunk.context(point, node, index, network.storage[x]),
            x: &self.values[x],
            dy: &self.gradients[y],
            buffers: &self.buffers[index],
        }
    }

    /// Turns two evaluations into the two terms of their difference: `a - a'` replaces the values here, `b - b'` the gradients there.
    pub(crate) fn subtract(&mut self, anchor: &mut Tape) {
        for (here, there) in self.values.iter_mut().zip(&anchor.values) {
            vector::subtract(here, there);
        }
        for (here, there) in self.gradients.iter().zip(&mut anchor.gradients) {
            vector::subtract_from(there, here);
        }
        for (here, there) in self.buffers.iter_mut().zip(&mut anchor.buffers) {
            vector::subtract(&mut here.activations, &there.activations);
            vector::subtract_from(&mut there.gradients, &here.gradients);
        }
    }

    /// Sets all inputs to a record's gradient to zero.
    pub(crate) fn erase(&mut self, network: &Network, chunk: &Chunk, record: usize) {
        let wipe = |buffer: &mut Aligned, size: usize| {
            let end = ((record + 1) * size).min(buffer.len());
            buffer[(record * size).min(end)..end].fill(0.0);
        };
        let values = self.values.iter_mut().zip(&mut self.gradients);
        for ((value, gradient), storage) in values.zip(&network.storage) {
            wipe(value, storage.in_chunk(chunk.steps));
            wipe(gradient, storage.in_chunk(chunk.steps));
        }
        for (buffers, node) in self.buffers.iter_mut().zip(&network.nodes) {
            let sizes = buffer_sizes(network, node, chunk.steps);
            wipe(&mut buffers.activations, sizes.activations);
            wipe(&mut buffers.gradients, sizes.gradients);
        }
    }
}

/// The terms of a node's per-record gradients, followed by those of the node that shares its parameters.
pub(crate) fn terms<'a>(
    network: &Network,
    node: usize,
    of: impl Fn(usize) -> Vec<Term<'a>>,
) -> Vec<Term<'a>> {
    let mut terms = of(node);
    terms.extend(network.nodes[node].shared_with.map(of).unwrap_or_default());
    terms
}

fn buffer_sizes(network: &Network, node: &Node, steps: usize) -> BufferSizes {
    match &node.action {
        Action::Operation { operation, x, .. } => operation.buffer_sizes(steps + network.storage[*x].extra),
        Action::Pointwise { operation, value } => {
            let scratch = operation.scratch_size(network.storage[*value].in_chunk(steps));
            BufferSizes { scratch, ..BufferSizes::default() }
        }
        Action::Copy { .. } | Action::Add { .. } => BufferSizes::default(),
    }
}

/// Copies or adds one value to another of the same shape; images may differ in their borders.
fn transfer(source: &[f32], from: Storage, target: &mut [f32], to: Storage, chunk: &Chunk, add: bool) {
    let mut one = |from: usize, to: usize, len: usize| match add {
        true => vector::add(&mut target[to..to + len], &source[from..from + len]),
        false => target[to..to + len].copy_from_slice(&source[from..from + len]),
    };
    let Shape::Image { height, width, channels } = from.shape else {
        return one(0, 0, chunk.records * from.in_chunk(chunk.steps));
    };
    let (from, to) = (from.image(), to.image());
    for record in 0..chunk.records {
        for y in 0..height {
            one(record * from.record() + from.at(y, 0), record * to.record() + to.at(y, 0), width * channels);
        }
    }
}

/// Sets steps beyond the records' lengths to zero, because the contribution of a record must not depend on the lengths of others.
fn clear_tails(value: &mut [f32], storage: Storage, chunk: &Chunk) {
    let Shape::Sequence { width, .. } = storage.shape else { return };
    let (stride, steps) = (Storage::stride(width), chunk.steps + storage.extra);
    for (record, &length) in chunk.lengths(storage).iter().enumerate() {
        value[(record * steps + length) * stride..(record + 1) * steps * stride].fill(0.0);
    }
}

/// Sets the border of images back to zero.
fn clear_border(value: &mut [f32], storage: Storage, records: usize) {
    if storage.border == 0 {
        return;
    }
    let image = storage.image();
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
