//! The command line: parses arguments, calls the library, prints.

mod budget_arguments;
mod commands;
mod interruption;
#[cfg(feature = "mpi")]
mod mpi;
mod outputs;
mod plan_arguments;
mod predictions;
mod problem;
mod progress;
mod ranks;
mod settings_arguments;
mod tuning_arguments;

use std::{
    ffi::OsString,
    io::{self, Write},
};

use clap::{Parser, Subcommand};
use commands::{
    algorithms, audit, compare, data, epsilon, export, federate, noise, predict, profile, report, reproduce,
    schedule, show, theory, train, tune,
};
use problem::Problem;

/// Training with differential privacy and proved guarantees.
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
    /// Simulate federated training on this machine: clients train on their own records, and their updates are protected.
    Federate(Box<federate::Arguments>),
    /// Apply a trained model to records.
    Predict(predict::Arguments),
    /// Show a run and its guarantee, after checking its ledger.
    Show(show::Arguments),
    /// Write a page about runs, comparisons, audits and reproduced tables: guarantee, possible attacks, charts, model card.
    Report(report::Arguments),
    /// Write a tuned pre-trained model in the form of Hugging Face.
    Export(export::Arguments),
    /// Compare algorithms at equal privacy budgets: without arguments, all sound ones on the Mushroom data at epsilon 1.
    Compare(Box<compare::Arguments>),
    /// Choose settings on private data, with one guarantee for the whole search.
    Tune(Box<tune::Arguments>),
    /// Attack a run with synthetic records, and print lower bounds on its epsilon.
    Audit(Box<audit::Arguments>),
    /// Reproduce the tables of the papers, with their true epsilon and Sordino's results.
    Reproduce(reproduce::Arguments),
    /// Draft schemas, check files of records, convert them, and show what they contain.
    Data(data::Arguments),
    /// List the algorithms, what is proved about each, and their options.
    Algorithms(algorithms::Arguments),
    /// Compute the epsilon of a plan at a delta.
    Epsilon(epsilon::Arguments),
    /// Find the smallest noise multiplier that a privacy budget allows.
    Noise(noise::Arguments),
    /// Find a dynamic schedule within a privacy budget, exactly and by the central limit theorem.
    Schedule(schedule::Arguments),
    /// Compute the guarantee of a plan at every epsilon: deltas, test errors, mu.
    Profile(profile::Arguments),
    /// Evaluate the theorems of the DP-NSGD paper: step sizes, conditions and convergence bounds.
    Theory(theory::Arguments),
}

/// Runs the command `sordino` with these arguments and returns its exit code. The first argument is the name of the command.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let answer = Cli::try_parse_from(arguments).map_err(Problem::from).and_then(|cli| match cli.command {
        Command::Train(arguments) => train::run(*arguments),
        Command::Federate(_)
        | Command::Compare(_)
        | Command::Tune(_)
        | Command::Audit(_)
        | Command::Reproduce(_)
            if ranks::are_several() =>
        {
            Err(ranks::refusal())
        }
        Command::Federate(arguments) => federate::run(*arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Audit(arguments) => audit::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Data(arguments) => data::run(&arguments),
        Command::Algorithms(arguments) => algorithms::run(&arguments),
        Command::Epsilon(arguments) => epsilon::run(&arguments),
        Command::Noise(arguments) => noise::run(&arguments),
        Command::Schedule(arguments) => schedule::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Theory(arguments) => theory::run(&arguments),
    });
    match answer {
        Ok(text) => print(&text),
        Err(Problem::Usage(message)) => {
            let _ = message.print();
            u8::try_from(message.exit_code()).unwrap_or(2)
        }
        Err(problem) => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "{problem}");
            2
        }
    }
}

/// Prints the output. A reader that stops early, such as `head`, is not an error.
fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "error: cannot write the output: {error}");
            2
        }
        _ => 0,
    }
}
