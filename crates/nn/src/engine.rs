//! Per-record gradients of a batch, chunk by chunk.

use std::sync::Arc;

use rayon::prelude::*;

use crate::batch::{Inputs, Records, Targets, Unlabelled};
use crate::cut::{self, Piece};
use crate::error::NetworkError;
use crate::kernels::{Packed, vector};
use crate::limits::{LengthClass, Limits};
use crate::loss::Loss;
use crate::network::{Action, Network, Node};
use crate::params::Params;
use crate::pass::{Outcome, Pass};
use crate::shape::Shape;
use crate::tape::Point;
use crate::worker::{PassJob, RecordOutputs, Worker};

/// Runs a network over batches: losses, per-record gradient norms, and weighted sums of per-record gradients.
///
/// A record stands for a slot if records are in [units](Records::in_units): all its records together have one norm and one weight.
///
/// A batch is cut into pieces that belong to ranges of the data set. Each worker runs its pieces, in chunks of records small enough for
/// its cache, forward and backward, obtains weights from the norms, and adds the weighted gradients to its own sum; the sums
/// are added up at the end. No more than a chunk of records for each worker is ever in memory, whatever the size of the batch, and
/// no gradient of a single record leaves this crate.
///
/// **Guarantees.** In a pass with weights, a record whose loss or gradient is not finite is reported and adds exactly
/// nothing to any sum (a pass without weights computes no norms and checks losses only). What a record adds does not depend, bit by
/// bit, on which other records are chosen. Choosing one record more moves a sum by what that record adds and by at most
/// [`rounding`](Self::rounding) times the bound on that. The same batch gives the same sums, bit by bit; with
/// [`Pass::rounded_to`], this holds for any number of workers.
///
/// ```
/// use sordino_nn::{Engine, Inputs, Loss, Pass, Targets, models};
///
/// let mut engine = Engine::new(models::mlp(2, &[8], 2)?, Loss::cross_entropy())?;
/// let params = engine.network().init(1);
/// let inputs = [0.0, 1.0, 1.0, 0.0, 5.0, 5.0];
/// let records = engine.records(Inputs::Dense(&inputs), Targets::Classes(&[0, 1, 1]))?;
///
/// // The sum of gradients, each clipped to norm 1.
/// let clip = |norms: &[f64], weights: &mut [f32]| {
///     let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
///     weights.fill((1.0 / norm).min(1.0) as f32);
/// };
/// let mut sums = [vec![0.0; params.values().len()]];
/// let pass = Pass::new(&params, &records, &[0, 1, 2]).weighed_by(&clip);
/// let outcome = engine.pass(&pass, &mut sums)?;
/// assert_eq!(outcome.norms.len(), 3);
/// let norm = sums[0].iter().map(|g| g * g).sum::<f64>().sqrt();
/// assert!(norm <= 3.0);
/// # Ok::<(), sordino_nn::NetworkError>(())
/// ```
pub struct Engine {
    network: Arc<Network>,
    /// None if the engine computes outputs only.
    loss: Option<Loss>,
    limits: Limits,
    /// The largest number of slots that are added up in single precision.
    piece: usize,
    workers: Vec<Worker>,
    packs: [Vec<Vec<Packed>>; 2],
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
        loss.check_network(network.input(), network.output())?;
        if network.layers.is_empty() {
            return Err(NetworkError::Description(
                "all parameters are frozen; leave at least one layer to be trained".to_owned(),
            ));
        }
        Engine::build(network, Some(loss), workers)
    }

    /// An engine that computes outputs only, with a worker for each thread of the current pool. All parameters may be frozen.
    ///
    /// # Errors
    /// If a record takes too much memory.
    pub fn without_loss(network: Network) -> Result<Engine, NetworkError> {
        Engine::build(network, None, rayon::current_num_threads())
    }

    fn build(network: Network, loss: Option<Loss>, workers: usize) -> Result<Engine, NetworkError> {
        if !(1..=MOST_WORKERS).contains(&workers) {
            return Err(NetworkError::Description(format!(
                "workers must be 1 to {MOST_WORKERS}, got {workers}"
            )));
        }
        let packs = [(); 2].map(|()| network.nodes.iter().map(|_| Vec::new()).collect());
        let limits = Limits::new(&network, 1);
        let network = Arc::new(network);
        Engine { network, loss, limits, piece: 1, workers: Vec::new(), packs }.prepare(workers)
    }

    /// Makes the workers, for the current limits.
    fn prepare(mut self, workers: usize) -> Result<Engine, NetworkError> {
        let network = &self.network;
        let memory = self.limits.memory(network) * workers as f64;
        if memory > MOST_MEMORY {
            return Err(NetworkError::Description(format!(
                "one record on each of {workers} workers takes {:.0} GiB, more than the {:.0} permitted; use fewer steps, \
                 a smaller image or fewer workers",
                memory / f64::from(1 << 30),
                MOST_MEMORY / f64::from(1 << 30)
            )));
        }
        self.workers = (0..workers).map(|_| Worker::new(network, &self.limits)).collect();
        self.piece = self.limits.piece(network);
        Ok(self)
    }

    /// Prepares the engine for slots with at most this many gradients: the records of a [unit](Records::in_units), times their
    /// [views](Records::with_views). By default this number is 1.
    ///
    /// It must be public, since it determines how norms are computed and how sums are rounded. A pass over records with larger slots is
    /// refused.
    ///
    /// # Errors
    /// If the number is 0 or above a million, or a chunk takes too much memory.
    pub fn for_slots_of(mut self, most: usize) -> Result<Engine, NetworkError> {
        if !(1..=MOST_IN_SLOT).contains(&most) {
            return Err(NetworkError::Records(format!(
                "the largest number of gradients in a slot must be 1 to {MOST_IN_SLOT}, got {most}"
            )));
        }
        let workers = self.workers.len();
        self.limits = Limits::new(&self.network, most);
        self.prepare(workers)
    }

    /// The network.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// The largest number of records in a chunk.
    pub fn chunk_size(&self) -> usize {
        self.limits.most_records()
    }

    /// The largest distance between the sums of two batches that differ in one record, beyond what that record adds. It is due to
    /// rounding and relative to the largest norm of a record after weighting. (With [`Pass::rounded_to`], up to six roundings to the
    /// lattice are added.)
    ///
    /// It is at most one hundredth; docs/engine.md has examples. `differences` is true for sums of [differences](Pass::minus).
    pub fn rounding(&self, differences: bool) -> f64 {
        let network = &self.network;
        let in_groups = |node: &Node| {
            let in_class = |class: &LengthClass| {
                let steps = class.steps + network.input_of(node).extra;
                node.trained().is_none_or(|(_, parameters)| parameters.sums_in_groups(steps))
            };
            self.limits.classes.iter().all(in_class)
        };
        let in_groups = !differences && self.limits.most == 1 && network.nodes.iter().all(in_groups);
        // Chunks are also limited to a number of bags. If slots have one gradient each, this is the same number; otherwise it is not used.
        let chunks: Vec<usize> = self.limits.classes.iter().map(|class| class.records).collect();
        cut::rounding(self.piece, &chunks, in_groups)
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
        Records::new(self.unlabelled(inputs)?, self.network.outputs(), self.loss()?, targets)
    }

    fn loss(&self) -> Result<Loss, NetworkError> {
        self.loss.ok_or_else(|| NetworkError::Records("this engine computes outputs only".to_owned()))
    }

    /// Passes over a batch once; `sums[i]` becomes the `i`-th weighted sum of the gradients.
    ///
    /// Without weights there is one sum, of all gradients with weight 1, and no norms are computed. With weights there may be
    /// any number of sums, including none. Sums are zero where parameters are frozen.
    ///
    /// **Edge cases.** An empty batch gives sums of zero.
    ///
    /// # Errors
    /// If parameters or records belong to another network, chosen records do not exist or are not in ascending order, sums have a
    /// wrong size, or a [stored](Inputs::Stored) record cannot be read. Sums are not changed in any of these cases.
    pub fn pass(&mut self, pass: &Pass<'_>, sums: &mut [Vec<f64>]) -> Result<Outcome, NetworkError> {
        let loss = self.loss()?;
        self.check(pass, loss, sums)?;
        let network = &self.network;
        let [packs, anchor_packs] = &mut self.packs;
        pack(network, pass.at, packs);
        if let Some(anchor) = pass.anchor {
            pack(network, anchor, anchor_packs);
        }
        let here = Point { params: pass.at.values(), packs };
        let there = pass.anchor.map(|anchor| Point { params: anchor.values(), packs: anchor_packs });
        let job = PassJob { network, loss, limits: &self.limits, pass, here, there, sums: sums.len() };
        let longest = |slot: usize| pass.records.longest(slot);
        let pieces = cut::pieces(pass.chosen, pass.records.slots(), self.piece, &longest);
        let size = |place: usize| pass.records.size_of(pass.chosen[place], pass.dropout);
        let records = (0..pass.chosen.len()).map(size).sum();
        let active = useful_workers(records, self.workers.len(), network.operations());
        let workers = &mut self.workers[..active];
        let work = |piece: &Piece| piece.iter().map(|&place| size(place) * longest(pass.chosen[place])).sum();
        let shares = cut::assign(pieces, active, work);
        workers.par_iter_mut().zip(shares).try_for_each(|(worker, pieces)| worker.pass(&job, &pieces))?;
        for (index, sum) in sums.iter_mut().enumerate() {
            reduce(workers, index, pass.step(index), sum);
            for node in &network.nodes {
                if let Some((_, parameters)) = node.trained() {
                    parameters.reorder(&mut sum[node.params.clone()]);
                }
            }
        }
        Ok(gather(workers, pass))
    }

    /// The network's outputs for the chosen records, one record after another, without dropout. If the network ends in a sequence,
    /// each record has as many steps as it is long.
    ///
    /// # Errors
    /// If parameters or inputs belong to another network, a chosen record does not exist, or a [stored](Inputs::Stored) record cannot
    /// be read.
    pub fn outputs(
        &mut self,
        at: &Params,
        inputs: &Unlabelled<'_>,
        chosen: &[usize],
    ) -> Result<Vec<f32>, NetworkError> {
        Ok(self.sequence_outputs(at, inputs, chosen)?.0)
    }

    /// The network's [outputs](Self::outputs), and the start of each record among them, in steps, with the end of the last one. If the
    /// network ends in a vector, each record has one step.
    ///
    /// # Errors
    /// If parameters or inputs belong to another network or a chosen record does not exist.
    pub fn sequence_outputs(
        &mut self,
        at: &Params,
        inputs: &Unlabelled<'_>,
        chosen: &[usize],
    ) -> Result<(Vec<f32>, Vec<usize>), NetworkError> {
        self.check_inputs(at, inputs, chosen)?;
        let network = &self.network;
        let packs = &mut self.packs[0];
        pack(network, at, packs);
        let here = Point { params: at.values(), packs };
        let (width, output) = (network.outputs(), network.storage[network.output]);
        let mut starts = vec![0];
        for &record in chosen {
            let steps = match output.shape {
                Shape::Sequence { .. } => inputs.steps(record) + output.extra,
                _ => 1,
            };
            starts.push(starts[starts.len() - 1] + steps);
        }
        let mut outputs = vec![0.0; starts[chosen.len()] * width];
        let active = useful_workers(chosen.len(), self.workers.len(), network.operations());
        let mut rest = &mut outputs[..];
        let mut parts = Vec::with_capacity(chosen.len());
        for (&record, pair) in chosen.iter().zip(starts.windows(2)) {
            let (outputs, others) = rest.split_at_mut((pair[1] - pair[0]) * width);
            parts.push(RecordOutputs { record, outputs });
            rest = others;
        }
        // A chunk holds records of similar length.
        parts.sort_by_key(|part| inputs.steps(part.record));
        let mut shares: Vec<Vec<&mut [RecordOutputs<'_>]>> = (0..active).map(|_| Vec::new()).collect();
        let class = |part: &RecordOutputs<'_>| self.limits.class_of(inputs.steps(part.record));
        for parts in parts.chunk_by_mut(|part, next| class(part) == class(next)) {
            let most = self.limits.classes[class(&parts[0])].records;
            let chunks = parts.len().div_ceil(most).next_multiple_of(active);
            for (number, chunk) in parts.chunks_mut(parts.len().div_ceil(chunks)).enumerate() {
                shares[number % active].push(chunk);
            }
        }
        self.workers[..active].par_iter_mut().zip(shares).try_for_each(|(worker, share)| {
            share.into_iter().try_for_each(|chunk| worker.outputs(network, here, inputs, chunk))
        })?;
        Ok((outputs, starts))
    }

    fn check(&self, pass: &Pass<'_>, loss: Loss, sums: &[Vec<f64>]) -> Result<(), NetworkError> {
        self.check_inputs(pass.at, &pass.records.inputs, &[])?;
        let slots = pass.records.slots();
        if let Some(slot) = pass.chosen.iter().find(|&&slot| slot >= slots) {
            let kind = pass.records.kind_of_slot();
            return Err(NetworkError::Records(format!(
                "{kind} {slot} was chosen, but there are only {slots}"
            )));
        }
        if pass.records.most_in_slot() > self.limits.most {
            return Err(NetworkError::Records(format!(
                "a slot may have {} gradients, but this engine was made for at most {}; use Engine::for_slots_of",
                pass.records.most_in_slot(),
                self.limits.most
            )));
        }
        if !pass.records.fits(self.network.outputs(), &loss) {
            return Err(NetworkError::Records(
                "these records were checked for another network or loss".to_owned(),
            ));
        }
        if let Some(anchor) = pass.anchor {
            self.check_inputs(anchor, &pass.records.inputs, &[])?;
        }
        if !pass.chosen.is_sorted() {
            return Err(NetworkError::Records("chosen records must be in ascending order".to_owned()));
        }
        let refuse = |problem: String| Err(NetworkError::Parameters(problem));
        if pass.rule.is_none() && sums.len() != 1 {
            return refuse(format!("a pass without weights has one sum, got {}", sums.len()));
        }
        match sums.iter().find(|sum| sum.len() != self.network.layout().len()) {
            Some(sum) => refuse(format!(
                "a sum has {} values, but the network has {} parameters",
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

/// The largest permitted number of gradients in a slot. A larger number is most likely a mistake.
const MOST_IN_SLOT: usize = 1_000_000;

/// The largest number of workers.
const MOST_WORKERS: usize = 1024;

/// The largest number of bytes for values and gradients of all workers, 64 GiB; more is surely a mistake.
const MOST_MEMORY: f64 = 64.0 * (1 << 30) as f64;

/// Packs the weights of every node.
fn pack(network: &Network, params: &Params, packs: &mut [Vec<Packed>]) {
    let one = |(node, packs): (&Node, &mut Vec<Packed>)| {
        if let Action::Operation { operation, x, .. } = &node.action {
            operation.pack(&params.values()[node.params.clone()], network.needs_gradient[*x], packs);
        }
    };
    // Distributing small networks is not worth the overhead.
    match network.layout().len() < 1 << 14 {
        true => network.nodes.iter().zip(packs).for_each(one),
        false => network.nodes.par_iter().zip(packs).for_each(one),
    }
}

/// The number of workers for a batch.
fn useful_workers(records: usize, workers: usize, operations: f64) -> usize {
    let worth = (records as f64 * operations / 2e6).ceil().max(1.0);
    if worth < workers as f64 { worth as usize } else { workers }
}

/// Sets `sum` to the sum over all workers, in multiples of the step.
fn reduce(workers: &[Worker], index: usize, step: f64, sum: &mut [f64]) {
    const BLOCK: usize = 1 << 12;
    let one = |(number, sum): (usize, &mut [f64])| {
        let range = number * BLOCK..number * BLOCK + sum.len();
        sum.fill(0.0);
        for worker in workers {
            vector::add_rounded(sum, &worker.sums[index][range.clone()], step);
            if let Some(total) = worker.totals.get(index).filter(|total| !total.is_empty()) {
                sum.iter_mut().zip(&total[range.clone()]).for_each(|(sum, total)| *sum += total);
            }
        }
    };
    match sum.len() <= BLOCK {
        true => one((0, sum)),
        false => sum.par_chunks_mut(BLOCK).enumerate().for_each(one),
    }
}

/// Puts the workers' results into the order of the batch.
fn gather(workers: &[Worker], pass: &Pass<'_>) -> Outcome {
    let count = pass.chosen.len();
    let weighed = pass.rule.is_some();
    let mut outcome = Outcome {
        losses: vec![0.0; count],
        norms: vec![0.0; if weighed { count } else { 0 }],
        non_finite: Vec::new(),
    };
    for result in workers.iter().flat_map(|worker| &worker.results) {
        outcome.losses[result.place] = result.loss;
        if weighed {
            outcome.norms[result.place] = result.norm;
        }
        if !result.finite {
            outcome.non_finite.push(result.place);
        }
    }
    outcome.non_finite.sort_unstable();
    outcome
}
