//! The guarantee of a run in words: one sentence, the points that reviewers ask for, and the paragraph of a paper.
//!
//! The points follow Ponomareva et al., "How to DP-fy ML" (2023), section 5: the setting, the data accesses that are covered, what is
//! released, the unit of privacy, the neighbouring relation, the accounting and its assumptions, and what can be verified.

use sordino_accounting::{Entry, Guarantee, Plan, Relation, pld::GroupSize};
use sordino_privacy::PrivacyStatus;
use sordino_report::significant;
use sordino_train::{
    DataFacts, Hint,
    format::{grouped, pair, rounded_claim, rounded_down, rounded_up},
    public_files,
};

use super::{RunEvidence, percent, percent_up};
use crate::report::{counted_units, noise, protects, sampling, search, status, test_records_sentence};

impl RunEvidence {
    /// The guarantee, or that there is none, in one sentence.
    pub(super) fn sentence(&self) -> String {
        let subject = self.report().subject();
        match &self.status {
            PrivacyStatus::Private(guarantee) => {
                format!(
                    "{subject} satisfies {}-differential privacy.",
                    pair(guarantee.epsilon, guarantee.delta)
                )
            }
            PrivacyStatus::NotPrivate(_) => format!("{subject} is NOT PRIVATE."),
        }
    }

    /// The points that reviewers ask for.
    pub(super) fn points(&self) -> Vec<(String, String)> {
        let mut points = match &self.status {
            PrivacyStatus::Private(guarantee) => self.guarantee_points(guarantee),
            PrivacyStatus::NotPrivate(why) => vec![("Guarantee", format!("None. {}.", capital(why)))],
        };
        points.push(("What is public", self.public()));
        points.push(("Choice of settings", self.tuning()));
        points.push(("Verification", self.verification()));
        points.into_iter().map(|(label, text)| (label.to_owned(), text)).collect()
    }

    fn guarantee_points(&self, guarantee: &Guarantee) -> Vec<(&'static str, String)> {
        let mut points = vec![
            (
                "Model of privacy",
                "Central: the training program reads the records, and protects everything that it releases."
                    .to_owned(),
            ),
            ("What is covered", self.covered()),
            ("Unit of privacy", self.unit()),
            (
                "Neighbouring data sets",
                capital(&protects(guarantee.relation, GroupSize::ONE).replacen(
                    "one record",
                    &self.settings.protected_unit(),
                    1,
                )) + ".",
            ),
            ("Epsilon", self.epsilon(guarantee)),
            ("Delta", self.delta(guarantee)),
            (
                "Accountant",
                format!(
                    "{}: {}. {}.",
                    guarantee.accountant,
                    guarantee.accountant.description(),
                    capital(&Hint::new(status(guarantee)).to_string())
                ),
            ),
        ];
        if let Some(plan) = self.account.plan() {
            points.push((
                "Sampling",
                capital(&sampling(plan)) + ". Batches are drawn exactly as the accountant assumes.",
            ));
            points.push(("Noise", noise(plan) + "."));
        }
        if let Some(plan) = self.account.search() {
            points.push(("Search", capital(&search(plan)) + "."));
        }
        points
    }

    fn unit(&self) -> String {
        match &self.settings.unit {
            Some(_) if self.settings.protects_clients() => format!(
                "{}. In each round, clients train on their own records. The whole update of a client is clipped, and updates are added \
                 without weights.",
                capital(&self.settings.protected_unit())
            ),
            Some(unit) => format!(
                "{}. The gradients of the records of a {unit} are combined and clipped together, and batches are drawn from {unit} units.",
                capital(&self.settings.protected_unit())
            ),
            None => "One training record, which is one row or one file of the data. For a person with several records, the guarantee is weaker."
                .to_owned(),
        }
    }

    fn epsilon(&self, guarantee: &Guarantee) -> String {
        let when = match self.account.is_closed() {
            true => "a proved upper bound for the whole run",
            false => "a proved upper bound for the whole plan, whenever the run stops",
        };
        format!("{}, {when}.", rounded_up(guarantee.epsilon.get()))
    }

    fn delta(&self, guarantee: &Guarantee) -> String {
        let (delta, records) = (guarantee.delta.get(), self.account.records());
        let mut text = format!(
            "{delta:e}, set before training. N is {} {}",
            grouped(records),
            self.settings.unit_noun()
        );
        if delta * (records as f64) < 1.0 {
            text += "; delta is below 1 / N, so that publishing a random record is not permitted";
        }
        text + "."
    }

    /// Why the guarantee protects little.
    pub(super) fn weaknesses(&self) -> Vec<String> {
        let PrivacyStatus::Private(guarantee) = &self.status else { return Vec::new() };
        let large = guarantee.epsilon.get() > 10.0;
        let large = large.then(|| "WEAK: an epsilon above 10 protects little.".to_owned());
        let records = self.account.records();
        let permits = guarantee.delta.get() * records as f64 >= 1.0;
        let permits = permits.then(|| {
            format!(
                "WEAK: delta is above 1 / {} records, so publishing one whole record would be permitted.",
                grouped(records)
            )
        });
        large.into_iter().chain(permits).collect()
    }

    /// What the guarantee covers.
    fn covered(&self) -> String {
        let training = "Everything that training releases about the training records: every noisy sum of gradients, every intermediate model, and the \
                        final weights.";
        match self.account.measurement_budget() {
            Some(budget) => format!(
                "{training} Everything that is measured on the {} test records: each measurement is a table of counts with Laplace noise, and all of \
                 them together cost epsilon {} and delta 0. No record is in both parts, so the costs of the two parts do not add up.",
                grouped(budget.slots),
                rounded_up(budget.epsilon.get())
            ),
            None => training.to_owned(),
        }
    }

    fn public(&self) -> String {
        let mut public = vec![
            match &self.settings.unit {
                Some(_) if self.settings.protects_clients() => {
                    format!("the number of clients ({})", grouped(self.account.records()))
                }
                Some(unit) => format!("the number of {unit} units ({})", grouped(self.account.records())),
                None => format!("the number of training records ({})", grouped(self.account.records())),
            },
            "all settings".to_owned(),
        ];
        let schema = self.facts.as_ref().and_then(DataFacts::schema);
        if self.settings.schema.is_some() || schema.is_some() {
            public.push("the schema (columns, categories and scales)".to_owned());
        }
        if let Some(facts) = &self.facts {
            if facts.observed_classes {
                public.push(
                    "the names of the classes, which were taken from the labels and are NOT protected"
                        .to_owned(),
                );
            } else if !facts.classes.is_empty() {
                public.push("the names of the classes".to_owned());
            }
            if facts.preparation.as_ref().is_some_and(|preparation| preparation.features.is_some()) {
                public.push("the names of the features".to_owned());
            }
            if let Some(scaling) = facts.scaling() {
                public.push(format!("the range of the targets ({scaling})"));
            }
            if facts.test_records > 0 {
                public.push(match self.account.measurement_budget() {
                    Some(_) => format!("the number of test records ({})", grouped(facts.test_records)),
                    None => format!("the {} test records", grouped(facts.test_records)),
                });
            }
        }
        if let Some(features) = &self.settings.features {
            public.push(format!("the fixed transform of the records ({features})"));
        }
        let files = public_files(&self.account).len();
        if files > 0 {
            public.push(format!("the {files} files with weights that the run builds on"));
        }
        format!("{}. None of it may be derived from the training records.", capital(&public.join("; ")))
    }

    /// Whether epsilon covers the choice of settings.
    fn tuning(&self) -> String {
        let private = matches!(self.status, PrivacyStatus::Private(_));
        let alone = "No other run on this data is in the same folder.".to_owned();
        let others = self.other_runs.clone().unwrap_or(alone);
        let note = match private {
            true if self.account.search().is_some() => {
                "Epsilon is that of the whole search for the settings. If its candidates were chosen by looking at other runs on these records, \
                 their cost adds to it. Runs elsewhere, and runs of comparisons, are not counted."
            }
            true => {
                "Epsilon is that of this run alone. If its settings were chosen by looking at other runs on these records, their cost adds to \
                 it. Runs elsewhere, and runs of comparisons, are not counted."
            }
            false => "",
        };
        format!("{note} {}", others.replace('\n', " ")).trim().to_owned()
    }

    fn verification(&self) -> String {
        let (lines, hash) = self.seal();
        let weights = match self.weights_covered {
            true => "and has the hash of the weights",
            false => "but has no hash of the weights, because an earlier version trained them",
        };
        format!(
            "Every release was charged to the ledger before it was made. The ledger has {} lines, each chained to the previous one by SHA-256, \
             {weights}. Hash of its last line: {hash}.",
            grouped(lines)
        )
    }

    /// What makes the guarantee false, or weaker than it seems.
    pub(super) fn voids(&self) -> Vec<String> {
        let tests = self.facts.as_ref().map(|facts| facts.test_records);
        let tests = test_records_sentence(&self.settings, tests, &self.account);
        let mut voids: Vec<String> =
            tests.into_iter().filter(|_| self.account.measurement_budget().is_none()).collect();
        voids.extend(
            [
                "A public fact that was derived from the training records, such as a scale, a vocabulary or a list of classes.",
                "Another use of the same records: other runs, statistics, or plots. Their cost adds to this one.",
                "Publishing a number that was measured on training records without noise, such as the training loss or a count.",
                "An attacker who measures time, memory or power of the computer during training, or reads its random numbers.",
            ]
            .map(str::to_owned),
        );
        voids.push(match &self.settings.unit {
            Some(unit) => format!("A person with several {unit} values: the guarantee is for one of them."),
            None => "A person with several records: the guarantee is for one record. Name the unit of privacy to protect all records of a person together.".to_owned(),
        });
        voids
    }

    /// The privacy paragraph of a paper.
    pub(super) fn paragraph(&self) -> String {
        match &self.status {
            PrivacyStatus::Private(guarantee) => self.private_paragraph(guarantee),
            PrivacyStatus::NotPrivate(why) => {
                let claim = self.claim.as_ref().map_or(String::new(), |claim| {
                    format!(
                        " The epsilon of {} that {} claims is not a guarantee of this run and must not be reported as one.",
                        rounded_claim(claim.epsilon),
                        claim.by
                    )
                });
                format!("The model has no differential privacy guarantee: {why}.{claim}")
            }
        }
    }

    fn private_paragraph(&self, guarantee: &Guarantee) -> String {
        let plan = self.account.plan();
        let steps = plan.map_or(String::new(), |plan| self.steps_sentence(plan));
        let attacker = self.attacker.as_ref().map_or(String::new(), |attacker| {
            let list = |values: &mut dyn Iterator<Item = String>| joined(&values.collect::<Vec<_>>());
            format!(
                " An attacker who knows all other records and decides {} has a true positive rate of at most {} % at a false positive rate of \
                 {} %, respectively.",
                question(guarantee.relation),
                list(&mut attacker.rates.iter().map(|rates| percent_up(rates.true_positive_rate))),
                list(&mut attacker.rates.iter().map(|rates| percent(rates.false_positive_rate)))
            )
        });
        let accuracy = self.score.and_then(|score| score.accuracy).map_or(String::new(), |accuracy| {
            let interval =
                self.score.and_then(|score| score.interval).map_or(String::new(), |[low, high]| {
                    format!(" (95 % interval: {:.2} to {:.2})", 100.0 * low, 100.0 * high)
                });
            let tests = match self.account.measurement_budget() {
                Some(budget) => format!(
                    "{} test records, which are protected by the same guarantee and measured with noise",
                    grouped(budget.slots)
                ),
                None => "test records, which are public and not protected".to_owned(),
            };
            format!(" The accuracy is {:.2} %{interval} on {tests}.", 100.0 * accuracy)
        });
        format!(
            "The model was trained with {} on {}{}. It satisfies {}-differential privacy in the central model, for {} and \
             under the relation {}.{steps} The guarantee covers all intermediate models. It is an upper bound, for noise in real \
             arithmetic, by {} ({}). Batches are sampled as this analysis assumes. Delta was fixed before training.{}{attacker}{accuracy} Training and accounting: Sordino {}; hash of the ledger: {}.",
            self.settings.algorithm.as_deref().unwrap_or("dp-sgd"),
            counted_units(&self.settings, self.account.records()),
            self.unfinished(),
            pair(guarantee.epsilon, guarantee.delta),
            self.settings.protected_unit(),
            guarantee.relation,
            guarantee.accountant.description(),
            guarantee.accountant,
            self.tuning_sentence(),
            self.version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION")),
            self.seal().1
        )
    }

    /// That the run stopped early, if it did.
    fn unfinished(&self) -> String {
        match self.account.is_closed() {
            true => String::new(),
            false => format!(
                "; it stopped after at most {} of {} planned steps, and the guarantee is that of the whole plan",
                grouped(self.account.charged()),
                grouped(self.account.steps())
            ),
        }
    }

    /// Whether the guarantee covers the choice among runs.
    fn tuning_sentence(&self) -> String {
        match self.total_cost() {
            Some((runs, epsilon, delta)) if runs > 1 => format!(
                " This is one of {} runs on these records; together they satisfy ({}, {delta:e})-differential privacy, which covers any choice \
                 among them.",
                grouped(runs),
                rounded_up(epsilon)
            ),
            _ if self.account.search().is_some() => {
                " The settings were chosen by a search on these records, and the guarantee covers the whole search.".to_owned()
            }
            _ => " The choice of settings by means of other runs is not covered.".to_owned(),
        }
    }

    fn steps_sentence(&self, plan: &Plan) -> String {
        let multipliers = || plan.entries().iter().map(Entry::effective_noise_multiplier);
        let (least, most) = (multipliers().fold(f64::INFINITY, f64::min), multipliers().fold(0.0, f64::max));
        let noise = match least < most {
            true => format!("between {} and {}", rounded_down(least), rounded_up(most)),
            false => rounded_down(least),
        };
        format!(
            " Batches are drawn as follows: {}.{} Gaussian noise is added to what a step releases, with a standard deviation of {noise} times \
             its sensitivity.",
            sampling(plan),
            self.clipping_sentence()
        )
    }

    fn clipping_sentence(&self) -> String {
        let norms = &self.schedules.clipping_norm;
        match (self.settings.max_grad_norm, norms.first(), norms.last()) {
            (None, ..) => String::new(),
            (Some(norm), ..) if self.schedules.clipping_norm_adapts => {
                format!(
                    " The gradient of each record is clipped to a norm that starts at {norm} and adapts to releases."
                )
            }
            (Some(_), Some(first), Some(last)) if first.value != last.value => format!(
                " The gradient of each record is clipped to a norm that goes from {} to {} by a public schedule.",
                significant(first.value),
                significant(last.value)
            ),
            (Some(norm), ..) => {
                format!(" The gradient of each record is scaled to a norm of at most {norm}.")
            }
        }
    }
}

/// What the attacker of a guarantee decides.
pub(super) fn question(relation: Relation) -> &'static str {
    match relation {
        Relation::ZeroOut => "whether one record was used",
        Relation::ReplaceOne => "which of two values one record has",
    }
}

/// A text that begins with a capital letter.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// `a, b and c`.
fn joined(words: &[String]) -> String {
    match words {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}
