//! Times the whole stack for `bench/training.py`: `training_steps ROUNDS SECONDS` prints one JSON object for each round.
//!
//! In every round the engine's own private step, the vault's step and the vault's step with its optimizer take turns on the
//! MNIST network, and noise for ten million parameters is drawn.
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first error")]

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use sordino_accounting::{Accountant, ClipNorm, Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
use sordino_nn::{Engine, Inputs, Loss, Params, Pass, Targets, models};
use sordino_optim::{Optimizer, OptimizerConfig};
use sordino_privacy::{ClipRule, Gradients, PrivacyError, Randomness, Release, Round, Terms, Vault};
use sordino_testing::InMemory;
use sordino_train::{NetworkGradients, steps_per_charge};

const RECORDS: usize = 60_000;
const BATCH: usize = 256;
const STEPS: u64 = 1 << 30;
const TEN_MILLION: usize = 10_000_000;

/// Reproducible numbers in (0, 1).
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 24) as f32
    };
    (0..count).map(|_| next()).collect()
}

/// A model whose records are absent, so that only the release takes time.
fn absent_records() -> InMemory<[f32; 0], [f32; 0], [f32; 0]> {
    let engine = InMemory::new(Vec::new(), TEN_MILLION, |_: &[f32; 0], _: &[f32; 0]| []);
    InMemory { records: vec![None; RECORDS], ..engine }
}

fn terms() -> Terms {
    let rate = SamplingRate::new(BATCH as f64 / RECORDS as f64).unwrap();
    let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0).unwrap(), rate, Steps::new(STEPS).unwrap());
    Terms::price(plan, RECORDS as u64, Delta::new(1e-5).unwrap(), None, Accountant::Rdp).unwrap()
}

fn ledger(name: &str) -> PathBuf {
    let path = std::env::current_dir().unwrap().join(format!("target/training-steps-{name}"));
    let _ = std::fs::remove_file(&path);
    path
}

fn step<G: Gradients>(
    round: &mut Round<'_, G>,
    at: &G::Point,
    rule: &ClipRule,
) -> Result<Release<Vec<f32>>, PrivacyError> {
    let sum = round.gradients(at).clipped_sum(rule)?;
    round.release(sum)
}

/// Milliseconds for each call, over this long.
fn time(seconds: f64, mut call: impl FnMut()) -> f64 {
    let (begun, mut calls) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs_f64(seconds) {
        call();
        calls += 1;
    }
    1e3 * begun.elapsed().as_secs_f64() / f64::from(calls)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, seconds] = &arguments[..] else { panic!("training_steps ROUNDS SECONDS") };
    let (rounds, seconds): (u32, f64) = (rounds.parse().unwrap(), seconds.parse().unwrap());

    let pixels = numbers(RECORDS * 784);
    let digits: Vec<u32> = (0..RECORDS as u32).map(|i| i % 10).collect();
    let engine = || Engine::new(models::mnist_cnn().unwrap(), Loss::cross_entropy()).unwrap();
    let mut alone = engine();
    let records = alone.records(Inputs::Dense(&pixels), Targets::Classes(&digits)).unwrap();
    let params: Params = alone.network().init(1);
    let mut sums = [vec![0.0; params.values().len()]];
    let weigh = |norms: &[f64], weights: &mut [f32]| {
        let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        weights.fill((0.1 / norm).min(1.0) as f32);
    };
    // Batches of the expected size from all over the data, as a sampler would choose them.
    let mut first = 0;
    let mut batch = Vec::new();
    let mut engine_step = || {
        first = (first + 7919) % RECORDS;
        batch.clear();
        batch.extend((0..BATCH).map(|i| (first + i * (RECORDS / BATCH)) % RECORDS));
        batch.sort_unstable();
        alone.pass(&Pass::new(&params, &records, &batch).weighed_by(&weigh), &mut sums).unwrap();
    };

    let rule = ClipRule::flat(ClipNorm::new(0.1).unwrap()).unwrap();
    let sealed = engine();
    let records = sealed.records(Inputs::Dense(&pixels), Targets::Classes(&digits)).unwrap();
    let gradients = NetworkGradients::new(sealed, records);
    let mut vault =
        Vault::seal(gradients, &terms(), Randomness::from_os().unwrap(), &ledger("mnist")).unwrap();
    let operations = models::mnist_cnn().unwrap().operations() * BATCH as f64;
    let per_charge = steps_per_charge(operations, vault.sync_time());
    vault.charge_by(per_charge);
    let synced = std::cell::Cell::new(0.0);
    let layout = params.layout().clone();
    let adam = OptimizerConfig::named("adam").unwrap();
    let mut optimizer = Optimizer::new(&adam, layout.trainable(), layout.len()).unwrap();
    let mut moving = params.clone();
    let mut whole_step = || {
        let release = vault.round(|round| step(round, &moving, &rule)).unwrap().unwrap().unwrap();
        // This step began a block, so the ledger was synced for it.
        if vault.account().charged() == vault.position() + per_charge - 1 {
            synced.set(synced.get() + vault.sync_time().as_secs_f64());
        }
        vault.reuse(optimizer.step(release.scaled(1.0 / BATCH as f32), 1e-3, moving.values_mut()));
    };

    let mut noisy =
        Vault::seal(absent_records(), &terms(), Randomness::from_os().unwrap(), &ledger("noise")).unwrap();
    noisy.charge_by(1 << 12);
    let mut noise = || {
        let release = noisy.round(|round| step(round, &[], &rule)).unwrap().unwrap().unwrap();
        noisy.reuse(std::hint::black_box(release.into_inner()));
    };
    for _ in 0..rounds {
        let engine = time(seconds, &mut engine_step);
        synced.set(0.0);
        let begun = Instant::now();
        let whole = time(seconds, &mut whole_step);
        let ledger = synced.get() / begun.elapsed().as_secs_f64();
        let noise = time(seconds.min(1.0), &mut noise);
        println!(
            "{{\"engine_ms\":{engine:.4},\"whole_ms\":{whole:.4},\"ledger_share\":{ledger:.5},\"noise_10m_ms\":{noise:.2}}}"
        );
    }
}
