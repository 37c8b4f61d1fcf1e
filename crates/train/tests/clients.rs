//! Clients of federated training: what they add to a sum, what a round does with it, and what it costs.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use sordino_accounting::{Accountant, Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
use sordino_nn::layers::{Dropout, Linear, Tanh};
use sordino_nn::{Combination, Description, Engine, Inputs, Loss, Network, Params, Shape, Targets, Units};
use sordino_privacy::{Gradients, Sum, WeightRule};
use sordino_train::{LocalTraining, NetworkGradients, PricedRun, RunData, Settings, price, resolve};

const WIDTH: usize = 5;
const STEP: f64 = 1.0 / (1 << 30) as f64;
const KEY: [u8; 32] = [3; 32];

/// Records with numbers between -1 and 1, and their clients.
struct World {
    values: Vec<f32>,
    classes: Vec<u32>,
    clients: Units,
    dropout: f32,
}

impl World {
    /// Clients with this many records each.
    fn new(sizes: &[usize]) -> World {
        let count: usize = sizes.iter().sum();
        let values = (0..count * WIDTH).map(|i| ((i * 7919 + 13) % 1009) as f32 / 504.5 - 1.0).collect();
        let classes = (0..count).map(|i| (i * i % 3) as u32).collect();
        let mut starts = vec![0];
        sizes.iter().for_each(|size| starts.push(starts[starts.len() - 1] + size));
        World { values, classes, clients: Units::new((0..count).collect(), starts).unwrap(), dropout: 0.0 }
    }

    fn engine(&self, most: usize) -> Engine {
        let description = Description::new(Shape::Features(WIDTH)).then(Linear::new(6)).then(Tanh);
        let description = description.then(Dropout { rate: self.dropout }).then(Linear::new(3));
        let engine = Engine::with_workers(Network::new(&description).unwrap(), Loss::cross_entropy(), 1);
        engine.unwrap().for_slots_of(most).unwrap()
    }

    fn params(&self) -> Params {
        self.engine(1).network().init(4)
    }

    fn inputs(&self) -> (Inputs<'_>, Targets<'_>) {
        (Inputs::Dense(&self.values), Targets::Classes(&self.classes))
    }

    fn updates(&self, local: LocalTraining, workers: usize) -> NetworkGradients<'_> {
        let engines: Vec<Engine> = (0..workers).map(|_| self.engine(local.batch_size)).collect();
        let (inputs, targets) = self.inputs();
        let records = engines[0].records(inputs, targets).unwrap();
        NetworkGradients::of_clients(engines, records, &self.clients, local, Vec::new())
    }

    /// The mechanism for units: the mean gradient of the records of each client.
    fn gradients(&self) -> NetworkGradients<'_> {
        let engine = self.engine(self.clients.most());
        let (inputs, targets) = self.inputs();
        let records = engine.records(inputs, targets).unwrap();
        NetworkGradients::new(engine, records.in_units(&self.clients, Combination::Mean).unwrap())
    }
}

/// Clips to 0.2.
fn clip(norms: &[f64], weights: &mut [f32]) {
    let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
    weights.fill((0.2 / norm).min(1.0) as f32);
}

fn sum(
    gradients: &mut NetworkGradients<'_>,
    points: (&Params, Option<&Params>),
    chosen: &[usize],
    rule: Option<&WeightRule<'_>>,
) -> Vec<f64> {
    let mut sums = [Sum { step: STEP, values: vec![0.0; gradients.dimension()] }];
    gradients.pass(points.0, points.1, chosen, rule, KEY, &mut sums).unwrap();
    let [sum] = sums;
    sum.values
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

const FED_SGD: LocalTraining = LocalTraining { steps: 1, batch_size: 100, learning_rate: 1.0 };
const SEVERAL: LocalTraining = LocalTraining { steps: 5, batch_size: 3, learning_rate: 0.5 };

#[test]
fn one_local_step_on_all_records_is_the_mean_gradient() {
    let world = World::new(&[4, 1, 0, 9, 3]);
    let (at, mut there) = (world.params(), world.params());
    there.values_mut().iter_mut().for_each(|value| *value *= 0.9);
    let chosen = [0, 1, 2, 3];
    for anchor in [None, Some(&there)] {
        for rule in [Some(&clip as &WeightRule<'_>), None] {
            let updates = sum(&mut world.updates(FED_SGD, 2), (&at, anchor), &chosen, rule);
            let gradients = sum(&mut world.gradients(), (&at, anchor), &chosen, rule);
            let difference = largest_difference(&updates, &gradients);
            assert!(difference < 1e-6 && gradients.iter().any(|value| value.abs() > 0.01), "{difference}");
        }
    }
}

/// Two steps at the rate 0.5, against the mechanism for units at the point after the first step.
#[test]
fn local_steps_follow_the_gradients_at_the_points_that_they_reach() {
    let world = World::new(&[4, 1, 9]);
    let at = world.params();
    let local = LocalTraining { steps: 2, learning_rate: 0.5, ..FED_SGD };
    for client in 0..3 {
        let first = sum(&mut world.gradients(), (&at, None), &[client], None);
        let mut moved = at.clone();
        moved
            .values_mut()
            .iter_mut()
            .zip(&first)
            .for_each(|(value, gradient)| *value -= (0.5 * gradient) as f32);
        let second = sum(&mut world.gradients(), (&moved, None), &[client], None);
        let expected: Vec<f64> = first.iter().zip(&second).map(|(a, b)| 0.5 * (a + b)).collect();
        let update = sum(&mut world.updates(local, 1), (&at, None), &[client], None);
        assert!(largest_difference(&update, &expected) < 1e-6);
        assert!(largest_difference(&update, &first) > 1e-3);
    }
}

#[test]
fn what_a_client_adds_does_not_depend_on_others_or_on_threads() {
    let world = World { dropout: 0.4, ..World::new(&[4, 1, 0, 9, 3, 20, 2]) };
    let (at, mut there) = (world.params(), world.params());
    there.values_mut().iter_mut().for_each(|value| *value *= 0.9);
    for anchor in [None, Some(&there)] {
        let all = sum(&mut world.updates(SEVERAL, 1), (&at, anchor), &[0, 1, 2, 3, 4, 5, 6], Some(&clip));
        for workers in [2, 3, 8] {
            let mut gradients = world.updates(SEVERAL, workers);
            assert_eq!(sum(&mut gradients, (&at, anchor), &[0, 1, 2, 3, 4, 5, 6], Some(&clip)), all);
            let alone = sum(&mut gradients, (&at, anchor), &[5], Some(&clip));
            let others = sum(&mut gradients, (&at, anchor), &[0, 1, 2, 3, 4, 6], Some(&clip));
            // Bit by bit: sums are multiples of the step.
            let both: Vec<f64> = alone.iter().zip(&others).map(|(a, b)| a + b).collect();
            assert_eq!(both, all);
        }
    }
    // With another key, the client has other batches and masks.
    let mut sums = [Sum { step: STEP, values: vec![0.0; at.values().len()] }];
    let mut gradients = world.updates(SEVERAL, 1);
    gradients.pass(&at, None, &[5], Some(&clip), [4; 32], &mut sums).unwrap();
    assert_ne!(sums[0].values, sum(&mut gradients, (&at, None), &[5], Some(&clip)));
}

/// Fault of other libraries: a client's weight is its number of records.
#[test]
fn a_client_with_a_thousand_times_the_records_adds_no_more_than_the_bound() {
    let world = World::new(&[2, 2000, 2]);
    let at = world.params();
    let local = LocalTraining { learning_rate: 100.0, ..SEVERAL };
    let norm = |chosen: &[usize]| {
        let sum = sum(&mut world.updates(local, 2), (&at, None), chosen, Some(&clip));
        sum.iter().map(|value| value * value).sum::<f64>().sqrt()
    };
    // Rounding to the lattice may add half a step in each coordinate.
    let rounding = STEP * (at.values().len() as f64).sqrt();
    for client in 0..3 {
        let norm = norm(&[client]);
        assert!((0.199..=0.2 + rounding + 1e-7).contains(&norm), "client {client}: {norm}");
    }
}

#[test]
fn a_client_without_records_or_with_values_that_are_not_finite_adds_nothing() {
    for wrong in [f32::NAN, f32::INFINITY, 3e38, 1e30] {
        let mut world = World::new(&[4, 0, 9, 3]);
        let at = world.params();
        let clean = sum(&mut world.updates(SEVERAL, 2), (&at, None), &[0, 1, 3], Some(&clip));
        // One value of one record of client 2.
        world.values[6 * WIDTH] = wrong;
        let calls = AtomicUsize::new(0);
        let norms = Mutex::new(Vec::new());
        let counting = |layers: &[f64], weights: &mut [f32]| {
            calls.fetch_add(1, Ordering::Relaxed);
            norms.lock().unwrap().extend_from_slice(layers);
            clip(layers, weights);
        };
        let all = sum(&mut world.updates(SEVERAL, 2), (&at, None), &[0, 1, 2, 3], Some(&counting));
        assert!(all.iter().all(|value| value.is_finite()), "{wrong}");
        assert!(norms.lock().unwrap().iter().all(|norm| norm.is_finite()));
        if !wrong.is_finite() {
            assert_eq!(all, clean, "{wrong}");
            assert_eq!(calls.load(Ordering::Relaxed), 2, "{wrong}");
        }
        assert!(
            sum(&mut world.updates(SEVERAL, 2), (&at, None), &[1], Some(&clip)).iter().all(|v| *v == 0.0)
        );
        assert!(sum(&mut world.updates(SEVERAL, 2), (&at, None), &[], Some(&clip)).iter().all(|v| *v == 0.0));
    }
}

fn priced(settings: &str) -> (RunData, PricedRun) {
    let settings = Settings::parse(&format!("data = 'mushroom'\nprotect = 'clients'\n{settings}")).unwrap();
    let data = RunData::read(&settings).unwrap();
    let priced = price(resolve(&settings, &data.description).unwrap(), None).unwrap();
    (data, priced)
}

/// Fault of other libraries: the sum is divided by the number of replies. Updates that vanish show the noise alone. One round of
/// 1 expected client of 1000, which is empty for this seed, moves the parameters 500 times as far as one of 500 expected clients.
#[test]
fn a_round_is_divided_by_the_public_expected_number_even_if_it_is_empty() {
    let spread = |clients_per_round: u64, learning_rate: f64| {
        let (data, run) = priced(&format!(
            "clients = 1000\ntest_fraction = 0.0\nseed = 5\nsteps = 1\nbatch_size = {clients_per_round}\nnoise_multiplier = 2.0\n\
             max_grad_norm = 0.5\nlocal_learning_rate = 1e-200\nlearning_rate = {learning_rate}\nschedule = 'constant'\nmodel = 'mlp'"
        ));
        let ending = run.run(&data.train, None, None).begin(&AtomicBool::new(false), &mut ()).unwrap();
        ending.params.values().to_vec()
    };
    let begun = spread(1, 1e-30);
    let moved = |clients_per_round: u64| {
        let params = spread(clients_per_round, 1.0);
        let squares = params.iter().zip(&begun).map(|(a, b)| f64::from(a - b).powi(2));
        (squares.sum::<f64>() / begun.len() as f64).sqrt()
    };
    // The noise has standard deviation 2 * 0.5; there are 15,000 parameters, so the estimate is within 3 %.
    assert!(begun.len() > 10_000);
    let [one, many] = [moved(1), moved(500) * 500.0];
    assert!((one - 1.0).abs() < 0.03, "{one}");
    assert!((many - 1.0).abs() < 0.03, "{many}");
}

/// Faults of other libraries: a fixed number of clients is priced as Poisson sampling, and rounds are not composed.
#[test]
fn rounds_are_composed_and_a_fixed_number_of_clients_is_not_priced_as_poisson_sampling() {
    let epsilon = |settings: &str| {
        let common = "clients = 1000\ntest_fraction = 0.0\nbatch_size = 100\nnoise_multiplier = 2.0";
        let (_, run) = priced(&format!("{common}\n{settings}"));
        let guarantee = *run.terms.guarantee().unwrap();
        (guarantee.epsilon.get(), guarantee.relation.to_string())
    };
    let plan = |rounds: u64| {
        let rate = SamplingRate::new(0.1).unwrap();
        let plan = Plan::dp_sgd(NoiseMultiplier::new(2.0).unwrap(), rate, Steps::new(rounds).unwrap());
        Accountant::Pld.price(&plan, Delta::new(1e-5).unwrap()).unwrap().epsilon.get()
    };
    for rounds in [1, 30, 100] {
        assert_eq!(epsilon(&format!("steps = {rounds}")).0, plan(rounds));
    }
    assert!(plan(100) > 1.5 * plan(30) && plan(30) > plan(1));
    let (fixed, relation) = epsilon("steps = 100\nsampling = 'fixed-size'");
    assert!(relation.contains("replace-one"), "{relation}");
    assert!(fixed > 1.5 * plan(100), "{fixed}");
}

#[test]
fn settings_of_clients_are_checked() {
    let problem = |text: &str| {
        let settings = Settings::parse(&format!("data = 'mushroom'\nsteps = 2\n{text}")).unwrap();
        let data = RunData::read(&settings);
        match data.and_then(|data| resolve(&settings, &data.description)) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    let federated = |text: &str| problem(&format!("protect = 'clients'\n{text}"));
    assert_eq!(federated("clients = 100"), "accepted");
    assert_eq!(federated("clients = '100'"), "accepted");
    for (text, part) in [
        ("", "federated training needs clients, but the records belong to none"),
        ("clients = 1", "clients must be between 2 and the number of records, 8124; got 1"),
        ("clients = 8125", "got 8125"),
        ("clients = 100\nlocal_steps = 0", "local_steps must be between 1 and 1048576, got 0"),
        ("clients = 100\nlocal_batch_size = 0", "local_batch_size must be between 1 and 1048576, got 0"),
        (
            "clients = 100\nlocal_learning_rate = 0.0",
            "local_learning_rate must be above 0 and at most 1e6, got 0",
        ),
        ("clients = 100\nlocal_learning_rate = nan", "got NaN"),
        ("clients = 100\nunit_gradient = 'sum'", "unit_gradient has no effect here"),
        ("clients = 100\nrecords_per_unit = 3", "records_per_unit has no effect here"),
    ] {
        let problem = federated(text);
        assert!(problem.contains(part), "{text}: {problem}");
    }
    assert!(problem("local_steps = 3").contains("local_steps is for federated training"));
    assert!(problem("clients = 100").contains("clients is for federated training"));
    let error = Settings::parse("clients = 'some'").unwrap_err();
    assert!(error.contains("clients must be a whole number or files, got some"), "{error}");
}
