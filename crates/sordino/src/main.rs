//! `sordino`: training with differential privacy, and guarantees that hold.
#![forbid(unsafe_code)]

mod budget_arguments;
mod claim;
mod commands;
mod comparison;
mod data_account;
mod data_settings;
mod experiment;
mod interruption;
mod learning;
mod memory;
mod models;
mod pace;
mod plan_arguments;
mod predictions;
mod problem;
mod progress;
mod protection;
mod report;
mod run_files;
mod settings;
mod statement;
mod tagged;
mod tuning;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use commands::{algorithms, compare, epsilon, noise, predict, profile, schedule, show, train};
use problem::Problem;

/// Training with differential privacy, and guarantees that hold.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model privately: without arguments, logistic regression on the Mushroom data at epsilon 1.
    Train(Box<train::Arguments>),
    /// Apply a trained model to records.
    Predict(predict::Arguments),
    /// What a run was and what it guarantees, after checking its ledger.
    Show(show::Arguments),
    /// Algorithms side by side at equal budgets: without arguments, all private ones on the Mushroom data at epsilon 1.
    Compare(Box<compare::Arguments>),
    /// What algorithms there are, what holds of them, and their options.
    Algorithms(algorithms::Arguments),
    /// What a plan costs: its epsilon at a delta.
    Epsilon(epsilon::Arguments),
    /// The least noise that a budget allows.
    Noise(noise::Arguments),
    /// A dynamic schedule within a budget, exact and by the central limit theorem side by side.
    Schedule(schedule::Arguments),
    /// A plan's guarantee at every epsilon: deltas, test errors, mu.
    Profile(profile::Arguments),
}

fn main() -> ExitCode {
    let answer = Cli::try_parse().map_err(Problem::from).and_then(|cli| match cli.command {
        Command::Train(arguments) => train::run(*arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Algorithms(arguments) => algorithms::run(&arguments),
        Command::Epsilon(arguments) => epsilon::run(&arguments),
        Command::Noise(arguments) => noise::run(&arguments),
        Command::Schedule(arguments) => schedule::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
    });
    match answer {
        Ok(text) => print(&text),
        Err(Problem::Usage(message)) => {
            let _ = message.print();
            ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(2))
        }
        Err(problem) => {
            // Nobody may be listening.
            let _ = writeln!(io::stderr(), "{problem}");
            ExitCode::from(2)
        }
    }
}

/// Prints the answer. A reader that has seen enough, such as `head`, is no reason to complain.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "error: cannot write the answer: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
