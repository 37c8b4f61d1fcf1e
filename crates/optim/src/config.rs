//! Optimizers as plain data, and their permitted settings.

use serde::{
    Deserialize, Serialize,
    de::value::{Error, MapDeserializer},
};

use crate::{OptimError, error::require};

/// Which optimizer, and its settings. The defaults are those of `torch.optim`, and 0.9 where momentum has none.
///
/// Weight decay is decoupled for every kind: a step first shrinks the parameters by `learning_rate * weight_decay`. It
/// reads the parameters alone, so it is free of privacy cost.
///
/// # Guarantees
/// Updates equal those of `torch.optim`, but for weight decay, which `torch` adds to the gradient except in `AdamW`. No
/// setting changes an epsilon: all of this is post-processing.
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
        /// From 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Heavy-ball momentum: `b_t = momentum b_(t-1) + g_t`, update `b_t`.
    ///
    /// # References
    /// Polyak, "Some methods of speeding up the convergence of iteration methods" (1964).
    Momentum {
        /// In [0, 1). Default 0.9.
        #[serde(default = "momentum")]
        momentum: f64,
        /// From 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Nesterov's momentum: `b_t = momentum b_(t-1) + g_t`, update `g_t + momentum b_t`.
    ///
    /// # References
    /// Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum in deep learning" (2013).
    Nesterov {
        /// In [0, 1). Default 0.9.
        #[serde(default = "momentum")]
        momentum: f64,
        /// From 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam: moving averages `m_t` of `g_t` and `v_t` of `g_t^2`, corrected for their start at 0;
    /// update `m^_t / (sqrt(v^_t) + epsilon)`.
    ///
    /// With `noise_correction`, DP-AdamBC: the noise's own second moment is taken out of `v^_t`, and the denominator is
    /// `sqrt(max(v^_t - noise_std^2, correction_floor^2)) + epsilon`.
    ///
    /// # References
    /// Kingma and Ba, "Adam: a method for stochastic optimization" (2015). Tang, Shpilevskiy and Lecuyer, "DP-AdamBC: your
    /// DP-Adam is actually DP-SGD (unless you apply bias correction)" (2024).
    Adam {
        /// Of `m_t`, in [0, 1). Default 0.9.
        #[serde(default = "beta1")]
        beta1: f64,
        /// Of `v_t`, in [0, 1). Default 0.999.
        #[serde(default = "beta2")]
        beta2: f64,
        /// From 1e-20 to 1. Default 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Whether the noise's variance is taken out of `v^_t`. Default no.
        #[serde(default)]
        noise_correction: bool,
        /// From 1e-15 to 1, in the unit of a gradient: the paper's gamma' is its square, and is tuned there. Default 1e-4.
        ///
        /// Where the noise is all there is, a step moves by about `0.2 noise_std / correction_floor` learning rates, so a
        /// floor far below `noise_std` wants a smaller learning rate.
        #[serde(default = "correction_floor")]
        correction_floor: f64,
        /// From 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adam with weight decay by default.
    ///
    /// # References
    /// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2.
    AdamW {
        /// As in Adam.
        #[serde(default = "beta1")]
        beta1: f64,
        /// As in Adam.
        #[serde(default = "beta2")]
        beta2: f64,
        /// As in Adam.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// As in Adam.
        #[serde(default)]
        noise_correction: bool,
        /// As in Adam.
        #[serde(default = "correction_floor")]
        correction_floor: f64,
        /// From 0 to 1000. Default 0.01.
        #[serde(default = "adamw_weight_decay")]
        weight_decay: f64,
    },
    /// RMSprop: `v_t = decay v_(t-1) + (1 - decay) g_t^2`, update `g_t / (sqrt(v_t) + epsilon)`.
    ///
    /// # References
    /// Hinton, Srivastava and Swersky, "Neural Networks for Machine Learning", lecture 6e (2012).
    RmsProp {
        /// In [0, 1). Default 0.99.
        #[serde(default = "rmsprop_decay")]
        decay: f64,
        /// From 1e-20 to 1. Default 1e-8.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// From 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Adagrad: `s_t = s_(t-1) + g_t^2`, update `g_t / (sqrt(s_t) + epsilon)`.
    ///
    /// # References
    /// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization" (2011).
    Adagrad {
        /// From 1e-20 to 1. Default 1e-10.
        #[serde(default = "adagrad_epsilon")]
        epsilon: f64,
        /// From 0 to 1000. Default 0.
        #[serde(default)]
        weight_decay: f64,
    },
}

fn momentum() -> f64 {
    0.9
}

fn beta1() -> f64 {
    0.9
}

fn beta2() -> f64 {
    0.999
}

fn epsilon() -> f64 {
    1e-8
}

fn correction_floor() -> f64 {
    1e-4
}

fn adamw_weight_decay() -> f64 {
    0.01
}

fn rmsprop_decay() -> f64 {
    0.99
}

fn adagrad_epsilon() -> f64 {
    1e-10
}

impl OptimizerConfig {
    /// The names of all kinds.
    pub const NAMES: [&'static str; 7] =
        ["sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad"];

    /// The kind of this name with its defaults.
    ///
    /// # Errors
    /// A name that is not one of [`NAMES`](Self::NAMES).
    pub fn named(name: &str) -> Result<Self, OptimError> {
        // The defaults are written once, for serde.
        let fields = MapDeserializer::<_, Error>::new(std::iter::once(("type", name)));
        Self::deserialize(fields).map_err(|_| OptimError::UnknownOptimizer {
            got: name.to_owned(),
            permitted: Self::NAMES.join(", "),
        })
    }

    /// The name of this kind.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Momentum { .. } => "momentum",
            Self::Nesterov { .. } => "nesterov",
            Self::Adam { .. } => "adam",
            Self::AdamW { .. } => "adamw",
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
            | Self::Adam { weight_decay, .. }
            | Self::AdamW { weight_decay, .. }
            | Self::RmsProp { weight_decay, .. }
            | Self::Adagrad { weight_decay, .. } => weight_decay,
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting outside of its range, NaN included.
    pub fn check(&self) -> Result<(), OptimError> {
        let weight_decay = self.weight_decay();
        require(
            (0.0..=1000.0).contains(&weight_decay),
            "weight decay",
            "between 0 and 1000",
            weight_decay,
            "0 is none; typical values lie between 1e-5 and 0.1",
        )?;
        match *self {
            Self::Sgd { .. } => Ok(()),
            Self::Momentum { momentum, .. } | Self::Nesterov { momentum, .. } => {
                below_one("momentum", momentum)
            }
            Self::Adam { beta1, beta2, epsilon, correction_floor, .. }
            | Self::AdamW { beta1, beta2, epsilon, correction_floor, .. } => {
                below_one("beta1", beta1)?;
                below_one("beta2", beta2)?;
                check_epsilon(epsilon)?;
                require(
                    (1e-15..=1.0).contains(&correction_floor),
                    "correction floor",
                    "between 1e-15 and 1",
                    correction_floor,
                    "the floor has the unit of a mean gradient; 1e-4 is the default",
                )
            }
            Self::RmsProp { decay, epsilon, .. } => {
                below_one("decay", decay)?;
                check_epsilon(epsilon)
            }
            Self::Adagrad { epsilon, .. } => check_epsilon(epsilon),
        }
    }
}

fn below_one(what: &'static str, value: f64) -> Result<(), OptimError> {
    require(
        (0.0..1.0).contains(&value),
        what,
        "in [0, 1)",
        value,
        "the past has this weight and the present the rest: 0.9 remembers about 10 steps, 0.999 about 1000",
    )
}

fn check_epsilon(value: f64) -> Result<(), OptimError> {
    // The optimizer's epsilon, not privacy's; at 0 a gradient of 0 would be divided by 0.
    require(
        (1e-20..=1.0).contains(&value),
        "the optimizer's epsilon",
        "between 1e-20 and 1",
        value,
        "this epsilon keeps a denominator from 0; did you mean --target-epsilon, the privacy budget?",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_names_its_kind_with_permitted_defaults() {
        for name in OptimizerConfig::NAMES {
            let config = OptimizerConfig::named(name).unwrap();
            assert_eq!(config.name(), name);
            config.check().unwrap();
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<OptimizerConfig>(&text).unwrap(), config);
        }
    }

    #[test]
    fn unknown_names_are_answered_with_the_permitted_ones() {
        let error = OptimizerConfig::named("adamax").unwrap_err().to_string();
        assert_eq!(
            error,
            "optimizer must be one of sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad, got adamax"
        );
        assert!(OptimizerConfig::named("").is_err() && OptimizerConfig::named("Adam").is_err());
    }

    #[test]
    fn unknown_settings_are_refused_for_every_kind() {
        for name in OptimizerConfig::NAMES {
            let text = format!("type = '{name}'\nlearning = 0.1");
            assert!(toml::from_str::<OptimizerConfig>(&text).is_err(), "{name}");
            let text = format!("type = '{name}'\nweight_decay = 1");
            assert_eq!(toml::from_str::<OptimizerConfig>(&text).unwrap().weight_decay(), 1.0);
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
