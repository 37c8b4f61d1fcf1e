//! A worker: runs its chunks one after another (forward, backward, norms, weights, sums).

use crate::batch::Unlabelled;
use crate::chunk_gradients::ChunkGradients;
use crate::cut::{self, Piece};
use crate::error::NetworkError;
use crate::kernels::{Aligned, vector};
use crate::layers::{Term, Workspace};
use crate::limits::Limits;
use crate::loss::Loss;
use crate::network::Network;
use crate::pass::Pass;
use crate::tape::{Chunk, Point, Tape, terms};
use crate::units::Member;

/// One slot's part of an [`Outcome`](crate::Outcome).
pub(crate) struct SlotResult {
    /// The slot's position in the batch.
    pub(crate) place: usize,
    pub(crate) loss: f64,
    pub(crate) norm: f64,
    pub(crate) finite: bool,
    /// The number of its records, times their views.
    size: usize,
}

/// A slot of a piece.
#[derive(Clone, Copy)]
struct Slot {
    /// Its position in the batch.
    place: usize,
    /// The number of its records, times their views.
    size: usize,
    /// Its class of lengths.
    class: usize,
}

impl Slot {
    /// The result before the slot has been run.
    fn result(&self) -> SlotResult {
        SlotResult { place: self.place, loss: 0.0, norm: 0.0, finite: true, size: self.size }
    }
}

/// Where the outputs of a record go.
pub(crate) struct RecordOutputs<'a> {
    pub(crate) record: usize,
    pub(crate) outputs: &'a mut [f32],
}

/// The buffers and results of one worker.
pub(crate) struct Worker {
    pub(crate) tape: Tape,
    anchor: Option<Tape>,
    pub(crate) chunk: Chunk,
    gradients: ChunkGradients,
    /// Buffer for an input gradient that is added to another one.
    spare: Aligned,
    /// The gradient of a slot that does not fit into a chunk.
    slot: Aligned,
    /// The sums over the last piece, in single precision.
    pub(crate) sums: Vec<Aligned>,
    /// The sums over the pieces before it, each rounded to the pass's lattice; empty if there was only one piece.
    pub(crate) totals: Vec<Vec<f64>>,
    pub(crate) results: Vec<SlotResult>,
}

/// Above this norm a record counts as not finite: after clipping to any sensible bound, its weight would be a subnormal number.
const GREATEST_NORM: f64 = 1e18;

/// A pass, as all workers see it.
pub(crate) struct PassJob<'a> {
    pub(crate) network: &'a Network,
    pub(crate) loss: Loss,
    /// The size of chunks.
    pub(crate) limits: &'a Limits,
    pub(crate) pass: &'a Pass<'a>,
    pub(crate) here: Point<'a>,
    pub(crate) there: Option<Point<'a>>,
    /// The number of sums.
    pub(crate) sums: usize,
}

impl PassJob<'_> {
    fn slot(&self, place: usize) -> Slot {
        let (records, slot) = (self.pass.records, self.pass.chosen[place]);
        let class = self.limits.class_of(records.longest(slot));
        Slot { place, size: records.size_of(slot, self.pass.dropout), class }
    }
}

impl Worker {
    /// Buffers for chunks of any class.
    pub(crate) fn new(network: &Network, limits: &Limits) -> Worker {
        Worker {
            tape: Tape::new(network, &limits.classes),
            anchor: None,
            chunk: Chunk::default(),
            gradients: ChunkGradients::new(network),
            spare: Aligned::default(),
            slot: Aligned::default(),
            sums: Vec::new(),
            totals: Vec::new(),
            results: Vec::new(),
        }
    }

    /// Passes over pieces of the batch.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub(crate) fn pass(&mut self, job: &PassJob<'_>, pieces: &[Piece]) -> Result<(), NetworkError> {
        self.prepare(job);
        for (index, piece) in pieces.iter().enumerate() {
            if index > 0 {
                self.fold(job);
            }
            // An empty slot adds nothing.
            let slots: Vec<Slot> =
                piece.iter().map(|&place| job.slot(place)).filter(|slot| slot.size > 0).collect();
            // The slots of a piece are sorted by length.
            for slots in slots.chunk_by(|slot, next| slot.class == next.class) {
                let class = job.limits.classes[slots[0].class];
                self.chunk.most_steps = class.steps;
                if !job.limits.whole_slots(slots[0].class) {
                    slots.iter().try_for_each(|slot| self.run_alone(job, slot))?;
                    continue;
                }
                let sizes: Vec<usize> = slots.iter().map(|slot| slot.size).collect();
                for chunk in cut::chunks(&sizes, class.records, class.bags) {
                    let mut slots = slots[chunk].to_vec();
                    // Sums are formed for all bags of one size together.
                    slots.sort_by_key(|slot| slot.size);
                    self.run(job, &slots)?;
                }
            }
        }
        Ok(())
    }

    /// Computes the outputs of a chunk. Each record has as many steps as its slice of outputs can hold.
    pub(crate) fn outputs(
        &mut self,
        network: &Network,
        point: Point<'_>,
        inputs: &Unlabelled<'_>,
        chunk: &mut [RecordOutputs<'_>],
    ) -> Result<(), NetworkError> {
        (self.chunk.dropout, self.chunk.views, self.chunk.most) = (None, None, 1);
        let members: Vec<Member> = chunk.iter().map(|part| Member::whole(part.record)).collect();
        let bags: Vec<usize> = (0..=chunk.len()).collect();
        self.chunk.load(network, inputs, &members, &bags)?;
        self.tape.load(network, &mut self.chunk, inputs)?;
        self.tape.forward(network, point, &self.chunk);
        for (place, part) in chunk.iter_mut().enumerate() {
            self.tape.outputs(network, &self.chunk, place, part.outputs);
        }
        Ok(())
    }

    /// Prepares a pass.
    fn prepare(&mut self, job: &PassJob<'_>) {
        self.results.clear();
        self.chunk.dropout = job.pass.dropout;
        self.chunk.views = job.pass.records.views(job.pass.dropout);
        self.chunk.most = job.limits.most;
        self.totals.iter_mut().for_each(Vec::clear);
        self.sums.resize_with(job.sums.max(self.sums.len()), Aligned::default);
        for sum in &mut self.sums[..job.sums] {
            sum.reserve(job.network.layout().len());
            sum.fill(0.0);
        }
        if job.there.is_some() && self.anchor.is_none() {
            self.anchor = Some(Tape::new(job.network, &job.limits.classes));
        }
    }

    /// Runs one chunk of whole slots.
    fn run(&mut self, job: &PassJob<'_>, slots: &[Slot]) -> Result<(), NetworkError> {
        let (mut members, mut bags, mut shares) = (Vec::new(), vec![0], Vec::new());
        for slot in slots {
            shares.push(job.pass.records.members(
                job.pass.chosen[slot.place],
                job.pass.dropout,
                &mut members,
            ));
            bags.push(members.len());
        }
        let first_result = self.results.len();
        self.results.extend(slots.iter().map(Slot::result));
        self.chunk.load(job.network, &job.pass.records.inputs, &members, &bags)?;
        let layers = job.network.layers.len();
        self.gradients.squared.clear();
        self.gradients.squared.resize(layers * slots.len(), 0.0);
        self.differentiate(job, &shares, first_result, job.pass.rule.is_some())?;
        self.weigh(job, first_result);
        self.add(job);
        Ok(())
    }

    /// Runs one slot, in as many chunks as it needs. Its gradient is written out and added up over the chunks.
    fn run_alone(&mut self, job: &PassJob<'_>, slot: &Slot) -> Result<(), NetworkError> {
        let mut members = Vec::new();
        let share = job.pass.records.members(job.pass.chosen[slot.place], job.pass.dropout, &mut members);
        let most = job.limits.classes[slot.class].records;
        let (parts, place) = (slot.size.div_ceil(most), self.results.len());
        self.results.push(slot.result());
        let mut gradient = std::mem::take(&mut self.slot);
        gradient.reserve(job.network.layout().len());
        gradient.fill(0.0);
        for part in 0..parts {
            let members = &members[slot.size * part / parts..slot.size * (part + 1) / parts];
            self.chunk.load(job.network, &job.pass.records.inputs, members, &[0, members.len()])?;
            self.differentiate(job, &[share], place, false)?;
            self.each_layer(job, |gradients, index, terms| {
                let node = &job.network.nodes[index];
                let Some((_, parameters)) = node.trained() else { return };
                let mut workspace = gradients.workspace(index);
                parameters.weighted_sum(terms, None, &mut workspace, &mut gradient[node.params.clone()]);
            });
        }
        self.add_slot(job, place, &gradient);
        self.slot = gradient;
        Ok(())
    }

    /// Adds the weighted gradient of one slot to the sums.
    fn add_slot(&mut self, job: &PassJob<'_>, place: usize, gradient: &[f32]) {
        let layers = job.network.layers.len();
        self.gradients.squared.clear();
        self.gradients.squared.resize(layers, 0.0);
        if job.pass.rule.is_some() {
            for node in &job.network.nodes {
                if let Some((layer, _)) = node.trained() {
                    self.gradients.squared[layer] += vector::squared_norm(&gradient[node.params.clone()]);
                }
            }
        }
        let result = &mut self.results[place];
        result.norm = self.gradients.squared.iter().sum::<f64>().sqrt();
        result.finite &= result.norm <= GREATEST_NORM;
        if !result.finite {
            return;
        }
        self.gradients.weights.clear();
        self.gradients.weights.resize(job.sums * layers, 1.0);
        if let Some(rule) = job.pass.rule {
            self.gradients.weigh(rule, 1, 0);
        }
        for (number, sum) in self.sums[..job.sums].iter_mut().enumerate() {
            for node in &job.network.nodes {
                let Some((layer, _)) = node.trained() else { continue };
                let weight = self.gradients.weights[number * layers + layer];
                let range = node.params.clone();
                vector::add_scaled(&mut sum[range.clone()], weight, &gradient[range]);
            }
        }
    }

    /// Forward and backward for the records of the chunk, whose loss gradients are multiplied by the shares of their bags.
    fn differentiate(
        &mut self,
        job: &PassJob<'_>,
        shares: &[f32],
        first_result: usize,
        norms: bool,
    ) -> Result<(), NetworkError> {
        let network = job.network;
        self.evaluate(job, job.here, shares, first_result)?;
        let anchor = if job.there.is_some() { self.anchor.take() } else { None };
        let (Some(there), Some(mut anchor)) = (job.there, anchor) else {
            let gradients = &mut self.gradients;
            self.tape.backward(network, job.here, &self.chunk, &mut self.spare, |node, terms| {
                if norms {
                    gradients.norms(network, node, terms);
                }
            });
            return Ok(());
        };
        self.tape.backward(network, job.here, &self.chunk, &mut self.spare, |_, _| {});
        std::mem::swap(&mut self.tape, &mut anchor);
        self.evaluate(job, there, shares, first_result)?;
        self.tape.backward(network, there, &self.chunk, &mut self.spare, |_, _| {});
        std::mem::swap(&mut self.tape, &mut anchor);
        self.tape.subtract(&mut anchor);
        self.anchor = Some(anchor);
        if norms {
            self.each_layer(job, |gradients, node, terms| gradients.norms(network, node, terms));
        }
        Ok(())
    }

    /// Moves the sums into the totals.
    fn fold(&mut self, job: &PassJob<'_>) {
        let length = job.network.layout().len();
        self.totals.resize_with(job.sums.max(self.totals.len()), Vec::new);
        for (index, (total, sum)) in self.totals.iter_mut().zip(&mut self.sums[..job.sums]).enumerate() {
            total.resize(length, 0.0);
            vector::add_rounded(total, sum, job.pass.step(index));
            sum.fill(0.0);
        }
    }

    /// Forward, and the gradients of the losses.
    fn evaluate(
        &mut self,
        job: &PassJob<'_>,
        point: Point<'_>,
        shares: &[f32],
        first_result: usize,
    ) -> Result<(), NetworkError> {
        let records = job.pass.records;
        self.tape.load(job.network, &mut self.chunk, &records.inputs)?;
        self.tape.forward(job.network, point, &self.chunk);
        let bags = self.chunk.bags().iter().zip(shares).zip(&mut self.results[first_result..]);
        for ((bag, &share), result) in bags {
            for index in bag {
                let (outputs, gradient) = self.tape.loss_gradient(job.network, &self.chunk, index);
                let record = self.chunk.members[index].record;
                let target =
                    records.target(record, self.chunk.tokens_of(index, records.inputs.steps(record)));
                let mut loss = job.loss.gradient(job.network.outputs(), outputs, target, gradient);
                let weight = job.pass.class_weight(&target).unwrap_or(1.0);
                loss *= f64::from(weight);
                let factor = share * weight;
                if factor != 1.0 {
                    gradient.iter_mut().for_each(|g| *g *= factor);
                }
                result.finite &= loss.is_finite();
                if std::ptr::eq(point.params, job.here.params) {
                    result.loss += loss / result.size as f64;
                }
            }
        }
        Ok(())
    }

    /// Calls `f` for each trained node and the terms of its gradients.
    fn each_layer(&mut self, job: &PassJob<'_>, mut f: impl FnMut(&mut ChunkGradients, usize, &[Term<'_>])) {
        for (index, node) in job.network.nodes.iter().enumerate() {
            if node.layer.is_none() {
                continue;
            }
            let terms = terms(job.network, index, |node| {
                let mut terms = vec![self.tape.term(job.network, job.here, &self.chunk, node)];
                if let (Some(anchor), Some(there)) = (&self.anchor, job.there) {
                    terms.push(anchor.term(job.network, there, &self.chunk, node));
                }
                terms
            });
            f(&mut self.gradients, index, &terms);
        }
    }

    /// Erases bags that are not finite, and sets the weights of the others by the rule.
    fn weigh(&mut self, job: &PassJob<'_>, first_result: usize) {
        let (bags, layers) = (self.chunk.bags().len(), job.network.layers.len());
        self.gradients.weights.clear();
        self.gradients.weights.resize(job.sums * layers * bags, 0.0);
        for index in 0..bags {
            let result = &mut self.results[first_result + index];
            let squared = (0..layers).map(|layer| self.gradients.squared[layer * bags + index]);
            result.norm = squared.sum::<f64>().sqrt();
            result.finite &= result.norm <= GREATEST_NORM;
            if !result.finite {
                self.gradients.erase(job.network, &self.chunk, index);
                for record in self.chunk.bags().members(index) {
                    self.tape.erase(job.network, &self.chunk, record);
                    if let Some(anchor) = &mut self.anchor {
                        anchor.erase(job.network, &self.chunk, record);
                    }
                }
                continue;
            }
            if let Some(rule) = job.pass.rule {
                self.gradients.weigh(rule, bags, index);
            }
        }
    }

    /// Adds the weighted gradients to the sums.
    fn add(&mut self, job: &PassJob<'_>) {
        let mut sums = std::mem::take(&mut self.sums);
        let (bags, layers, network) = (self.chunk.bags().len(), job.network.layers.len(), job.network);
        self.each_layer(job, |gradients, index, terms| {
            let node = &network.nodes[index];
            let Some((layer, parameters)) = node.trained() else { return };
            for (number, sum) in sums[..job.sums].iter_mut().enumerate() {
                let first = (number * layers + layer) * bags;
                let weights = job.pass.rule.is_some().then(|| &gradients.weights[first..first + bags]);
                let (written, scratch) = (&mut gradients.written[index], &mut gradients.scratch);
                let mut workspace = Workspace { written, scratch };
                parameters.weighted_sum(terms, weights, &mut workspace, &mut sum[node.params.clone()]);
            }
        });
        self.sums = sums;
    }
}
