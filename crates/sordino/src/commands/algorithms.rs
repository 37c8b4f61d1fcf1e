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
        let advice: String = ADVICE.iter().map(|line| wrapped(line)).collect();
        let all = ALGORITHMS.iter().map(paragraph).collect::<Vec<_>>().join("\n");
        format!("Which one?\n{advice}\n{all}")
    })
}

/// What to use, by what was measured: `docs/algorithms.md` has the numbers.
const ADVICE: [&str; 6] = [
    "When in doubt use dp-sgd, the default. Without tuning it was the best, or within one standard deviation of the best, on \
     Mushroom at epsilon 1 and on MNIST at epsilon 1, 2 and 4.",
    "Much noise (small epsilon, few records): try quantile. On Mushroom it was ahead by 1.2 points at epsilon 0.1 and by 0.4 at \
     0.3, and behind by one point at epsilon 1.",
    "A learning rate that stays constant: try dynamic. On MNIST at epsilon 0.4 it was ahead by one point then; with the default, \
     a rate that decays to 0, it was behind by half a point, and both were better.",
    "No other one was clearly ahead of dp-sgd in what was measured. They are here for data of another kind, and for comparison.",
    "Names that end in -published are for comparison only: the epsilon that their papers claim is not a bound. none is not private.",
    "Compare them on public data by `sordino compare`; on private data every run of a comparison costs epsilon.",
];

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
