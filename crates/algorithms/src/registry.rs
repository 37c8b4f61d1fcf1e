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
    /// What is proved of it.
    pub verdict: &'static str,
    /// Where it comes from.
    pub reference: &'static str,
    /// Its options.
    pub options: &'static [OptionText],
}

const fn option(name: &'static str, default: &'static str, meaning: &'static str) -> OptionText {
    OptionText { name, default, meaning }
}

const HISTOGRAM: [OptionText; 2] = [
    option("bins", "20", "bins of the histogram"),
    option("histogram_noise", "5, or 4.17 times the multiplier if that is more", "noise on each bin"),
];

/// All of them.
pub const ALGORITHMS: [Description; 10] = [
    Description {
        name: "dp-sgd",
        summary: "The sum of gradients, each clipped to max_grad_norm, with Gaussian noise.",
        verdict: "sound",
        reference: "Abadi et al. 2016, Algorithm 1",
        options: &[],
    },
    Description {
        name: "dp-nsgd",
        summary: "Every gradient is scaled to just below max_grad_norm, small ones too: C g / (r + |g|).",
        verdict: "sound under add/remove; the printed epsilons of the paper are false for replace-one, which it states",
        reference: "Yang et al. 2022, Algorithm 2",
        options: &[option("regulariser", "0.01", "r, in units of a gradient's norm")],
    },
    Description {
        name: "auto-clip",
        summary: "dp-nsgd with the regulariser of automatic clipping, 0.01.",
        verdict: "sound",
        reference: "Bu et al. 2023",
        options: &[],
    },
    Description {
        name: "dynamic",
        summary: "Thresholds decay and multipliers fall along the run, by public formulas; the first multiplier comes from the exact price.",
        verdict: "sound; the central limit theorem by which the paper prices it reports too little",
        reference: "Du et al. 2021, Algorithm 2",
        options: &[
            option("mu_growth", "2", "how much smaller the multiplier is at the end"),
            option("clip_decay", "2", "how much smaller the threshold is at the end"),
        ],
    },
    Description {
        name: "noise-decay-zcdp",
        summary: "Noise decays along the run; priced, unless told otherwise, without amplification by sampling.",
        verdict: "sound, and wasteful: a baseline",
        reference: "Yu et al. 2019, as in Du et al. 2021",
        options: &[option("noise_decay", "2", "how much smaller the noise is at the end")],
    },
    Description {
        name: "noise-decay-tcdp",
        summary: "Noise decays along the run; priced, unless told otherwise, by truncated concentrated differential privacy.",
        verdict: "sound where its conditions hold (rates up to 0.1, multipliers from 2.24): a baseline",
        reference: "Zhang et al. 2021, as in Du et al. 2021",
        options: &[option("noise_decay", "2", "how much smaller the noise is at the end")],
    },
    Description {
        name: "dc-sgd-p",
        summary: "The threshold is a percentile of the gradient norms, from a private histogram of the batch before; it stays where it began if batches are too small for the histogram's noise.",
        verdict: "sound with the histogram's own sum in place of the batch size",
        reference: "Wei et al. 2025, Algorithms 1 to 3",
        options: &[
            option("percentile", "0.5", "the share of gradients that is not clipped"),
            HISTOGRAM[0],
            HISTOGRAM[1],
        ],
    },
    Description {
        name: "dc-sgd-e",
        summary: "The threshold makes the expected squared error of clipping and noise least, judged by a private histogram.",
        verdict: "sound with the histogram's own sum in place of the batch size",
        reference: "Wei et al. 2025, Algorithms 1, 2 and 4",
        options: &HISTOGRAM,
    },
    Description {
        name: "quantile",
        summary: "The threshold follows a quantile of the gradient norms, by a private count.",
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
        ],
    },
    Description {
        name: "none",
        summary: "Plain SGD on the same batches.",
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
    use std::{collections::BTreeMap, convert::Infallible, ops::Range};

    use sordino_accounting::{
        Accountant, ClipNorm, Delta, Epsilon, NoiseMultiplier, Sampling, SamplingRate, Steps,
        calibrate::Budget,
    };
    use sordino_privacy::{Gradients, Randomness, RecordGradient, Standing, Terms, Vault, Weigh};

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
        }
    }

    fn choice(name: &str) -> Choice {
        serde_json::from_value(serde_json::json!({ "type": name })).unwrap()
    }

    fn budget() -> Budget {
        Budget { epsilon: Epsilon::new(2.0).unwrap(), delta: Delta::new(1e-5).unwrap() }
    }

    fn accountant(name: &str) -> Accountant {
        match name {
            "noise-decay-zcdp" => Accountant::Zcdp,
            "noise-decay-tcdp" => Accountant::Tcdp,
            _ => Accountant::Pld,
        }
    }

    /// Records that pull towards a point each: the gradient at `x` is `x - target`.
    struct Pull(Vec<[f32; 2]>);

    struct Seen {
        norm: f64,
        weight: f32,
    }

    impl RecordGradient for Seen {
        fn norm(&self, _: usize) -> f64 {
            self.norm
        }
        fn weigh(&mut self, _: usize, weight: f32) {
            self.weight = weight;
        }
    }

    impl Gradients for Pull {
        type Point = [f32; 2];
        type Error = Infallible;
        fn records(&self) -> usize {
            self.0.len()
        }
        fn dimension(&self) -> usize {
            2
        }
        fn trainable(&self) -> Vec<Range<usize>> {
            std::iter::once(0..2).collect()
        }
        fn layers(&self) -> usize {
            1
        }
        fn pass(
            &mut self,
            at: &[f32; 2],
            _: Option<&[f32; 2]>,
            chosen: &[usize],
            weigh: Option<&Weigh<'_>>,
            _: u64,
            sum: &mut Vec<f32>,
        ) -> Result<(), Infallible> {
            sum.clear();
            sum.resize(2, 0.0);
            for target in chosen.iter().map(|&record| self.0[record]) {
                let gradient = [at[0] - target[0], at[1] - target[1]];
                let norm = f64::from(gradient[0]).hypot(f64::from(gradient[1]));
                if !norm.is_finite() {
                    continue;
                }
                let mut seen = Seen { norm, weight: 1.0 };
                if let Some(weigh) = weigh {
                    weigh(&mut seen);
                }
                sum[0] += seen.weight * gradient[0];
                sum[1] += seen.weight * gradient[1];
            }
            Ok(())
        }
    }

    /// Trains and returns the point, the standing, and what the algorithm has learned.
    fn train(name: &str, records: Vec<[f32; 2]>, seed: u64) -> ([f32; 2], Standing, BTreeMap<String, f64>) {
        let choice = choice(name);
        let count = records.len() as u64;
        let terms = match choice.plan(&setting(), Noise::Budget(budget(), accountant(name))).unwrap() {
            Some(plan) => {
                Terms::price(plan, count, budget().delta, Some(budget().epsilon), accountant(name)).unwrap()
            }
            None => {
                Terms::unprotected(count, SamplingRate::new(0.05).unwrap(), setting().steps, crate::PLAIN)
            }
        };
        let ledger = std::env::temp_dir().join(format!("sordino-{name}-{seed}-{}", std::process::id()));
        let _ = std::fs::remove_file(&ledger);
        let mut vault = Vault::seal(Pull(records), &terms, Randomness::seeded(seed), &ledger).unwrap();
        let mut algorithm = choice.begin(&setting()).unwrap();
        let mut point = [0.0_f32; 2];
        for number in 0.. {
            let Some(release) = vault.round(|round| algorithm.step(round, &point, number)).unwrap() else {
                break;
            };
            let release = release.unwrap();
            point = [point[0] - 0.005 * release[0], point[1] - 0.005 * release[1]];
        }
        let account = vault.close().unwrap();
        assert!(account.is_closed(), "{name} leaves steps of its plan");
        std::fs::remove_file(&ledger).unwrap();
        // The seed takes the guarantee away; what the plan costs is known all the same.
        let standing = terms
            .guarantee()
            .map_or(Standing::NotPrivate(String::new()), |guarantee| Standing::Private(*guarantee));
        (point, standing, algorithm.state())
    }

    fn crowd() -> Vec<[f32; 2]> {
        (0..2000).map(|i| [3.0 + (i % 7) as f32 / 10.0, -2.0]).collect()
    }

    #[test]
    fn every_algorithm_runs_its_plan_within_the_budget_and_moves_towards_the_records() {
        for description in ALGORITHMS {
            let (point, standing, _) = train(description.name, crowd(), 5);
            assert!(point.iter().all(|x| x.is_finite()), "{}: {point:?}", description.name);
            // The two baselines are buried in noise at this budget.
            if !description.name.starts_with("noise-decay") {
                assert!(point[0] > 0.3 && point[1] < -0.2, "{}: {point:?}", description.name);
            }
            match standing {
                Standing::Private(guarantee) => {
                    assert!(guarantee.epsilon <= budget().epsilon, "{}", description.name)
                }
                Standing::NotPrivate(_) => assert_eq!(description.name, "none"),
            }
        }
    }

    #[test]
    fn every_algorithm_survives_strange_records_and_repeats_under_a_seed() {
        for description in ALGORITHMS {
            let strange = vec![[f32::NAN, 0.0], [f32::INFINITY, 1.0], [1e30, -1e30], [0.0, 0.0]];
            for records in [strange, vec![[1.0, 1.0]]] {
                let first = train(description.name, records.clone(), 6);
                let plain = description.name == "none";
                assert!(
                    plain || first.0.iter().all(|x| x.is_finite()),
                    "{}: {:?}",
                    description.name,
                    first.0
                );
                let again = train(description.name, records, 6);
                assert!(plain || (first.0, first.2) == (again.0, again.2), "{}", description.name);
            }
        }
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
        }
        assert_eq!(owners("bins"), ["dc-sgd-p", "dc-sgd-e"]);
    }

    #[test]
    fn a_state_is_taken_up_and_nonsense_is_not() {
        for name in ["dc-sgd-p", "dc-sgd-e", "quantile"] {
            let (_, _, state) = train(name, crowd(), 5);
            let mut algorithm = choice(name).begin::<Pull>(&setting()).unwrap();
            let fresh = algorithm.state();
            assert_ne!(state, fresh, "{name}");
            algorithm.restore(&state);
            assert_eq!(algorithm.state(), state, "{name}");
            algorithm.restore(&BTreeMap::from([("clip".to_owned(), f64::NAN), ("range".to_owned(), -1.0)]));
            assert_eq!(algorithm.state(), state, "{name}");
        }
    }

    #[test]
    fn dynamic_multipliers_are_those_of_the_schedule() {
        let plan =
            choice("dynamic").plan(&setting(), Noise::Budget(budget(), Accountant::Pld)).unwrap().unwrap();
        assert_eq!(plan.entries().len(), 30);
        let z = |i: usize| plan.entries()[i].effective_noise_multiplier();
        assert!((z(0) / z(29) - 2.0_f64.powf(29.0 / 30.0)).abs() < 1e-9);
        let guarantee = Accountant::Pld.price(&plan, budget().delta).unwrap();
        assert!(
            guarantee.epsilon <= budget().epsilon && guarantee.epsilon.get() > 0.998 * budget().epsilon.get()
        );
    }

    #[test]
    fn releases_of_a_step_share_its_multiplier() {
        let z = NoiseMultiplier::new(1.5).unwrap();
        for name in ["dc-sgd-p", "dc-sgd-e", "quantile"] {
            let plan = choice(name).plan(&setting(), Noise::Multiplier(z)).unwrap().unwrap();
            let entry = &plan.entries()[0];
            assert_eq!(entry.releases().len(), 2);
            assert!((entry.effective_noise_multiplier() / 1.5 - 1.0).abs() < 1e-12, "{name}");
            // The paper: the histogram takes so little that gradients have a few per cent more noise.
            assert!(entry.releases()[0].get() < 1.08 * 1.5, "{name}: {:?}", entry.releases());
        }
        let greedy: Choice = serde_json::from_str(r#"{"type":"dc-sgd-p","histogram_noise":1.2}"#).unwrap();
        assert!(greedy.plan(&setting(), Noise::Multiplier(z)).is_err());
    }
}
