//! The guarantee of a plan, as text and as JSON.

use serde::Serialize;
use sordino_accounting::{Entry, Guarantee, Plan, Relation, Sampling, pld::GroupSize};
use sordino_privacy::SearchPlan;
use sordino_train::{
    Hint, Settings,
    format::{grouped, rounded_down, rounded_up},
};

use super::table::labelled;

/// A guarantee as it appears in JSON.
#[derive(Serialize)]
pub struct GuaranteeRecord {
    epsilon: f64,
    epsilon_lower: Option<f64>,
    delta: f64,
    accountant: &'static str,
    relation: String,
    group_size: u32,
    proved: bool,
}

impl GuaranteeRecord {
    /// The guarantee for a group of records.
    pub fn new(guarantee: Guarantee, group: GroupSize) -> Self {
        Self {
            group_size: group.get(),
            epsilon: guarantee.epsilon.get(),
            epsilon_lower: guarantee.epsilon_lower.map(f64::from),
            delta: guarantee.delta.get(),
            accountant: guarantee.accountant.name(),
            relation: guarantee.relation.to_string(),
            proved: guarantee.proved(),
        }
    }
}

/// A value as JSON, with a line end.
pub fn json(record: &impl Serialize) -> String {
    serde_json::to_string_pretty(record).expect("records of numbers and strings are JSON") + "\n"
}

/// The statement about a plan.
pub fn plan_statement(plan: &Plan, group: GroupSize, guarantee: &Guarantee) -> Hint {
    let claim = if guarantee.proved() { "satisfies" } else { "is estimated to satisfy" };
    let mut text = format!(
        "This plan {claim} ({}, {})-differential privacy.\n\n",
        rounded_up(guarantee.epsilon.get()),
        guarantee.delta
    );
    text += &labelled(&[
        ("epsilon", rounded_up(guarantee.epsilon.get())),
        ("delta", guarantee.delta.to_string()),
        ("protects", protects(guarantee.relation, group)),
        ("sampling", sampling(plan)),
        ("noise", noise(plan)),
        ("accountant", format!("{}: {}", guarantee.accountant, guarantee.accountant.description())),
        ("status", status(guarantee)),
    ]);
    Hint::new(text)
}

/// What the guarantee protects.
pub fn protects(relation: Relation, group: GroupSize) -> String {
    let unit = match group.get() {
        1 => "one record".to_owned(),
        k => format!("any {k} records together"),
    };
    match relation {
        Relation::ZeroOut => format!("{unit}, relation {relation}: present, or replaced by nothing"),
        Relation::ReplaceOne => format!("{unit}, relation {relation}: one value, or any other"),
    }
}

/// This many units of privacy.
pub(crate) fn counted_units(settings: &Settings, count: u64) -> String {
    let training = if settings.unit.is_none() { "training " } else { "" };
    format!("{} {training}{}", grouped(count), settings.unit_noun())
}

/// Whether epsilon is proved, and how tight the bound is. Settings are in braces, as in a [`Hint`].
pub fn status(guarantee: &Guarantee) -> String {
    if !guarantee.proved() {
        return "APPROXIMATE, NOT A BOUND: the true epsilon is usually larger; use {accountant=pld}"
            .to_owned();
    }
    let proved = "PROVED upper bound, for noise in real arithmetic";
    match guarantee.epsilon_lower {
        Some(lower) if lower.get() > 0.0 => {
            let (low, high) = (lower.get(), guarantee.epsilon.get());
            let wide = if high > 1.01 * low + 1e-3 {
                " (wide: near the limits of this accountant; compare {accountant=rdp})"
            } else {
                ""
            };
            format!("{proved}; the exact value lies in [{}, {}]{wide}", rounded_down(low), rounded_up(high))
        }
        _ => proved.to_owned(),
    }
}

/// What a search does.
pub(crate) fn search(plan: &SearchPlan) -> String {
    format!(
        "the best of a random number of trials ({} on average, the number is secret), each with one of {} candidates drawn at random; the \
         guarantee covers all trials",
        (plan.runs.mean() * 100.0).round() / 100.0,
        grouped(plan.candidates.len() as u64)
    )
}

/// How batches are drawn.
pub fn sampling(plan: &Plan) -> String {
    let steps = grouped(plan.steps());
    let mut kinds: Vec<String> = plan.entries().iter().map(|entry| describe(entry.sampling())).collect();
    kinds.sort();
    kinds.dedup();
    match &kinds[..] {
        [] => "nothing is released: the plan is empty".to_owned(),
        [only] if plan.steps() == 1 => format!("{only}, in a single step"),
        [only] if plan.entries().iter().all(|entry| is_fixed(entry.sampling())) => {
            format!("{only}, over {steps} steps")
        }
        [only] => format!("{only}, fresh at each of {steps} steps"),
        few if few.len() <= 4 => format!("over {steps} steps: {}", few.join("; ")),
        [first, .., last] => format!("{} kinds over {steps} steps, such as {first} and {last}", kinds.len()),
    }
}

/// Whether batches are taken in turn from a fixed partition.
fn is_fixed(sampling: Sampling) -> bool {
    matches!(sampling, Sampling::Rotating { rate, .. } if rate.get() >= 1.0)
}

fn describe(sampling: Sampling) -> String {
    match sampling {
        Sampling::FullBatch => "none (every record takes part)".to_owned(),
        sampled => sampled.to_string(),
    }
}

/// How much noise is added.
pub fn noise(plan: &Plan) -> String {
    let multipliers = plan.entries().iter().map(Entry::effective_noise_multiplier);
    let (least, most) =
        multipliers.fold((f64::INFINITY, 0.0_f64), |(low, high), z| (low.min(z), high.max(z)));
    if plan.entries().is_empty() {
        return "none".to_owned();
    }
    let range = if least < most {
        format!("multipliers from {} to {}", rounded_down(least), rounded_up(most))
    } else {
        format!("multiplier {least}")
    };
    format!("Gaussian, {range} (standard deviation / sensitivity of a step's releases)")
}
