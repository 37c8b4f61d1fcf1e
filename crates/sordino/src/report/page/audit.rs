//! An audit as a part of a report.

use sordino_audit::{Attack, AuditResult, Check, Observation};
use sordino_privacy::PrivacyStatus;
use sordino_report::{Axis, Block, Chart, DotPlot, DotRow, Notice, Part, Section, Table, Tone, significant};
use sordino_train::format::{grouped, rounded_down, rounded_up};

use super::{
    RunEvidence,
    attacker::{Attacker, Rates},
    charts::trade_off,
};

impl RunEvidence {
    /// Whether an audit tests the guarantee of this run: the same data, algorithm, epsilon and delta.
    pub(super) fn is_tested_by(&self, audit: &AuditResult) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs();
        match &self.status {
            PrivacyStatus::Private(guarantee) => {
                audit.claim.proved
                    && self.settings.algorithm.as_deref() == Some(audit.algorithm.as_str())
                    && self
                        .settings
                        .data
                        .as_ref()
                        .is_some_and(|data| data.display().to_string() == audit.data)
                    && close(audit.claim.epsilon, guarantee.epsilon.get())
                    && close(audit.claim.delta, guarantee.delta.get())
            }
            PrivacyStatus::NotPrivate(_) => false,
        }
    }
}

/// The part of a report about an audit. `proved` is the curve of the audited run, if the report has it.
pub(super) fn part(name: &str, audit: &AuditResult, proved: Option<&Attacker>) -> Part {
    let mut sections = vec![bounds(audit)];
    let measured = measured(audit);
    if !measured.is_empty() {
        sections.push(curve(audit, proved, &measured));
    }
    if !audit.checks.is_empty() {
        sections.push(checks(&audit.checks));
    }
    sections.push(about(audit));
    Part { title: format!("Audit {name}"), verdict: verdict(audit), sections }
}

fn verdict(audit: &AuditResult) -> Notice {
    let (claim, bound) = (&audit.claim, audit.lower_bound());
    let kind = if claim.proved { "proved" } else { "claimed" };
    let said = format!("the {kind} epsilon of {} at delta {:e}", rounded_up(claim.epsilon), claim.delta);
    let failed: Vec<&str> =
        audit.checks.iter().filter(|check| !check.passed()).map(|check| check.name.as_str()).collect();
    let (tone, headline) = if audit.refutes_the_claim() {
        (Tone::Bad, format!("An attack contradicts {said}: epsilon is at least {}.", rounded_down(bound)))
    } else if !failed.is_empty() {
        (Tone::Bad, format!("These checks failed: {}. No lower bound exceeds {said}.", failed.join(", ")))
    } else if claim.proved {
        (
            Tone::Good,
            format!(
                "No attack contradicts {said}: the largest lower bound that decides is {}.",
                rounded_down(bound)
            ),
        )
    } else {
        (
            Tone::Neutral,
            format!(
                "This audit does not refute {said}: the largest lower bound that decides is {}.",
                rounded_down(bound)
            ),
        )
    };
    let mut details = vec![
        "An audit cannot prove a guarantee. It gives lower bounds, and a bound above the printed epsilon would show that the guarantee is false."
            .to_owned(),
        "Attacks use synthetic records in slots of their own. Private records were not used, so the audit costs no privacy.".to_owned(),
    ];
    if audit.attacks.iter().any(|attack| !attack.decides()) {
        details.push(
            "Bounds that assume a Gaussian trade-off curve are shown for information and do not decide. They exceed the epsilon of a sound mechanism in \
             up to 5 % of audits at a confidence of 95 %."
                .to_owned(),
        );
    }
    if !audit.untested.is_empty() {
        details.push(format!("Too few observations for these tests: {}.", audit.untested.join("; ")));
    }
    if audit.seed.is_some() {
        details.push("The random numbers of this audit were fixed by a seed. The epsilon is that of a run without a seed.".to_owned());
    }
    if !claim.proved {
        details.insert(0, "The epsilon under test is the claim of a paper. It is not proved.".to_owned());
    }
    Notice { tone, headline, details }
}

/// What the attacker sees.
fn sees(observation: Observation) -> &'static str {
    match observation {
        Observation::Step => "every release, and which canaries each batch contains",
        Observation::WholeRun => "every release",
        Observation::FinalModel => "the final model only",
    }
}

fn short(attack: &Attack) -> String {
    let kind = match attack.observation {
        Observation::Step => "step",
        Observation::WholeRun => "whole run",
        Observation::FinalModel => "final model",
    };
    format!("{kind}: {}", attack.estimator)
}

fn bounds(audit: &AuditResult) -> Section {
    let columns = [
        "estimator",
        "the attacker sees",
        ">lower bound",
        ">confidence in %",
        ">canaries",
        ">runs",
        "assumes",
        "decides",
    ];
    let mut table = Table::new(format!("Lower bounds on epsilon at delta {:e}", audit.claim.delta), &columns);
    let mut plot = DotPlot::new("Lower bounds on epsilon", Axis::linear("epsilon")).mark(
        format!("{} epsilon", if audit.claim.proved { "proved" } else { "claimed" }),
        audit.claim.epsilon,
    );
    for attack in &audit.attacks {
        let above = attack.lower_bound > audit.claim.epsilon && attack.decides();
        plot = plot.row(
            DotRow::new(short(attack), attack.lower_bound)
                .spread(0.0, attack.lower_bound)
                .series(usize::from(above)),
        );
        table = table.row([
            attack.estimator.clone(),
            sees(attack.observation).to_owned(),
            rounded_down(attack.lower_bound),
            significant(100.0 * attack.confidence),
            grouped(attack.canaries),
            grouped(attack.runs),
            attack.assumption.clone().unwrap_or("nothing".to_owned()),
            if attack.decides() { "yes" } else { "no" }.to_owned(),
        ]);
    }
    let chart = Chart {
        name: "lower-bounds".to_owned(),
        title: "Lower bounds beside the epsilon under test".to_owned(),
        description: "A dot is a lower bound on epsilon with its confidence and under its assumption, as in the table. The vertical line is the epsilon under test."
            .to_owned(),
        picture: plot.picture(),
        numbers: Table::default(),
    };
    Section::new("Lower bounds on epsilon").with(Block::Charts(vec![chart])).with(Block::Table(table))
}

/// The measured points of each attack that has any.
pub(super) fn measured(audit: &AuditResult) -> Vec<(String, Vec<Rates>)> {
    let rates = |attack: &Attack| -> Vec<Rates> {
        let points = attack.points.iter();
        points
            .map(|point| Rates {
                false_positive_rate: point.false_positive_rate,
                true_positive_rate: point.true_positive_rate,
            })
            .collect()
    };
    let attacks = audit.attacks.iter().filter(|attack| !attack.points.is_empty());
    attacks.map(|attack| (short(attack), rates(attack))).collect()
}

fn curve(audit: &AuditResult, proved: Option<&Attacker>, measured: &[(String, Vec<Rates>)]) -> Section {
    let pair = Attacker::permitted_by(audit.claim.epsilon, audit.claim.delta);
    let name = match (proved, audit.claim.proved) {
        (Some(_), _) => "at most (proved)",
        (None, true) => "at most (by epsilon and delta)",
        (None, false) => "at most, if the claim were true",
    };
    let description = "Points are measured rates of attacks on canaries, with statistical error. The curve is the largest true positive rate that \
                       the epsilon under test permits. A sound mechanism has its points below the curve, up to that error.";
    let chart = trade_off(
        "Measured attacks and the permitted curve",
        description.to_owned(),
        (name, proved.unwrap_or(&pair)),
        measured,
    );
    Section::new("Attacks on the trade-off curve").with(Block::Charts(vec![chart]))
}

/// Four decimals, so that numbers close to 1 can be compared.
fn decimals(value: f64) -> String {
    if value == 0.0 || (1e-3..1e4).contains(&value.abs()) {
        format!("{value:.4}")
    } else {
        significant(value)
    }
}

fn checks(checks: &[Check]) -> Section {
    let columns = ["check", "meaning", "result", ">measured", ">permitted from", ">to", ">false alarm rate"];
    let mut table = Table::new("Tests of parts of the mechanism, each with its permitted range", &columns);
    for check in checks {
        table = table.row([
            check.name.clone(),
            check.meaning.clone(),
            if check.passed() { "passed" } else { "FAILED" }.to_owned(),
            decimals(check.measured),
            decimals(check.low),
            decimals(check.high),
            significant(check.false_alarm_rate),
        ]);
    }
    Section::new("Checks").with(Block::Table(table))
}

fn about(audit: &AuditResult) -> Section {
    let points = [
        ("Algorithm", audit.algorithm.clone()),
        ("Data", audit.data.clone()),
        ("Records beside the canaries", format!("{}; private records were not used", audit.records)),
        ("Seconds", significant(audit.seconds)),
        ("Version", format!("Sordino {}", audit.version)),
    ];
    let points = points.map(|(label, text)| (label.to_owned(), text)).to_vec();
    Section::new("How the audit was made").with(Block::Points(points))
}
