//! An algorithm by name, with its options.

use serde::{Deserialize, Serialize};
use sordino_accounting::ClipNorm;
use sordino_privacy::Gradients;

use crate::{
    Algorithm, AlgorithmError, DicePublishedOptions, DynamicOptions, Setting,
    anchored::{Anchored, Anchoring},
    dc_sgd::{DcSgd, Search},
    dice::{Dice, DiceTwoRelease},
    dice_published::{DicePublished, ERROR_LEAKS},
    dp_c4::DpC4,
    dp_c4_published::{DpC4Published, THRESHOLDS_LEAK},
    dp_sgd::{DpSgd, rule},
    dp_svrg::DpSvrg,
    dynamic::Dynamic,
    error::require,
    plain::{PLAIN, Plain},
    quantile::Quantile,
};

/// An algorithm and its options. The names are those of the [registry](crate::registry).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    Dynamic(DynamicOptions),
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
        /// The histogram's noise; the paper's rule for the multiplier, if left out.
        #[serde(default)]
        histogram_noise: Option<f64>,
        /// Whether steps keep their length when the threshold moves.
        #[serde(default = "yes")]
        unit_steps: bool,
    },
    /// The threshold of the least expected squared error, from a private histogram.
    DcSgdE {
        /// Bins of the histogram.
        #[serde(default = "bins")]
        bins: usize,
        /// The histogram's noise; the paper's rule for the multiplier, if left out.
        #[serde(default)]
        histogram_noise: Option<f64>,
        /// Whether steps keep their length when the threshold moves.
        #[serde(default = "yes")]
        unit_steps: bool,
    },
    /// The threshold follows a quantile of the norms.
    Quantile {
        /// The share of gradients that is not clipped.
        #[serde(default = "quantile")]
        quantile: f64,
        /// How fast the threshold follows.
        #[serde(default = "rate")]
        rate: f64,
        /// The standard deviation of the noise on the count; a twentieth of the batch, if left out.
        #[serde(default)]
        count_noise: Option<f64>,
        /// Whether steps keep their length when the threshold moves.
        #[serde(default = "yes")]
        unit_steps: bool,
    },
    /// Error feedback over a window of steps, sound.
    Dice {
        /// The threshold of what is fed back of each record; nine times `max_grad_norm`, if left out.
        #[serde(default)]
        residual_clip: Option<f64>,
        /// `W`, over how many steps it is fed back; the window with the least noise, if left out.
        #[serde(default)]
        window: Option<u64>,
    },
    /// Error feedback from two releases, sound.
    DiceTwoRelease {
        /// The threshold of what is fed back of each record; nine times `max_grad_norm`, if left out.
        #[serde(default)]
        residual_clip: Option<f64>,
        /// `C_2`, the threshold of the mean error; the sum of the other two, if left out.
        #[serde(default)]
        feedback_clip: Option<f64>,
    },
    /// DiceSGD as published. Its claimed epsilon is false.
    DicePublished(DicePublishedOptions),
    /// Variance reduction with separate clipping.
    DpSvrg {
        /// Records of an anchor's batch; 16 batches, if left out.
        #[serde(default)]
        anchor_batch: Option<u64>,
        /// How likely the anchor moves; `2 B / B_a`, if left out.
        #[serde(default)]
        update_probability: Option<f64>,
        /// How the anchor moves; 4, if left out.
        #[serde(default)]
        routine: Option<u8>,
    },
    /// Coupled clipping with public thresholds, sound.
    DpC4(CoupledOptions),
    /// DP-C4 as published. There is no epsilon.
    DpC4Published(CoupledOptions),
    /// DP-C4+ as published. There is no epsilon.
    DpC4PlusPublished(CoupledOptions),
    /// Plain SGD. Not private.
    None {},
}

/// The options of coupled clipping.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoupledOptions {
    /// `C_1`: the threshold of differences, in units of what they follow.
    #[serde(default = "one")]
    pub difference_scale: f64,
    /// `C_2`: the threshold of the anchor's gradients, in units of their mean's length; 100, or 1 as published, if left out.
    #[serde(default)]
    pub anchor_scale: Option<f64>,
    /// Records of an anchor's batch; 16 batches, if left out.
    #[serde(default)]
    pub anchor_batch: Option<u64>,
    /// How likely the anchor moves; `2 B / B_a`, if left out.
    #[serde(default)]
    pub update_probability: Option<f64>,
    /// How the anchor moves; 4, or 1 as published, if left out.
    #[serde(default)]
    pub routine: Option<u8>,
}

impl CoupledOptions {
    fn check(&self) -> Result<(), AlgorithmError> {
        for (what, scale) in
            [("difference_scale", Some(self.difference_scale)), ("anchor_scale", self.anchor_scale)]
        {
            let scale = scale.unwrap_or(1.0);
            require((1e-6..=1e6).contains(&scale), what, "between 1e-6 and 1e6", scale)?;
        }
        Anchoring::check(self.anchor_batch, self.update_probability, self.routine)
    }

    /// As it does well, or as it was printed, where nothing is said.
    pub(crate) fn anchoring(&self, setting: &Setting, published: bool) -> Result<Anchoring, AlgorithmError> {
        let routine = if published { self.routine.or(Some(1)) } else { self.routine };
        Anchoring::new(self.anchor_batch, self.update_probability, routine, setting)
    }

    fn scales(&self, published: bool) -> (f64, f64) {
        let default = if published { 1.0 } else { 100.0 };
        (self.difference_scale, self.anchor_scale.unwrap_or(default))
    }
}

fn regulariser() -> f64 {
    0.01
}
fn yes() -> bool {
    true
}
fn one() -> f64 {
    1.0
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
        let noise = |what, value: Option<f64>| {
            let value = value.unwrap_or(1.0);
            require(value > 0.0 && value <= 1e6, what, "above 0 and at most 1e6", value)
        };
        let clip = |what, value: Option<f64>| {
            let value = value.unwrap_or(1.0);
            require((1e-9..=1e9).contains(&value), what, "between 1e-9 and 1e9", value)
        };
        match *self {
            Self::DpSgd {} | Self::AutoClip {} | Self::None {} | Self::DicePublished(_) => Ok(()),
            Self::Dynamic(ref options) => options.check(),
            Self::Dice { residual_clip, window } => {
                clip("residual_clip", residual_clip)?;
                require(window != Some(0), "window", "at least 1", 0.0)
            }
            Self::DiceTwoRelease { residual_clip, feedback_clip } => {
                clip("residual_clip", residual_clip)?;
                clip("feedback_clip", feedback_clip)
            }
            Self::DpSvrg { anchor_batch, update_probability, routine } => {
                Anchoring::check(anchor_batch, update_probability, routine)
            }
            Self::DpC4(options) | Self::DpC4Published(options) | Self::DpC4PlusPublished(options) => {
                options.check()
            }
            Self::DpNsgd { regulariser } => {
                require((0.0..=1e6).contains(&regulariser), "regulariser", "between 0 and 1e6", regulariser)
            }
            Self::NoiseDecayZcdp { noise_decay } | Self::NoiseDecayTcdp { noise_decay } => {
                growth("noise_decay", noise_decay)
            }
            Self::DcSgdP { percentile, bins, histogram_noise, .. } => {
                share("percentile", percentile)?;
                noise("histogram_noise", histogram_noise)?;
                check_bins(bins)
            }
            Self::DcSgdE { bins, histogram_noise, .. } => {
                noise("histogram_noise", histogram_noise)?;
                check_bins(bins)
            }
            Self::Quantile { quantile, rate, count_noise, .. } => {
                share("quantile", quantile)?;
                noise("count_noise", count_noise)?;
                require(rate > 0.0 && rate <= 10.0, "rate", "above 0 and at most 10", rate)
            }
        }
    }

    /// Why nothing is guaranteed, whatever its noise; nothing for algorithms that have a price.
    pub fn unprotected(&self) -> Option<&'static str> {
        match self {
            Self::None {} => Some(PLAIN),
            Self::DpC4Published(_) | Self::DpC4PlusPublished(_) => Some(THRESHOLDS_LEAK),
            Self::DicePublished(_) => Some(ERROR_LEAKS),
            _ => None,
        }
    }

    /// Whether it neither clips nor adds noise.
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::None {})
    }

    /// The sound algorithm to use in its place, if it is kept as its paper has it and the paper's claim is false.
    pub fn sound_form(&self) -> Option<&'static str> {
        match self {
            Self::DicePublished(_) => Some("dice"),
            Self::DpC4Published(_) | Self::DpC4PlusPublished(_) => Some("dp-c4"),
            _ => None,
        }
    }

    /// The greatest norm of what a record adds to a step, errors that are fed back included.
    pub fn reach(&self, clip: ClipNorm) -> f64 {
        match *self {
            Self::Dice { residual_clip, .. } | Self::DiceTwoRelease { residual_clip, .. } => {
                clip.get() + residual_or_default(residual_clip, clip)
            }
            // A difference and an anchor.
            Self::DpSvrg { .. } | Self::DpC4(_) | Self::DpC4Published(_) | Self::DpC4PlusPublished(_) => {
                2.0 * clip.get()
            }
            Self::DicePublished(_) => 2.0 * clip.get(),
            _ => clip.get(),
        }
    }

    /// The threshold of residuals, for error feedback.
    pub(crate) fn residual_clip(&self, setting: &Setting) -> Result<ClipNorm, AlgorithmError> {
        let given = match *self {
            Self::Dice { residual_clip, .. } | Self::DiceTwoRelease { residual_clip, .. } => residual_clip,
            _ => None,
        };
        Ok(ClipNorm::new(residual_or_default(given, setting.clip))?)
    }

    /// How anchors are looked at, for variance reduction.
    pub(crate) fn anchoring(&self, setting: &Setting) -> Result<Option<Anchoring>, AlgorithmError> {
        match *self {
            Self::DpSvrg { anchor_batch, update_probability, routine } => {
                Anchoring::new(anchor_batch, update_probability, routine, setting).map(Some)
            }
            Self::DpC4(options) => options.anchoring(setting, false).map(Some),
            Self::DpC4Published(options) | Self::DpC4PlusPublished(options) => {
                options.anchoring(setting, true).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether the threshold is what the setting says, or only begins there.
    pub fn adapts_threshold(&self) -> bool {
        matches!(self, Self::DcSgdP { .. } | Self::DcSgdE { .. } | Self::Quantile { .. })
    }

    /// Checks that every threshold the run can begin or end with is one that the trusted base takes, so that none is refused when
    /// steps are paid for.
    pub(crate) fn check_thresholds(&self, setting: &Setting) -> Result<(), AlgorithmError> {
        let mut thresholds = vec![setting.clip.get()];
        match self {
            Self::Dynamic(options) => {
                thresholds.extend(options.clip_range().map(|factor| setting.clip.get() * factor))
            }
            Self::Dice { .. } | Self::DiceTwoRelease { .. } => {
                thresholds.push(self.residual_clip(setting)?.get())
            }
            Self::DicePublished(options) => drop(options.rule(setting)?),
            // As far down as its thresholds go.
            Self::DpC4(_) => thresholds.push(1e-3 * setting.clip.get()),
            _ => {}
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
    pub fn begin<G: Gradients>(&self, setting: &Setting) -> Result<Box<dyn Algorithm<G>>, AlgorithmError>
    where
        G::Point: 'static,
    {
        self.check()?;
        self.check_thresholds(setting)?;
        Ok(match *self {
            Self::DpSgd {} => Box::new(DpSgd::new(setting, None)?),
            Self::DpNsgd { regulariser } => Box::new(DpSgd::new(setting, Some(regulariser))?),
            Self::AutoClip {} => Box::new(DpSgd::new(setting, Some(0.01))?),
            Self::NoiseDecayZcdp { .. } | Self::NoiseDecayTcdp { .. } => Box::new(DpSgd::new(setting, None)?),
            Self::Dynamic(ref options) => Box::new(Dynamic::new(setting, options.clone())),
            Self::Dice { .. } => Box::new(Dice::new(setting, self.residual_clip(setting)?)?),
            Self::DiceTwoRelease { feedback_clip, .. } => {
                let residual = self.residual_clip(setting)?;
                let feedback = feedback_clip.unwrap_or_else(|| self.reach(setting.clip));
                Box::new(DiceTwoRelease::new(setting, residual, ClipNorm::new(feedback)?)?)
            }
            Self::DicePublished(options) => Box::new(DicePublished::new(setting, options)?),
            Self::DpSvrg { anchor_batch, update_probability, routine } => {
                let anchoring = Anchoring::new(anchor_batch, update_probability, routine, setting)?;
                Box::new(Anchored::new(setting, &anchoring, DpSvrg::new(setting, &anchoring)?))
            }
            Self::DpC4(options) => {
                let anchoring = options.anchoring(setting, false)?;
                let estimate = DpC4::new(setting, &anchoring, options.scales(false));
                Box::new(Anchored::new(setting, &anchoring, estimate))
            }
            Self::DpC4Published(options) | Self::DpC4PlusPublished(options) => {
                let anchoring = options.anchoring(setting, true)?;
                let plus = matches!(self, Self::DpC4PlusPublished(_));
                let estimate =
                    DpC4Published::new(setting, &anchoring, options.scales(true), setting.claimed()?, plus);
                Box::new(Anchored::new(setting, &anchoring, estimate))
            }
            Self::DcSgdP { percentile, bins, unit_steps, .. } => {
                Box::new(DcSgd::new(setting, Search::Percentile(percentile), bins, unit_steps))
            }
            Self::DcSgdE { bins, unit_steps, .. } => {
                Box::new(DcSgd::new(setting, Search::LeastError, bins, unit_steps))
            }
            Self::Quantile { quantile, rate, unit_steps, .. } => {
                Box::new(Quantile::new(setting, quantile, rate, unit_steps))
            }
            Self::None {} => Box::new(Plain),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a message")]
fn check_bins(bins: usize) -> Result<(), AlgorithmError> {
    require((2..=1 << 12).contains(&bins), "bins", "between 2 and 4096", bins as f64)
}

fn residual_or_default(given: Option<f64>, clip: ClipNorm) -> f64 {
    given.unwrap_or(9.0 * clip.get())
}
