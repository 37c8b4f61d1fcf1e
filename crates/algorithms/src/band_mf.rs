//! Noise that is correlated from step to step (BandMF): banded matrix factorization with cyclic Poisson sampling.
//!
//! `u_t = c_0 x_t + sum_{j=1..b-1} c_j x_{t-j} + noise`, where `x_s` is the clipped sum of step `s`, which the vault keeps hidden. Undoing the
//! coefficients, `x~_t = (u_t - sum_{j=1..b-1} c_j x~_{t-j}) / c_0`, is post-processing and gives `x_t` plus noise that partly cancels over
//! several steps: the noise of one step is larger than that of DP-SGD, and the noise of a sum over many steps is smaller. `b` groups of
//! records take turns, so the `b` steps that a record influences are one release with sensitivity `|c|_2 C`. A larger band cancels more noise
//! and has less amplification by sampling: a record can be sampled in every `b`-th step, at rate `b q`.
//!
//! **References.** Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified approach to private training"
//! (arXiv 2306.08153), Theorems 4 and 5; McKenna 2024, "Scaling up the Banded Matrix Factorization Mechanism for Differentially Private ML"
//! (arXiv 2405.15913), for Toeplitz coefficients.

use std::collections::VecDeque;

use sordino_accounting::{
    Accountant, AccountingError, ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate,
    Steps as StepCount,
    calibrate::{self, Budget},
    factorization::{Workload, noise_growth, square_root},
};
use sordino_optim::State;
use sordino_privacy::{ClipRule, Coefficients, Gradients, PrivacyError, Release, Round};

use crate::{
    About, Algorithm, AlgorithmError, Defaults, NoiseSource, RunFacts, Steps, Verdict,
    clipping::{OneSum, rule},
    options,
    plans::{MOST_KEPT_BYTES, poisson_rate, tightest_accountant},
};

options! {
    /// Correlated noise: part of the noise of a step is cancelled in the next b - 1 steps, so that the sum of many steps has less noise. Groups
    /// of records take turns, so that a record is sampled at most once in b steps.
    pub struct BandMf {
        /// b, the number of steps over which noise is correlated; 1 is dp-sgd.
        band: Option<u64> = None, as "the one with the least error", in 1..=1024;
        /// The momentum for which the coefficients are optimised; 0 is for prefix sums, without momentum.
        momentum: Option<f64> = None, as "that of the optimizer", in 0.0..=0.999;
    }
}

/// The largest band that is chosen automatically. A larger band takes long to optimise and would hardly reduce the error.
const LARGEST_CHOSEN: u64 = 512;

impl BandMf {
    fn workload(&self, facts: &RunFacts) -> Workload {
        Workload::momentum(self.momentum.unwrap_or(facts.momentum))
    }

    /// The coefficients of a band, rounded as they are used.
    fn coefficients(&self, facts: &RunFacts, band: u64) -> Result<Coefficients, PrivacyError> {
        let band = usize::try_from(band).unwrap_or(usize::MAX);
        Coefficients::new(&self.workload(facts).optimal_coefficients(band, facts.steps.get()))
    }

    /// The largest band that fits the sampling rate, the number of steps and the memory.
    fn largest(facts: &RunFacts, rate: SamplingRate) -> u64 {
        // For each earlier step, a hidden sum of 8-byte integers and a released sum in single precision.
        let kept = MOST_KEPT_BYTES / (12 * facts.dimension.max(1) as u64);
        let groups = (1.0 / rate.get() + 1e-9).floor() as u64;
        groups.min(facts.steps.get()).min(kept + 1).max(1)
    }

    fn refuse_above(band: u64, largest: u64) -> Result<(), AlgorithmError> {
        match band <= largest {
            true => Ok(()),
            false => Err(AlgorithmError::Plan {
                problem: format!(
                    "band must be at most {largest}, got {band}: each group must have at least the records of a batch and one turn, and \
                     the sums that are kept must fit in a gibibyte of memory"
                ),
                hint: "leave it out for the band with the least error, or lower {batch_size}",
            }),
        }
    }
}

impl Algorithm for BandMf {
    fn about(&self) -> About {
        About {
            name: "band-mf",
            reference: "Choquette-Choo et al. 2023, Theorems 4 and 5; McKenna 2024",
            verdict: Verdict::Sound(
                "with Toeplitz coefficients, and groups of records by a public partition",
            ),
        }
    }

    fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
        Defaults::clipped(max_grad_norm, 0.1)
    }

    fn accountant(&self, sampling: Sampling) -> Accountant {
        tightest_accountant(sampling)
    }

    fn kept_vectors(&self) -> u64 {
        1
    }

    fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
        rule(facts, facts.max_grad_norm)?;
        let rate = poisson_rate(facts, "band-mf")?;
        let largest = Self::largest(facts, rate);
        self.band.map_or(Ok(()), |band| Self::refuse_above(band, largest))?;
        let found = match (noise, self.band) {
            (NoiseSource::Multiplier(multiplier), Some(band)) => {
                Band { band, multiplier, ..Band::unpriced(rate, band)? }
            }
            (NoiseSource::Multiplier(_), None) => {
                return Err(AlgorithmError::Plan {
                    problem: "the band of band-mf is chosen for a budget".to_owned(),
                    hint: "set {epsilon} in place of {noise_multiplier}, or set a band, as in {algorithm=band-mf,band=8}",
                });
            }
            (NoiseSource::Budget(budget, accountant), Some(band)) => {
                Band::priced(rate, band, facts.steps, budget, accountant)?
            }
            (NoiseSource::Budget(budget, accountant), None) => {
                self.least_error(facts, rate, largest.min(LARGEST_CHOSEN), budget, accountant)?
            }
        };
        let sampling = match found.band {
            1 => facts.sampling,
            groups => Sampling::Rotating { rate: found.rate, groups },
        };
        Ok(Plan::new(vec![Entry::new(sampling, vec![found.multiplier.shortened()], facts.steps)?]))
    }

    fn notes(&self, _: &RunFacts, plan: &Plan) -> Vec<String> {
        match band_of(plan) {
            1 if self.band.is_none() => vec![
                "correlated noise does not reduce the error at this budget, batch size and number of steps, so the band is 1 and this run is \
                 dp-sgd; a larger {epsilon}, a smaller {batch_size} or fewer {epochs} can change this"
                    .to_owned(),
            ],
            _ => Vec::new(),
        }
    }

    fn start<G: Gradients>(&self, facts: &RunFacts, plan: &Plan) -> Result<Box<dyn Steps<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        let rule = rule(facts, facts.max_grad_norm)?;
        Ok(match band_of(plan) {
            1 => Box::new(OneSum(rule)),
            band => Box::new(BandSteps::new(rule, self.coefficients(facts, band)?, facts.steps)),
        })
    }
}

/// The band of a plan: its number of groups.
fn band_of(plan: &Plan) -> u64 {
    match plan.entries().first().map(Entry::sampling) {
        Some(Sampling::Rotating { groups, .. }) => groups,
        _ => 1,
    }
}

struct BandSteps {
    rule: ClipRule,
    coefficients: Coefficients,
    /// The coefficients as numbers.
    c: Vec<f64>,
    /// The standard deviation of the noise in `x~_t`, in units of the noise of a release, for `t = 0, 1, ...`, until it has converged.
    growth: Vec<f64>,
    /// The number of steps since the run began or was resumed.
    taken: usize,
    /// The numbers of the last steps and their sums `x~`, the newest first.
    recent: VecDeque<(u64, Vec<f32>)>,
}

impl BandSteps {
    fn new(rule: ClipRule, coefficients: Coefficients, steps: StepCount) -> Self {
        let c = coefficients.values();
        let growth = noise_growth(&c, steps.get());
        Self { rule, coefficients, c, growth, taken: 0, recent: VecDeque::new() }
    }

    /// `x~_t = (u_t - sum_{j>=1} c_j x~_{t-j}) / c_0`. A missing step counts as 0, here and in the vault.
    fn undo(&mut self, release: Release<Vec<f32>>, number: u64) -> Release<Vec<f32>> {
        let mut earlier = vec![0.0_f64; release.len()];
        for (from, obtained) in &self.recent {
            let age = usize::try_from(number.saturating_sub(*from)).unwrap_or(usize::MAX);
            let c = self.c.get(age).copied().unwrap_or(0.0);
            earlier.iter_mut().zip(obtained).for_each(|(sum, x)| *sum += c * f64::from(*x));
        }
        let earlier: Vec<f32> = earlier.into_iter().map(|sum| sum as f32).collect();
        // The noise of earlier steps is independent of the noise of this release, so the variances add up to that of `c_0 x~_t`.
        let growth = self.growth[self.taken.min(self.growth.len() - 1)];
        let of_earlier = release.noise_std() * ((self.c[0] * growth).powi(2) - 1.0).max(0.0).sqrt();
        let obtained = release.plus(-1.0, &earlier, of_earlier).scaled((1.0 / self.c[0]) as f32);
        self.taken += 1;
        self.recent.truncate(self.c.len().saturating_sub(2));
        let mut kept = earlier;
        kept.copy_from_slice(&obtained);
        self.recent.push_front((number, kept));
        obtained
    }
}

impl<G: Gradients> Steps<G> for BandSteps {
    fn step(
        &mut self,
        round: &mut Round<'_, G>,
        at: &G::Point,
        number: u64,
    ) -> Result<Option<Release<Vec<f32>>>, PrivacyError> {
        let sum = round.gradients(at).correlated_sum(&self.rule, &self.coefficients)?;
        let release = round.release(sum)?;
        Ok(Some(self.undo(release, number)))
    }

    /// The hidden sums stay in the vault, and a resumed run begins without them. So it must also begin without the sums `x~`
    /// of earlier steps.
    fn state(&self) -> State {
        State::default()
    }

    fn restore(&mut self, _: &State) {}
}

/// A band and its noise.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Band {
    /// `b`, which is also the number of groups.
    band: u64,
    /// `z`, relative to `|c|_2 C`.
    multiplier: NoiseMultiplier,
    /// `q b`, the rate at which each step samples its group.
    rate: SamplingRate,
}

impl Band {
    fn unpriced(rate: SamplingRate, band: u64) -> Result<Self, AccountingError> {
        let rate = SamplingRate::new((rate.get() * band as f64).min(1.0))?;
        Ok(Self { band, multiplier: NoiseMultiplier::new(1.0)?, rate })
    }

    /// A band with the least noise that the privacy budget permits for `ceil(T / b)` sampled releases at rate `q b`.
    fn priced(
        rate: SamplingRate,
        band: u64,
        steps: StepCount,
        budget: Budget,
        accountant: Accountant,
    ) -> Result<Self, AccountingError> {
        let unpriced = Self::unpriced(rate, band)?;
        let blocks = StepCount::new(steps.get().div_ceil(band))?;
        let multiplier = calibrate::noise_multiplier(budget, unpriced.rate, blocks, accountant)?.value;
        Ok(Self { multiplier, ..unpriced })
    }
}

impl BandMf {
    /// The band with the least mean squared error of the model over all steps, `z_b^2 L(c_b)`, at a privacy budget.
    ///
    /// First, all bands of a list are compared by the Renyi bound and with coefficients that are not optimised. From the best of them, the search
    /// goes to larger or smaller bands as long as the error decreases; these are priced by the accountant and have optimal coefficients.
    fn least_error(
        &self,
        facts: &RunFacts,
        rate: SamplingRate,
        largest: u64,
        budget: Budget,
        accountant: Accountant,
    ) -> Result<Band, AlgorithmError> {
        let workload = self.workload(facts);
        let steps = facts.steps;
        // 1, 2, 3, 4, 6, 8, 11, 14, 18, ...: between two bands the error changes by a few per cent at most.
        let bands: Vec<u64> =
            std::iter::successors(Some(1), |b| Some(b + 1 + b / 4)).take_while(|b| *b <= largest).collect();
        let root = square_root(bands.last().copied().unwrap_or(1) as usize);
        let roughly = |band: u64| {
            let error = workload.mean_squared_error(&root[..band as usize], steps.get());
            let found = Band::priced(rate, band, steps, budget, Accountant::Rdp);
            found.map_or(f64::INFINITY, |found| found.multiplier.get().powi(2) * error)
        };
        let best =
            |errors: &[f64]| (0..errors.len()).min_by(|a, b| errors[*a].total_cmp(&errors[*b])).unwrap_or(0);
        let rough: Vec<f64> = bands.iter().map(|band| roughly(*band)).collect();
        let exactly = |index: usize| -> Result<(f64, Band), AlgorithmError> {
            let found = Band::priced(rate, bands[index], steps, budget, accountant)?;
            let c = self.coefficients(facts, bands[index])?.values();
            Ok((found.multiplier.get() * workload.mean_squared_error(&c, steps.get()).sqrt(), found))
        };
        let start = best(&rough);
        let mut least = exactly(start)?;
        for direction in [1, -1] {
            let mut index = start;
            while let Some(next) = index.checked_add_signed(direction).filter(|next| *next < bands.len()) {
                // An accountant may refuse a band.
                match exactly(next) {
                    Ok(found) if found.0 < least.0 => (least, index) = (found, next),
                    _ => break,
                }
            }
        }
        Ok(least.1)
    }
}
