//! A worker: runs its chunks one after another (forward, backward, norms, weights, sums).

use crate::batch::Unlabelled;
use crate::cut::Piece;
use crate::error::NetworkError;
use crate::kernels::{Aligned, vector};
use crate::layers::{Scratch, Term, Workspace};
use crate::loss::Loss;
use crate::network::Network;
use crate::pass::{Pass, WeightRule};
use crate::tape::{Chunk, Point, Tape, terms};

/// One record's part of an [`Outcome`](crate::Outcome).
pub(crate) struct RecordResult {
    /// The record's position in the batch.
    pub(crate) place: usize,
    pub(crate) loss: f64,
    pub(crate) norm: f64,
    pub(crate) finite: bool,
}

/// The buffers and results of one worker.
pub(crate) struct Worker {
    pub(crate) tape: Tape,
    anchor: Option<Tape>,
    pub(crate) chunk: Chunk,
    gradients: ChunkGradients,
    /// Buffer for an input gradient that is added to another one.
    spare: Aligned,
    /// The sums over the last piece, in single precision.
    pub(crate) sums: Vec<Aligned>,
    /// The sums over the pieces before it, each rounded to the pass's lattice; empty if there was only one piece.
    pub(crate) totals: Vec<Vec<f64>>,
    pub(crate) results: Vec<RecordResult>,
}

/// Norms, weights and written-out gradients of the records of a chunk.
#[derive(Default)]
struct ChunkGradients {
    /// For each node, the gradients that its layer writes out.
    written: Vec<[Aligned; 2]>,
    scratch: Scratch,
    /// Layer by layer, the squared norms of all records of the chunk.
    squared: Vec<f64>,
    /// Sum by sum and layer by layer, the weights of all records of the chunk.
    weights: Vec<f32>,
    /// The norms and weights of one record, as a [rule](crate::WeightRule) sees them.
    record_norms: Vec<f64>,
    record_weights: Vec<f32>,
}

/// Above this norm a record counts as not finite: after clipping to any sensible bound, its weight would be a subnormal number.
const GREATEST_NORM: f64 = 1e18;

/// A pass, as all workers see it.
pub(crate) struct PassJob<'a> {
    pub(crate) network: &'a Network,
    pub(crate) loss: Loss,
    /// The largest number of records in a chunk.
    pub(crate) chunk: usize,
    pub(crate) pass: &'a Pass<'a>,
    pub(crate) here: Point<'a>,
    pub(crate) there: Option<Point<'a>>,
    /// The number of sums.
    pub(crate) sums: usize,
}

impl Worker {
    /// Buffers for chunks of this many records.
    pub(crate) fn new(network: &Network, chunk: usize) -> Worker {
        Worker {
            tape: Tape::new(network, chunk, network.input().steps()),
            anchor: None,
            chunk: Chunk::default(),
            gradients: ChunkGradients {
                written: network.nodes.iter().map(|_| Default::default()).collect(),
                ..ChunkGradients::default()
            },
            spare: Aligned::default(),
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
            let chunks = piece.len().div_ceil(job.chunk).max(1);
            let border = |chunk: usize| piece.len() * chunk / chunks;
            for chunk in 0..chunks {
                self.run(job, &piece[border(chunk)..border(chunk + 1)])?;
            }
        }
        Ok(())
    }

    /// Computes the outputs of a chunk; record `i` fills the steps `starts[i] .. starts[i + 1]`, counted from the first one.
    pub(crate) fn outputs(
        &mut self,
        network: &Network,
        point: Point<'_>,
        inputs: &Unlabelled<'_>,
        chosen: &[usize],
        starts: &[usize],
        mut outputs: &mut [f32],
    ) -> Result<(), NetworkError> {
        self.chunk.load(network, inputs, chosen)?;
        self.tape.load(network, &mut self.chunk, inputs, chosen)?;
        self.tape.forward(network, point, &self.chunk);
        for (record, pair) in starts.windows(2).enumerate() {
            let (own, rest) = outputs.split_at_mut((pair[1] - pair[0]) * network.outputs());
            self.tape.outputs(network, &self.chunk, record, own);
            outputs = rest;
        }
        Ok(())
    }

    /// Prepares a pass.
    fn prepare(&mut self, job: &PassJob<'_>) {
        self.results.clear();
        self.chunk.dropout = job.pass.dropout;
        self.totals.iter_mut().for_each(Vec::clear);
        self.sums.resize_with(job.sums.max(self.sums.len()), Aligned::default);
        for sum in &mut self.sums[..job.sums] {
            sum.reserve(job.network.layout().len());
            sum.fill(0.0);
        }
        if job.there.is_some() && self.anchor.is_none() {
            self.anchor = Some(Tape::new(job.network, job.chunk, job.network.input().steps()));
        }
    }

    /// Runs one chunk: the records at these places in the batch.
    fn run(&mut self, job: &PassJob<'_>, places: &[usize]) -> Result<(), NetworkError> {
        let (network, inputs) = (job.network, &job.pass.records.inputs);
        let chosen: Vec<usize> = places.iter().map(|&place| job.pass.chosen[place]).collect();
        let chosen = &chosen[..];
        self.chunk.load(network, inputs, chosen)?;
        let first_result = self.results.len();
        let result = |&place: &usize| RecordResult { place, loss: 0.0, norm: 0.0, finite: true };
        self.results.extend(places.iter().map(result));
        self.evaluate(job, job.here, chosen, first_result)?;
        let layers = network.layers.len();
        self.gradients.squared.clear();
        self.gradients.squared.resize(layers * chosen.len(), 0.0);
        let weighed = job.pass.rule.is_some();
        let anchor = if job.there.is_some() { self.anchor.take() } else { None };
        if let (Some(there), Some(mut anchor)) = (job.there, anchor) {
            self.tape.backward(network, job.here, &self.chunk, &mut self.spare, |_, _| {});
            std::mem::swap(&mut self.tape, &mut anchor);
            self.evaluate(job, there, chosen, first_result)?;
            self.tape.backward(network, there, &self.chunk, &mut self.spare, |_, _| {});
            std::mem::swap(&mut self.tape, &mut anchor);
            self.tape.subtract(&mut anchor);
            self.anchor = Some(anchor);
            if weighed {
                self.each_layer(job, |gradients, node, terms| gradients.norms(network, node, terms));
            }
        } else {
            let gradients = &mut self.gradients;
            self.tape.backward(network, job.here, &self.chunk, &mut self.spare, |node, terms| {
                if weighed {
                    gradients.norms(network, node, terms);
                }
            });
        }
        self.weigh(job, first_result);
        self.add(job, weighed);
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
        chosen: &[usize],
        first_result: usize,
    ) -> Result<(), NetworkError> {
        let records = job.pass.records;
        self.tape.load(job.network, &mut self.chunk, &records.inputs, chosen)?;
        self.tape.forward(job.network, point, &self.chunk);
        for (index, &record) in chosen.iter().enumerate() {
            let (outputs, gradient) = self.tape.loss_gradient(job.network, &self.chunk, index);
            let target = records.target(record, self.chunk.tokens_of(index, records.inputs.steps(record)));
            let mut loss = job.loss.gradient(job.network.outputs(), outputs, target, gradient);
            if let Some(weight) = job.pass.class_weight(&target) {
                gradient.iter_mut().for_each(|g| *g *= weight);
                loss *= f64::from(weight);
            }
            let result = &mut self.results[first_result + index];
            result.finite &= loss.is_finite();
            if std::ptr::eq(point.params, job.here.params) {
                result.loss = loss;
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

    /// Erases records that are not finite, and sets the weights of the others by the rule.
    fn weigh(&mut self, job: &PassJob<'_>, first_result: usize) {
        let (records, layers) = (self.chunk.records, job.network.layers.len());
        self.gradients.weights.clear();
        self.gradients.weights.resize(job.sums * layers * records, 0.0);
        for index in 0..records {
            let result = &mut self.results[first_result + index];
            let squared = (0..layers).map(|layer| self.gradients.squared[layer * records + index]);
            result.norm = squared.sum::<f64>().sqrt();
            result.finite &= result.norm <= GREATEST_NORM;
            if !result.finite {
                self.gradients.erase(job.network, index);
                self.tape.erase(job.network, &self.chunk, index);
                if let Some(anchor) = &mut self.anchor {
                    anchor.erase(job.network, &self.chunk, index);
                }
                continue;
            }
            if let Some(rule) = job.pass.rule {
                self.gradients.weigh(rule, records, index);
            }
        }
    }

    /// Adds the weighted gradients to the sums.
    fn add(&mut self, job: &PassJob<'_>, weighed: bool) {
        let mut sums = std::mem::take(&mut self.sums);
        let (records, layers, network) = (self.chunk.records, job.network.layers.len(), job.network);
        self.each_layer(job, |gradients, index, terms| {
            let node = &network.nodes[index];
            let Some((layer, parameters)) = node.trained() else { return };
            for (number, sum) in sums[..job.sums].iter_mut().enumerate() {
                let first = (number * layers + layer) * records;
                let weights = weighed.then(|| &gradients.weights[first..first + records]);
                let (written, scratch) = (&mut gradients.written[index], &mut gradients.scratch);
                let mut workspace = Workspace { written, scratch };
                parameters.weighted_sum(terms, weights, &mut workspace, &mut sum[node.params.clone()]);
            }
        });
        self.sums = sums;
    }
}

impl ChunkGradients {
    /// Sets the weights of one record by a rule; a weight that is not finite becomes 0.
    fn weigh(&mut self, rule: &WeightRule<'_>, records: usize, index: usize) {
        let norms = self.squared[index..].iter().step_by(records).map(|squared| squared.sqrt());
        self.record_norms.clear();
        self.record_norms.extend(norms);
        self.record_weights.clear();
        self.record_weights.resize(self.weights.len() / records, 0.0);
        rule(&self.record_norms, &mut self.record_weights);
        let weights = self.weights.iter_mut().skip(index).step_by(records);
        for (weight, chosen) in weights.zip(&self.record_weights) {
            *weight = if chosen.is_finite() { *chosen } else { 0.0 };
        }
    }

    /// Sets a record's written-out gradients to zero.
    fn erase(&mut self, network: &Network, record: usize) {
        for (written, node) in self.written.iter_mut().zip(&network.nodes) {
            let Some((_, parameters)) = node.trained() else { continue };
            for (written, size) in written.iter_mut().zip(parameters.written_sizes()) {
                let end = ((record + 1) * size).min(written.len());
                written[(record * size).min(end)..end].fill(0.0);
            }
        }
    }

    /// Adds the squared gradient norms of all records for one node.
    fn norms(&mut self, network: &Network, node: usize, terms: &[Term<'_>]) {
        let Some((layer, parameters)) = network.nodes[node].trained() else { return };
        let records = terms[0].context.records;
        let mut workspace = Workspace { written: &mut self.written[node], scratch: &mut self.scratch };
        parameters.squared_norms(terms, &mut workspace, &mut self.squared[layer * records..][..records]);
    }
}
