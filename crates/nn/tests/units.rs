//! The gradients of units against sums of single-record gradients in double precision.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

#[expect(dead_code, reason = "other tests use the rest")]
mod basics;
mod networks;
mod unit_cases;

use std::sync::Mutex;

use basics::{numbers, total};
use sordino_nn::layers::{Conv2d, Dropout, Flatten, GlobalAveragePool, Linear, MeanOverSteps, Tanh};
use sordino_nn::{
    Combination, Description, Engine, Inputs, Loss, Network, Outcome, Params, Pass, Records, Shape, Targets,
    Units, Views, WeightRule,
};
use unit_cases::{Case, RECORDS, cases, units};

fn norm(gradient: &[f64]) -> f64 {
    gradient.iter().map(|g| g * g).sum::<f64>().sqrt()
}

fn one(_: &[f64], weights: &mut [f32]) {
    weights.fill(1.0);
}

fn clip(norms: &[f64], weights: &mut [f32]) {
    weights.fill((0.5 / total(norms)).min(1.0) as f32);
}

/// One pass over some slots.
fn run(
    engine: &mut Engine,
    records: &Records<'_>,
    points: (&Params, Option<&Params>),
    chosen: &[usize],
    rule: Option<&WeightRule<'_>>,
) -> (Outcome, Vec<f64>) {
    let pass = Pass::new(points.0, records, chosen).with_dropout([9; 32]);
    let pass = points.1.map_or(pass, |anchor| pass.minus(anchor));
    let mut sums = [vec![f64::NAN; points.0.values().len()]];
    let outcome = engine.pass(&rule.map_or(pass, |rule| pass.weighed_by(rule)), &mut sums).unwrap();
    let [sum] = sums;
    (outcome, sum)
}

/// The sum, or the mean, of the members' gradients, each from a pass of its own over one record.
fn naive(
    members: &[usize],
    combination: Combination,
    mut gradient: impl FnMut(usize) -> Vec<f64>,
    len: usize,
) -> Vec<f64> {
    let mut sum = vec![0.0; len];
    for &record in members {
        sum.iter_mut().zip(gradient(record)).for_each(|(sum, g)| *sum += g);
    }
    if combination == Combination::Mean {
        sum.iter_mut().for_each(|sum| *sum /= members.len().max(1) as f64);
    }
    sum
}

/// Slots of 6 use Gram matrices or gradients that are written out, those of 30 mostly the latter; slots of 1000 do not fit into a chunk.
#[test]
fn a_unit_adds_the_sum_or_the_mean_of_its_records_gradients() {
    let units = units();
    for case in cases() {
        let mut single = case.engine(1);
        let (here, there) = (single.network().init(1), single.network().init(2));
        let len = here.values().len();
        let plain = case.records(&single);
        for anchor in [None, Some(&there)] {
            let gradients: Vec<Vec<f64>> = (0..RECORDS)
                .map(|record| run(&mut single, &plain, (&here, anchor), &[record], Some(&one)).1)
                .collect();
            for (most, combination) in
                [(6, Combination::Sum), (30, Combination::Mean), (1000, Combination::Sum)]
            {
                let mut engine = case.engine(2).for_slots_of(most).unwrap();
                // Whether 30 records fit into a chunk depends on the processor's cache.
                assert!(most == 30 || (most > engine.chunk_size()) == (most == 1000));
                let records = case.records(&engine).in_units(&units, combination).unwrap();
                let all: Vec<usize> = (0..records.slots()).collect();
                let (outcome, sum) = run(&mut engine, &records, (&here, anchor), &all, Some(&clip));
                assert!(outcome.non_finite.is_empty());
                let mut expected = vec![0.0; len];
                for slot in 0..units.len() {
                    let truth =
                        naive(units.members(slot), combination, |record| gradients[record].clone(), len);
                    let (found, true_norm) = (outcome.norms[slot], norm(&truth));
                    // Norms from Gram matrices have an allowance for rounding, which is larger where records cancel.
                    let fits = (1.0 - 1e-5) * true_norm <= found && found <= (1.0 + 1e-3) * true_norm + 1e-15;
                    assert!(fits, "{:?} {most} {slot}: {found} {true_norm}", case.description);
                    let weight = f64::from((0.5 / found).min(1.0) as f32);
                    if !units.members(slot).is_empty() {
                        expected.iter_mut().zip(&truth).for_each(|(sum, g)| *sum += weight * g);
                    }
                }
                for (found, truth) in sum.iter().zip(&expected) {
                    assert!((found - truth).abs() <= 1e-5, "{:?} {most}: {found} {truth}", case.description);
                }
                // Without weights.
                let (outcome, sum) = run(&mut engine, &records, (&here, anchor), &all, None);
                assert!(outcome.norms.is_empty());
                let mut expected = vec![0.0; len];
                for slot in 0..units.len() {
                    let truth =
                        naive(units.members(slot), combination, |record| gradients[record].clone(), len);
                    expected.iter_mut().zip(&truth).for_each(|(sum, g)| *sum += g);
                }
                let scale = norm(&expected).max(1.0);
                for (found, truth) in sum.iter().zip(&expected) {
                    assert!((found - truth).abs() <= 1e-5 * scale, "{:?} {most}", case.description);
                }
            }
        }
    }
}

/// The norm of what a slot adds is at most the reported norm, and neither depends on the other slots, bit by bit. Some records are not
/// finite, and some records of a unit nearly cancel.
#[test]
fn what_a_unit_adds_is_bounded_by_its_norm_and_does_not_depend_on_others() {
    let units = units();
    for mut case in cases() {
        let size = case.values.len() / RECORDS;
        for (index, record) in [(0, 5), (1, 19)] {
            if let Some(value) = case.values.get_mut(record * size) {
                *value = [f32::NAN, 1e30][index];
            }
        }
        let points = case.engine(1);
        let (here, there) = (points.network().init(1), points.network().init(2));
        for (most, anchor) in [(6, None), (6, Some(&there)), (40, None), (1000, None), (1000, Some(&there))] {
            let mut engine = case.engine(2).for_slots_of(most).unwrap();
            let records = case.records(&engine).in_units(&units, Combination::Sum).unwrap();
            let all: Vec<usize> = (0..records.slots()).collect();
            for slot in 0..units.len() {
                let own_norms = Mutex::new(None);
                let look = |norms: &[f64], weights: &mut [f32]| {
                    *own_norms.lock().unwrap() = Some(norms.to_vec());
                    weights.fill(0.7);
                };
                let (alone, added) = run(&mut engine, &records, (&here, anchor), &[slot], Some(&look));
                assert!(norm(&added) <= 0.7 * alone.norms[0] * (1.0 + 4e-6) || !alone.non_finite.is_empty());
                assert!(alone.non_finite.is_empty() || added.iter().all(|value| *value == 0.0));
                // Among all others the slot is found by its norms.
                let find = |norms: &[f64], weights: &mut [f32]| {
                    if own_norms.lock().unwrap().as_deref() == Some(norms) {
                        weights.fill(0.7);
                    }
                };
                let (together, sum) = run(&mut engine, &records, (&here, anchor), &all, Some(&find));
                let names = || format!("{:?}, {most}, slot {slot}", case.description);
                assert_eq!(alone.norms[0].to_bits(), together.norms[slot].to_bits(), "{}", names());
                assert_eq!(!alone.non_finite.is_empty(), together.non_finite.contains(&slot), "{}", names());
                assert_eq!(added, sum, "{}", names());
                let losses = [alone.losses[0], together.losses[slot]].map(f64::to_bits);
                assert_eq!(losses[0], losses[1], "{}", names());
            }
        }
    }
}

/// Members with opposite gradients: without an allowance for rounding, single precision could report any norm.
#[test]
fn records_of_a_unit_that_cancel_stay_within_their_bound() {
    let description = Description::new(Shape::Features(40)).then(Linear::new(60));
    let units = Units::new((0..8).collect(), vec![0, 8]).unwrap();
    let (targets, direction) = (vec![1.0; 8 * 60], numbers(40, 7));
    for (most, seed) in [8, 30, 300].into_iter().flat_map(|most| (0..10).map(move |seed| (most, seed))) {
        let mut values = numbers(8 * 40, seed);
        for (index, value) in values.iter_mut().enumerate() {
            let large = [1e6, -1.3e6, 0.7e6, -0.4e6, 1.1e6, -1e6, 0.2e6, -0.3e6][index / 40];
            *value += large * direction[index % 40];
        }
        let network = Network::new(&description).unwrap();
        let engine = Engine::with_workers(network, Loss::SquaredError, 1).unwrap();
        let mut engine = engine.for_slots_of(most).unwrap();
        let mut params = engine.network().init(1);
        params.values_mut().fill(0.0);
        let targets = Targets::Values { values: &targets, width: 60 };
        let records = engine.records(Inputs::Dense(&values), targets).unwrap();
        let records = records.in_units(&units, Combination::Sum).unwrap();
        let (outcome, sum) = run(&mut engine, &records, (&params, None), &[0], Some(&clip));
        assert!(outcome.norms[0] < 1e6, "{most}: {}", outcome.norms[0]);
        assert!(norm(&sum) <= 0.5 * 1.001, "{most}, {seed}: {}", norm(&sum));
    }
}

/// The gradients of two huge records of a unit cancel exactly, so the unit adds nothing at all. If they were added one after the other, the
/// sum over other units would lose its last digits.
#[test]
fn a_unit_is_summed_before_it_is_added_to_others() {
    let linear = Linear { bias: false, ..Linear::new(60) };
    let conv = |kernel| Conv2d { bias: false, ..Conv2d::new(60, kernel, 1, kernel / 2) };
    let image = Description::new(Shape::Image { channels: 40, height: 2, width: 2 });
    for description in [
        Description::new(Shape::Features(40)).then(linear),
        Description::new(Shape::Sequence { steps: 2, width: 40 }).then(linear).then(MeanOverSteps),
        image.clone().then(conv(1)).then(GlobalAveragePool),
        image.then(conv(3)).then(GlobalAveragePool),
    ] {
        let size = description.input.len();
        // Units 0 and 2 have one record, units 1 and 3 have two that cancel. The first two units are in one piece, and so are the others.
        let mut values = numbers(6 * size, 1);
        for huge in [1, 4] {
            for index in 0..size {
                // Small whole numbers times a power of two: their sums are exact.
                values[huge * size + index] = (1000.0 * values[huge * size + index]).round() * 1024.0;
                values[(huge + 1) * size + index] = -values[huge * size + index];
            }
        }
        let units = Units::new((0..6).collect(), vec![0, 1, 3, 4, 6]).unwrap();
        let targets = vec![1.0; 6 * 60];
        for most in [2, 30, 300] {
            let network = Network::new(&description).unwrap();
            let engine = Engine::with_workers(network, Loss::SquaredError, 1).unwrap();
            let mut engine = engine.for_slots_of(most).unwrap();
            let mut params = engine.network().init(1);
            params.values_mut().fill(0.0);
            let targets = Targets::Values { values: &targets, width: 60 };
            let records = engine.records(Inputs::Dense(&values), targets).unwrap();
            let records = records.in_units(&units, Combination::Sum).unwrap();
            let mut sum =
                |chosen: &[usize]| run(&mut engine, &records, (&params, None), chosen, Some(&one)).1;
            assert!(sum(&[0, 1, 2, 3]) == sum(&[0, 2]), "{description:?}, {most}");
        }
    }
}

#[test]
fn units_of_one_record_are_records_bit_by_bit() {
    let units = Units::new((0..RECORDS).collect(), (0..=RECORDS).collect()).unwrap();
    for case in cases() {
        let mut engine = case.engine(2);
        let (here, there) = (engine.network().init(1), engine.network().init(2));
        let plain = case.records(&engine);
        let all: Vec<usize> = (0..RECORDS).collect();
        for anchor in [None, Some(&there)] {
            for rule in [Some(&clip as &WeightRule<'_>), None] {
                let truth = run(&mut engine, &plain, (&here, anchor), &all, rule);
                for combination in [Combination::Sum, Combination::Mean] {
                    let records = plain.in_units(&units, combination).unwrap();
                    assert_eq!(run(&mut engine, &records, (&here, anchor), &all, rule), truth);
                }
            }
        }
    }
}

#[test]
fn one_record_that_is_not_finite_removes_its_whole_unit() {
    let description =
        Description::new(Shape::Features(3)).then(Linear::new(4)).then(Tanh).then(Linear::new(2));
    let mut values = numbers(6 * 3, 1);
    values[7] = f32::NAN;
    let classes = [0, 1, 0, 1, 0, 1];
    let units = Units::new(vec![0, 2, 4, 1, 3, 5], vec![0, 3, 6]).unwrap();
    for most in [3, 1000] {
        for rule in [Some(&one as &WeightRule<'_>), None] {
            let network = Network::new(&description).unwrap();
            let mut engine =
                Engine::with_workers(network, Loss::cross_entropy(), 1).unwrap().for_slots_of(most).unwrap();
            let params = engine.network().init(1);
            let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
            let records = records.in_units(&units, Combination::Sum).unwrap();
            let both = run(&mut engine, &records, (&params, None), &[0, 1], rule);
            let second = run(&mut engine, &records, (&params, None), &[1], rule);
            assert_eq!(both.1, second.1);
            assert_eq!(both.0.non_finite, [0]);
        }
    }
}

/// A chunk of this network holds few records, and units have more.
#[test]
fn a_unit_may_be_larger_than_a_chunk() {
    let side = 128;
    let description = Description::new(Shape::Image { channels: 3, height: side, width: side })
        .then(Conv2d::new(24, 3, 1, 1))
        .then(Tanh)
        .then(Conv2d::new(4, 3, 2, 1))
        .then(GlobalAveragePool)
        .then(Linear::new(2));
    let network = Network::new(&description).unwrap();
    let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 2).unwrap();
    let params = engine.network().init(1);
    let count = 2 * engine.chunk_size() + 3;
    let values = numbers(count * 3 * side * side, 2);
    let classes: Vec<u32> = (0..count as u32).map(|record| record % 2).collect();
    let units = Units::new((0..count).collect(), vec![0, 1, count]).unwrap();
    let plain = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
    let gradients: Vec<Vec<f64>> =
        (0..count).map(|record| run(&mut engine, &plain, (&params, None), &[record], Some(&one)).1).collect();
    let mut engine = engine.for_slots_of(count - 1).unwrap();
    assert!(engine.chunk_size() < count - 1);
    let records = plain.in_units(&units, Combination::Mean).unwrap();
    let (outcome, sum) = run(&mut engine, &records, (&params, None), &[0, 1], Some(&one));
    let len = sum.len();
    let parts = [0, 1]
        .map(|slot| naive(units.members(slot), Combination::Mean, |record| gradients[record].clone(), len));
    for (found, truth) in outcome.norms.iter().zip(&parts) {
        assert!((found - norm(truth)).abs() <= 1e-5 * norm(truth));
    }
    for (index, found) in sum.iter().enumerate() {
        assert!((found - parts[0][index] - parts[1][index]).abs() <= 1e-5 * norm(&sum));
    }
}

/// Leaving out a slot moves a sum by what the slot adds and by at most the bound on rounding.
#[test]
fn leaving_out_a_unit_moves_a_sum_by_its_own_gradient() {
    let count = 1200;
    let description =
        Description::new(Shape::Features(20)).then(Linear::new(8)).then(Tanh).then(Linear::new(3));
    let values = numbers(count * 20, 5);
    let classes: Vec<u32> = (0..count as u32).map(|record| record % 3).collect();
    let starts: Vec<usize> = (0..=400).map(|slot| slot * 3).collect();
    let units = Units::new((0..count).map(|i| i * 7 % count).collect(), starts).unwrap();
    let step = [2f64.powi(-31)];
    let mut by_workers = Vec::new();
    for workers in [1, 3] {
        let network = Network::new(&description).unwrap();
        let engine = Engine::with_workers(network, Loss::cross_entropy(), workers).unwrap();
        let mut engine = engine.for_slots_of(3).unwrap();
        assert!(engine.rounding(false) > 0.0 && engine.rounding(false) < 0.01);
        let params = engine.network().init(1);
        let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
        let records = records.in_units(&units, Combination::Sum).unwrap();
        let normalise = |norms: &[f64], weights: &mut [f32]| weights.fill((1.0 / total(norms)) as f32);
        let mut sum = |chosen: &[usize]| {
            let mut sums = [vec![0.0; params.values().len()]];
            let pass = Pass::new(&params, &records, chosen).weighed_by(&normalise).rounded_to(&step);
            engine.pass(&pass, &mut sums).unwrap();
            sums[0].clone()
        };
        let all: Vec<usize> = (0..400).collect();
        let whole = sum(&all);
        for left_out in [0, 1, 199, 399] {
            let rest: Vec<usize> = all.iter().copied().filter(|slot| *slot != left_out).collect();
            let moved: Vec<f64> = whole.iter().zip(sum(&rest)).map(|(a, b)| a - b).collect();
            let own = sum(&[left_out]);
            let beyond: Vec<f64> = moved.iter().zip(&own).map(|(moved, own)| moved - own).collect();
            assert!(norm(&beyond) <= 1e-5, "{}", norm(&beyond));
            assert!(norm(&moved) <= 1.001);
        }
        by_workers.push(whole);
    }
    assert_eq!(by_workers[0], by_workers[1]);
}

#[test]
fn dropout_masks_of_the_records_of_a_unit_differ() {
    let description = Description::new(Shape::Features(400)).then(Dropout { rate: 0.5 }).then(Linear::new(1));
    let network = Network::new(&description).unwrap();
    let mut engine = Engine::with_workers(network, Loss::SquaredError, 1).unwrap().for_slots_of(2).unwrap();
    let mut params = engine.network().init(1);
    params.values_mut().fill(0.0);
    let (values, targets) = (vec![1.0; 800], vec![-0.5; 2]);
    let records =
        engine.records(Inputs::Dense(&values), Targets::Values { values: &targets, width: 1 }).unwrap();
    let units = Units::new(vec![0, 1], vec![0, 2]).unwrap();
    let records = records.in_units(&units, Combination::Sum).unwrap();
    let sum = run(&mut engine, &records, (&params, None), &[0], Some(&one)).1;
    // Each entry is 0, 2 or 4: dropped in both records, in one, or in none.
    let counts = [0.0, 2.0, 4.0].map(|value| sum[..400].iter().filter(|entry| **entry == value).count());
    assert_eq!(counts.iter().sum::<usize>(), 400);
    assert!(counts.iter().all(|count| *count > 60), "{counts:?}");
}

/// Units of images with views: the norm, and what is added, do not depend on other units; without a key there are no views.
#[test]
fn views_belong_to_records() {
    let description = Description::new(Shape::Image { channels: 2, height: 6, width: 5 })
        .then(Conv2d::new(4, 3, 1, 1))
        .then(Tanh)
        .then(Dropout { rate: 0.3 })
        .then(Flatten)
        .then(Linear::new(3));
    let case = Case::new(description);
    let (units, views) = (units(), Views { copies: 3, flip: true, crop: 2 });
    for most in [18, 500] {
        let mut engine = case.engine(2).for_slots_of(most).unwrap();
        let params = engine.network().init(1);
        let plain = case.records(&engine).in_units(&units, Combination::Sum).unwrap();
        let records = plain.with_views(views).unwrap();
        assert_eq!((records.slots(), records.most_in_slot()), (10, 18));
        let all: Vec<usize> = (0..10).collect();
        let (together, _) = run(&mut engine, &records, (&params, None), &all, Some(&clip));
        for slot in 0..10 {
            let (alone, sum) = run(&mut engine, &records, (&params, None), &[slot], Some(&clip));
            assert_eq!(alone.norms[0].to_bits(), together.norms[slot].to_bits());
            assert!(norm(&sum) <= 0.5 * 1.001);
        }
        assert_ne!(run(&mut engine, &plain, (&params, None), &all, Some(&clip)).0, together);
        // Without a key, as in an evaluation.
        let mut without_key = |records: &Records<'_>| {
            engine.pass(&Pass::new(&params, records, &all).weighed_by(&clip), &mut []).unwrap()
        };
        assert_eq!(without_key(&records), without_key(&plain));
    }
}

#[test]
fn units_that_do_not_fit_are_refused() {
    let description = Description::new(Shape::Features(2)).then(Linear::new(2));
    let engine =
        || Engine::with_workers(Network::new(&description).unwrap(), Loss::cross_entropy(), 1).unwrap();
    let values = numbers(8, 1);
    let mut engine_of_two = engine().for_slots_of(2).unwrap();
    let records = engine_of_two.records(Inputs::Dense(&values), Targets::Classes(&[0, 1, 0, 1])).unwrap();
    let too_far = Units::new(vec![0, 4], vec![0, 2]).unwrap();
    assert_eq!(
        records.in_units(&too_far, Combination::Sum).err().unwrap().to_string(),
        "a unit has record 4, but there are only 4"
    );
    let three = Units::new(vec![0, 1, 2], vec![0, 3]).unwrap();
    let params = engine_of_two.network().init(1);
    let records = records.in_units(&three, Combination::Sum).unwrap();
    let mut sums = [vec![7.0; params.values().len()]];
    let error = engine_of_two.pass(&Pass::new(&params, &records, &[0]), &mut sums).err().unwrap();
    assert_eq!(
        error.to_string(),
        "a slot may have 3 gradients, but this engine was made for at most 2; use Engine::for_slots_of"
    );
    assert!(sums[0].iter().all(|value| *value == 7.0));
    assert_eq!(
        engine_of_two.pass(&Pass::new(&params, &records, &[1]), &mut sums).err().unwrap().to_string(),
        "unit 1 was chosen, but there are only 1"
    );
    for most in [0, 1_000_001] {
        let message = format!("the largest number of gradients in a slot must be 1 to 1000000, got {most}");
        assert_eq!(engine().for_slots_of(most).err().unwrap().to_string(), message);
    }
    let views = Views { copies: 2, flip: true, crop: 0 };
    assert_eq!(
        records.with_views(views).err().unwrap().to_string(),
        "views need images, but the network reads records of 2"
    );
}
