//! `sordino algorithms`: the algorithms, what is proved about each, and their references.

use clap::Args;
use sordino_algorithms::{AlgorithmConfig, AlgorithmDescription};

use crate::report::json;

use crate::cli::problem::Problem;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Print one JSON list
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let algorithms: Vec<AlgorithmDescription> =
        AlgorithmConfig::all().iter().map(AlgorithmDescription::of).collect();
    Ok(if arguments.json {
        json(&algorithms)
    } else {
        let advice: String = ADVICE.iter().map(|line| wrapped(line)).collect();
        let all = algorithms.iter().map(paragraph).collect::<Vec<_>>().join("\n");
        format!("Which algorithm?\n{advice}\n{all}")
    })
}

/// Which algorithm to use, by the measurements in `docs/algorithms.md`.
const ADVICE: [&str; 6] = [
    "When in doubt, use dp-sgd, the default. Without tuning it was the best, or within one standard deviation of the best, on \
     Mushroom at epsilon 1 and on MNIST at epsilon 1, 2 and 4.",
    "With a lot of noise (small epsilon, few records), try quantile. On Mushroom it was better than dp-sgd by 1.2 points at epsilon \
     0.1 and by 0.4 points at epsilon 0.3, and worse by one point at epsilon 1.",
    "With a constant learning rate, try dynamic. On MNIST at epsilon 0.4 it was better than dp-sgd by 1.8 points. With \
     a learning rate that decays to 0 (schedule linear), both were better, and dynamic was worse than dp-sgd by half a point.",
    "No other algorithm was clearly better than dp-sgd in these measurements. The others are for other kinds of data and for comparison.",
    "Algorithms whose names end in -published are for comparison only: the epsilon that their papers claim is not a bound. The \
     algorithm none is not private.",
    "Compare algorithms on public data with `sordino compare`. On private data, every run of a comparison spends privacy budget.",
];

fn paragraph(algorithm: &AlgorithmDescription) -> String {
    let mut lines = vec![algorithm.summary.to_owned(), format!("verdict: {}", algorithm.verdict)];
    lines.extend(algorithm.options.iter().map(|option| {
        format!("{}: {} (default {})", option.name, option.meaning.trim_end_matches('.'), option.default)
    }));
    if !algorithm.reference.is_empty() {
        lines.push(format!("from: {}", algorithm.reference));
    }
    let lines: String = lines.iter().map(|line| wrapped(line)).collect();
    format!("{}\n{lines}", algorithm.name)
}

/// A line that is indented and wrapped between words.
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
