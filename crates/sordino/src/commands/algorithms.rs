//! `sordino algorithms`: what there is, what holds of it, and where it comes from.

use std::fmt::Write;

use clap::Args;
use sordino_algorithms::registry::{ALGORITHMS, Description};

use crate::{problem::Problem, statement::json};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Print one JSON list
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    Ok(if arguments.json {
        json(&ALGORITHMS)
    } else {
        ALGORITHMS.iter().map(paragraph).collect::<Vec<_>>().join("\n")
    })
}

fn paragraph(algorithm: &Description) -> String {
    let mut text = format!("{}\n  {}\n  verdict: {}\n", algorithm.name, algorithm.summary, algorithm.verdict);
    for option in algorithm.options {
        writeln!(text, "  {}: {} (default {})", option.name, option.meaning, option.default)
            .expect("writing to a string");
    }
    if !algorithm.reference.is_empty() {
        writeln!(text, "  from: {}", algorithm.reference).expect("writing to a string");
    }
    text
}
