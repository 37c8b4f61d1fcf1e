//! Times a step of every algorithm for `bench/algorithms.py`: `algorithm_steps ROUNDS SECONDS` prints one JSON object for each round,
//! with microseconds for each record gradient that was evaluated, by algorithm.
//!
//! In every round all algorithms take turns on the MNIST network, from sampling to the optimizer.
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first error")]

use std::{
    cell::Cell,
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use sordino_accounting::{
    ClipNorm, Delta, Epsilon, Sampling, SamplingRate, Steps as StepCount, calibrate::Budget,
};
use sordino_algorithms::{Algorithm, AlgorithmConfig, NoiseSource, RunFacts, Steps};
use sordino_nn::{Engine, Inputs, Loss, Params, Targets, models};
use sordino_optim::{Optimizer, OptimizerConfig};
use sordino_privacy::{Randomness, Terms, Vault};
use sordino_testing::Intercepted;
use sordino_train::NetworkGradients;

const RECORDS: usize = 60_000;
const BATCH: usize = 256;
const STEPS: u64 = 20_000;

/// An engine whose gradients are counted: two for each record of a difference.
type Counting<'a> = Intercepted<'a, NetworkGradients<'a>>;

/// An algorithm with its vault.
struct Contender<'a> {
    name: &'static str,
    vault: Vault<Counting<'a>>,
    steps: Box<dyn Steps<Counting<'a>>>,
    optimizer: Optimizer,
    params: Params,
    evaluated: Rc<Cell<usize>>,
}

impl Contender<'_> {
    fn step(&mut self) {
        let (number, params) = (self.vault.position(), &self.params);
        let steps = &mut self.steps;
        let step = self.vault.round(|round| steps.step(round, params, number));
        if let Some(release) = step.unwrap().unwrap().unwrap() {
            let mean = release.scaled(1.0 / BATCH as f32);
            self.vault.reuse(self.optimizer.step(mean, 0.01, self.params.values_mut()));
        }
    }

    /// Microseconds for each gradient, over this long.
    fn time(&mut self, seconds: f64) -> f64 {
        let (begun, before) = (Instant::now(), self.evaluated.get());
        while begun.elapsed() < Duration::from_secs_f64(seconds) {
            self.step();
        }
        1e6 * begun.elapsed().as_secs_f64() / (self.evaluated.get() - before) as f64
    }
}

fn facts(params: &Params) -> RunFacts {
    let rate = SamplingRate::new(BATCH as f64 / RECORDS as f64).unwrap();
    RunFacts {
        sampling: Sampling::Poisson { rate, cap: None },
        steps: StepCount::new(STEPS).unwrap(),
        expected_batch_size: BATCH as f64,
        max_grad_norm: ClipNorm::new(0.1).unwrap(),
        layers: None,
        dimension: params.values().len(),
        records: RECORDS as u64,
        momentum: 0.0,
        claim: Some(Budget { epsilon: Epsilon::new(5.0).unwrap(), delta: Delta::new(1e-5).unwrap() }),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, seconds] = &arguments[..] else { panic!("algorithm_steps ROUNDS SECONDS") };
    let (rounds, seconds): (u32, f64) = (rounds.parse().unwrap(), seconds.parse().unwrap());
    let pixels: Vec<f32> = (0..RECORDS * 784).map(|i| (i % 251) as f32 / 251.0).collect();
    let digits: Vec<u32> = (0..RECORDS as u32).map(|i| i % 10).collect();
    let contender = |algorithm: &AlgorithmConfig| {
        let name = algorithm.about().name;
        let engine = Engine::new(models::mnist_cnn().unwrap(), Loss::cross_entropy()).unwrap();
        let params = engine.network().init(1);
        let records = engine.records(Inputs::Dense(&pixels), Targets::Classes(&digits)).unwrap();
        let evaluated = Rc::new(Cell::new(0));
        let counter = Rc::clone(&evaluated);
        let count = move |chosen: &[usize], differences: bool| {
            counter.set(counter.get() + (1 + usize::from(differences)) * chosen.len());
            chosen.to_vec()
        };
        let gradients =
            Counting { gradients: NetworkGradients::new(engine, records), batch: Box::new(count) };
        let facts = facts(&params);
        let noise = NoiseSource::Budget(facts.claim.unwrap(), algorithm.accountant(facts.sampling));
        let plan = algorithm.plan(&facts, noise).unwrap();
        let steps = algorithm.start(&facts, &plan).unwrap();
        // The model is not used, so the plan is not priced.
        let terms = Terms::unprotected(plan, RECORDS as u64, "a benchmark");
        let ledger = std::env::current_dir().unwrap().join(format!("target/algorithm-steps-{name}"));
        let _ = std::fs::remove_file(&ledger);
        let mut vault = Vault::seal(gradients, &terms, Randomness::from_os().unwrap(), &ledger).unwrap();
        vault.charge_by(1 << 12);
        let (trainable, length) = (params.layout().trainable(), params.layout().len());
        let optimizer = Optimizer::new(&OptimizerConfig::named("sgd").unwrap(), trainable, length).unwrap();
        Contender { name, vault, steps, optimizer, params, evaluated }
    };
    let mut contenders: Vec<Contender<'_>> = AlgorithmConfig::all().iter().map(contender).collect();
    // Windows and anchors fill up before anything is timed.
    for contender in &mut contenders {
        contender.time(seconds);
    }
    for _ in 0..rounds {
        let times: BTreeMap<&str, f64> =
            contenders.iter_mut().map(|contender| (contender.name, contender.time(seconds))).collect();
        println!("{}", serde_json::to_string(&times).unwrap());
    }
}
