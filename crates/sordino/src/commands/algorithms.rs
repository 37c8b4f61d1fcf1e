//! `sordino algorithms`: what there is, what holds of it, and where it comes from.

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
    let mut lines = vec![algorithm.summary.to_owned(), format!("verdict: {}", algorithm.verdict)];
    lines.extend(
        algorithm
            .options
            .iter()
            .map(|option| format!("{}: {} (default {})", option.name, option.meaning, option.default)),
    );
    if !algorithm.reference.is_empty() {
        lines.push(format!("from: {}", algorithm.reference));
    }
    let lines: String = lines.iter().map(|line| wrapped(line)).collect();
    format!("{}\n{lines}", algorithm.name)
}

/// A line that is broken between words and set in.
fn wrapped(line: &str) -> String {
    const WIDTH: usize = 100;
    let mut text = String::from(" ");
    let mut width = 1;
    for word in line.split(' ') {
        if width + 1 + word.len() > WIDTH {
            text += "\n     ";
            width = 5;
        }
        text += &format!(" {word}");
        width += 1 + word.len();
    }
    text + "\n"
}
