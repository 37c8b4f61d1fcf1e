//! Neighbouring data sets: whatever the records, the network, the rule and the cut into chunks, leaving out one record moves
//! a sum by no more than was declared.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;

use proptest::test_runner::{Config, RngSeed, TestRunner};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use sordino_accounting::{Accountant, ClipNorm, Delta, Entry, NoiseMultiplier, Plan, Sampling, Steps};
use sordino_nn::{Description, Engine, Inputs, Layer, Loss, Network, Params, Records, Shape, Targets};
use sordino_privacy::{ClipRule, PrivacyError, Randomness, Terms, Vault};
use sordino_train::NetworkGradients;

/// So little noise that a release shows the sum beneath, to a few parts in ten thousand of the bound.
const HARDLY_ANY: f64 = 1e-6;

struct Roll(ChaCha8Rng);

impl Roll {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Mostly ordinary numbers, now and then one that is not.
    fn value(&mut self, wild: bool) -> f32 {
        match self.below(if wild { 40 } else { usize::MAX }) {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => 1e30,
            3 => -1e15,
            4 => 1e-30,
            5 => 3e38,
            6 => 1e-40,
            _ => self.between(-2.0, 2.0) as f32,
        }
    }

    fn network(&mut self) -> Description {
        let image = Shape::Image { channels: 1 + self.below(2), height: 8, width: 8 };
        let description = match self.below(5) {
            0 => Description::new(Shape::Features(1 + self.below(40))),
            1 => Description::new(Shape::Features(12))
                .then(Layer::linear(1 + self.below(30)))
                .then(Layer::Tanh),
            2 => Description::new(image)
                .then(Layer::conv2d(4, 3, 1 + self.below(2), 1))
                .then(Layer::Relu)
                .then(Layer::GroupNorm { groups: 2 })
                .then(Layer::Flatten),
            3 => Description::new(Shape::Sequence { steps: 30, width: 5 })
                .then(Layer::Lstm { hidden: 7 })
                .then(Layer::LastStep),
            _ => Description::new(Shape::Sequence { steps: 30, width: 4 })
                .then(Layer::Attention { heads: 2 })
                .then(Layer::LayerNorm)
                .then(Layer::Dropout { rate: 0.3 })
                .then(Layer::MeanOverSteps),
        };
        description.then(Layer::Linear { outputs: 3, inputs: None, bias: self.below(3) > 0 })
    }

    fn rule(&mut self, layers: usize) -> ClipRule {
        let mut norm = || ClipNorm::new(10_f64.powf(self.between(-3.0, 2.0))).unwrap();
        let bounds: Vec<ClipNorm> = (0..layers).map(|_| norm()).collect();
        let rule = match self.below(2) {
            0 => ClipRule::flat(bounds[0]).unwrap(),
            _ => ClipRule::per_layer(&bounds).unwrap(),
        };
        match self.below(3) {
            0 => rule.normalising(self.between(0.0, 0.1)).unwrap(),
            1 => rule.normalising(0.0).unwrap(),
            _ => rule,
        }
    }
}

/// The sum of all records, but for the noise.
fn sum(
    description: &Description,
    workers: usize,
    (inputs, classes): (Inputs<'_>, &[u32]),
    (params, anchor): (&Params, Option<&Params>),
    (rule, residual): (&ClipRule, &ClipRule),
    ledger: &Path,
) -> [Vec<f32>; 2] {
    let engine =
        Engine::with_workers(Network::new(description).unwrap(), Loss::cross_entropy(), workers).unwrap();
    let records = engine.records(inputs, Targets::Classes(classes)).unwrap();
    released(engine, records, (params, anchor), (rule, residual), ledger)
}

/// What the vault releases of all records in one step: the sum that the rule bounds, and that of what it leaves.
fn released(
    engine: Engine,
    records: Records<'_>,
    (params, anchor): (&Params, Option<&Params>),
    (rule, residual): (&ClipRule, &ClipRule),
    ledger: &Path,
) -> [Vec<f32>; 2] {
    let twice = vec![NoiseMultiplier::new(HARDLY_ANY).unwrap(); 2];
    let plan = Plan::new(vec![Entry::new(Sampling::Everybody, twice, Steps::new(1).unwrap()).unwrap()]);
    let count = records.len() as u64;
    let terms = Terms::price(plan, count, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap();
    let _ = std::fs::remove_file(ledger);
    let gradients = NetworkGradients::new(engine, records);
    let mut vault = Vault::seal(gradients, &terms, Randomness::seeded(1), ledger).unwrap();
    let release = vault.round(|round| {
        let gradients = round.gradients(params);
        let gradients = match anchor {
            Some(anchor) => gradients.minus(anchor),
            None => gradients,
        };
        let (sum, left) = gradients.clipped_and_residual_sums(rule, residual)?;
        Ok::<_, PrivacyError>([round.release(sum)?.into_inner(), round.release(left)?.into_inner()])
    });
    release.unwrap().unwrap().unwrap()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
}

fn check(seed: u64, ledger: &Path) -> bool {
    let mut roll = Roll(ChaCha8Rng::seed_from_u64(seed));
    let description = roll.network();
    let network = Network::new(&description).unwrap();
    let count = 2 + roll.below(60);
    let wild = roll.below(2) == 0;
    // Sequences have lengths of their own.
    let (steps, width) = match network.input() {
        Shape::Sequence { steps, width } => (steps, width),
        other => (1, other.len()),
    };
    let mut starts = vec![0];
    (0..count).for_each(|record| starts.push(starts[record] + 1 + roll.below(steps)));
    // The last record is the one that is left out, so that the others keep their places and with them their dropout.
    let others = width * starts[count - 1];
    let mut values: Vec<f32> = (0..others).map(|_| roll.value(wild)).collect();
    let scale = 10_f64.powf(roll.between(-3.0, 4.0)) as f32;
    values.extend((others..width * starts[count]).map(|_| scale * roll.value(wild)));
    let inputs = |count: usize| {
        let values = &values[..width * starts[count]];
        if steps > 1 {
            Inputs::Sequences { values, starts: &starts[..=count] }
        } else {
            Inputs::Dense(values)
        }
    };
    let classes: Vec<u32> = (0..count).map(|_| roll.below(3) as u32).collect();
    let mut params = network.init(seed);
    let blow_up = roll.between(0.1, 4.0) as f32;
    params.values_mut().iter_mut().for_each(|value| *value *= blow_up);
    let rule = roll.rule(network.layers().len());
    let residual = roll.rule(network.layers().len());
    let rules = (&rule, &residual);
    let workers = 1 + roll.below(3);
    // Half of the time, differences to the gradients at another point.
    let mut there = params.clone();
    there.values_mut().iter_mut().for_each(|value| *value += roll.between(-0.1, 0.1) as f32);
    let points = (&params, (roll.below(2) == 0).then_some(&there));
    let with = sum(&description, workers, (inputs(count), &classes), points, rules, ledger);
    let rest = (inputs(count - 1), &classes[..count - 1]);
    let without = sum(&description, workers, rest, points, rules, ledger);
    assert!(with.iter().flatten().all(|value| value.is_finite()));
    let [moved, left] = [0, 1].map(|sum| distance(&with[sum], &without[sum]));
    assert!(moved <= rule.sensitivity(), "{moved} beyond {rule:?} for seed {seed}");
    assert!(left <= residual.sensitivity(), "{left} beyond {residual:?}, left by {rule:?}, for seed {seed}");
    // Whether the record was large enough to be clipped, so that the bound was put to the test.
    moved > 0.99 * rule.sensitivity()
}

#[test]
fn one_record_moves_a_sum_by_at_most_the_declared_sensitivity() {
    const CASES: u32 = 400;
    let ledger = std::env::temp_dir().join(format!("sordino-neighbours-{}", std::process::id()));
    let config =
        Config { cases: CASES, failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..Config::default() };
    let tight = std::cell::Cell::new(0);
    let run = |seed: u64| {
        tight.set(tight.get() + u32::from(check(seed, &ledger)));
        Ok(())
    };
    TestRunner::new(config).run(&proptest::num::u64::ANY, run).unwrap();
    let _ = std::fs::remove_file(&ledger);
    assert!(tight.get() > CASES / 5, "only {} of {CASES} cases reach their bound", tight.get());
}

/// A pile of records whose sum is a power of two, one record more or less, and many that add a third of a unit in the last place:
/// added up in single precision, the one decides whether all the others are lost.
#[test]
fn rounding_over_a_large_batch_does_not_multiply_what_one_record_adds() {
    const BOUND: f64 = 0.501;
    const PILE: usize = 512;
    let description = Description::new(Shape::Features(1)).then(Layer::linear(1));
    let network = || Network::new(&description).unwrap();
    let chunk = Engine::with_workers(network(), Loss::SquaredError, 1).unwrap().chunk_size();
    // With weights and inputs of zero, the gradient of the bias is -2 y.
    let height = 0.5 * (PILE * chunk) as f64;
    let unit = 2.0_f64.powi(height.log2().floor() as i32 - 23);
    let mut targets = vec![-0.25_f32; PILE * chunk];
    let canary = targets.len();
    targets.extend(vec![0.0; chunk]);
    for _ in 0..PILE {
        targets.push((0.15 * unit) as f32);
        targets.extend(vec![0.0; chunk - 1]);
    }
    let ledger = std::env::temp_dir().join(format!("sordino-large-{}", std::process::id()));
    let sum = |targets: &[f32]| {
        let engine = Engine::with_workers(network(), Loss::SquaredError, 1).unwrap();
        let params = Params::zeros(engine.network().layout().clone());
        let inputs = vec![0.0; targets.len()];
        let values = Targets::Values { values: targets, width: 1 };
        let records = engine.records(Inputs::Dense(&inputs), values).unwrap();
        let rule = ClipRule::flat(ClipNorm::new(BOUND).unwrap()).unwrap();
        let [sum, _] = released(engine, records, (&params, None), (&rule, &rule), &ledger);
        sum
    };
    let without = sum(&targets);
    targets[canary] = -0.25;
    let moved = distance(&sum(&targets), &without);
    let _ = std::fs::remove_file(&ledger);
    // What is left is the last rounding of the sum to single precision.
    assert!(moved <= BOUND + 2.0 * unit, "{moved}");
}
