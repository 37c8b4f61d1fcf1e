//! An algorithm by name, with its options.

use serde::{Deserialize, Serialize};
use sordino_accounting::ClipNorm;
use sordino_privacy::Gradients;

use crate::{
    Algorithm, AlgorithmError, Setting,
    dc_sgd::{DcSgd, Search},
    dp_sgd::{DpSgd, rule},
    dynamic::Dynamic,
    error::require,
    plain::Plain,
    quantile::Quantile,
};

/// An algorithm and its options. The names are those of the [registry](crate::registry).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Choice {
    /// Clipped gradients with Gaussian noise.
    DpSgd {},
    /// Normalised gradients.
    DpNsgd {
        /// `r` in `C / (r + |g|)`.
        #[serde(default = "regulariser")]
        regulariser: f64,
    },
    /// Normalised gradients with the regulariser of automatic clipping, 0.01.
    AutoClip {},
    /// Noise multipliers that fall and thresholds that decay along the run.
    Dynamic {
        /// `rho_mu`: how much larger `1 / z` is at the end than at the beginning.
        #[serde(default = "mu_growth")]
        mu_growth: f64,
        /// `rho_c`: how much smaller the threshold is at the end.
        #[serde(default = "clip_decay")]
        clip_decay: f64,
    },
    /// Decaying noise, priced by zero-concentrated differential privacy.
    NoiseDecayZcdp {
        /// How much smaller the noise is at the end.
        #[serde(default = "noise_decay")]
        noise_decay: f64,
    },
    /// Decaying noise, priced by truncated concentrated differential privacy.
    NoiseDecayTcdp {
        /// How much smaller the noise is at the end.
        #[serde(default = "noise_decay")]
        noise_decay: f64,
    },
    /// The threshold from a percentile of a private histogram.
    DcSgdP {
        /// The share of gradients that is not clipped.
        #[serde(default = "percentile")]
        percentile: f64,
        /// Bins of the histogram.
        #[serde(default = "bins")]
        bins: usize,
        /// The histogram's noise; 0 for the paper's rule.
        #[serde(default)]
        histogram_noise: f64,
    },
    /// The threshold of the least expected squared error, from a private histogram.
    DcSgdE {
        /// Bins of the histogram.
        #[serde(default = "bins")]
        bins: usize,
        /// The histogram's noise; 0 for the paper's rule.
        #[serde(default)]
        histogram_noise: f64,
    },
    /// The threshold follows a quantile of the norms.
    Quantile {
        /// The share of gradients that is not clipped.
        #[serde(default = "quantile")]
        quantile: f64,
        /// How fast the threshold follows.
        #[serde(default = "rate")]
        rate: f64,
        /// The standard deviation of the noise on the count; 0 for a twentieth of the batch.
        #[serde(default)]
        count_noise: f64,
    },
    /// Plain SGD. Not private.
    None {},
}

fn regulariser() -> f64 {
    0.01
}
fn mu_growth() -> f64 {
    2.0
}
fn clip_decay() -> f64 {
    2.0
}
fn noise_decay() -> f64 {
    2.0
}
fn percentile() -> f64 {
    0.5
}
fn bins() -> usize {
    20
}
fn quantile() -> f64 {
    0.5
}
fn rate() -> f64 {
    0.2
}

impl Choice {
    /// Checks the options.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn check(&self) -> Result<(), AlgorithmError> {
        let share = |what, value: f64| {
            require(value > 0.0 && value < 1.0, what, "between 0 and 1, both excluded", value)
        };
        let growth =
            |what, value: f64| require((1e-3..=1e3).contains(&value), what, "between 0.001 and 1000", value);
        let noise =
            |what, value: f64| require((0.0..=1e6).contains(&value), what, "between 0 and 1e6", value);
        match *self {
            Self::DpSgd {} | Self::AutoClip {} | Self::None {} => Ok(()),
            Self::DpNsgd { regulariser } => {
                require((0.0..=1e6).contains(&regulariser), "regulariser", "between 0 and 1e6", regulariser)
            }
            Self::Dynamic { mu_growth, clip_decay } => {
                growth("mu_growth", mu_growth)?;
                growth("clip_decay", clip_decay)
            }
            Self::NoiseDecayZcdp { noise_decay } | Self::NoiseDecayTcdp { noise_decay } => {
                growth("noise_decay", noise_decay)
            }
            Self::DcSgdP { percentile, bins, histogram_noise } => {
                share("percentile", percentile)?;
                noise("histogram_noise", histogram_noise)?;
                check_bins(bins)
            }
            Self::DcSgdE { bins, histogram_noise } => {
                noise("histogram_noise", histogram_noise)?;
                check_bins(bins)
            }
            Self::Quantile { quantile, rate, count_noise } => {
                share("quantile", quantile)?;
                noise("count_noise", count_noise)?;
                require(rate > 0.0 && rate <= 10.0, "rate", "above 0 and at most 10", rate)
            }
        }
    }

    /// Whether it is private at all.
    pub fn is_private(&self) -> bool {
        !matches!(self, Self::None {})
    }

    /// Whether the threshold is what the setting says, or only begins there.
    pub fn adapts_threshold(&self) -> bool {
        matches!(self, Self::DcSgdP { .. } | Self::DcSgdE { .. } | Self::Quantile { .. })
    }

    /// Checks that every threshold the run can begin or end with is one that the trusted base takes, so that none is refused when
    /// steps are paid for.
    pub(crate) fn check_thresholds(&self, setting: &Setting) -> Result<(), AlgorithmError> {
        let mut thresholds = vec![setting.clip.get()];
        if let Self::Dynamic { clip_decay, .. } = *self {
            let dynamic = Dynamic::new(setting, clip_decay);
            thresholds.extend([dynamic.threshold(0), dynamic.threshold(setting.steps.get() - 1)]);
        }
        for threshold in thresholds {
            rule(setting, ClipNorm::new(threshold)?)?;
        }
        Ok(())
    }

    /// The algorithm at work.
    ///
    /// # Errors
    /// Options out of range; a threshold that the trusted base refuses.
    pub fn begin<G: Gradients>(&self, setting: &Setting) -> Result<Box<dyn Algorithm<G>>, AlgorithmError> {
        self.check()?;
        self.check_thresholds(setting)?;
        Ok(match *self {
            Self::DpSgd {} => Box::new(DpSgd::new(setting, None)?),
            Self::DpNsgd { regulariser } => Box::new(DpSgd::new(setting, Some(regulariser))?),
            Self::AutoClip {} => Box::new(DpSgd::new(setting, Some(0.01))?),
            Self::NoiseDecayZcdp { .. } | Self::NoiseDecayTcdp { .. } => Box::new(DpSgd::new(setting, None)?),
            Self::Dynamic { clip_decay, .. } => Box::new(Dynamic::new(setting, clip_decay)),
            Self::DcSgdP { percentile, bins, .. } => {
                Box::new(DcSgd::new(setting, Search::Percentile(percentile), bins))
            }
            Self::DcSgdE { bins, .. } => Box::new(DcSgd::new(setting, Search::LeastError, bins)),
            Self::Quantile { quantile, rate, .. } => Box::new(Quantile::new(setting, quantile, rate)),
            Self::None {} => Box::new(Plain),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a message")]
fn check_bins(bins: usize) -> Result<(), AlgorithmError> {
    require((2..=1 << 12).contains(&bins), "bins", "between 2 and 4096", bins as f64)
}
