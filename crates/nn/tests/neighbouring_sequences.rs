//! Batches of sequences that differ in one record: sums are within the bound on rounding, and buffers keep no traces of earlier records.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

#[expect(dead_code, reason = "other tests use the rest")]
mod basics;

use basics::{numbers, total};
use sordino_nn::layers::{
    Attention, BagOfWords, ClassToken, Dropout, Embedding, FirstStep, Gelu, Gru, LastStep, LayerNorm, Linear,
    Lora, Lstm, MeanOverSteps, PooledStages, Positions, Residual, Segments, TemperedSigmoid,
};
use sordino_nn::{Description, Engine, Inputs, Loss, Network, Params, Pass, Shape, Targets};

const STEPS: usize = 24;
const VOCABULARY: usize = 70;
/// A power of two far below the bound of 1 on what a record adds.
const STEP: f64 = 1.0 / (1_u64 << 30) as f64;

/// Every record adds a vector of norm 1, or nearly so.
fn normalise(norms: &[f64], weights: &mut [f32]) {
    weights.fill(((1.0 - 1.0 / 1024.0) / total(norms)) as f32);
}

fn descriptions() -> Vec<Description> {
    let tokens = || Description::new(Shape::Tokens { steps: STEPS, vocabulary: VOCABULARY });
    let embedded =
        |width: usize| tokens().then(Embedding { width }).then(Positions).then(Dropout { rate: 0.2 });
    let mut frozen = PooledStages {
        stages: vec![
            vec![Linear::new(6).into()],
            vec![Residual::new(vec![Attention::new(2).into()]).into(), Gelu.into()],
            vec![Linear::new(9).into()],
        ],
    };
    frozen.stages[0][0].frozen = true;
    let lora = Attention { lora: Some(Lora { rank: 2, alpha: 4.0, joint: false }), ..Attention::new(2) };
    vec![
        tokens().then(BagOfWords { rank_power: 2, ..BagOfWords::default() }).then(Linear::new(3)),
        embedded(6).then(frozen).then(Linear::new(3)),
        embedded(6).then(Lstm { hidden: 7 }).then(LastStep).then(Linear::new(3)),
        embedded(6).then(Gru { hidden: 7 }).then(LastStep).then(Linear::new(3)),
        embedded(6)
            .then(Segments { separator: Some(4) })
            .then(ClassToken)
            .then(Residual::new(vec![lora.into()]))
            .then(LayerNorm::default())
            .then(FirstStep)
            .then(Linear::new(3)),
        // Wide enough for copies of the operands of outer sums.
        embedded(6)
            .then(Linear::new(256))
            .then(TemperedSigmoid { scale: 2.0, temperature: 1.5, offset: 0.5 })
            .then(Linear::new(64))
            .then(MeanOverSteps)
            .then(Linear::new(3)),
    ]
}

struct Texts {
    tokens: Vec<u32>,
    starts: Vec<usize>,
    classes: Vec<u32>,
}

impl Texts {
    /// Texts of these lengths.
    fn new(lengths: &[usize], seed: u64) -> Texts {
        let mut starts = vec![0];
        lengths.iter().for_each(|length| starts.push(starts[starts.len() - 1] + length));
        let random = numbers(starts[lengths.len()], seed);
        let tokens = random.iter().map(|x| ((x + 1.0) * 0.5 * VOCABULARY as f32) as u32 % VOCABULARY as u32);
        Texts {
            tokens: tokens.collect(),
            starts,
            classes: (0..lengths.len() as u32).map(|i| i % 3).collect(),
        }
    }

    fn sum(&self, engine: &mut Engine, at: &Params, chosen: &[usize]) -> Vec<f64> {
        let inputs = Inputs::Tokens { tokens: &self.tokens, starts: &self.starts };
        let records = engine.records(inputs, Targets::Classes(&self.classes)).unwrap();
        let mut sums = [vec![0.0; at.values().len()]];
        let pass = Pass::new(at, &records, chosen).weighed_by(&normalise).with_dropout([5; 32]);
        engine.pass(&pass.rounded_to(&[STEP]), &mut sums).unwrap();
        let [sum] = sums;
        sum
    }
}

/// Lengths, most of them short.
fn lengths(count: usize, seed: u64) -> Vec<usize> {
    numbers(count, seed).iter().map(|x| 1 + (x * x * x * x * (STEPS - 1) as f32) as usize).collect()
}

fn distance(these: &[f64], those: &[f64]) -> f64 {
    these.iter().zip(those).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn one_record_more_moves_a_sum_by_its_own_vector_and_the_bound_on_rounding() {
    let slots = 1500;
    let of_all = lengths(slots, 3);
    let before = Texts::new(&of_all, 4);
    for description in descriptions() {
        let network = Network::new(&description).unwrap();
        let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 3).unwrap();
        let at = engine.network().init(1);
        let bound = engine.rounding(false) + 3.0 * STEP * (at.values().len() as f64).sqrt();
        let chosen: Vec<usize> = (0..slots).filter(|slot| slot * 7 % 10 != 3).collect();
        let whole = before.sum(&mut engine, &at, &chosen);
        let mut greatest: f64 = 0.0;
        for place in [0, 1, 17, 333, 700, chosen.len() - 1] {
            let slot = chosen[place];
            let own = before.sum(&mut engine, &at, &[slot]);
            let rest: Vec<usize> = chosen.iter().copied().filter(|other| *other != slot).collect();
            let rest = before.sum(&mut engine, &at, &rest);
            let without: Vec<f64> = whole.iter().zip(&own).map(|(whole, own)| whole - own).collect();
            greatest = greatest.max(distance(&without, &rest));
            // The same slot with a record of another length.
            let mut others = of_all.clone();
            others[slot] = STEPS + 1 - others[slot];
            let mut after = Texts::new(&others, 4);
            // All other records are the same.
            for other in (0..slots).filter(|other| *other != slot) {
                let (from, to) = (before.starts[other], after.starts[other]);
                let length = others[other];
                after.tokens[to..to + length].copy_from_slice(&before.tokens[from..from + length]);
            }
            let replaced = after.sum(&mut engine, &at, &chosen);
            let own = after.sum(&mut engine, &at, &[slot]);
            let without: Vec<f64> = replaced.iter().zip(&own).map(|(whole, own)| whole - own).collect();
            greatest = greatest.max(distance(&without, &rest));
        }
        assert!(greatest <= bound, "{greatest} of {bound}");
    }
}

#[test]
fn buffers_keep_no_traces_of_earlier_records() {
    let texts = Texts::new(&lengths(300, 5), 6);
    let long = Texts::new(&[STEPS; 300], 7);
    let all: Vec<usize> = (0..300).collect();
    for (index, description) in descriptions().into_iter().enumerate() {
        let new =
            || Engine::with_workers(Network::new(&description).unwrap(), Loss::cross_entropy(), 2).unwrap();
        let at = new().network().init(1);
        let fresh = texts.sum(&mut new(), &at, &all);
        for poison in [f32::NAN, f32::INFINITY, 1e19, -3e38] {
            let mut used = new();
            let mut worst = at.clone();
            worst.values_mut().iter_mut().step_by(3).for_each(|value| *value = poison);
            long.sum(&mut used, &worst, &all);
            texts.sum(&mut used, &worst, &all[..77]);
            assert_eq!(texts.sum(&mut used, &at, &all), fresh, "{poison}, network {index}");
        }
    }
}

/// How records of one step are added up does not depend on a longer record in their chunk, which is not finite and adds nothing.
#[test]
fn a_longer_record_that_adds_nothing_does_not_change_how_others_are_rounded() {
    let width = 24;
    let description = Description::new(Shape::Sequence { steps: STEPS, width })
        .then(Linear::new(64))
        .then(MeanOverSteps)
        .then(Linear::new(3));
    let mut engine =
        Engine::with_workers(Network::new(&description).unwrap(), Loss::cross_entropy(), 1).unwrap();
    let at = engine.network().init(1);
    let count = 20;
    let mut values = numbers((count + 2) * width, 9);
    values[count * width] = f32::NAN;
    let starts: Vec<usize> = (0..=count).chain([count + 2]).collect();
    let classes: Vec<u32> = (0..=count as u32).map(|record| record % 3).collect();
    let inputs = Inputs::Sequences { values: &values, starts: &starts };
    let records = engine.records(inputs, Targets::Classes(&classes)).unwrap();
    let mut sum = |chosen: &[usize]| {
        let mut sums = [vec![0.0; at.values().len()]];
        engine.pass(&Pass::new(&at, &records, chosen).weighed_by(&normalise), &mut sums).unwrap();
        let [sum] = sums;
        sum
    };
    // Both are cut into the first ten records and the rest.
    let all: Vec<usize> = (0..=count).collect();
    assert_eq!(sum(&all[..count]), sum(&all));
}
