//! All algorithms: what they are, what holds of them, and where they come from.

use serde::Serialize;

/// An option of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OptionText {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// An algorithm as the registry has it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Description {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// What kind of promise it makes.
    pub promise: Promise,
    /// What is proved of it.
    pub verdict: &'static str,
    /// Where it comes from.
    pub reference: &'static str,
    /// Its options.
    pub options: &'static [OptionText],
}

/// What kind of promise an algorithm makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Its epsilon is proved and is what was asked for.
    Sound,
    /// Kept as its paper has it; the paper's epsilon is claimed, and what is proved is another one, or none.
    AsPublished,
    /// None.
    NotPrivate,
}

const fn option(name: &'static str, default: &'static str, meaning: &'static str) -> OptionText {
    OptionText { name, default, meaning }
}

const ANCHORS: [OptionText; 3] = [
    option("anchor_batch", "16 batches, at most all records", "expected records of an anchor's batch"),
    option(
        "update_probability",
        "2 B / anchor_batch",
        "how likely (routines 1, 3) or how often (2, 4) the anchor moves",
    ),
    option(
        "routine",
        "4; 1 as published",
        "to the point before the step (1 by chance, 2 regularly) or after it (3 by chance, 4 regularly)",
    ),
];

const COUPLED: [OptionText; 5] = [
    option("difference_scale", "1", "C_1: the threshold of differences, in units of what it follows"),
    option(
        "anchor_scale",
        "100; 1 as published",
        "C_2: the threshold at the anchor, in units of its mean gradient's length",
    ),
    ANCHORS[0],
    ANCHORS[1],
    ANCHORS[2],
];

const UNIT_STEPS: OptionText = option(
    "unit_steps",
    "true",
    "divide by how much the threshold has grown, so that steps keep their length; false as in the paper",
);

const HISTOGRAM: [OptionText; 3] = [
    option("bins", "20", "bins of the histogram"),
    option(
        "histogram_noise",
        "5; 8 at multipliers from 2, 12 above 3, 2.25 times those above 5.33",
        "noise on each bin",
    ),
    UNIT_STEPS,
];

/// All of them.
pub const ALGORITHMS: [Description; 17] = [
    Description {
        name: "dp-sgd",
        summary: "The sum of gradients, each clipped to max_grad_norm, with Gaussian noise.",
        promise: Promise::Sound,
        verdict: "sound",
        reference: "Abadi et al. 2016, Algorithm 1",
        options: &[],
    },
    Description {
        name: "dp-nsgd",
        summary: "Every gradient is scaled to just below max_grad_norm, small ones too: C g / (r + |g|).",
        promise: Promise::Sound,
        verdict: "sound under add/remove; the printed epsilons of the paper are false for replace-one, which it states",
        reference: "Yang et al. 2022, Algorithm 1",
        options: &[option("regulariser", "0.01", "r, in units of a gradient's norm")],
    },
    Description {
        name: "auto-clip",
        summary: "dp-nsgd with the regulariser of automatic clipping, 0.01.",
        promise: Promise::Sound,
        verdict: "sound",
        reference: "Bu et al. 2023",
        options: &[],
    },
    Description {
        name: "dynamic",
        summary: "Thresholds decay and multipliers fall along the run, by public formulas; the first multiplier comes from the exact price.",
        promise: Promise::Sound,
        verdict: "sound; the central limit theorem by which the paper prices it reports too little (--accountant gdp-clt shows by how much)",
        reference: "Du et al. 2021, Algorithm 2 and appendix A.7",
        options: &[
            option(
                "mu_growth",
                "2",
                "how much smaller the multiplier is at the end; 1 for sensitivity decay alone",
            ),
            option("clip_decay", "2", "how much smaller the threshold is at the end; 1 for growing mu alone"),
            option(
                "mu_schedule",
                "none",
                "any schedule of 1 / multiplier, as parts of the run and factors: 0:1/0.5:2/1:4",
            ),
            option("clip_schedule", "none", "any schedule of the threshold, written alike"),
            option(
                "allocation",
                "scheduled",
                "optimal: noise proportional to the root of the threshold, in place of mu_growth",
            ),
        ],
    },
    Description {
        name: "noise-decay-zcdp",
        summary: "Noise decays along the run; priced, unless told otherwise, without amplification by sampling.",
        promise: Promise::Sound,
        verdict: "sound, and wasteful: a baseline",
        reference: "Yu et al. 2019, as in Du et al. 2021",
        options: &[option("noise_decay", "2", "how much smaller the noise is at the end")],
    },
    Description {
        name: "noise-decay-tcdp",
        summary: "Noise decays along the run; priced, unless told otherwise, by truncated concentrated differential privacy.",
        promise: Promise::Sound,
        verdict: "sound where its conditions hold (rates up to 0.1, multipliers from 2.24): a baseline",
        reference: "Zhang et al. 2021, as in Du et al. 2021",
        options: &[option("noise_decay", "2", "how much smaller the noise is at the end")],
    },
    Description {
        name: "dc-sgd-p",
        summary: "The threshold is a percentile of the gradient norms, from a private histogram of the batch before; it stays where it began if batches are too small for the histogram's noise.",
        promise: Promise::Sound,
        verdict: "sound with the histogram's own sum in place of the batch size",
        reference: "Wei et al. 2025, Algorithms 1 to 3",
        options: &[
            option("percentile", "0.5", "the share of gradients that is not clipped"),
            HISTOGRAM[0],
            HISTOGRAM[1],
            UNIT_STEPS,
        ],
    },
    Description {
        name: "dc-sgd-e",
        summary: "The threshold makes the expected squared error of clipping and noise least, judged by a private histogram.",
        promise: Promise::Sound,
        verdict: "sound with the histogram's own sum in place of the batch size",
        reference: "Wei et al. 2025, Algorithms 1, 2 and 4",
        options: &HISTOGRAM,
    },
    Description {
        name: "quantile",
        summary: "The threshold follows a quantile of the gradient norms, by a private count.",
        promise: Promise::Sound,
        verdict: "sound",
        reference: "Andrew et al. 2021, Algorithm 1",
        options: &[
            option("quantile", "0.5", "the share of gradients that is not clipped"),
            option("rate", "0.2", "how fast the threshold follows"),
            option(
                "count_noise",
                "a twentieth of the batch, or twice the multiplier if that is more",
                "noise on the count",
            ),
            UNIT_STEPS,
        ],
    },
    Description {
        name: "dice",
        summary: "Error feedback: what clipping takes away of each gradient, up to residual_clip, is fed back over the next W steps. Groups of records take turns, so that a record is sampled once in W + 1 steps.",
        promise: Promise::Sound,
        verdict: "sound: Sordino's form of DiceSGD, whose published claim is false; gradients up to max_grad_norm + residual_clip are not biased",
        reference: "after Zhang et al. 2023, Algorithm 2",
        options: &[
            option("residual_clip", "9 times max_grad_norm", "the most that is fed back of a gradient"),
            option("window", "the one with the least noise", "W, over how many steps it is fed back"),
        ],
    },
    Description {
        name: "dice-two-release",
        summary: "Error feedback from two noisy sums, of clipped gradients and of what clipping took away, so that the error is public.",
        promise: Promise::Sound,
        verdict: "sound; as much noise as dp-sgd at the sum of the two thresholds",
        reference: "after Zhang et al. 2023, Algorithm 2",
        options: &[
            option("residual_clip", "9 times max_grad_norm", "the most that is fed back of a gradient"),
            option("feedback_clip", "max_grad_norm + residual_clip", "C_2, the threshold of the mean error"),
        ],
    },
    Description {
        name: "dice-published",
        summary: "DiceSGD as published, with its noise for a claimed epsilon: hidden error feedback without a bound on what one record does to it.",
        promise: Promise::AsPublished,
        verdict: "THE CLAIM IS FALSE: a record that was sampled once moves all later releases; the epsilon that is proved is far larger. Use dice",
        reference: "Zhang et al. 2023, Algorithms 2, 3 (with --optimizer adam) and 4 (automatic=true)",
        options: &[
            option(
                "thresholds",
                "experiments",
                "experiments: C_1 = C_2 = max_grad_norm; theorem: both over the batch size",
            ),
            option(
                "automatic",
                "false",
                "normalise gradients and error in place of clipping them (Algorithm 4)",
            ),
        ],
    },
    Description {
        name: "dp-svrg",
        summary: "Variance reduction: gradients at a point and at an anchor, clipped separately, plus the anchor's gradient from a large batch.",
        promise: Promise::Sound,
        verdict: "sound with two releases in each step and anchors that are noised once",
        reference: "Lee 2017; Algorithm 2 of the DP-C4 paper (under double-blind review)",
        options: &ANCHORS,
    },
    Description {
        name: "dp-c4",
        summary: "Variance reduction with coupled clipping: differences of a record's gradients at a point and at an anchor are clipped as one, to a threshold that follows the distance of the two.",
        promise: Promise::Sound,
        verdict: "sound: Sordino's form of DP-C4 with public thresholds and anchors that are noised once",
        reference: "after the DP-C4 paper (under double-blind review), Algorithms 3 and 4",
        options: &COUPLED,
    },
    Description {
        name: "dp-c4-published",
        summary: "DP-C4 as published: thresholds, and with them the noise, come from raw gradients.",
        promise: Promise::AsPublished,
        verdict: "NO EPSILON: the scale of the noise tells about records, and there is none where gradients vanish. Use dp-c4",
        reference: "the DP-C4 paper (under double-blind review), Algorithm 3, noise from Theorem 3",
        options: &COUPLED,
    },
    Description {
        name: "dp-c4-plus-published",
        summary: "DP-C4+ as published: the threshold of differences follows the distance, that of the anchor its raw gradient before.",
        promise: Promise::AsPublished,
        verdict: "NO EPSILON: the anchor's threshold comes from raw gradients and sets the noise. Use dp-c4",
        reference: "the DP-C4 paper (under double-blind review), Algorithm 4, noise from Theorem 3",
        options: &COUPLED,
    },
    Description {
        name: "none",
        summary: "Plain SGD on the same batches.",
        promise: Promise::NotPrivate,
        verdict: "NOT PRIVATE",
        reference: "",
        options: &[],
    },
];

/// The algorithms that have an option of this name.
pub fn owners(option: &str) -> Vec<&'static str> {
    let has = |description: &&Description| description.options.iter().any(|other| other.name == option);
    ALGORITHMS.iter().filter(has).map(|description| description.name).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use sordino_accounting::{Accountant, ClipNorm, NoiseMultiplier, Sampling, SamplingRate, Steps};

    use super::*;
    use crate::{Choice, Noise, Setting};

    pub(crate) fn setting() -> Setting {
        Setting {
            sampling: Sampling::Poisson { rate: SamplingRate::new(0.05).unwrap(), cap: None },
            steps: Steps::new(30).unwrap(),
            expected_batch_size: 100.0,
            clip: ClipNorm::new(1.0).unwrap(),
            layers: None,
            dimension: 2,
            noise_multiplier: None,
            records: 2000,
            claim: None,
        }
    }

    fn choice(name: &str) -> Choice {
        serde_json::from_value(serde_json::json!({ "type": name })).unwrap()
    }

    #[test]
    fn names_and_options_are_those_that_serde_reads() {
        for description in ALGORITHMS {
            choice(description.name).check().unwrap();
            let written = serde_json::to_value(choice(description.name)).unwrap();
            let mut keys: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
            keys.retain(|key| *key != "type");
            let mut named: Vec<&str> = description.options.iter().map(|option| option.name).collect();
            keys.sort_unstable();
            named.sort_unstable();
            assert_eq!(keys, named, "{}", description.name);
            let unknown = serde_json::json!({ "type": description.name, "colour": "blue" });
            assert!(serde_json::from_value::<Choice>(unknown).is_err(), "{}", description.name);
        }
        assert_eq!(owners("bins"), ["dc-sgd-p", "dc-sgd-e"]);
    }

    #[test]
    fn promises_are_those_that_the_algorithms_keep() {
        for description in ALGORITHMS {
            let choice = choice(description.name);
            match description.promise {
                Promise::Sound => assert!(choice.unprotected().is_none() && choice.sound_form().is_none()),
                Promise::AsPublished => assert!(description.verdict.contains(choice.sound_form().unwrap())),
                Promise::NotPrivate => assert!(choice.unprotected().is_some() && choice.is_plain()),
            }
        }
    }

    #[test]
    fn dynamic_multipliers_are_those_of_the_schedule() {
        let plan = choice("dynamic")
            .plan(&setting(), Noise::Multiplier(NoiseMultiplier::new(1.5).unwrap()))
            .unwrap();
        assert_eq!(plan.entries().len(), 30);
        let z = |i: usize| plan.entries()[i].effective_noise_multiplier();
        assert!((z(0) / z(29) - 2.0_f64.powf(29.0 / 30.0)).abs() < 1e-9);
        assert!((z(29) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn releases_of_a_step_share_its_multiplier() {
        let z = NoiseMultiplier::new(1.5).unwrap();
        for name in ["dc-sgd-p", "dc-sgd-e", "quantile", "dice-two-release"] {
            let plan = choice(name).plan(&setting(), Noise::Multiplier(z)).unwrap();
            let entry = &plan.entries()[0];
            assert_eq!(entry.releases().len(), 2);
            assert!((entry.effective_noise_multiplier() / 1.5 - 1.0).abs() < 1e-12, "{name}");
            // The paper: the histogram takes so little that gradients have a few per cent more noise.
            assert!(
                name.starts_with("dice") || entry.releases()[0].get() < 1.08 * 1.5,
                "{name}: {:?}",
                entry.releases()
            );
        }
        let greedy: Choice = serde_json::from_str(r#"{"type":"dc-sgd-p","histogram_noise":1.2}"#).unwrap();
        assert!(greedy.plan(&setting(), Noise::Multiplier(z)).is_err());
    }

    #[test]
    fn sampling_that_an_algorithm_is_not_made_for_is_refused() {
        let everybody = Setting { sampling: Sampling::FullBatch, ..setting() };
        let z = Noise::Multiplier(NoiseMultiplier::new(1.0).unwrap());
        for name in ["dice", "dp-svrg", "dp-c4"] {
            let text = if name == "dice" {
                r#"{"type":"dice","window":4}"#
            } else {
                &format!(r#"{{"type":"{name}"}}"#)
            };
            let choice: Choice = serde_json::from_str(text).unwrap();
            assert!(choice.plan(&setting(), z).is_ok(), "{name}");
            assert!(choice.plan(&everybody, z).unwrap_err().to_string().contains("Poisson"), "{name}");
        }
        // Without a budget there is no best window, and without a claim there is no noise.
        assert!(choice("dice").plan(&setting(), z).is_err());
        assert!(choice("dp-c4-published").plan(&setting(), z).unwrap_err().to_string().contains("claimed"));
        assert_eq!(choice("dice-published").accountant(&setting()), Accountant::FirstParticipation);
    }
}
