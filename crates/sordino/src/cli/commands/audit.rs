//! `sordino audit`: attacks on a run, and lower bounds on its epsilon.

use std::{
    io::{self, Write},
    path::PathBuf,
    process,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use crate::report::{Column, json, table};
use clap::Args;
use indicatif::ProgressBar;
use sordino_audit::{
    Attack, AuditError, AuditOptions, AuditResult, Check, Confidence, Observation, Progress, audit,
};
use sordino_data::Dataset;
use sordino_privacy::Account;
use sordino_train::{
    Hint, PricedRun, RunData, RunFolder, Settings, TestSetName, TrainError, check, check_unchanged_data,
    parse_algorithm_config, price, resolve, verified_settings, write_whole,
};

use crate::cli::{
    interruption::{STOPPED, listen},
    outputs::check_outputs,
    problem::{Problem, flag},
    progress::{Log, bar},
    settings_arguments::SettingsArguments,
};

/// The exit code of an audit that refutes an epsilon, or in which a test fails.
const REFUTED: i32 = 1;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: SettingsArguments,
    /// TOML file with settings of the same names; flags override it
    #[arg(long, value_name = "FILE", help_heading = "Audit")]
    config: Option<PathBuf>,
    /// Folder of a run whose settings are audited
    #[arg(long, value_name = "DIR", help_heading = "Audit", conflicts_with = "config")]
    run: Option<PathBuf>,
    /// Number of canaries in the attacks on one run
    #[arg(long, value_name = "M", default_value_t = 1000, help_heading = "Audit")]
    canaries: usize,
    /// Number of steps that the step audit observes
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = "Audit")]
    audit_steps: u64,
    /// Number of models to train for the attack on many final models; 0 for none
    #[arg(long, value_name = "R", default_value_t = 0, allow_hyphen_values = true, help_heading = "Audit")]
    runs: u64,
    /// Probability with which each lower bound holds; that of the step audit is at least 0.999
    #[arg(long, value_name = "P", default_value_t = 0.95, help_heading = "Audit")]
    confidence: f64,
    /// Write the result to a JSON file, for `sordino report`
    #[arg(long, value_name = "FILE", help_heading = "Audit")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Audit")]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    let options = options(arguments)?;
    if let Some(path) = &arguments.out {
        // Found before minutes of work.
        if path.is_file() {
            return Err(Problem::refused(
                format!("{} exists already", path.display()),
                "choose another file, or remove it first",
            ));
        }
        check_outputs(&[("--out", Some(path))])?;
    }
    let settings = settings(arguments)?;
    let options = AuditOptions { seed: settings.seed, ..options };
    check(&settings)?;
    let data = RunData::read(&settings)?;
    let priced = price(resolve(&settings, &data.description)?, None)?;
    let text = settings.algorithm.clone().unwrap_or_else(|| "dp-sgd".to_owned());
    let algorithm = parse_algorithm_config(&text)?;
    let stop = listen("after this step", "without a result");
    let mut progress = AuditProgress::new(stop);
    let result = audit(&priced, &algorithm, public_records(&priced, &data), &options, &mut progress);
    progress.finish();
    let result = match result {
        Ok(result) => result,
        Err(AuditError::Stopped) => {
            let _ = writeln!(io::stderr(), "stopped; an audit has no result before its end");
            process::exit(STOPPED)
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(path) = &arguments.out {
        write_whole(path, json(&result).as_bytes())?;
    }
    let text = if arguments.json { json(&result) } else { text_of(&result) };
    if !result.refutes_the_claim() && result.failed().is_empty() {
        return Ok(text);
    }
    let _ = write!(io::stdout(), "{text}");
    process::exit(REFUTED)
}

/// The test records, if they are public. An attack on protected records would be a further release.
fn public_records<'d>(run: &PricedRun, data: &'d RunData) -> Option<&'d Dataset> {
    let public = run.settings().test_set == Some(TestSetName::Public);
    data.test.as_ref().filter(|_| public)
}

fn options(arguments: &Arguments) -> Result<AuditOptions, Problem> {
    let within = |name: &str, value: u64, low: u64, high: u64| match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(Problem::refused(
            format!("--{name} must be between {low} and {high}, got {value}"),
            format!("leave out --{name} for the default"),
        )),
    };
    within("canaries", arguments.canaries as u64, 10, 100_000)?;
    within("audit-steps", arguments.audit_steps, 10, 1_000_000)?;
    within("runs", arguments.runs, 0, 1_000_000)?;
    if !(arguments.confidence >= 0.5) {
        return Err(Problem::refused(
            format!("confidence must be at least 0.5 and below 1, got {}", arguments.confidence),
            "a confidence of 95 % is written as 0.95",
        ));
    }
    let confidence = Confidence::new(arguments.confidence)
        .map_err(|error| Problem::refused(error.to_string(), "a confidence of 95 % is written as 0.95"))?;
    Ok(AuditOptions {
        step_canaries: 100,
        steps: arguments.audit_steps,
        canaries: arguments.canaries,
        runs: arguments.runs,
        confidence,
        seed: None,
    })
}

fn settings(arguments: &Arguments) -> Result<Settings, Problem> {
    let given = arguments.settings.settings()?;
    if let Some(path) = &arguments.run {
        if !given.is_empty() {
            return Err(Problem::refused(
                "a run keeps its settings: with others, its training records could become test records of the audit",
                "give --run without settings, or the settings without --run",
            ));
        }
        let folder = RunFolder::open(path)?;
        let account = Account::read(&folder.ledger())?;
        let written = verified_settings(&folder, &account)?;
        if written.data.is_none() {
            return Err(Problem::refused(
                format!("the records of the run in {} were given in memory", path.display()),
                "give the settings of the run and a file of records",
            ));
        }
        if written.seed.is_some() {
            return Err(Problem::refused(
                format!(
                    "the run in {} is NOT PRIVATE: its noise and batches come from a fixed seed",
                    path.display()
                ),
                "audit a run without --seed",
            ));
        }
        check_unchanged_data(&written, &account)?;
        return Ok(Settings::read(&folder.config())?);
    }
    Ok(match &arguments.config {
        Some(path) => given.or(Settings::read(path)?),
        None => given,
    })
}

impl From<AuditError> for Problem {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Train(error) => error.into(),
            AuditError::Privacy(error) => error.into(),
            AuditError::Algorithm(error) => TrainError::from(error).into(),
            AuditError::Accounting(error) => error.into(),
            AuditError::Network(error) => TrainError::from(error).into(),
            AuditError::Optimizer(error) => TrainError::from(error).into(),
            AuditError::Refused { problem, hint } => Self::refused(problem, Hint::new(hint).render(flag)),
            AuditError::Stopped => Self::refused("the audit was stopped", "start it again"),
        }
    }
}

/// A bar for each part of the audit, or a line from time to time if standard error is not a terminal.
struct AuditProgress {
    stop: &'static AtomicBool,
    bar: ProgressBar,
    log: Log,
    part: String,
    done: u64,
    count: u64,
}

impl AuditProgress {
    fn new(stop: &'static AtomicBool) -> Self {
        let log = Log::new(Instant::now());
        Self { stop, bar: ProgressBar::hidden(), log, part: String::new(), done: 0, count: 0 }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for AuditProgress {
    fn begin(&mut self, part: &str, count: u64) {
        self.bar.finish_and_clear();
        self.bar = bar(count, part);
        self.log = Log::new(Instant::now());
        (self.part, self.done, self.count) = (part.to_owned(), 0, count);
    }

    fn advance(&mut self) -> bool {
        self.done += 1;
        self.bar.set_position(self.done);
        if self.bar.is_hidden()
            && self.done < self.count
            && let Some(line) = self.log.line(&self.part, self.done, self.count, Instant::now())
        {
            let _ = writeln!(io::stderr(), "{line}");
        }
        !self.stop.load(Ordering::Relaxed)
    }
}

fn text_of(result: &AuditResult) -> String {
    let AuditResult { algorithm, data, records, claim, attacks, checks, untested, seed, seconds, .. } =
        result;
    let kind = if claim.proved { "proved" } else { "claimed by its paper, not proved" };
    let mut text = format!(
        "audit of {algorithm} on {data}: epsilon {:.4} at delta {:e} ({kind})\n\n",
        claim.epsilon, claim.delta
    );
    let head = ["the attacker sees", "estimator", "canaries", "runs", "confidence", "epsilon at least"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(attacks.iter().map(attack_row));
    let right = Column::Right(0);
    text += &table(&[Column::Left(0), Column::Left(0), right, right, right, right], &rows);
    let mut assumptions: Vec<String> = Vec::new();
    for attack in attacks {
        if let Some(assumption) = &attack.assumption {
            let line = match attack.decides() {
                true => format!("  {}: assumes that {assumption}\n", attack.estimator),
                false => format!("  * {}: assumes that {assumption}; does not decide\n", attack.estimator),
            };
            if !assumptions.contains(&line) {
                assumptions.push(line);
            }
        }
    }
    text += &assumptions.concat();
    if !checks.is_empty() {
        text += "\n";
        let mut rows = vec![["test", "measured", "permitted", ""].map(str::to_owned).to_vec()];
        rows.extend(checks.iter().map(check_row));
        text += &table(&[Column::Left(0), Column::Right(0), Column::Left(0), Column::Left(0)], &rows);
        let rate: f64 = checks.iter().map(|check| check.false_alarm_rate).sum();
        text +=
            &format!("  A sound mechanism fails one of these tests with probability {rate:.1e} at most.\n");
    }
    for test in untested {
        text += &format!("  NOT TESTED, too few observations: {test}\n");
    }
    if seed.is_some() {
        text += "  The random numbers of the audit were fixed by a seed. The epsilon is that of a run without a seed.\n";
    }
    text += &format!(
        "\n{}\nSynthetic canaries beside {records}; {seconds:.1} s. The audit did not use private records and costs no privacy.\n",
        verdict(result)
    );
    text
}

fn attack_row(attack: &Attack) -> Vec<String> {
    let sees = match attack.observation {
        Observation::Step => "every release, and batches",
        Observation::WholeRun => "every release",
        Observation::FinalModel => "the final model",
    };
    let starred = if attack.decides() { "" } else { " *" };
    vec![
        sees.to_owned(),
        format!("{}{starred}", attack.estimator),
        attack.canaries.to_string(),
        attack.runs.to_string(),
        format!("{} %", (1e4 * attack.confidence).round() / 100.0),
        format!("{:.4}", attack.lower_bound),
    ]
}

fn check_row(check: &Check) -> Vec<String> {
    vec![
        check.name.clone(),
        format!("{:.4}", check.measured),
        match check.low == check.high {
            true => check.low.to_string(),
            false => format!("{:.4} to {:.4}", check.low, check.high),
        },
        if check.passed() { "passed".to_owned() } else { "FAILED".to_owned() },
    ]
}

fn verdict(result: &AuditResult) -> String {
    let (bound, claim) = (result.lower_bound(), result.claim.epsilon);
    let failed = result.failed().len();
    match (result.refutes_the_claim(), failed) {
        (true, _) => format!("REFUTED: epsilon is at least {bound:.4}, but {claim:.4} is claimed."),
        (false, 0) => {
            format!(
                "No evidence against epsilon {claim:.4}: the largest lower bound that decides is {bound:.4}."
            )
        }
        (false, _) => {
            format!("FAILED: {failed} of the tests of the mechanism failed. Do not rely on its epsilon.")
        }
    }
}
