//! Algorithms of private training, one file each.
//!
//! An [`Algorithm`] is a configuration: its options, what is proved about it, and the [plan](Algorithm::plan) of a run, which is priced
//! before any record is used. It [starts](Algorithm::start) [`Steps`]: each step sees its batch through a
//! [`Round`](sordino_privacy::Round) of the vault and returns a release. Algorithms adapt to releases alone.
//!
//! A file holds a whole algorithm: options with defaults, ranges and help texts ([`options!`]), plan, calibration, step, state, verdict and
//! references. The list below is the only other place that names it. The enum [`AlgorithmConfig`], the command line, the table in
//! `docs/algorithms.md` and the conformance tests follow from it. Your own algorithm implements the same trait.
#![forbid(unsafe_code)]

mod algorithm;
mod anchors;
mod clipping;
mod coupled;
mod error;
mod factor_schedule;
mod histogram;
mod options;
mod plans;
mod published_noise;
mod registry;
mod scale;
pub mod theory;

pub use algorithm::{
    About, Algorithm, Defaults, NoiseSource, OptionDescription, Options, RunFacts, Steps, Verdict,
};
pub use dice_published::{DiceNoise, Thresholds};
pub use dynamic::Allocation;
pub use error::AlgorithmError;
pub use factor_schedule::FactorSchedule;
pub use noise_decay_zcdp::Batches;
pub use options::{Above0, Below1};
#[doc(hidden)]
pub use options::{OptionValue, Range, check_range, default_text};
pub use published_noise::{NoiseChoice, PublishedNoise};
use registry::registry;
pub use registry::{AlgorithmDescription, markdown_table, owners};
pub use scale::Scale;
use sordino_accounting::{Accountant, ClipNorm, Plan, Sampling};
use sordino_privacy::Gradients;

registry! {
    dp_sgd: DpSgd,
    dp_nsgd: DpNsgd,
    auto_clip: AutoClip,
    psac: Psac,
    dynamic: Dynamic,
    noise_decay_zcdp: NoiseDecayZcdp,
    noise_decay_tcdp: NoiseDecayTcdp,
    dc_sgd_p: DcSgdP,
    dc_sgd_e: DcSgdE,
    quantile: Quantile,
    band_mf: BandMf,
    dice: Dice,
    dice_two_release: DiceTwoRelease,
    dice_published: DicePublished,
    dp_svrg: DpSvrg,
    dp_c4: DpC4,
    dp_c4_published: DpC4Published,
    dp_c4_plus_published: DpC4PlusPublished,
    plain_sgd: PlainSgd,
}

/// Facts for tests: 2,000 records, batches of 100, 30 steps.
#[cfg(test)]
pub(crate) fn test_facts() -> RunFacts {
    use sordino_accounting::{SamplingRate, Steps as StepCount};
    RunFacts {
        sampling: Sampling::Poisson { rate: SamplingRate::new(0.05).unwrap(), cap: None },
        steps: StepCount::new(30).unwrap(),
        expected_batch_size: 100.0,
        max_grad_norm: ClipNorm::new(1.0).unwrap(),
        layers: None,
        dimension: 2,
        records: 2000,
        momentum: 0.0,
        claim: None,
    }
}
