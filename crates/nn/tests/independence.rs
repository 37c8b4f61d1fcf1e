//! What a record adds to a sum does not depend on other records, on how a batch is cut, or on the number of workers.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

mod basics;
mod networks;

use std::sync::Mutex;

use basics::{in_order, numbers, total};
use networks::networks;
use sordino_nn::layers::{
    Attention, AveragePool, BagOfWords, ClassToken, Conv2d, Dropout, Embedding, FirstStep, Flatten, Gelu,
    GlobalAveragePool, Gru, LastStep, LayerNorm, Linear, Lora, Lstm, MeanOverSteps, PooledStages, Positions,
    Residual, Segments, Tanh, TemperedSigmoid, TiedOutput,
};
use sordino_nn::{
    Description, Engine, Inputs, Layer, Loss, Network, Params, Pass, Records, Shape, Targets, WeightRule,
    models,
};

fn clip(norms: &[f64], weights: &mut [f32]) {
    weights.fill((0.5 / total(norms)).min(1.0) as f32);
}

/// Each record's norm and what it adds to a sum are the same bit by bit, alone and among all others. If one record changed what
/// others add, leaving it out would move a sum by more than its bound.
fn alone_and_together(engine: &mut Engine, records: &Records<'_>, at: &Params, anchor: Option<&Params>) {
    let mut pass = |chosen: &[usize], place: usize, rule: &WeightRule<'_>| {
        let pass = Pass::new(at, records, chosen).weighed_by(rule).with_dropout([9; 32]);
        let pass = anchor.map_or(pass, |anchor| pass.minus(anchor));
        let mut sums = [vec![0.0; at.values().len()]];
        let outcome = engine.pass(&pass, &mut sums).unwrap();
        let [sum] = sums;
        (outcome.norms[place].to_bits(), outcome.non_finite.contains(&place), sum)
    };
    let all: Vec<usize> = (0..records.len()).collect();
    for record in 0..records.len() {
        // None if the record is not finite.
        let own_norms = Mutex::new(None);
        let alone = pass(&[record], 0, &|norms, weights| {
            *own_norms.lock().unwrap() = Some(norms.to_vec());
            weights.fill(0.7);
        });
        // Among all others the record is found by its norms. Equal norms belong to equal records; one of them is taken.
        let together = pass(&all, record, &|norms, weights| {
            let mut wanted = own_norms.lock().unwrap();
            if wanted.as_deref() == Some(norms) {
                *wanted = None;
                weights.fill(0.7);
            }
        });
        assert_eq!(together, alone, "record {record}");
    }
}

#[test]
fn what_a_record_adds_does_not_depend_on_others_of_equal_size() {
    let image = |description: Description| Network::new(&description.then(Linear::new(3))).unwrap();
    let gram = Description::new(Shape::Image { channels: 16, height: 2, width: 2 })
        .then(Conv2d::new(64, 1, 1, 0))
        .then(GlobalAveragePool);
    let odd = Description::new(Shape::Image { channels: 3, height: 7, width: 5 })
        .then(Conv2d::new(5, 3, 1, 1))
        .then(Tanh)
        .then(AveragePool { kernel: 2, stride: 1 })
        .then(Residual { body: vec![Conv2d::new(5, 3, 1, 1).into(), Gelu.into()], shortcut: Vec::new() })
        .then(TemperedSigmoid { scale: 2.0, temperature: 1.5, offset: 0.5 })
        .then(Dropout { rate: 0.3 })
        .then(Flatten)
        .then(Linear::new(7))
        .then(Tanh);
    // Four, then three, then two adjacent pixels are computed together.
    let narrow = Description::new(Shape::Image { channels: 2, height: 6, width: 16 })
        .then(Conv2d::new(4, 5, 2, 2))
        .then(Tanh)
        .then(Conv2d::new(5, 2, 1, 1))
        .then(Tanh)
        .then(Conv2d::new(5, 2, 1, 0))
        .then(Tanh)
        .then(Conv2d::new(6, 3, 1, 1))
        .then(Flatten);
    let mut all = networks();
    all.extend([image(gram), image(odd), image(narrow)]);
    for network in all {
        let (size, count) = (network.input().len(), 37);
        let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 2).unwrap();
        let (here, there) = (engine.network().init(1), engine.network().init(2));
        let mut values = numbers(count * size, 3);
        // Records that are not finite, or nearly so, must not leave traces either.
        for (record, bad) in [(4, f32::NAN), (9, f32::INFINITY), (10, 3e38), (20, 1e-40), (33, -1e30)] {
            values[record * size + size / 2] = bad;
        }
        let classes: Vec<u32> = (0..count as u32).map(|i| i % 3).collect();
        let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
        for anchor in [None, Some(&there)] {
            alone_and_together(&mut engine, &records, &here, anchor);
        }
    }
}

/// Sequences so long that gradients are written out, and so short that norms come from Gram matrices.
#[test]
fn what_a_record_adds_does_not_depend_on_others_of_other_lengths() {
    let width = 32;
    let sequence = |steps: usize, layer: Layer| {
        let description =
            Description::new(Shape::Sequence { steps, width }).then(Linear::new(width)).then(layer);
        Network::new(&description.then(MeanOverSteps).then(Linear::new(3))).unwrap()
    };
    let layers: [Layer; 8] = [
        Tanh.into(),
        Lstm { hidden: 16 }.into(),
        Gru { hidden: 16 }.into(),
        Attention::new(2).into(),
        Attention::causal(2).into(),
        Attention { lora: Some(Lora { rank: 3, alpha: 6.0, joint: false }), ..Attention::new(2) }.into(),
        LayerNorm::default().into(),
        ClassToken.into(),
    ];
    for (steps, layer) in [60, 20].into_iter().flat_map(|steps| layers.clone().map(|layer| (steps, layer))) {
        let network = sequence(steps, layer);
        let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 2).unwrap();
        let params = engine.network().init(1);
        let some = [1, 5, 60, 22, 23, 2, 60, 40, 1, 17, 3, 30];
        let lengths: Vec<usize> = (0..40).map(|record| steps.min(some[record % 12])).collect();
        let starts: Vec<usize> = std::iter::once(0)
            .chain(lengths.iter().scan(0, |end, n| {
                *end += n;
                Some(*end)
            }))
            .collect();
        let direction = numbers(width, 7);
        // Positions that nearly cancel.
        let values: Vec<f32> = numbers(starts[lengths.len()] * width, 8)
            .iter()
            .enumerate()
            .map(|(i, v)| {
                if i / width % 2 == 0 {
                    v + 1e3 * direction[i % width]
                } else {
                    v - 1e3 * direction[i % width]
                }
            })
            .collect();
        let classes: Vec<u32> = (0..lengths.len() as u32).map(|i| i % 3).collect();
        let inputs = Inputs::Sequences { values: &values, starts: &starts };
        let records = engine.records(inputs, Targets::Classes(&classes)).unwrap();
        alone_and_together(&mut engine, &records, &params, None);
    }
}

#[test]
fn what_a_record_of_tokens_adds_does_not_depend_on_others() {
    let sequence = |layer: Layer, last: Layer| {
        Description::new(Shape::Tokens { steps: 50, vocabulary: 9 })
            .then(Embedding { width: 5 })
            .then(Positions)
            .then(Dropout { rate: 0.2 })
            .then(layer)
            .then(last)
            .then(Linear::new(3))
    };
    // Some records have none of these tokens.
    let bag = BagOfWords { first: 5, size: Some(3), rank_power: 2, norm: 30.0 };
    let stages = PooledStages { stages: vec![vec![Linear::new(6).into()], vec![Attention::new(2).into()]] };
    for description in [
        Description::new(Shape::Tokens { steps: 50, vocabulary: 9 }).then(bag).then(Linear::new(3)),
        sequence(LayerNorm { affine: false, ..LayerNorm::default() }.into(), stages.into()),
        sequence(Lstm { hidden: 6 }.into(), LastStep.into()),
        sequence(Gru { hidden: 6 }.into(), LastStep.into()),
        sequence(Linear::new(7).into(), MeanOverSteps.into()),
        // The separator comes at different steps, and in some records not at all.
        sequence(Segments { separator: Some(4) }.into(), MeanOverSteps.into()),
        sequence(ClassToken.into(), FirstStep.into()),
    ] {
        let mut engine =
            Engine::with_workers(Network::new(&description).unwrap(), Loss::cross_entropy(), 2).unwrap();
        let (here, there) = (engine.network().init(1), engine.network().init(2));
        let starts: Vec<usize> =
            (0..=30).scan(0, |end, i| Some(std::mem::replace(end, *end + 1 + i * 17 % 50))).collect();
        let tokens: Vec<u32> = (0..starts[30] as u32).map(|i| i * i % 9).collect();
        let classes: Vec<u32> = (0..30).map(|i| i % 3).collect();
        let inputs = Inputs::Tokens { tokens: &tokens, starts: &starts };
        let records = engine.records(inputs, Targets::Classes(&classes)).unwrap();
        for anchor in [None, Some(&there)] {
            alone_and_together(&mut engine, &records, &here, anchor);
        }
    }
}

/// Language models whose output layer is the embedding: with a gradient that is written out, and with a norm from Gram matrices.
#[test]
fn what_a_record_adds_to_a_shared_matrix_does_not_depend_on_others() {
    for (vocabulary, width, layer) in [
        (9, 4, Layer::from(Attention::causal(2))),
        (300, 24, Attention::causal(2).into()),
        (300, 24, Gru { hidden: 24 }.into()),
    ] {
        let description = Description::new(Shape::Tokens { steps: 20, vocabulary })
            .then(Embedding { width })
            .then(Positions)
            .then(Dropout { rate: 0.2 })
            .then(layer)
            .then(TiedOutput);
        let mut engine =
            Engine::with_workers(Network::new(&description).unwrap(), Loss::NextToken, 2).unwrap();
        let (here, there) = (engine.network().init(1), engine.network().init(2));
        let starts: Vec<usize> =
            (0..=30).scan(0, |end, i| Some(std::mem::replace(end, *end + 1 + i * 17 % 20))).collect();
        let tokens: Vec<u32> = (0..starts[30] as u32).map(|i| i * i % vocabulary as u32 / 2).collect();
        // Some records have nothing to predict.
        let from: Vec<usize> = (0..30).map(|i| 1 + i % 4).collect();
        let inputs = Inputs::Tokens { tokens: &tokens, starts: &starts };
        let records = engine.records(inputs, Targets::NextTokens { from: &from }).unwrap();
        for anchor in [None, Some(&there)] {
            alone_and_together(&mut engine, &records, &here, anchor);
        }
    }
}

/// What a record adds does not depend on the length of the others in its chunk, for any parameters.
#[test]
fn a_longer_neighbour_does_not_matter() {
    let description = Description::new(Shape::Tokens { steps: 3, vocabulary: 4 })
        .then(Embedding { width: 4 })
        .then(Positions)
        .then(Linear::new(6))
        .then(MeanOverSteps)
        .then(Linear::new(2));
    let mut engine =
        Engine::with_workers(Network::new(&description).unwrap(), Loss::cross_entropy(), 1).unwrap();
    let mut params = engine.network().init(1);
    params.slice_mut("1.weight").unwrap()[8..].fill(3e38);
    let inputs = Inputs::Tokens { tokens: &[1, 2, 1, 2, 3], starts: &[0, 2, 5] };
    let records = engine.records(inputs, Targets::Classes(&[0, 1])).unwrap();
    let mut sums = [vec![0.0; params.values().len()]];
    let outcome = engine.pass(&Pass::new(&params, &records, &[0, 1]).weighed_by(&clip), &mut sums).unwrap();
    assert_eq!(outcome.non_finite, [1]);
}

/// Steps beyond a record's end are computed when a longer record is in the same chunk. With weights that overflow there, they must not reach
/// the record.
#[test]
fn what_overflows_beyond_the_end_of_a_record_does_not_reach_it() {
    for layer in [Layer::from(Gru { hidden: 2 }), Lstm { hidden: 2 }.into()] {
        let recurrent = matches!(layer, Layer::Gru(_));
        let description = Description::new(Shape::Sequence { steps: 3, width: 1 })
            .named("first", Linear::new(1))
            .named("second", layer)
            .then(LastStep)
            .then(Linear::new(1));
        let mut engine =
            Engine::with_workers(Network::new(&description).unwrap(), Loss::SquaredError, 1).unwrap();
        let mut params = engine.network().init(1);
        params.slice_mut("first.weight").unwrap().fill(1.0);
        params.slice_mut("first.bias").unwrap().fill(0.0);
        if recurrent {
            // The state is near 1 after one step, and the next one overflows.
            params.slice_mut("second.weight_ih_l0").unwrap().copy_from_slice(&[0.0, 0.0, 0.0, 0.0, 5.0, 5.0]);
            params
                .slice_mut("second.bias_ih_l0")
                .unwrap()
                .copy_from_slice(&[0.0, 0.0, -20.0, -20.0, 0.0, 0.0]);
            params.slice_mut("second.bias_hh_l0").unwrap().fill(0.0);
            params.slice_mut("second.weight_hh_l0").unwrap().fill(0.0);
            params.slice_mut("second.weight_hh_l0").unwrap()[8..].fill(2e38);
        } else {
            // Infinity times the zeros beyond a record's end.
            params.slice_mut("second.weight_ih_l0").unwrap()[0] = f32::INFINITY;
        }
        let starts: Vec<usize> = (0..=20).chain([22, 25]).collect();
        let (values, targets) = ([1.0; 25], [100.0; 22]);
        let inputs = Inputs::Sequences { values: &values, starts: &starts };
        let records = engine.records(inputs, Targets::Values { values: &targets, width: 1 }).unwrap();
        alone_and_together(&mut engine, &records, &params, None);
    }
}

#[test]
fn sums_on_a_lattice_do_not_depend_on_the_number_of_workers() {
    let mut by_workers = Vec::new();
    let step = [2f64.powi(-31)];
    for workers in [1, 2, 3, 7] {
        let mut engine =
            Engine::with_workers(models::lenet5(10).unwrap(), Loss::cross_entropy(), workers).unwrap();
        let params = engine.network().init(2);
        let values = numbers(700 * 784, 4);
        let classes: Vec<u32> = (0..700).map(|record| record % 10).collect();
        let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
        let mut pass = |chosen: &[usize]| {
            let mut sums = [vec![0.0; params.values().len()]];
            let pass = Pass::new(&params, &records, chosen).weighed_by(&clip).rounded_to(&step);
            let outcome = engine.pass(&pass, &mut sums).unwrap();
            (outcome, sums[0].clone())
        };
        let all: Vec<usize> = (0..700).collect();
        let whole = pass(&all);
        assert_eq!(whole, pass(&all), "{workers} workers");
        assert!(whole.1.iter().all(|value| (value / step[0]).fract() == 0.0));
        let (first, second) = (pass(&all[..330]), pass(&all[330..]));
        for (index, total) in whole.1.iter().enumerate() {
            assert!((total - first.1[index] - second.1[index]).abs() < 2e-5);
        }
        let norms: Vec<f64> = first.0.norms.iter().chain(&second.0.norms).copied().collect();
        assert_eq!(whole.0.norms, norms);
        let (empty, zeros) = pass(&[]);
        assert!(empty.losses.is_empty() && zeros.iter().all(|value| *value == 0.0));
        by_workers.push(whole);
    }
    assert!(by_workers.iter().all(|sums| *sums == by_workers[0]));
}

#[test]
fn dropout_masks_belong_to_records_and_scale_up_the_rest() {
    let description =
        Description::new(Shape::Features(400)).then(Dropout { rate: 0.25 }).then(Linear::new(1));
    let mut engine =
        Engine::with_workers(Network::new(&description).unwrap(), Loss::SquaredError, 1).unwrap();
    let mut params = engine.network().init(1);
    params.values_mut().fill(0.0);
    let values = vec![1.0; 50 * 400];
    let targets = vec![-0.5; 50];
    let records =
        engine.records(Inputs::Dense(&values), Targets::Values { values: &targets, width: 1 }).unwrap();
    // The gradient of a record is its masked input: one sum for each record shows its mask.
    let mut masks = |seed: Option<u8>, chosen: &[usize]| {
        let mut sums = vec![vec![0.0; 401]; chosen.len()];
        let alone = in_order(|place, _, weights| weights[place] = 1.0);
        let pass = Pass::new(&params, &records, chosen).weighed_by(&alone);
        engine.pass(&seed.map_or(pass, |seed| pass.with_dropout([seed; 32])), &mut sums).unwrap();
        sums
    };
    let all: Vec<usize> = (0..50).collect();
    let first = masks(Some(1), &all);
    for (record, mask) in first.iter().enumerate() {
        assert!(mask[..400].iter().all(|value| *value == 0.0 || (value - 4.0 / 3.0).abs() < 1e-6));
        assert!(first[..record].iter().all(|other| other != mask), "two records share a mask");
    }
    let dropped =
        first.iter().flat_map(|mask| &mask[..400]).filter(|value| **value == 0.0).count() as f64 / 20_000.0;
    // Six standard deviations: a false alarm in a billion, and the seed is fixed.
    assert!((dropped - 0.25).abs() < 6.0 * (0.25f64 * 0.75 / 20_000.0).sqrt(), "{dropped}");
    // Whichever other records are chosen, a record has the same mask.
    let some: Vec<usize> = all.iter().copied().filter(|slot| slot % 3 != 0).collect();
    for (mask, slot) in masks(Some(1), &some).iter().zip(&some) {
        assert_eq!(*mask, first[*slot], "the mask of record {slot} depends on others");
    }
    assert_ne!(first, masks(Some(2), &all));
    assert!(masks(None, &all)[0][..400].iter().all(|value| *value == 1.0));
}
