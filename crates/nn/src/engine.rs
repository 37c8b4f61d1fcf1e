//! Per-record gradients of a batch, chunk by chunk.

use std::sync::Arc;

use rayon::prelude::*;

use crate::batch::{Inputs, Records, Targets, Unlabelled};
use crate::error::NetworkError;
use crate::kernels::{Aligned, Packed, vector};
use crate::layers::{Room, Scratch, Term};
use crate::loss::Loss;
use crate::network::{Network, Step};
use crate::params::Params;
use crate::tape::{Chunk, Point, Tape};

/// Runs a network over batches: losses, per-record gradient norms, and weighted sums of per-record gradients.
///
/// Each worker takes a chunk of records small enough for its cache, runs it forward and backward, asks for weights given
/// the norms, and adds the weighted gradients to its own sum; the sums are added up at the end. No more than a chunk of
/// records for each worker is ever in memory, whatever the size of the batch, and no gradient of a single record leaves
/// this crate.
///
/// **Guarantees.** In a pass with weights, a record whose loss or gradient is not finite is reported and adds exactly
/// nothing to any sum (a pass without weights computes no norms and looks at losses only). The same batch with the same
/// number of workers gives the same sums, bit by bit.
///
/// ```
/// use sordino_nn::{Engine, Inputs, Loss, Query, Targets, models};
///
/// let mut engine = Engine::new(models::mlp(2, &[8], 2)?, Loss::cross_entropy())?;
/// let params = engine.network().init(1);
/// let inputs = [0.0, 1.0, 1.0, 0.0, 5.0, 5.0];
/// let records = engine.records(Inputs::Dense(&inputs), Targets::Classes(&[0, 1, 1]))?;
///
/// // The sum of gradients, each clipped to norm 1.
/// let clip = |norms: sordino_nn::RecordNorms<'_>, weights: &mut sordino_nn::RecordWeights<'_>| {
///     weights.set(0, (1.0 / norms.total()).min(1.0) as f32);
/// };
/// let mut sums = [vec![0.0; params.values().len()]];
/// let query = Query::new(&params, &records, &[0, 1, 2]).weighed_by(&clip);
/// let outcome = engine.pass(&query, &mut sums)?;
/// assert_eq!(outcome.norms.len(), 3);
/// let norm = sums[0].iter().map(|g| g * g).sum::<f32>().sqrt();
/// assert!(norm <= 3.0);
/// # Ok::<(), sordino_nn::NetworkError>(())
/// ```
pub struct Engine {
    network: Arc<Network>,
    loss: Loss,
    chunk: usize,
    workers: Vec<Worker>,
    packs: [Vec<Vec<Packed>>; 2],
}

/// What a pass over a batch is asked for.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    at: &'a Params,
    anchor: Option<&'a Params>,
    records: &'a Records<'a>,
    chosen: &'a [usize],
    dropout: Option<u64>,
    weigh: Option<&'a dyn Weigh>,
}

/// Chooses weights for a record, given the norms of its gradient.
///
/// Any `Fn(RecordNorms, &mut RecordWeights) + Sync` is one. It is called once for each record, from any worker.
pub trait Weigh: Sync {
    /// Sets the weights; those that are not set are 0.
    fn weigh(&self, norms: RecordNorms<'_>, weights: &mut RecordWeights<'_>);
}

impl<F: Fn(RecordNorms<'_>, &mut RecordWeights<'_>) + Sync> Weigh for F {
    fn weigh(&self, norms: RecordNorms<'_>, weights: &mut RecordWeights<'_>) {
        self(norms, weights);
    }
}

/// The norms of one record's gradient.
///
/// Each is off by at most about one part in a million, as sums of squares of single-precision numbers are. Norms below
/// about 1e-19 may come out as 0, and records with norms above 1e18 count as not finite.
#[derive(Debug, Clone, Copy)]
pub struct RecordNorms<'a> {
    place: usize,
    squared: &'a [f64],
    records: usize,
    index: usize,
}

impl RecordNorms<'_> {
    /// The record's place in the batch.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The norm over all trained parameters.
    pub fn total(&self) -> f64 {
        (0..self.layers()).map(|layer| self.squared[layer * self.records + self.index]).sum::<f64>().sqrt()
    }

    /// The norm over the parameters of one layer, in the order of [`Network::layers`].
    pub fn layer(&self, layer: usize) -> f64 {
        self.squared[layer * self.records + self.index].sqrt()
    }

    /// The number of layers.
    pub fn layers(&self) -> usize {
        self.squared.len() / self.records
    }
}

/// The weights of one record's gradient in each sum.
#[derive(Debug)]
pub struct RecordWeights<'a> {
    weights: &'a mut [f32],
    layers: usize,
    records: usize,
    index: usize,
}

impl RecordWeights<'_> {
    /// Sets the weight in a sum, for all layers. A weight that is not finite counts as 0: the record adds nothing. A sum that
    /// nobody asked for has no weights, and setting one does nothing.
    pub fn set(&mut self, sum: usize, weight: f32) {
        for layer in 0..self.layers {
            self.set_layer(sum, layer, weight);
        }
    }

    /// Sets the weight in a sum for one layer, in the order of [`Network::layers`].
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn set_layer(&mut self, sum: usize, layer: usize, weight: f32) {
        assert!(
            layer < self.layers,
            "the network has {} trained layers, got a weight for number {layer}",
            self.layers
        );
        if let Some(place) = self.weights.get_mut((sum * self.layers + layer) * self.records + self.index) {
            *place = if weight.is_finite() { weight } else { 0.0 };
        }
    }
}

impl<'a> Query<'a> {
    /// The gradients of the chosen records at these parameters, each with weight 1 in one sum.
    pub fn new(at: &'a Params, records: &'a Records<'a>, chosen: &'a [usize]) -> Query<'a> {
        Query { at, anchor: None, records, chosen, dropout: None, weigh: None }
    }

    /// Asks for differences: each record's gradient minus its gradient at the anchor.
    ///
    /// With activations `a`, `a'` and output gradients `b`, `b'`, the difference is `(a - a') b + a' (b - b')`. Norms and
    /// sums come from these factors, so they keep their accuracy when the two points are close.
    #[must_use]
    pub fn minus(self, anchor: &'a Params) -> Query<'a> {
        Query { anchor: Some(anchor), ..self }
    }

    /// Weighs each record by its norms.
    #[must_use]
    pub fn weighed_by(self, weigh: &'a dyn Weigh) -> Query<'a> {
        Query { weigh: Some(weigh), ..self }
    }

    /// Turns dropout on, with masks from this seed.
    #[must_use]
    pub fn with_dropout(self, seed: u64) -> Query<'a> {
        Query { dropout: Some(seed), ..self }
    }
}

/// What a pass found out, in the order of the chosen records. All of it is as private as the records.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// The loss of each record; of a difference, the loss at the first point.
    pub losses: Vec<f64>,
    /// The gradient norm of each record; empty if nobody weighs.
    pub norms: Vec<f64>,
    /// The places of records whose loss or gradient was not finite. They added nothing.
    pub non_finite: Vec<usize>,
}

/// One record's part of an [`Outcome`].
struct Finding {
    place: usize,
    loss: f64,
    norm: f64,
    finite: bool,
}

/// Everything a worker owns.
struct Worker {
    tape: Tape,
    anchor: Option<Tape>,
    chunk: Chunk,
    bench: Bench,
    spare: Aligned,
    sums: Vec<Aligned>,
    results: Vec<Finding>,
}

/// Room for norms, weights and written-out gradients.
#[derive(Default)]
struct Bench {
    kept: Vec<[Aligned; 2]>,
    scratch: Scratch,
    squared: Vec<f64>,
    weights: Vec<f32>,
}

impl Engine {
    /// An engine with a worker for each thread of the current pool.
    ///
    /// # Errors
    /// If the loss does not fit the network's outputs.
    pub fn new(network: Network, loss: Loss) -> Result<Engine, NetworkError> {
        Engine::with_workers(network, loss, rayon::current_num_threads())
    }

    /// An engine with this many workers.
    ///
    /// # Errors
    /// If the loss does not fit the network's outputs.
    pub fn with_workers(network: Network, loss: Loss, workers: usize) -> Result<Engine, NetworkError> {
        loss.check_outputs(network.outputs())?;
        if network.layers.is_empty() {
            return Err(NetworkError::Description(
                "all parameters are frozen; leave at least one layer to be trained".to_owned(),
            ));
        }
        if !(1..=MOST_WORKERS).contains(&workers) {
            return Err(NetworkError::Description(format!(
                "workers must be 1 to {MOST_WORKERS}, got {workers}"
            )));
        }
        let steps = network.input().steps();
        let chunk = chunk_size(&network);
        // In double precision, which cannot overflow.
        let room = 4.0 * record_size(&network) as f64 * chunk as f64 * workers as f64;
        if room > MOST_MEMORY {
            return Err(NetworkError::Description(format!(
                "one record on each of {workers} workers takes {:.0} GiB, more than the {:.0} permitted; use fewer steps, \
                 a smaller image or fewer workers",
                room / f64::from(1 << 30),
                MOST_MEMORY / f64::from(1 << 30)
            )));
        }
        let worker = |_| Worker {
            tape: Tape::new(&network, chunk, steps),
            anchor: None,
            chunk: Chunk::default(),
            bench: Bench {
                kept: network.nodes.iter().map(|_| Default::default()).collect(),
                ..Bench::default()
            },
            spare: Aligned::default(),
            sums: Vec::new(),
            results: Vec::new(),
        };
        let workers = (0..workers).map(worker).collect();
        let packs = [(); 2].map(|()| network.nodes.iter().map(|_| Vec::new()).collect());
        Ok(Engine { network: Arc::new(network), loss, chunk, workers, packs })
    }

    /// The network.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// The greatest number of records in a chunk.
    pub fn chunk_size(&self) -> usize {
        self.chunk
    }

    /// Checks inputs against the network.
    ///
    /// # Errors
    /// If they do not fit; the message has the first offending record.
    pub fn unlabelled<'a>(&self, inputs: Inputs<'a>) -> Result<Unlabelled<'a>, NetworkError> {
        Unlabelled::new(self.network.input(), inputs)
    }

    /// Checks records against the network and the loss.
    ///
    /// # Errors
    /// If they do not fit; the message has the first offending record.
    pub fn records<'a>(&self, inputs: Inputs<'a>, targets: Targets<'a>) -> Result<Records<'a>, NetworkError> {
        Records::new(self.unlabelled(inputs)?, self.network.outputs(), self.loss, targets)
    }

    /// Passes over a batch once; `sums[i]` becomes the `i`-th weighted sum of the gradients.
    ///
    /// Without weights there is one sum, of all gradients as they are, and no norms are computed. With weights there may be
    /// any number of sums, also none. Sums are zero where parameters are frozen.
    ///
    /// **Edge cases.** An empty batch gives sums of zero.
    ///
    /// # Errors
    /// If parameters or records belong to another network, a chosen record does not exist, or sums have a wrong size.
    pub fn pass(&mut self, query: &Query<'_>, sums: &mut [Vec<f32>]) -> Result<Outcome, NetworkError> {
        self.check(query, sums)?;
        let network = &self.network;
        let [packs, anchor_packs] = &mut self.packs;
        pack(network, query.at, packs);
        if let Some(anchor) = query.anchor {
            pack(network, anchor, anchor_packs);
        }
        let here = Point { params: query.at.values(), packs };
        let there = query.anchor.map(|anchor| Point { params: anchor.values(), packs: anchor_packs });
        let job = Job { network, loss: self.loss, chunk: self.chunk, query, here, there, sums: sums.len() };
        let (size, active) = cut(query.chosen.len(), self.chunk, self.workers.len(), network.operations());
        let workers = &mut self.workers[..active];
        workers.par_iter_mut().enumerate().for_each(|(index, worker)| {
            worker.begin(&job);
            for (number, chosen) in query.chosen.chunks(size).enumerate().skip(index).step_by(active) {
                worker.run(&job, number * size, chosen);
            }
        });
        for (index, sum) in sums.iter_mut().enumerate() {
            let parts: Vec<&Aligned> = workers.iter().map(|worker| &worker.sums[index]).collect();
            reduce(&parts, sum);
            for node in &network.nodes {
                if let (Step::Operation { operation, .. }, Some(_)) = (&node.step, node.layer) {
                    operation.finish(&mut sum[node.params.clone()]);
                }
            }
        }
        Ok(gather(workers, query))
    }

    /// The network's outputs for the chosen records, one record after another, without dropout.
    ///
    /// # Errors
    /// If parameters or inputs belong to another network or a chosen record does not exist.
    pub fn outputs(
        &mut self,
        at: &Params,
        inputs: &Unlabelled<'_>,
        chosen: &[usize],
    ) -> Result<Vec<f32>, NetworkError> {
        self.check_inputs(at, inputs, chosen)?;
        let network = &self.network;
        let packs = &mut self.packs[0];
        pack(network, at, packs);
        let here = Point { params: at.values(), packs };
        let width = network.outputs();
        let mut outputs = vec![0.0; chosen.len() * width];
        let (size, active) = cut(chosen.len(), self.chunk, self.workers.len(), network.operations());
        let mut shares: Vec<Vec<(&[usize], &mut [f32])>> = (0..active).map(|_| Vec::new()).collect();
        for (number, part) in chosen.chunks(size).zip(outputs.chunks_mut(size * width)).enumerate() {
            shares[number % active].push(part);
        }
        self.workers[..active].par_iter_mut().zip(shares).for_each(|(worker, share)| {
            worker.chunk.dropout = None;
            for (chosen, outputs) in share {
                worker.chunk.load(inputs, chosen);
                worker.tape.load(network, &worker.chunk, inputs, chosen);
                worker.tape.forward(network, here, &worker.chunk);
                for (record, outputs) in outputs.chunks_exact_mut(width).enumerate() {
                    outputs.copy_from_slice(worker.tape.outputs(network, record));
                }
            }
        });
        Ok(outputs)
    }

    fn check(&self, query: &Query<'_>, sums: &[Vec<f32>]) -> Result<(), NetworkError> {
        self.check_inputs(query.at, &query.records.inputs, query.chosen)?;
        if !query.records.fits(self.network.outputs(), &self.loss) {
            return Err(NetworkError::Records(
                "these records were checked for another network or loss".to_owned(),
            ));
        }
        if let Some(anchor) = query.anchor {
            self.check_inputs(anchor, &query.records.inputs, &[])?;
        }
        let refuse = |problem: String| Err(NetworkError::Parameters(problem));
        if query.weigh.is_none() && sums.len() != 1 {
            return refuse(format!("without weights there is one sum, got room for {}", sums.len()));
        }
        match sums.iter().find(|sum| sum.len() != self.network.layout().len()) {
            Some(sum) => refuse(format!(
                "a sum has {} values, the network {} parameters",
                sum.len(),
                self.network.layout().len()
            )),
            None => Ok(()),
        }
    }

    fn check_inputs(
        &self,
        at: &Params,
        inputs: &Unlabelled<'_>,
        chosen: &[usize],
    ) -> Result<(), NetworkError> {
        if at.layout() != self.network.layout() {
            return Err(NetworkError::Parameters("these parameters belong to another network".to_owned()));
        }
        if inputs.shape() != self.network.input() {
            return Err(NetworkError::Records("these records were checked for another network".to_owned()));
        }
        match chosen.iter().find(|&&record| record >= inputs.len()) {
            Some(record) => Err(NetworkError::Records(format!(
                "record {record} was chosen, but there are only {}",
                inputs.len()
            ))),
            None => Ok(()),
        }
    }
}

/// More workers than any machine has cores for.
const MOST_WORKERS: usize = 1024;

/// Bytes for values and gradients of all workers that are surely a mistake: 64 GiB.
const MOST_MEMORY: f64 = 64.0 * (1 << 30) as f64;

/// Above this norm a record counts as not finite: clipped to any sensible bound, its weight would be no normal float.
const GREATEST_NORM: f64 = 1e18;

/// What all workers know about a pass.
struct Job<'a> {
    network: &'a Network,
    loss: Loss,
    /// The greatest number of records in a chunk.
    chunk: usize,
    query: &'a Query<'a>,
    here: Point<'a>,
    there: Option<Point<'a>>,
    sums: usize,
}

impl Worker {
    fn begin(&mut self, job: &Job<'_>) {
        self.results.clear();
        self.chunk.dropout = job.query.dropout;
        self.sums.resize_with(job.sums.max(self.sums.len()), Aligned::default);
        for sum in &mut self.sums[..job.sums] {
            sum.reserve(job.network.layout().len());
            sum.fill(0.0);
        }
        if job.there.is_some() && self.anchor.is_none() {
            self.anchor = Some(Tape::new(job.network, job.chunk, job.network.input().steps()));
        }
    }

    /// Runs one chunk.
    fn run(&mut self, job: &Job<'_>, first: usize, chosen: &[usize]) {
        let (network, inputs) = (job.network, &job.query.records.inputs);
        self.chunk.first_record = first;
        self.chunk.load(inputs, chosen);
        let begun = self.results.len();
        let finding = |place| Finding { place, loss: 0.0, norm: 0.0, finite: true };
        self.results.extend((first..first + chosen.len()).map(finding));
        self.evaluate(job, job.here, chosen, begun);
        let layers = network.layers.len();
        self.bench.squared.clear();
        self.bench.squared.resize(layers * chosen.len(), 0.0);
        let weighed = job.query.weigh.is_some();
        let anchor = if job.there.is_some() { self.anchor.take() } else { None };
        if let (Some(there), Some(mut anchor)) = (job.there, anchor) {
            self.tape.backward(network, job.here, &self.chunk, &mut self.spare, |_, _, _| {});
            std::mem::swap(&mut self.tape, &mut anchor);
            self.evaluate(job, there, chosen, begun);
            self.tape.backward(network, there, &self.chunk, &mut self.spare, |_, _, _| {});
            std::mem::swap(&mut self.tape, &mut anchor);
            self.tape.subtract(&mut anchor);
            self.anchor = Some(anchor);
            if weighed {
                self.each_layer(job, |bench, node, layer, terms| bench.norms(network, node, layer, terms));
            }
        } else {
            let bench = &mut self.bench;
            self.tape.backward(network, job.here, &self.chunk, &mut self.spare, |node, layer, term| {
                if weighed {
                    bench.norms(network, node, layer, &[term]);
                }
            });
        }
        self.weigh(job, begun);
        self.add(job, weighed);
    }

    /// Forward, and the gradients of the losses.
    fn evaluate(&mut self, job: &Job<'_>, point: Point<'_>, chosen: &[usize], begun: usize) {
        let records = job.query.records;
        self.tape.load(job.network, &self.chunk, &records.inputs, chosen);
        self.tape.forward(job.network, point, &self.chunk);
        for (index, &record) in chosen.iter().enumerate() {
            let (outputs, gradient) = self.tape.loss_gradient(job.network, index);
            let loss = job.loss.gradient(outputs, records.target(record), gradient);
            let finding = &mut self.results[begun + index];
            finding.finite &= loss.is_finite();
            if std::ptr::eq(point.params, job.here.params) {
                finding.loss = loss;
            }
        }
    }

    /// Calls `f` for each layer with trained parameters and the terms of its gradients.
    fn each_layer(&mut self, job: &Job<'_>, mut f: impl FnMut(&mut Bench, usize, usize, &[Term<'_>])) {
        for (index, node) in job.network.nodes.iter().enumerate() {
            let Some(layer) = node.layer else { continue };
            let first = self.tape.term(job.network, job.here, &self.chunk, index);
            match (&self.anchor, job.there) {
                (Some(anchor), Some(there)) => {
                    let second = anchor.term(job.network, there, &self.chunk, index);
                    f(&mut self.bench, index, layer, &[first, second]);
                }
                _ => f(&mut self.bench, index, layer, &[first]),
            }
        }
    }

    /// Finds records that are not finite, erases them, and asks for the weights of the others.
    fn weigh(&mut self, job: &Job<'_>, begun: usize) {
        let (records, layers) = (self.chunk.records, job.network.layers.len());
        self.bench.weights.clear();
        self.bench.weights.resize(job.sums * layers * records, 0.0);
        for index in 0..records {
            let result = &mut self.results[begun + index];
            let norms = RecordNorms { place: result.place, squared: &self.bench.squared, records, index };
            result.norm = norms.total();
            result.finite &= result.norm <= GREATEST_NORM;
            if !result.finite {
                self.bench.erase(job.network, self.chunk.steps, index);
                self.tape.erase(job.network, &self.chunk, index);
                if let Some(anchor) = &mut self.anchor {
                    anchor.erase(job.network, &self.chunk, index);
                }
                continue;
            }
            if let Some(weigh) = job.query.weigh {
                let weights = &mut self.bench.weights;
                weigh.weigh(norms, &mut RecordWeights { weights, layers, records, index });
            }
        }
    }

    /// Adds the weighted gradients to the sums.
    fn add(&mut self, job: &Job<'_>, weighed: bool) {
        let mut sums = std::mem::take(&mut self.sums);
        let (records, layers, network) = (self.chunk.records, job.network.layers.len(), job.network);
        self.each_layer(job, |bench, index, layer, terms| {
            let node = &network.nodes[index];
            let Step::Operation { operation, .. } = &node.step else { return };
            for (number, sum) in sums[..job.sums].iter_mut().enumerate() {
                let first = (number * layers + layer) * records;
                let weights = weighed.then(|| &bench.weights[first..first + records]);
                let mut room = Room { kept: &mut bench.kept[index], scratch: &mut bench.scratch };
                operation.weighted_sum(terms, weights, &mut room, &mut sum[node.params.clone()]);
            }
        });
        self.sums = sums;
    }
}

impl Bench {
    /// Sets a record's written-out gradients to zero.
    fn erase(&mut self, network: &Network, steps: usize, record: usize) {
        for (kept, node) in self.kept.iter_mut().zip(&network.nodes) {
            let (Step::Operation { operation, .. }, Some(_)) = (&node.step, node.layer) else { continue };
            for (kept, size) in kept.iter_mut().zip(operation.kept(steps)) {
                let end = ((record + 1) * size).min(kept.len());
                kept[(record * size).min(end)..end].fill(0.0);
            }
        }
    }

    fn norms(&mut self, network: &Network, node: usize, layer: usize, terms: &[Term<'_>]) {
        let Step::Operation { operation, .. } = &network.nodes[node].step else { return };
        let records = terms[0].pass.records;
        let mut room = Room { kept: &mut self.kept[node], scratch: &mut self.scratch };
        operation.squared_norms(terms, &mut room, &mut self.squared[layer * records..][..records]);
    }
}

/// Packs the weights of every node.
fn pack(network: &Network, params: &Params, packs: &mut [Vec<Packed>]) {
    let one = |(node, packs): (&crate::network::Node, &mut Vec<Packed>)| {
        if let Step::Operation { operation, x, .. } = &node.step {
            operation.pack(&params.values()[node.params.clone()], network.wanted[*x], packs);
        }
    };
    // Handing out small jobs costs more than they take.
    match network.layout().len() < 1 << 14 {
        true => network.nodes.iter().zip(packs).for_each(one),
        false => network.nodes.par_iter().zip(packs).for_each(one),
    }
}

/// The size of a chunk and the number of workers for a batch: no more workers than are worth waking, chunks of equal size,
/// equally many for each worker.
fn cut(records: usize, largest: usize, workers: usize, operations: f64) -> (usize, usize) {
    let worth = (records as f64 * operations / 2e6).ceil().max(1.0);
    let active = if worth < workers as f64 { worth as usize } else { workers };
    let chunks = records.div_ceil(largest).next_multiple_of(active).max(1);
    (records.div_ceil(chunks).max(1), active)
}

/// Floats of one record: values, gradients, what layers remember, and gradients that are written out.
fn record_size(network: &Network) -> usize {
    let steps = network.input().steps();
    let kept = |node: &crate::network::Node| match &node.step {
        Step::Operation { operation, .. } => operation.kept(steps).iter().sum(),
        _ => 0,
    };
    Tape::size(network, steps) + network.nodes.iter().map(kept).sum::<usize>()
}

/// How many records fit into twice the second-level cache, or into twice as much room as the parameters take, since every
/// chunk reads them once.
fn chunk_size(network: &Network) -> usize {
    let room = (2 * second_level_cache()).max(8 * network.layout().len());
    (room / (4 * record_size(network)).max(1)).clamp(1, 256)
}

/// Bytes of the second-level cache; a mebibyte if the system does not say.
fn second_level_cache() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").unwrap_or_default();
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => (text.strip_suffix('M').unwrap_or(text), 1 << 20),
    };
    digits.parse::<usize>().map_or(1 << 20, |size| (size * unit).clamp(1 << 18, 1 << 24))
}

/// `sum` becomes the sum of the parts.
fn reduce(parts: &[&Aligned], sum: &mut [f32]) {
    const BLOCK: usize = 1 << 15;
    let one = |(index, sum): (usize, &mut [f32])| {
        let range = index * BLOCK..index * BLOCK + sum.len();
        sum.copy_from_slice(&parts[0][range.clone()]);
        for part in &parts[1..] {
            vector::add(sum, &part[range.clone()]);
        }
    };
    match sum.len() <= BLOCK {
        true => one((0, sum)),
        false => sum.par_chunks_mut(BLOCK).enumerate().for_each(one),
    }
}

/// Brings the workers' findings into the order of the batch.
fn gather(workers: &[Worker], query: &Query<'_>) -> Outcome {
    let count = query.chosen.len();
    let weighed = query.weigh.is_some();
    let mut outcome = Outcome {
        losses: vec![0.0; count],
        norms: vec![0.0; if weighed { count } else { 0 }],
        non_finite: Vec::new(),
    };
    for finding in workers.iter().flat_map(|worker| &worker.results) {
        outcome.losses[finding.place] = finding.loss;
        if weighed {
            outcome.norms[finding.place] = finding.norm;
        }
        if !finding.finite {
            outcome.non_finite.push(finding.place);
        }
    }
    outcome.non_finite.sort_unstable();
    outcome
}
