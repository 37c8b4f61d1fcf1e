//! Updates of clients, for the trusted base: a client trains on its own records, and adds the change of the parameters to the sum.

use std::ops::Range;

use rand_chacha::{
    ChaCha12Rng,
    rand_core::{Rng, SeedableRng},
};
use rayon::prelude::*;
use sordino_nn::{Combination, Engine, Network, NetworkError, Params, Pass, Records, Units};
use sordino_privacy::{Sum, WeightRule};

/// What a client does in a round: `steps` steps of SGD from the server's parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalTraining {
    /// The number of steps.
    pub steps: u64,
    /// The largest number of records in a step. A client with fewer records uses all of them in every step. Other clients go through their
    /// records in random order, and shuffle them again after each pass; the last batch of a pass may be smaller.
    pub batch_size: usize,
    /// The learning rate, for the mean gradient of the batch.
    pub learning_rate: f64,
}

/// The clients, and the engines that train on their records.
///
/// A client is a slot of the vault. From the server's parameters `w`, it computes `w_0 = w`, `w_{t+1} = w_t - rate * g_t`, where `g_t` is
/// the mean gradient of its batch at `w_t`, and adds `w - w_T = rate * sum_t g_t`. So the optimizer of the server treats a sum of updates
/// as a sum of gradients. With one step on all records at rate 1, the update is the mean gradient of the client's records (Fed-SGD).
///
/// **Guarantees.** What a client adds depends on its own records, its number, the parameters, the key of the pass and public settings, and
/// on nothing else. Norms are at least those of the update: they are sums of squares in double precision, enlarged by the largest
/// possible rounding error. Each weighted update is rounded to the lattice of the sum once, and multiples of the step are added exactly.
/// So two sums whose batches differ in one client differ by what it adds and by one rounding of a vector to the step.
///
/// **Edge cases.** A client without records, and one whose losses, update or norm are not all finite, adds exactly nothing, and no
/// weights are chosen for it.
///
/// **References.** McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models", Algorithm 1; Du et al. 2021,
/// "Dynamic Differential-Privacy Preserving SGD", Algorithm 5.
pub(crate) struct ClientUpdates<'d> {
    clients: Clients<'d>,
    workers: Vec<Worker>,
}

/// The clients and how they train.
struct Clients<'d> {
    records: Records<'d>,
    members: &'d Units,
    local: LocalTraining,
    class_weights: Vec<f32>,
    /// The range of each layer in the parameters.
    layers: Vec<Range<usize>>,
}

/// Trains one client at a time, and adds up the updates. Its memory does not grow with the number of clients or of their records.
struct Worker {
    engine: Engine,
    /// The parameters of the client.
    point: Params,
    gradient: [Vec<f64>; 1],
    update: Vec<f64>,
    /// The update from the anchor.
    anchored: Vec<f64>,
    norms: Vec<f64>,
    weights: Vec<f32>,
    sums: Vec<Vec<f64>>,
}

/// A pass over clients.
struct Job<'a> {
    at: &'a Params,
    anchor: Option<&'a Params>,
    rule: Option<&'a WeightRule<'a>>,
    key: [u8; 32],
    steps: Vec<f64>,
}

/// An update with a larger norm counts as not finite. The same limit holds for the gradient of a record.
const GREATEST_NORM: f64 = 1e18;

impl<'d> ClientUpdates<'d> {
    /// The clients with these records, which the engines have checked, with a worker for each engine. Engines are made for slots of
    /// [`LocalTraining::batch_size`] records and their views.
    pub(crate) fn new(
        engines: Vec<Engine>,
        records: Records<'d>,
        members: &'d Units,
        local: LocalTraining,
        class_weights: Vec<f32>,
    ) -> Self {
        let worker = |engine: Engine| {
            let size = engine.network().layout().len();
            Worker {
                point: Params::zeros(engine.network().layout().clone()),
                gradient: [vec![0.0; size]],
                update: vec![0.0; size],
                anchored: Vec::new(),
                norms: Vec::new(),
                weights: Vec::new(),
                sums: Vec::new(),
                engine,
            }
        };
        let workers: Vec<Worker> = engines.into_iter().map(worker).collect();
        let layers = workers.first().map_or(Vec::new(), |worker| {
            worker.engine.network().layers().iter().map(|layer| layer.range.clone()).collect()
        });
        Self { clients: Clients { records, members, local, class_weights, layers }, workers }
    }

    /// The number of clients.
    pub(crate) fn len(&self) -> usize {
        self.clients.members.len()
    }

    pub(crate) fn network(&self) -> &Network {
        self.workers[0].engine.network()
    }

    /// As [`Gradients::pass`](sordino_privacy::Gradients::pass), with updates in place of gradients.
    pub(crate) fn pass(
        &mut self,
        at: &Params,
        anchor: Option<&Params>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        key: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), NetworkError> {
        let job = Job { at, anchor, rule, key, steps: sums.iter().map(|sum| sum.step).collect() };
        let Self { clients, workers } = self;
        let share = chosen.len().div_ceil(workers.len()).max(1);
        let active = chosen.len().div_ceil(share);
        let shares = chosen.par_chunks(share);
        workers[..active].par_iter_mut().zip(shares).try_for_each(|(worker, share)| {
            worker.begin(sums.len());
            share.iter().try_for_each(|&client| worker.add(clients, &job, client))
        })?;
        for (index, sum) in sums.iter_mut().enumerate() {
            for worker in &workers[..active] {
                // Multiples of the step, so the order does not matter.
                sum.values.iter_mut().zip(&worker.sums[index]).for_each(|(sum, part)| *sum += part);
            }
        }
        Ok(())
    }
}

impl Worker {
    /// Sets the sums to zero.
    fn begin(&mut self, sums: usize) {
        let size = self.update.len();
        self.sums.resize_with(sums, Vec::new);
        for sum in &mut self.sums {
            sum.clear();
            sum.resize(size, 0.0);
        }
    }

    /// Adds the weighted update of a client to all sums.
    fn add(&mut self, clients: &Clients<'_>, job: &Job<'_>, client: usize) -> Result<(), NetworkError> {
        if clients.members.members(client).is_empty() || !self.train(clients, job.at, job.key, client)? {
            return Ok(());
        }
        if let Some(anchor) = job.anchor {
            // The client draws the same batches and dropout masks at both points.
            std::mem::swap(&mut self.update, &mut self.anchored);
            let finite = self.train(clients, anchor, job.key, client)?;
            std::mem::swap(&mut self.update, &mut self.anchored);
            if !finite {
                return Ok(());
            }
            self.update.iter_mut().zip(&self.anchored).for_each(|(here, there)| *here -= there);
        }
        let norm = |layer: &Range<usize>| norm_from_above(&self.update[layer.clone()]);
        self.norms.clear();
        self.norms.extend(clients.layers.iter().map(norm));
        let whole = self.norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        // A NaN is refused, too.
        if !(whole <= GREATEST_NORM) {
            return Ok(());
        }
        self.weights.clear();
        match job.rule {
            Some(rule) => {
                self.weights.resize(self.sums.len() * clients.layers.len(), 0.0);
                rule(&self.norms, &mut self.weights);
            }
            None => self.weights.resize(self.sums.len() * clients.layers.len(), 1.0),
        }
        let weights = self.weights.chunks_exact(clients.layers.len());
        for ((sum, weights), &step) in self.sums.iter_mut().zip(weights).zip(&job.steps) {
            for (layer, &weight) in clients.layers.iter().zip(weights) {
                let weight = if weight.is_finite() { f64::from(weight) } else { 0.0 };
                let update = &self.update[layer.clone()];
                sum[layer.clone()].iter_mut().zip(update).for_each(|(sum, update)| {
                    *sum += match step > 0.0 {
                        true => (weight * update / step).round() * step,
                        false => weight * update,
                    };
                });
            }
        }
        Ok(())
    }

    /// Computes the update of a client that begins at these parameters. Returns false if a loss is not finite.
    fn train(
        &mut self,
        clients: &Clients<'_>,
        at: &Params,
        key: [u8; 32],
        client: usize,
    ) -> Result<bool, NetworkError> {
        let local = clients.local;
        let mut batches = Batches::new(clients.members.members(client), local.batch_size, key, client);
        self.point.values_mut().copy_from_slice(at.values());
        self.update.clear();
        self.update.resize(at.values().len(), 0.0);
        for _ in 0..local.steps {
            let (batch, key) = batches.next();
            let batch = Units::new(batch.to_vec(), vec![0, batch.len()])?;
            let records = clients.records.in_units(&batch, Combination::Mean)?;
            let pass = Pass::new(&self.point, &records, &[0])
                .with_dropout(key)
                .with_class_weights(&clients.class_weights);
            if !self.engine.pass(&pass, &mut self.gradient)?.non_finite.is_empty() {
                return Ok(false);
            }
            let values = self.point.values_mut().iter_mut().zip(at.values());
            let gradients = self.update.iter_mut().zip(&self.gradient[0]);
            for ((point, begun), (update, gradient)) in values.zip(gradients) {
                *update += local.learning_rate * gradient;
                // Computed from the update in double precision, so that the rounding of the parameters does not enter the update.
                *point = (f64::from(*begun) - *update) as f32;
            }
        }
        Ok(true)
    }
}

/// The Euclidean norm, rounded up: each of `n` squares and sums has a relative error of at most 2^-53.
fn norm_from_above(values: &[f64]) -> f64 {
    let squared: f64 = values.iter().map(|value| value * value).sum();
    (squared * (1.0 + (values.len() + 4) as f64 * f64::EPSILON)).sqrt()
}

/// The batches of a client, and a key for the dropout masks of each batch. They depend on its own records, its number and the key of the pass.
struct Batches {
    records: Vec<usize>,
    /// The number of records that were used since the last shuffle.
    used: usize,
    size: usize,
    random: ChaCha12Rng,
}

impl Batches {
    fn new(records: &[usize], size: usize, key: [u8; 32], client: usize) -> Self {
        let mut random = ChaCha12Rng::from_seed(key);
        random.set_stream(client as u64);
        Self { records: records.to_vec(), used: records.len(), size, random }
    }

    /// The next batch, in ascending order, and its key.
    fn next(&mut self) -> (&[usize], [u8; 32]) {
        if self.used == self.records.len() {
            self.used = 0;
            self.shuffle();
        }
        let end = self.records.len().min(self.used + self.size);
        let batch = &mut self.records[self.used..end];
        self.used = end;
        batch.sort_unstable();
        let mut key = [0; 32];
        self.random.fill_bytes(&mut key);
        (batch, key)
    }

    /// The Fisher-Yates shuffle. A product maps 64 bits to a position. The probabilities are equal up to 2^-32 for any number of
    /// records in memory.
    fn shuffle(&mut self) {
        for last in (1..self.records.len()).rev() {
            let place = (u128::from(self.random.next_u64()) * (last as u128 + 1)) >> 64;
            self.records.swap(last, place as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_cover_all_records_before_any_is_used_again() {
        let records: Vec<usize> = (100..110).collect();
        let mut batches = Batches::new(&records, 4, [1; 32], 7);
        for _ in 0..3 {
            let mut pass: Vec<usize> = Vec::new();
            for size in [4, 4, 2] {
                let (batch, _) = batches.next();
                assert!(batch.len() == size && batch.is_sorted());
                pass.extend(batch);
            }
            pass.sort_unstable();
            assert_eq!(pass, records);
        }
        let mut few = Batches::new(&records, 10, [1; 32], 7);
        let (batch, first) = few.next();
        assert_eq!(batch, records);
        assert_ne!(few.next().1, first);
    }

    #[test]
    fn batches_depend_on_the_key_and_on_the_client() {
        let records: Vec<usize> = (0..50).collect();
        let first = |key: u8, client: usize| {
            let mut batches = Batches::new(&records, 10, [key; 32], client);
            let (batch, masks) = batches.next();
            (batch.to_vec(), masks)
        };
        assert_eq!(first(1, 7), first(1, 7));
        assert_ne!(first(1, 7).0, first(2, 7).0);
        assert_ne!(first(1, 7).0, first(1, 8).0);
        assert_ne!(first(1, 7).1, first(1, 8).1);
    }

    #[test]
    fn a_norm_is_never_too_small() {
        // The exact squares are multiples of 2^-60 and add up without rounding in 128 bits.
        let values: Vec<f64> =
            (1..=10_000_i64).map(|i| (i * 7919 % 100_003) as f64 / f64::from(1 << 30)).collect();
        let exact: u128 = (1..=10_000_u128).map(|i| (i * 7919 % 100_003).pow(2)).sum();
        let exact = exact as f64 / 2_f64.powi(60);
        let norm = norm_from_above(&values);
        assert!(norm * norm >= exact && norm * norm <= exact * (1.0 + 1e-11));
        assert_eq!(norm_from_above(&[]), 0.0);
        assert!(norm_from_above(&[f64::NAN]).is_nan());
    }
}
