//! Guarantees as text that a person can paste into a paper or a privacy review.

use std::fmt::Write;

use serde::Serialize;
use sordino_accounting::{Delta, Entry, Epsilon, Guarantee, Plan, Relation, Sampling, pld::GroupSize};

/// The guarantee as it appears in JSON.
#[derive(Serialize)]
pub(crate) struct GuaranteeRecord {
    epsilon: f64,
    epsilon_lower: Option<f64>,
    delta: f64,
    accountant: &'static str,
    relation: String,
    group_size: u32,
    proved: bool,
}

impl GuaranteeRecord {
    pub(crate) fn new(guarantee: Guarantee, group: GroupSize) -> Self {
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

/// One JSON object and a line end.
pub(crate) fn json(record: &impl Serialize) -> String {
    serde_json::to_string_pretty(record).expect("records of numbers and strings are JSON") + "\n"
}

/// Rows of a label and a text, aligned.
pub(crate) fn rows(rows: &[(&str, String)]) -> String {
    rows.iter().fold(String::new(), |mut text, (label, value)| {
        writeln!(text, "  {label:<12} {value}").expect("writing to a string");
        text
    })
}

/// The whole statement for a plan.
pub(crate) fn statement(plan: &Plan, group: GroupSize, guarantee: &Guarantee) -> String {
    let claim = if guarantee.proved() { "satisfies" } else { "is estimated to satisfy" };
    let mut text = format!(
        "This plan {claim} ({}, {})-differential privacy.\n\n",
        rounded_up(guarantee.epsilon.get()),
        guarantee.delta
    );
    text += &rows(&[
        ("epsilon", rounded_up(guarantee.epsilon.get())),
        ("delta", guarantee.delta.to_string()),
        ("protects", protects(guarantee.relation, group)),
        ("sampling", sampling(plan)),
        ("noise", noise(plan)),
        ("accountant", format!("{}: {}", guarantee.accountant, guarantee.accountant.description())),
        ("status", status(guarantee)),
    ]);
    text
}

pub(crate) fn protects(relation: Relation, group: GroupSize) -> String {
    let unit = match group.get() {
        1 => "one record".to_owned(),
        k => format!("any {k} records together"),
    };
    match relation {
        Relation::ZeroOut => format!("{unit}, relation {relation}: present, or replaced by nothing"),
        Relation::ReplaceOne => format!("{unit}, relation {relation}: one value, or any other"),
    }
}

/// Whether the number is a proof, and how tight it is.
pub(crate) fn status(guarantee: &Guarantee) -> String {
    if !guarantee.proved() {
        return "APPROXIMATE, NOT A BOUND: the true epsilon is usually larger; use --accountant pld"
            .to_owned();
    }
    let proved = "PROVED upper bound, for noise in real arithmetic";
    match guarantee.epsilon_lower {
        Some(lower) if lower.get() > 0.0 => {
            let (low, high) = (lower.get(), guarantee.epsilon.get());
            let wide =
                if high > 1.01 * low + 1e-3 { " (wide: at the edge of its reach; compare rdp)" } else { "" };
            format!("{proved}; the exact value lies in [{}, {}]{wide}", rounded_down(low), rounded_up(high))
        }
        _ => proved.to_owned(),
    }
}

pub(crate) fn sampling(plan: &Plan) -> String {
    let steps = grouped(plan.steps());
    let mut kinds: Vec<String> = plan.entries().iter().map(|entry| kind(entry.sampling())).collect();
    kinds.sort();
    kinds.dedup();
    match &kinds[..] {
        [] => "nothing is released: the plan is empty".to_owned(),
        [only] if plan.steps() == 1 => format!("{only}, in a single step"),
        [only] => format!("{only}, fresh at each of {steps} steps"),
        few if few.len() <= 4 => format!("over {steps} steps: {}", few.join("; ")),
        [first, .., last] => format!("{} kinds over {steps} steps, such as {first} and {last}", kinds.len()),
    }
}

fn kind(sampling: Sampling) -> String {
    match sampling {
        Sampling::FullBatch => "none (every record takes part)".to_owned(),
        sampled => sampled.to_string(),
    }
}

pub(crate) fn noise(plan: &Plan) -> String {
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

/// Epsilon and delta in brackets.
pub(crate) fn pair(epsilon: Epsilon, delta: Delta) -> String {
    format!("({}, {delta})", rounded_up(epsilon.get()))
}

/// Four decimals or four significant digits, never below the number.
pub(crate) fn rounded_up(value: f64) -> String {
    rounded(value, f64::ceil)
}

/// Four decimals or four significant digits, never above the number.
pub(crate) fn rounded_down(value: f64) -> String {
    rounded(value, f64::floor)
}

fn rounded(value: f64, round: impl Fn(f64) -> f64) -> String {
    if value <= 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if !(1e-6..1e7).contains(&value) {
        return scientific(value, round);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the exponent of a finite number")]
    let decimals = 4.max(3 - value.log10().floor() as i32);
    #[expect(clippy::cast_sign_loss, reason = "at least four")]
    let digits = decimals as usize;
    let scale = 10_f64.powi(decimals);
    format!("{:.digits$}", round(value * scale) / scale)
}

/// Four significant digits and an exponent, rounded as told.
pub(crate) fn scientific(value: f64, round: impl Fn(f64) -> f64) -> String {
    if value <= 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let exponent = value.log10().floor();
    let digits = round(value / 10_f64.powf(exponent) * 1e3) / 1e3;
    format!("{digits:.3}e{exponent}")
}

/// A whole number with separators.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_never_flatters() {
        assert_eq!(rounded_up(1.234_51), "1.2346");
        assert_eq!(rounded_down(1.234_59), "1.2345");
        assert_eq!(rounded_up(0.000_123_412), "0.0001235");
        assert_eq!(rounded_up(0.0), "0");
        assert_eq!(rounded_up(1.234_56e-9), "1.235e-9");
        assert_eq!(rounded_down(3.225_999e42), "3.225e42");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            ["7", "999", "1,000", "12,345,678"].map(str::to_owned),
            [7, 999, 1000, 12_345_678].map(grouped)
        );
    }
}
