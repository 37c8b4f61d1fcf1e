//! The settings of every optimizer, with their defaults and permitted ranges.

use serde::{
    Deserialize, Serialize,
    de::value::{Error, MapDeserializer},
};

use crate::{AdamSettings, OptimError, error::require};

/// An optimizer and its settings. The defaults are those of `torch.optim`; momentum, which has none there, is 0.9.
///
/// Weight decay is decoupled for every optimizer: a step first shrinks the parameters by the factor
/// `1 - learning_rate * weight_decay`. It uses the parameters only, so it costs no privacy.
///
/// # Guarantees
/// Updates equal those of `torch.optim`, except for weight decay, which `torch` adds to the gradient in all optimizers but
/// `AdamW`. No setting changes epsilon, because optimizers are post-processing.
///
/// # Example
/// ```
/// use sordino_optim::OptimizerConfig;
///
/// let config: OptimizerConfig = toml::from_str("type = 'momentum'\nmomentum = 0.8").unwrap();
/// assert_eq!(config, OptimizerConfig::Momentum { momentum: 0.8, weight_decay: 0.0 });
/// assert!(toml::from_str::<OptimizerConfig>("type = 'sgd'\nmomentum = 0.8").is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum OptimizerConfig {
    /// Stochastic gradient descent: the update is the gradient.
    ///
    /// # References
    /// Robbins and Monro, "A stochastic approximation method" (1951).
    Sgd {
        /// Decoupled weight decay, from 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Heavy-ball momentum: `b_t = momentum b_(t-1) + g_t`, update `b_t`.
    ///
    /// # References
    /// Polyak, "Some methods of speeding up the convergence of iteration methods" (1964).
    Momentum {
        /// The momentum coefficient, in [0, 1). Default 0.9.
        #[serde(default = "momentum")]
        momentum: f64,
        /// Decoupled weight decay, from 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Nesterov's momentum: `b_t = momentum b_(t-1) + g_t`, update `g_t + momentum b_t`.
    ///
    /// # References
    /// Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum in deep learning" (2013).
    Nesterov {
        /// The momentum coefficient, in [0, 1). Default 0.9.
        #[serde(default = "momentum")]
        momentum: f64,
        /// Decoupled weight decay, from 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam: bias-corrected moving averages `m^_t` of `g_t` and `v^_t` of `g_t^2`; update `m^_t / (sqrt(v^_t) + epsilon)`.
    ///
    /// With `noise_correction` this is DP-AdamBC: the variance of the noise is subtracted from `v^_t`, and the denominator is
    /// `sqrt(max(v^_t - noise_std^2, correction_floor^2)) + epsilon`.
    ///
    /// # References
    /// Kingma and Ba, "Adam: a method for stochastic optimization" (2015). Tang, Shpilevskiy and Lecuyer, "DP-AdamBC: your
    /// DP-Adam is actually DP-SGD (unless you apply bias correction)" (2024).
    Adam(AdamSettings<false>),
    /// Adam with weight decay by default.
    ///
    /// # References
    /// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2.
    AdamW(AdamSettings<true>),
    /// RMSprop: `v_t = decay v_(t-1) + (1 - decay) g_t^2`, update `g_t / (sqrt(v_t) + epsilon)`.
    ///
    /// # References
    /// Hinton, Srivastava and Swersky, "Neural Networks for Machine Learning", lecture 6e (2012).
    RmsProp {
        /// Decay of the second moment `v_t`, in [0, 1). Default 0.99.
        #[serde(default = "rmsprop_decay")]
        decay: f64,
        /// Added to the denominator, from 1e-20 to 1. Default 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Decoupled weight decay, from 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adagrad: `s_t = s_(t-1) + g_t^2`, update `g_t / (sqrt(s_t) + epsilon)`.
    ///
    /// # References
    /// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization" (2011).
    Adagrad {
        /// Added to the denominator, from 1e-20 to 1. Default 1e-10.
        #[serde(default = "adagrad_epsilon")]
        epsilon: f64,
        /// Decoupled weight decay, from 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
}

fn momentum() -> f64 {
    0.9
}

fn epsilon() -> f64 {
    1e-8
}

fn rmsprop_decay() -> f64 {
    0.99
}

fn adagrad_epsilon() -> f64 {
    1e-10
}

impl OptimizerConfig {
    /// The names of all optimizers.
    pub const NAMES: [&'static str; 7] =
        ["sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad"];

    /// The optimizer of this name with its defaults.
    ///
    /// # Errors
    /// A name that is not one of [`NAMES`](Self::NAMES).
    pub fn named(name: &str) -> Result<Self, OptimError> {
        // The defaults are declared once, in the serde attributes.
        let fields = MapDeserializer::<_, Error>::new(std::iter::once(("type", name)));
        Self::deserialize(fields).map_err(|_| OptimError::UnknownOptimizer {
            got: name.to_owned(),
            permitted: Self::NAMES.join(", "),
        })
    }

    /// The name of this optimizer.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Momentum { .. } => "momentum",
            Self::Nesterov { .. } => "nesterov",
            Self::Adam(_) => "adam",
            Self::AdamW(_) => "adamw",
            Self::RmsProp { .. } => "rmsprop",
            Self::Adagrad { .. } => "adagrad",
        }
    }

    /// The decoupled weight decay.
    pub const fn weight_decay(&self) -> f64 {
        match *self {
            Self::Sgd { weight_decay }
            | Self::Momentum { weight_decay, .. }
            | Self::Nesterov { weight_decay, .. }
            | Self::RmsProp { weight_decay, .. }
            | Self::Adagrad { weight_decay, .. } => weight_decay,
            Self::Adam(settings) => settings.weight_decay,
            Self::AdamW(settings) => settings.weight_decay,
        }
    }

    /// The momentum coefficient; 0 for an optimizer without one. Adaptive optimizers also average gradients, but the length of their
    /// steps depends on the squares of single gradients, so they count as optimizers without momentum.
    pub const fn momentum(&self) -> f64 {
        match *self {
            Self::Momentum { momentum, .. } | Self::Nesterov { momentum, .. } => momentum,
            _ => 0.0,
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that is out of range. NaN is out of range.
    pub fn check(&self) -> Result<(), OptimError> {
        let weight_decay = self.weight_decay();
        require(
            (0.0..=1000.0).contains(&weight_decay),
            "weight decay",
            "between 0 and 1000",
            weight_decay,
            "0 turns weight decay off; typical values are between 1e-5 and 0.1",
        )?;
        match *self {
            Self::Sgd { .. } => Ok(()),
            Self::Momentum { momentum, .. } | Self::Nesterov { momentum, .. } => {
                check_decay("momentum", momentum)
            }
            Self::Adam(settings) => settings.check(),
            Self::AdamW(settings) => settings.check(),
            Self::RmsProp { decay, epsilon, .. } => {
                check_decay("decay", decay)?;
                check_epsilon(epsilon)
            }
            Self::Adagrad { epsilon, .. } => check_epsilon(epsilon),
        }
    }
}

pub(crate) fn check_decay(what: &'static str, value: f64) -> Result<(), OptimError> {
    require(
        (0.0..1.0).contains(&value),
        what,
        "in [0, 1)",
        value,
        "0.9 averages over about 10 steps, 0.999 over about 1000",
    )
}

pub(crate) fn check_epsilon(value: f64) -> Result<(), OptimError> {
    // The epsilon of the optimizer, not of the privacy budget. If it were 0, a gradient of 0 would be divided by 0.
    require(
        (1e-20..=1.0).contains(&value),
        "the optimizer's epsilon",
        "between 1e-20 and 1",
        value,
        "this epsilon keeps the denominator away from 0; the privacy budget is {epsilon}",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn momentum_is_that_of_heavy_balls_and_nesterov() {
        let momentum = |name| OptimizerConfig::named(name).unwrap().momentum();
        assert_eq!(OptimizerConfig::NAMES.map(momentum), [0.0, 0.9, 0.9, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn every_name_gives_an_optimizer_with_permitted_defaults() {
        for name in OptimizerConfig::NAMES {
            let config = OptimizerConfig::named(name).unwrap();
            assert_eq!(config.name(), name);
            config.check().unwrap();
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<OptimizerConfig>(&text).unwrap(), config);
        }
    }

    #[test]
    fn errors_about_unknown_names_list_the_permitted_ones() {
        let error = OptimizerConfig::named("adamax").unwrap_err().to_string();
        assert_eq!(
            error,
            "optimizer must be one of sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad, got adamax"
        );
        assert!(OptimizerConfig::named("").is_err() && OptimizerConfig::named("Adam").is_err());
    }

    #[test]
    fn unknown_settings_are_refused_for_every_optimizer() {
        for name in OptimizerConfig::NAMES {
            let text = format!("type = '{name}'\nlearning = 0.1");
            assert!(toml::from_str::<OptimizerConfig>(&text).is_err(), "{name}");
            let text = format!("type = '{name}'\nweight_decay = 1");
            assert_eq!(toml::from_str::<OptimizerConfig>(&text).unwrap().weight_decay(), 1.0);
        }
    }

    #[test]
    fn adam_and_adamw_differ_in_their_default_weight_decay_only() {
        for (name, weight_decay) in [("adam", "0.0"), ("adamw", "0.01")] {
            let text = format!(
                r#"{{"type":"{name}","beta1":0.9,"beta2":0.999,"epsilon":1e-8,"noise_correction":false,"correction_floor":0.0001,"weight_decay":{weight_decay}}}"#
            );
            let config = OptimizerConfig::named(name).unwrap();
            assert_eq!(serde_json::to_string(&config).unwrap(), text);
        }
    }

    #[test]
    fn unknown_settings_of_adam_are_answered_with_the_known_ones() {
        for name in ["adam", "adamw"] {
            let text = format!(r#"{{"type": "{name}", "beta3": 1}}"#);
            let message = serde_json::from_str::<OptimizerConfig>(&text).unwrap_err().to_string();
            assert!(message.contains("beta3") && message.contains("correction_floor"), "{message}");
        }
    }

    #[test]
    fn edge_values_are_refused() {
        for name in OptimizerConfig::NAMES {
            let fields = serde_json::to_value(OptimizerConfig::named(name).unwrap()).unwrap();
            for (field, value) in fields.as_object().unwrap() {
                if !value.is_f64() {
                    continue;
                }
                let mut changed = fields.clone();
                changed[field] = serde_json::json!(-1.0);
                let changed: OptimizerConfig = serde_json::from_value(changed).unwrap();
                assert!(changed.check().is_err(), "{name} {field}");
            }
        }
        for bad in [1.0, f64::NAN, f64::INFINITY] {
            assert!(OptimizerConfig::Momentum { momentum: bad, weight_decay: 0.0 }.check().is_err());
        }
        for bad in [0.0, f64::NAN, f64::INFINITY] {
            assert!(OptimizerConfig::Adagrad { epsilon: bad, weight_decay: 0.0 }.check().is_err());
        }
        for bad in [1001.0, f64::NAN, f64::INFINITY] {
            assert!(OptimizerConfig::Sgd { weight_decay: bad }.check().is_err());
        }
    }

    #[test]
    fn messages_carry_the_value_and_the_range() {
        let error = OptimizerConfig::Nesterov { momentum: 1.5, weight_decay: 0.0 }.check().unwrap_err();
        assert_eq!(error.to_string(), "momentum must be in [0, 1), got 1.5");
        assert!(error.hint().contains("0.9"));
    }
}
