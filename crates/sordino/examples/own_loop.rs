//! A custom training loop on the vault, with a ledger in a file: `cargo run --example own_loop`.

use sordino::{
    accounting::{Accountant, ClipNorm, Delta, Epsilon, Plan, SamplingRate, Steps, calibrate},
    nn::{Engine, Loss, models},
    optim::{Optimizer, OptimizerConfig},
    own_loop::{ClipRule, NetworkGradients, Randomness, Terms, Vault},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (data, test) = sordino::data::embedded::mushroom()?.split(0.2, 0)?;
    let test = test.ok_or("no test records")?;
    let engine = Engine::new(models::linear(data.shape().len())?, Loss::Logistic)?;
    let mut params = engine.network().init(0);
    let layout = params.layout().clone();
    let records = engine.records(data.inputs(), data.targets().ok_or("no labels")?)?;

    // The plan is priced before a record is used.
    let (batch_size, steps) = (256.0, Steps::new(500)?);
    let rate = SamplingRate::new(batch_size / data.len() as f64)?;
    let budget = calibrate::Budget { epsilon: Epsilon::new(1.0)?, delta: Delta::new(1e-5)? };
    let noise = calibrate::noise_multiplier(budget, rate, steps, Accountant::Pld)?.value;
    let plan = Plan::dp_sgd(noise, rate, steps);
    let terms = Terms::price(plan, data.len() as u64, budget.delta, Some(budget.epsilon), Accountant::Pld)?;

    // Each line of the ledger is on disk before the steps that it charges.
    let ledger = std::env::temp_dir().join(format!("sordino-own-loop-{}", std::process::id()));
    let gradients = NetworkGradients::new(engine, records);
    let mut vault = Vault::seal(gradients, &terms, Randomness::from_os()?, &ledger)?;
    vault.charge_by(50);
    let rule = ClipRule::flat(ClipNorm::new(0.1)?)?;
    let config = OptimizerConfig::named("sgd")?;
    let mut optimizer = Optimizer::new(&config, layout.trainable(), layout.len())?;
    while let Some(release) = vault.round(|round| {
        let sum = round.gradients(&params).clipped_sum(&rule)?;
        round.release(sum)
    })? {
        // The mean over the expected batch size; the size that was drawn is private.
        let mean = release?.scaled(1.0 / batch_size as f32);
        vault.reuse(optimizer.step(mean, 40.0, params.values_mut()));
    }
    let account = vault.close()?;
    std::fs::remove_file(&ledger)?;

    let network = models::linear(test.shape().len())?;
    let score = sordino::train::Evaluator::new(network, Loss::Logistic, &test)?.score(&params)?;
    let epsilon = terms.guarantee().map(|guarantee| guarantee.epsilon.get());
    println!("{} steps, epsilon {epsilon:?}, {score:?}", account.charged());
    Ok(())
}
