//! Neighbouring data sets: whatever the records, the network, the rule and the cut into chunks, leaving out one record moves
//! a sum by no more than was declared.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;

use proptest::test_runner::{Config, RngSeed, TestRunner};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use sordino_accounting::{
    Accountant, ClipNorm, Delta, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps,
};
use sordino_nn::layers::{
    Attention, ClassToken, Conv2d, Dropout, Embedding, Flatten, GroupNorm, ImageToSequence, LastStep,
    LayerNorm, Linear, Lstm, MeanOverSteps, Positions, Relu, Residual, Tanh, TiedOutput,
};
use sordino_nn::{
    Combination, Description, Engine, Inputs, Loss, Network, NetworkError, Params, Shape, Targets, Units,
    Views,
};
use sordino_privacy::{
    ClipRule, Gradients, PrivacyError, PrivacyStatus, Randomness, Sum, Terms, Vault, WeightRule,
};
use sordino_testing::Intercepted;
use sordino_train::{LocalTraining, NetworkGradients};

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
        let description = match self.below(7) {
            0 => Description::new(Shape::Features(1 + self.below(40))),
            1 => Description::new(Shape::Features(12)).then(Linear::new(1 + self.below(30))).then(Tanh),
            2 => Description::new(image)
                .then(Conv2d::new(4, 3, 1 + self.below(2), 1))
                .then(Relu)
                .then(GroupNorm { groups: 2 })
                .then(Flatten),
            3 => Description::new(Shape::Sequence { steps: 30, width: 5 })
                .then(Lstm { hidden: 7 })
                .then(LastStep),
            4 => Description::new(image)
                .then(Conv2d { standardised: true, ..Conv2d::new(4, 3, 2, 1) })
                .then(ImageToSequence)
                .then(ClassToken)
                .then(Positions)
                .then(Attention::causal(2))
                .then(LastStep),
            // A language model whose output layer is its embedding.
            5 => {
                let (vocabulary, width) = [(9, 4), (100, 16)][self.below(2)];
                return Description::new(Shape::Tokens { steps: 12, vocabulary })
                    .then(Embedding { width })
                    .then(Residual::new(vec![Attention::causal(2).into()]))
                    .then(LayerNorm::default())
                    .then(TiedOutput);
            }
            _ => Description::new(Shape::Sequence { steps: 30, width: 4 })
                .then(Attention::new(2))
                .then(LayerNorm::default())
                .then(Dropout { rate: 0.3 })
                .then(MeanOverSteps),
        };
        description.then(Linear { outputs: 3, inputs: None, bias: self.below(3) > 0 })
    }

    fn rule(&mut self, layers: usize) -> ClipRule {
        let mut norm = || ClipNorm::new(10_f64.powf(self.between(-3.0, 2.0))).unwrap();
        let bounds: Vec<ClipNorm> = (0..layers).map(|_| norm()).collect();
        let rule = match self.below(2) {
            0 => ClipRule::flat(bounds[0]).unwrap(),
            _ => ClipRule::per_layer(&bounds).unwrap(),
        };
        match self.below(4) {
            0 => rule.normalising(self.between(0.0, 0.1)).unwrap(),
            1 => rule.normalising(0.0).unwrap(),
            2 => rule.weighted_by(&self.table()).unwrap(),
            _ => rule,
        }
    }

    /// Units of up to `most` records, in any order. Some records belong to none, and some units are empty.
    fn units(&mut self, count: usize, most: usize) -> Units {
        let mut records: Vec<usize> = (0..count).collect();
        (1..count).rev().for_each(|last| records.swap(last, self.below(last + 1)));
        let (mut members, mut starts) = (Vec::new(), vec![0]);
        while starts.len() < 2 || records.len() > count / 8 {
            let size = self.below(most + 1).min(records.len());
            members.extend(records.drain(..size));
            starts.push(members.len());
        }
        Units::new(members, starts).unwrap()
    }

    /// Pairs of a norm and a weight of any size.
    fn table(&mut self) -> Vec<(f64, f64)> {
        let mut pair = || (10_f64.powf(self.between(-6.0, 6.0)), 10_f64.powf(self.between(-6.0, 9.0)));
        let mut pairs = vec![pair(), pair(), pair(), pair()];
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        pairs.truncate(1 + self.below(4));
        pairs
    }
}

/// Which record of a batch is absent.
#[derive(Clone, Copy)]
enum Absent {
    /// The one in this slot.
    Slot(usize),
    /// The one at this place in the batch, from 0 for the first to 1 for the last.
    Place(f64),
}

/// Leaves a record out of the batch, so that it adds nothing even if it is drawn. This is how neighbours differ under zero-out.
fn without(
    gradients: NetworkGradients<'_>,
    absent: Option<Absent>,
) -> Intercepted<'static, NetworkGradients<'_>> {
    let batch = move |chosen: &[usize], _: bool| {
        let absent = absent.map(|absent| match absent {
            Absent::Slot(slot) => slot,
            Absent::Place(place) => chosen[(place * (chosen.len() - 1) as f64) as usize],
        });
        chosen.iter().copied().filter(|slot| Some(*slot) != absent).collect()
    };
    Intercepted { gradients, batch: Box::new(batch) }
}

/// What the vault releases in one step: the sum that the rule bounds, and the residual sum, each with its sensitivity. The noise
/// is negligible, and batches are the same in every call.
fn released(
    gradients: NetworkGradients<'_>,
    (sampling, absent): (Sampling, Option<Absent>),
    (params, anchor): (&Params, Option<&Params>),
    (rule, residual): (&ClipRule, &ClipRule),
    ledger: &Path,
) -> [(Vec<f32>, f64); 2] {
    let twice = vec![NoiseMultiplier::new(HARDLY_ANY).unwrap(); 2];
    let plan = Plan::new(vec![Entry::new(sampling, twice, Steps::new(1).unwrap()).unwrap()]);
    let count = gradients.records() as u64;
    let terms = Terms::price(plan, count, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap();
    let _ = std::fs::remove_file(ledger);
    let gradients = without(gradients, absent);
    let mut vault = Vault::seal(gradients, &terms, Randomness::seeded(1), ledger).unwrap();
    let release = vault.round(|round| {
        let gradients = round.gradients(params);
        let gradients = match anchor {
            Some(anchor) => gradients.minus(anchor),
            None => gradients,
        };
        let (sum, left) = gradients.clipped_and_residual_sums(rule, residual)?;
        let moved = [sum.sensitivity(), left.sensitivity()];
        Ok::<_, PrivacyError>([
            (round.release(sum)?.into_inner(), moved[0]),
            (round.release(left)?.into_inner(), moved[1]),
        ])
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
    // Sequences have different lengths.
    let (steps, width) = match network.input() {
        Shape::Sequence { steps, width } => (steps, width),
        Shape::Tokens { steps, .. } => (steps, 1),
        other => (1, other.len()),
    };
    let mut starts = vec![0];
    (0..count).for_each(|record| starts.push(starts[record] + 1 + roll.below(steps)));
    // Half of the time, slots are units of several records.
    let most = 1 + roll.below(9);
    let units = (roll.below(2) == 0).then(|| roll.units(count, most));
    let combination = [Combination::Sum, Combination::Mean][roll.below(2)];
    let views = (matches!(network.input(), Shape::Image { .. }) && roll.below(2) == 0).then(|| Views {
        copies: 1 + roll.below(3),
        flip: roll.below(2) == 0,
        crop: roll.below(3),
    });
    // Any record or unit may be the one that is left out.
    let absent = roll.below(units.as_ref().map_or(count, Units::len));
    let members = units.as_ref().map_or(vec![absent], |units| units.members(absent).to_vec());
    let mut values: Vec<f32> = (0..width * starts[count]).map(|_| roll.value(wild)).collect();
    let scale = 10_f64.powf(roll.between(-3.0, 4.0)) as f32;
    for record in members {
        values[width * starts[record]..width * starts[record + 1]]
            .iter_mut()
            .for_each(|value| *value *= scale);
    }
    let classes: Vec<u32> = (0..count).map(|_| roll.below(3) as u32).collect();
    let from: Vec<usize> = (0..count).map(|_| 1 + roll.below(3)).collect();
    let tokens: Vec<u32> = (0..starts[count]).map(|_| roll.below(9) as u32).collect();
    let (inputs, targets, loss) = match network.input() {
        Shape::Tokens { .. } => (
            Inputs::Tokens { tokens: &tokens, starts: &starts },
            Targets::NextTokens { from: &from },
            Loss::NextToken,
        ),
        Shape::Sequence { .. } => (
            Inputs::Sequences { values: &values, starts: &starts },
            Targets::Classes(&classes),
            Loss::cross_entropy(),
        ),
        _ => (Inputs::Dense(&values), Targets::Classes(&classes), Loss::cross_entropy()),
    };
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
    // Half of the units are clients, which add updates.
    let local = (roll.below(2) == 0).then(|| LocalTraining {
        steps: 1 + roll.below(4) as u64,
        batch_size: 1 + roll.below(6),
        learning_rate: 10_f64.powf(roll.between(-3.0, 1.0)),
    });
    let sums = |absent: Option<Absent>| {
        let engine = |workers: usize, most: usize| {
            let engine = Engine::with_workers(Network::new(&description).unwrap(), loss, workers).unwrap();
            engine.for_slots_of(most * views.map_or(1, |views| views.copies)).unwrap()
        };
        let whole = engine(workers, most);
        let mut records = whole.records(inputs, targets).unwrap();
        if let Some(views) = views {
            records = records.with_views(views).unwrap();
        }
        let gradients = match (&units, local) {
            (Some(units), Some(local)) => {
                let engines = (0..workers).map(|_| engine(1, local.batch_size)).collect();
                NetworkGradients::of_clients(engines, records, units, local, Vec::new())
            }
            (Some(units), None) => {
                NetworkGradients::new(whole, records.in_units(units, combination).unwrap())
            }
            (None, _) => NetworkGradients::new(whole, records),
        };
        released(gradients, (Sampling::FullBatch, absent), points, rules, ledger)
    };
    let (with, without) = (sums(None), sums(Some(Absent::Slot(absent))));
    assert!(with.iter().flat_map(|(sum, _)| sum).all(|value| value.is_finite()));
    let [moved, left] = [0, 1].map(|sum| distance(&with[sum].0, &without[sum].0));
    assert!(moved <= with[0].1, "{moved} beyond {rule:?} for seed {seed}");
    assert!(left <= with[1].1, "{left} beyond {residual:?}, left by {rule:?}, for seed {seed}");
    // Rounding adds very little to the bounds.
    assert!(with[0].1 <= 1.01 * rule.sensitivity() && with[1].1 <= 1.01 * residual.sensitivity());
    // Whether the record was large enough to be clipped, so that the bound was put to the test.
    moved > 0.99 * rule.sensitivity()
}

#[test]
fn one_record_unit_or_client_moves_a_sum_by_at_most_the_declared_sensitivity() {
    const CASES: u32 = 600;
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

/// Many records whose gradients are these numbers: how far the first, a middle and the last record of a batch move the sum, relative to
/// the sensitivity.
fn moved_by_one_of_many(gradients: &[f32], bound: f64, sampling: Sampling, ledger: &Path) -> f64 {
    let description = Description::new(Shape::Features(1)).then(Linear::new(1));
    // With weights and inputs of zero, the gradient of the bias is -2 y.
    let targets: Vec<f32> = gradients.iter().map(|gradient| -gradient / 2.0).collect();
    let inputs = vec![0.0; targets.len()];
    let rule = ClipRule::flat(ClipNorm::new(bound).unwrap()).unwrap();
    let sum = |absent: Option<Absent>| {
        let engine =
            Engine::with_workers(Network::new(&description).unwrap(), Loss::SquaredError, 2).unwrap();
        let params = Params::zeros(engine.network().layout().clone());
        let values = Targets::Values { values: &targets, width: 1 };
        let records = engine.records(Inputs::Dense(&inputs), values).unwrap();
        let gradients = NetworkGradients::new(engine, records);
        let [sum, _] = released(gradients, (sampling, absent), (&params, None), (&rule, &rule), ledger);
        sum
    };
    let whole = sum(None);
    let places = [0.0, 0.3, 0.5, 0.77, 1.0];
    let moved = places.map(|place| distance(&whole.0, &sum(Some(Absent::Place(place))).0) / whole.1);
    moved.into_iter().fold(0.0, f64::max)
}

/// Numbers that round differently in single precision when they are added up with others: of 256, 128 are 1, one is an eighth, and
/// the rest, one by one or 32 together, add a little more than half of a unit in the last place of a sum below 128. If a record that is
/// left out shifted all later ones into other pieces, the sum of a full batch of 2^20 records would move by 5 bounds if they were added up one
/// by one, and by 1.09 bounds in groups of 32.
#[test]
fn leaving_out_a_record_does_not_change_how_others_are_rounded() {
    let ledger = std::env::temp_dir().join(format!("sordino-large-{}", std::process::id()));
    let crafted = |count: usize, together: f32| -> Vec<f32> {
        let number = |index: usize| match index % 256 {
            0..128 => 1.0,
            128 => 0.125,
            _ => -1.01 * 2_f32.powi(-18) / together,
        };
        (0..count).map(number).collect()
    };
    // A pile whose sum is a power of two, and many numbers that add a third of a unit in its last place.
    let pile = |count: usize| -> Vec<f32> {
        let unit = (count as f32 / 2.0).log2().floor().exp2() * 2_f32.powi(-23);
        (0..count).map(|index| if index <= count / 2 { 1.0 } else { 0.3 * unit }).collect()
    };
    let poisson = |rate: f64| Sampling::Poisson { rate: SamplingRate::new(rate).unwrap(), cap: None };
    for digits in [14, 17, 20] {
        for gradients in [crafted(1 << digits, 1.0), crafted(1 << digits, 32.0), pile(1 << digits)] {
            for sampling in [Sampling::FullBatch, poisson(0.99), poisson(0.02)] {
                let moved = moved_by_one_of_many(&gradients, 1.002, sampling, &ledger);
                assert!(moved <= 1.0, "2^{digits} records, {sampling:?}: {moved} of the sensitivity");
            }
        }
    }
    let _ = std::fs::remove_file(&ledger);
}

/// At a point that an algorithm chooses, an ordinary record has a gradient beyond single precision. Whether it was drawn must not be
/// learnt from whether a sum can be computed, since no line in the ledger would say that anything was revealed.
#[test]
fn no_error_says_whether_a_record_was_drawn() {
    let description = Description::new(Shape::Features(1))
        .then(Linear { outputs: 1, inputs: None, bias: false })
        .then(Tanh)
        .then(Linear { outputs: 1, inputs: None, bias: false });
    let plan = || {
        let noise = vec![NoiseMultiplier::new(1.0).unwrap()];
        Plan::new(vec![Entry::new(Sampling::FullBatch, noise, Steps::new(1).unwrap()).unwrap()])
    };
    let rule = ClipRule::flat(ClipNorm::new(1.0).unwrap()).unwrap();
    for canary in [0.5, 4.0] {
        let engine = Engine::with_workers(Network::new(&description).unwrap(), Loss::Logistic, 1).unwrap();
        let mut params = Params::zeros(engine.network().layout().clone());
        params.values_mut()[1] = 3e38;
        let inputs = [0.5, 0.25, canary];
        let records = engine.records(Inputs::Dense(&inputs), Targets::Classes(&[0, 1, 1])).unwrap();
        let terms = Terms::price(plan(), 3, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap();
        let gradients = NetworkGradients::new(engine, records);
        let mut vault = Vault::seal_in_memory(gradients, &terms, Randomness::from_os().unwrap()).unwrap();
        vault
            .round(|round| {
                assert!(round.gradients(&params).plain_sum().is_ok(), "{canary}");
                assert!(round.gradients(&params).clipped_sum(&rule).is_ok(), "{canary}");
            })
            .unwrap();
        // Nothing was disclosed, so an epsilon is stated.
        assert!(matches!(vault.account().privacy_status(), Ok(PrivacyStatus::Private(_))));
    }
}

/// An engine with a planted bug: it clips each record of a unit, and adds up the results.
struct ClipsRecords<'d> {
    records: NetworkGradients<'d>,
    units: &'d Units,
}

impl Gradients for ClipsRecords<'_> {
    type Point = Params;
    type Error = NetworkError;

    fn records(&self) -> usize {
        self.units.len()
    }

    fn dimension(&self) -> usize {
        self.records.dimension()
    }

    fn trainable(&self) -> Vec<std::ops::Range<usize>> {
        self.records.trainable()
    }

    fn layers(&self) -> usize {
        self.records.layers()
    }

    fn rounding(&self, differences: bool) -> f64 {
        self.records.rounding(differences)
    }

    fn pass(
        &mut self,
        at: &Params,
        anchor: Option<&Params>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        key: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), NetworkError> {
        let mut records: Vec<usize> =
            chosen.iter().flat_map(|&slot| self.units.members(slot)).copied().collect();
        records.sort_unstable();
        self.records.pass(at, anchor, &records, rule, key, sums)
    }
}

/// How far the first of two units, with five records, moves a released sum, relative to the sensitivity.
fn moved_by_a_unit<G: Gradients<Point = Params>>(gradients: impl Fn() -> G) -> f64 {
    let rule = ClipRule::flat(ClipNorm::new(1.0).unwrap()).unwrap();
    let released = |absent: bool| {
        let gradients = Intercepted {
            gradients: gradients(),
            batch: Box::new(move |chosen: &[usize], _: bool| {
                chosen.iter().copied().filter(|slot| !absent || *slot != 0).collect()
            }),
        };
        let noise = vec![NoiseMultiplier::new(HARDLY_ANY).unwrap()];
        let plan = Plan::new(vec![Entry::new(Sampling::FullBatch, noise, Steps::new(1).unwrap()).unwrap()]);
        let terms = Terms::price(plan, 2, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap();
        let mut vault = Vault::seal_in_memory(gradients, &terms, Randomness::seeded(1)).unwrap();
        let params = Params::zeros(layout());
        let release = vault.round(|round| {
            let sum = round.gradients(&params).clipped_sum(&rule)?;
            let sensitivity = sum.sensitivity();
            Ok::<_, PrivacyError>((round.release(sum)?.into_inner(), sensitivity))
        });
        release.unwrap().unwrap().unwrap()
    };
    let (with, without) = (released(false), released(true));
    distance(&with.0, &without.0) / with.1
}

fn one_layer() -> Network {
    Network::new(&Description::new(Shape::Features(1)).then(Linear::new(1))).unwrap()
}

fn layout() -> std::sync::Arc<sordino_nn::Layout> {
    one_layer().layout().clone()
}

/// Six records with equal gradients, five of which belong to one unit.
#[test]
fn clipping_records_in_place_of_units_is_found_and_so_is_sampling_them() {
    let units = Units::new(vec![0, 1, 2, 3, 4, 5], vec![0, 5, 6]).unwrap();
    let (inputs, targets) = ([1.0; 6], [-9.0; 6]);
    let values = Targets::Values { values: &targets, width: 1 };
    let engine =
        |most| Engine::with_workers(one_layer(), Loss::SquaredError, 1).unwrap().for_slots_of(most).unwrap();
    let in_units = |combination| {
        let engine = engine(5);
        let records = engine.records(Inputs::Dense(&inputs), values).unwrap();
        let records = records.in_units(&units, combination).unwrap();
        NetworkGradients::new(engine, records)
    };
    let in_records = || {
        let engine = engine(1);
        let records = engine.records(Inputs::Dense(&inputs), values).unwrap();
        NetworkGradients::new(engine, records)
    };
    for combination in [Combination::Sum, Combination::Mean] {
        let moved = moved_by_a_unit(|| in_units(combination));
        assert!((0.99..=1.0).contains(&moved), "{moved}");
    }
    let moved = moved_by_a_unit(|| ClipsRecords { records: in_records(), units: &units });
    assert!((4.9..5.1).contains(&moved), "{moved}");
    // A batch of records in place of units: the terms of the plan are for two units.
    let noise = vec![NoiseMultiplier::new(1.0).unwrap()];
    let plan = Plan::new(vec![Entry::new(Sampling::FullBatch, noise, Steps::new(1).unwrap()).unwrap()]);
    let terms = Terms::price(plan, 2, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap();
    let randomness = || Randomness::from_os().unwrap();
    assert!(Vault::seal_in_memory(in_records(), &terms, randomness()).is_err());
    assert!(Vault::seal_in_memory(in_units(Combination::Mean), &terms, randomness()).is_ok());
}
