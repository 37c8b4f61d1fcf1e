//! A run as a part of a report.

use sordino_audit::AuditResult;
use sordino_privacy::PrivacyStatus;
use sordino_report::{Block, Chart, Notice, Part, Section, Table, Tone};
use sordino_train::{
    Hint,
    format::{grouped, rounded_claim, rounded_up},
    public_files,
};

use super::{
    AtStep, Attacker, RunEvidence,
    audit::measured,
    charts::{along_steps, trade_off, up},
    percent, percent_up,
    statement::{capital, question},
};
use crate::report::test_records_sentence;

impl RunEvidence {
    /// The part of a report about this run, with the audits of its guarantee.
    pub(super) fn part(&self, name: &str, audits: &[&AuditResult]) -> Part {
        let private = matches!(self.status, PrivacyStatus::Private(_));
        let mut sections = vec![
            Section::new(if private { "What is guaranteed" } else { "Why nothing is guaranteed" })
                .with(Block::Points(self.points())),
        ];
        sections.extend(self.attack_section(audits));
        sections.extend(self.claim_section());
        sections.extend(self.measured_section());
        let charts = self.progress_charts();
        if !charts.is_empty() {
            sections.push(Section::new("Along the run").with(Block::Charts(charts)));
        }
        if private {
            sections.push(Section::new("What voids the guarantee").with(Block::List(self.voids())));
        }
        sections.push(Section::new("Paragraph for a paper").with(Block::Quote(self.paragraph())));
        sections.push(self.model_card());
        Part { title: format!("Run {name}"), verdict: self.verdict(), sections }
    }

    fn attack_section(&self, audits: &[&AuditResult]) -> Option<Section> {
        let PrivacyStatus::Private(guarantee) = &self.status else { return None };
        Some(attack_section(self.attacker.as_ref()?, question(guarantee.relation), audits))
    }

    fn verdict(&self) -> Notice {
        let mut details = Vec::new();
        let tone = match &self.status {
            PrivacyStatus::Private(_) => {
                let tests = self.facts.as_ref().map(|facts| facts.test_records);
                details.extend(test_records_sentence(&self.settings, tests, &self.account));
                let weak = self.weaknesses();
                let tone =
                    if weak.is_empty() && self.total_cost().is_some() { Tone::Good } else { Tone::Neutral };
                details.extend(weak);
                tone
            }
            PrivacyStatus::NotPrivate(why) => {
                details.push(format!("{}.", capital(why)));
                Tone::Bad
            }
        };
        details.extend(self.other_runs.iter().flat_map(|text| text.lines()).map(str::to_owned));
        Notice { tone, headline: self.sentence(), details }
    }

    /// The claim of a paper beside what is proved.
    fn claim_section(&self) -> Option<Section> {
        let claim = self.claim.as_ref()?;
        let proved = match (&self.status, self.provable) {
            (PrivacyStatus::Private(guarantee), _) => {
                format!("epsilon {}", rounded_up(guarantee.epsilon.get()))
            }
            (PrivacyStatus::NotPrivate(_), Some(provable)) => format!(
                "nothing for this run; for the algorithm as published, epsilon {} by {}",
                rounded_up(provable.epsilon.get()),
                provable.accountant
            ),
            (PrivacyStatus::NotPrivate(_), None) => "nothing".to_owned(),
        };
        let holds = matches!(&self.status, PrivacyStatus::Private(guarantee) if guarantee.epsilon.get() <= claim.epsilon);
        let headline = match holds {
            true => "The noise of this run is set by a claim, and not by the proved epsilon.",
            false => "The epsilon that is claimed for this run is not proved.",
        };
        let why = match holds {
            true => "the proved epsilon is at most the claimed epsilon".to_owned(),
            false => claim.why.clone(),
        };
        let mut points = vec![
            (
                "Claimed".to_owned(),
                format!(
                    "Epsilon {} at delta {:e}, by {}",
                    rounded_claim(claim.epsilon),
                    claim.delta,
                    claim.by
                ),
            ),
            ("Proved".to_owned(), capital(&proved)),
            ("Why".to_owned(), capital(&why)),
            ("Instead".to_owned(), capital(&Hint::new(claim.instead.clone()).to_string())),
        ];
        for noise in &self.published_noise {
            let [sigma, multiplier] = [noise.sigma, noise.noise_multiplier].map(rounded_up);
            let text = format!("{} {sigma}: multiplier {multiplier} on the sum", noise.symbol);
            points.push(("Noise as published".to_owned(), text));
        }
        let tone = if holds { Tone::Neutral } else { Tone::Bad };
        let notice = Notice { tone, headline: headline.to_owned(), details: Vec::new() };
        Some(
            Section::new("The published claim and what is proved")
                .with(Block::Notice(notice))
                .with(Block::Points(points)),
        )
    }

    fn progress_charts(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        let bounds: Vec<AtStep> = self.spent.iter().map(|at| AtStep { value: up(at.value), ..*at }).collect();
        if !bounds.is_empty() {
            let about = "The proved epsilon of the first steps, valid only if their number was fixed in advance. The guarantee of the run is \
                         that of its whole plan.";
            charts.push(along_steps("epsilon-spent", "Epsilon spent", about.to_owned(), "epsilon", &bounds));
        }
        let accuracy: Vec<AtStep> = self
            .measurements
            .iter()
            .filter_map(|m| Some(AtStep { step: m.step, value: 100.0 * m.score.accuracy? }))
            .collect();
        let error: Vec<AtStep> = self
            .measurements
            .iter()
            .filter_map(|m| Some(AtStep { step: m.step, value: m.score.mean_squared_error? }))
            .collect();
        let loss: Vec<AtStep> = self
            .measurements
            .iter()
            .filter_map(|m| Some(AtStep { step: m.step, value: m.score.token_loss? }))
            .collect();
        let about = match self.account.measurement_budget() {
            Some(_) => "Measured with noise on protected test records.",
            None => "Measured on test records, which are not protected.",
        };
        let schedules = &self.schedules;
        let noise = "Standard deviation of the noise of a step divided by its sensitivity, for all releases of the step together.";
        let clip = "The norm to which the gradient of each record is clipped.";
        for (name, title, about, label, values) in [
            ("accuracy", "Test accuracy", about, "accuracy in %", &accuracy),
            ("error", "Test error", about, "mean squared error", &error),
            ("loss", "Test loss", about, "loss per token", &loss),
            ("noise", "Noise", noise, "noise multiplier", &schedules.noise_multiplier),
            ("clipping-norm", "Clipping norm", clip, "clipping norm", &schedules.clipping_norm),
            (
                "learning-rate",
                "Learning rate",
                "As the schedule sets it.",
                "learning rate",
                &schedules.learning_rate,
            ),
        ] {
            if !values.is_empty() {
                charts.push(along_steps(name, title, about.to_owned(), label, values));
            }
        }
        charts
    }

    fn model_card(&self) -> Section {
        let mut points = Vec::new();
        let mut point = |label: &str, text: String| points.push((label.to_owned(), text));
        let report = self.report();
        point("Model", self.settings.model.clone().unwrap_or("not stated".to_owned()));
        if let Some(parameters) = self.parameters {
            point("Parameters", grouped(parameters));
        }
        point("Training", report.training());
        if self.account.search().is_none() {
            point("Steps", report.steps());
        }
        if let Some(facts) = &self.facts {
            point("Input", format!("{}; stored as {}", facts.input, facts.encoding));
            point(
                "Target",
                match facts.classes.len() {
                    0 => "numbers".to_owned(),
                    count if count > 20 => format!("{count} classes"),
                    count => format!("{count} classes: {}", facts.classes.join(", ")),
                },
            );
            let protection = match self.account.measurement_budget() {
                Some(_) => "protected by the same guarantee",
                None => "not protected",
            };
            point("Test records", format!("{}, {protection}", grouped(facts.test_records)));
        }
        if self.schedules.clipping_norm_adapts {
            point("Clipping norm", "adapts to releases; its values are not stored".to_owned());
        }
        for (label, text) in self.result() {
            point(label, text);
        }
        if let Some(seconds) = self.seconds {
            point("Seconds of training", format!("{seconds:.1}"));
        }
        for file in public_files(&self.account) {
            point("Built on", file.to_string());
        }
        let version = self.version.as_ref().map(|version| format!("Sordino {version}"));
        point(
            "Trained by",
            version.unwrap_or("a version of Sordino that did not store its number".to_owned()),
        );
        let (lines, hash) = self.seal();
        point("Ledger", format!("{} lines, SHA-256 of the last: {hash}", grouped(lines)));
        let settings = serde_json::to_value(&self.settings).unwrap_or_default();
        let settings = settings.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let written =
            |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let table =
            settings.fold(Table::new("All settings", &["setting", "value"]), |table, (name, value)| {
                // The budget of a run without a guarantee must not look like a guarantee.
                let claimed = name == "epsilon" && matches!(self.status, PrivacyStatus::NotPrivate(_));
                let name =
                    if claimed { "epsilon (set, but NOT guaranteed)".to_owned() } else { name.clone() };
                table.row([name, written(value)])
            });
        Section::new("Model card").with(Block::Points(points)).with(Block::Table(table))
    }

    /// All metrics of the last measurement, with intervals.
    fn measured_section(&self) -> Option<Section> {
        let report = self.report();
        let measured = report.measured();
        let columns = ["metric", ">value", ">interval from", ">to"];
        let mut table =
            Table::new("Each interval contains the true value in 95 of 100 measurements", &columns);
        let rows = measured.rows();
        if rows.is_empty() {
            return None;
        }
        for row in rows {
            table = table.row(row);
        }
        let metrics = self.metrics.as_ref()?;
        let how = match self.account.measurement_budget() {
            Some(budget) => format!(
                "The model was measured on {} records that are protected by the same guarantee and were not trained on. All numbers \
                 are computed from one table of counts with Laplace noise, which has a standard deviation of {:.2} in each cell. Intervals \
                 cover this noise and the sampling error of these records.",
                grouped(budget.slots),
                metrics.noise_std
            ),
            None => format!(
                "The model was measured on {} test records, which are not protected. Intervals cover the sampling error of these records.",
                grouped(metrics.records)
            ),
        };
        let temperature = metrics.temperature.map_or(String::new(), |fitted| {
            format!(
                " Predicted probabilities use the temperature {:.3}, which was fitted to the same table; it costs nothing and does \
                 not change which class is predicted.",
                fitted.value
            )
        });
        let section = Section::new("What was measured").with(Block::Paragraph(how + &temperature));
        Some(section.with(Block::Table(table)))
    }

    /// The last measurement.
    fn result(&self) -> Vec<(&'static str, String)> {
        let tests = "on the test records";
        let score = self.score.unwrap_or_default();
        let accuracy = score.accuracy.map(|share| ("Accuracy", format!("{:.2} % {tests}", 100.0 * share)));
        let error =
            score.mean_squared_error.map(|error| ("Mean squared error", format!("{error:.4} {tests}")));
        let loss = score.token_loss.map(|loss| ("Loss per token", format!("{loss:.4} {tests}")));
        accuracy.into_iter().chain(error).chain(loss).collect()
    }
}

fn attack_section(attacker: &Attacker, question: &str, audits: &[&AuditResult]) -> Section {
    let mut table = Table::new(
        "The largest true positive rate of any attack",
        &[">false positives in %", ">true positives in %, at most"],
    );
    for rates in &attacker.rates {
        table = table.row([percent(rates.false_positive_rate), percent_up(rates.true_positive_rate)]);
    }
    let how = match attacker.whole_profile {
        true => "The curve follows from the privacy profile of the plan, which is proved at every epsilon.",
        false => {
            "The curve follows from epsilon and delta alone, because the privacy profile of this plan cannot be computed. A lower curve may hold."
        }
    };
    let text = format!(
        "The attacker sees everything that the run releases, knows all other records and the settings, has unlimited computing power, and decides \
         {question}. If both answers are equally likely, the attacker is right in at most {} % of all cases; random guessing is right in 50 %. {how}",
        percent_up(attacker.right_guesses)
    );
    let attacks: Vec<_> = audits.iter().flat_map(|audit| measured(audit)).collect();
    let mut description =
        "No attacker has rates above the curve. The diagonal is random guessing.".to_owned();
    if !attacks.is_empty() {
        description += " Dots are measured attacks of the audit, with statistical error.";
    }
    let chart = trade_off("Best possible attacker", description, ("at most (proved)", attacker), &attacks);
    Section::new("What an attacker can achieve at most")
        .with(Block::Paragraph(text))
        .with(Block::Table(table))
        .with(Block::Charts(vec![chart]))
}
