//! Records that are read during a pass give the same results as records in memory, and a record that cannot be read stops the pass.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

mod networks;

use std::io;

use networks::networks;
use sordino_nn::layers::{Embedding, Linear, Lstm, MeanOverSteps};
use sordino_nn::{
    Description, Engine, Inputs, Loss, Network, NetworkError, Params, Pass, RecordStore, Shape, Targets,
};

/// A store of records that are in memory after all. Reading the record `broken` fails.
#[derive(Debug)]
struct Stored {
    shape: Shape,
    values: Vec<f32>,
    tokens: Vec<u32>,
    /// The starts of the records, in steps of sequences and tokens.
    starts: Vec<usize>,
    broken: Option<usize>,
}

impl Stored {
    fn dense(shape: Shape, values: Vec<f32>) -> Stored {
        let starts = (0..=values.len() / shape.len()).map(|record| record * shape.steps()).collect();
        Stored { shape, values, tokens: Vec::new(), starts, broken: None }
    }

    fn check(&self, record: usize) -> io::Result<()> {
        match self.broken {
            Some(broken) if broken == record => Err(io::Error::other("record 4711 has the value 0.25")),
            _ => Ok(()),
        }
    }
}

impl RecordStore for Stored {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn records(&self) -> usize {
        self.starts.len() - 1
    }

    fn steps(&self, record: usize) -> usize {
        self.starts[record + 1] - self.starts[record]
    }

    fn read_values(&self, record: usize, values: &mut [f32]) -> io::Result<()> {
        self.check(record)?;
        let width = self.shape.len() / self.shape.steps();
        values.copy_from_slice(&self.values[self.starts[record] * width..self.starts[record + 1] * width]);
        Ok(())
    }

    fn read_tokens(&self, record: usize, tokens: &mut [u32]) -> io::Result<()> {
        self.check(record)?;
        tokens.copy_from_slice(&self.tokens[self.starts[record]..self.starts[record + 1]]);
        Ok(())
    }
}

/// Reproducible numbers in (-1, 1).
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}

fn clip(norms: &[f64], weights: &mut [f32]) {
    let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
    weights.fill((0.5 / norm).min(1.0) as f32);
}

/// Everything that a pass and an evaluation return, as bits.
fn results(engine: &mut Engine, inputs: Inputs<'_>, anchor: Option<&Params>) -> Vec<u64> {
    let at = engine.network().init(1);
    let unlabelled = engine.unlabelled(inputs).unwrap();
    let classes: Vec<u32> = (0..unlabelled.len() as u32).map(|record| record % 3).collect();
    let records = engine.records(inputs, Targets::Classes(&classes)).unwrap();
    let chosen: Vec<usize> = (0..records.len()).filter(|record| record % 7 != 3).collect();
    let pass = Pass::new(&at, &records, &chosen).weighed_by(&clip).with_dropout([3; 32]);
    let pass = anchor.map_or(pass, |anchor| pass.minus(anchor));
    let mut sums = [vec![0.0; at.values().len()]];
    let outcome = engine.pass(&pass, &mut sums).unwrap();
    let outputs = engine.outputs(&at, &unlabelled, &chosen).unwrap();
    let doubles = outcome.losses.iter().chain(&outcome.norms).chain(&sums[0]).map(|value| value.to_bits());
    doubles
        .chain(outputs.iter().map(|output| u64::from(output.to_bits())))
        .chain(outcome.non_finite.iter().map(|&place| place as u64))
        .collect()
}

fn same_results(network: Network, memory: Inputs<'_>, stored: &Stored) {
    let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 2).unwrap();
    let anchor = engine.network().init(2);
    for anchor in [None, Some(&anchor)] {
        let expected = results(&mut engine, memory, anchor);
        assert_eq!(results(&mut engine, Inputs::Stored(stored), anchor), expected);
    }
}

#[test]
fn stored_values_give_the_same_bits_as_values_in_memory() {
    for network in networks() {
        let shape = network.input();
        let mut values = numbers(67 * shape.len(), 5);
        values[4 * shape.len()] = f32::NAN;
        same_results(network, Inputs::Dense(&values), &Stored::dense(shape, values.clone()));
    }
}

fn starts(records: usize, steps: usize) -> Vec<usize> {
    (0..=records).scan(0, |end, i| Some(std::mem::replace(end, *end + 1 + i * 17 % steps))).collect()
}

#[test]
fn stored_sequences_of_different_lengths_give_the_same_bits() {
    let shape = Shape::Sequence { steps: 20, width: 3 };
    let description =
        Description::new(shape).then(Lstm { hidden: 5 }).then(MeanOverSteps).then(Linear::new(3));
    let starts = starts(40, 20);
    let values = numbers(3 * starts[40], 2);
    let stored = Stored { starts: starts.clone(), ..Stored::dense(shape, values.clone()) };
    let memory = Inputs::Sequences { values: &values, starts: &starts };
    same_results(Network::new(&description).unwrap(), memory, &stored);
}

fn words() -> (Network, Stored) {
    let shape = Shape::Tokens { steps: 20, vocabulary: 9 };
    let description = Description::new(shape)
        .then(Embedding { width: 4 })
        .then(Lstm { hidden: 5 })
        .then(MeanOverSteps)
        .then(Linear::new(3));
    let starts = starts(40, 20);
    let tokens = (0..starts[40] as u32).map(|i| i * i % 9).collect();
    let stored = Stored { shape, values: Vec::new(), tokens, starts, broken: None };
    (Network::new(&description).unwrap(), stored)
}

#[test]
fn stored_tokens_give_the_same_bits_as_tokens_in_memory() {
    let (network, stored) = words();
    let memory = Inputs::Tokens { tokens: &stored.tokens, starts: &stored.starts };
    same_results(network, memory, &stored);
}

/// The errors of a pass and of an evaluation over all records, which leave the sums as they were.
fn errors(network: Network, stored: &Stored) -> [NetworkError; 2] {
    let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 2).unwrap();
    let at = engine.network().init(1);
    let classes = vec![0; stored.records()];
    let records = engine.records(Inputs::Stored(stored), Targets::Classes(&classes)).unwrap();
    let unlabelled = engine.unlabelled(Inputs::Stored(stored)).unwrap();
    let all: Vec<usize> = (0..records.len()).collect();
    let mut sums = [vec![7.0; at.values().len()]];
    let error = engine.pass(&Pass::new(&at, &records, &all).weighed_by(&clip), &mut sums).unwrap_err();
    assert!(sums[0].iter().all(|value| *value == 7.0));
    [error, engine.outputs(&at, &unlabelled, &all).unwrap_err()]
}

#[test]
fn a_record_that_cannot_be_read_stops_the_pass_without_a_word_about_it() {
    for network in networks() {
        let shape = network.input();
        let mut stored = Stored::dense(shape, numbers(50 * shape.len(), 5));
        stored.broken = Some(31);
        for error in errors(network, &stored) {
            assert_eq!(error.to_string(), "a record could not be read during the pass: other error");
        }
    }
}

#[test]
fn a_stored_token_outside_the_vocabulary_stops_the_pass() {
    let (network, mut stored) = words();
    stored.tokens[60] = 9;
    for error in errors(network, &stored) {
        assert_eq!(error, NetworkError::Read(io::ErrorKind::InvalidData));
    }
}

#[test]
fn an_engine_still_works_after_a_read_that_failed() {
    for network in networks() {
        let shape = network.input();
        let mut stored = Stored::dense(shape, numbers(50 * shape.len(), 5));
        let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 2).unwrap();
        let anchor = engine.network().init(2);
        let expected = results(&mut engine, Inputs::Stored(&stored), Some(&anchor));
        stored.broken = Some(31);
        let at = engine.network().init(1);
        let classes = [0; 50];
        let records = engine.records(Inputs::Stored(&stored), Targets::Classes(&classes)).unwrap();
        let mut sums = [vec![0.0; at.values().len()]];
        let all: Vec<usize> = (0..50).collect();
        let pass = Pass::new(&at, &records, &all).minus(&anchor).weighed_by(&clip);
        engine.pass(&pass, &mut sums).unwrap_err();
        stored.broken = None;
        assert_eq!(results(&mut engine, Inputs::Stored(&stored), Some(&anchor)), expected);
    }
}

#[test]
fn stored_records_of_another_form_are_refused() {
    let engine = |network| Engine::with_workers(network, Loss::cross_entropy(), 1).unwrap();
    let refused =
        |engine: &Engine, stored: &Stored| engine.unlabelled(Inputs::Stored(stored)).unwrap_err().to_string();
    let (network, mut stored) = words();
    let words = engine(network);
    let dense = Stored::dense(Shape::Features(20), vec![0.0; 40]);
    let error = refused(&words, &dense);
    assert_eq!(error, "the network reads records of 20 tokens of 9, but these are of 20");
    let rows = engine(networks().remove(0));
    assert_eq!(rows.unlabelled(Inputs::Stored(&dense)).unwrap().len(), 2);
    assert!(refused(&rows, &stored).ends_with("these are of 20 tokens of 9"));
    assert!(refused(&rows, &Stored::dense(Shape::Features(21), vec![0.0; 42])).ends_with("these are of 21"));
    stored.shape = Shape::Tokens { steps: 20, vocabulary: 10 };
    assert!(refused(&words, &stored).ends_with("these are of 20 tokens of 10"));
    stored.shape = Shape::Tokens { steps: 20, vocabulary: 9 };
    stored.starts[2] = stored.starts[1];
    assert!(refused(&words, &stored).starts_with("record 1 has 0 steps"));
    stored.starts[2] = stored.starts[1] + 21;
    assert!(refused(&words, &stored).starts_with("record 1 has 21 steps"));
}
