//! `sordino data`: drafts schemas, checks files, converts them, and shows what they contain.

use std::{collections::BTreeSet, io, io::Write as _, path::PathBuf, process};

use crate::report::json;
use clap::{Args, Subcommand};
use serde::Serialize;
use sordino_data::{Converted, Problems, Source};
use sordino_train::{Hint, data_source, format::grouped, write_whole};

use crate::cli::{
    problem::{Problem, flag},
    settings_arguments::ReadingArguments,
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand)]
enum DataCommand {
    /// Write the draft of a schema, with gaps for what must come from knowledge of the subject
    Draft(DraftArguments),
    /// List every problem of a file
    Check(SourceArguments),
    /// Write a .sordino file, whose records are read where they lie. It is AS PRIVATE AS THE DATA
    Convert(ConvertArguments),
    /// Show shapes, types, and the numbers of records and classes; no values
    Show(SourceArguments),
}

#[derive(Args)]
struct DraftArguments {
    /// Table; only its first line is read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// PUBLIC table with the same columns, from which types and some values are taken
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    /// The first line of the table is a record
    #[arg(long)]
    no_header: bool,
    /// Write the draft to this new file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct SourceArguments {
    /// File or folder of records
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    reading: ReadingArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ConvertArguments {
    #[command(flatten)]
    source: SourceArguments,
    /// New file, whose name ends in .sordino
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl SourceArguments {
    fn source(&self) -> Result<Source, Problem> {
        Ok(Source { path: self.file.clone(), ..data_source(&self.reading.settings()?) })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    match &arguments.command {
        DataCommand::Draft(arguments) => draft(arguments),
        DataCommand::Check(arguments) => check(arguments),
        DataCommand::Convert(arguments) => convert(arguments),
        DataCommand::Show(arguments) => show(arguments),
    }
}

fn draft(arguments: &DraftArguments) -> Result<String, Problem> {
    let text = sordino_data::draft(&arguments.file, arguments.sample.as_deref(), arguments.no_header)?;
    let Some(path) = &arguments.out else { return Ok(text) };
    let refused = |message| Problem::refused(message, "give the name of a new file in a folder that exists");
    if path.is_file() {
        return Err(refused(format!("{}: cannot be written: the file exists", path.display())));
    }
    write_whole(path, text.as_bytes()).map_err(|error| refused(error.to_string()))?;
    Ok(format!("{}: fill in every gap, then use it with --schema\n", path.display()))
}

/// The result of a check, as it appears in JSON.
#[derive(Serialize)]
struct CheckResult {
    records: u64,
    problems: u64,
    /// The first problems.
    listed: Vec<String>,
}

fn check(arguments: &SourceArguments) -> Result<String, Problem> {
    let problems = sordino_data::check(&arguments.source()?)?;
    if arguments.json {
        let listed = problems.listed.iter().map(ToString::to_string).collect();
        let result = CheckResult { records: problems.records, problems: problems.total, listed };
        let text = json(&result);
        if problems.total == 0 {
            return Ok(text);
        }
        let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
        process::exit(2);
    }
    match problems.total {
        0 => Ok(format!("{} records, no problems\n", grouped(problems.records))),
        _ => Err(refused(&problems)),
    }
}

/// All listed problems, their number, and each hint once.
fn refused(problems: &Problems) -> Problem {
    let mut messages: Vec<String> = problems.listed.iter().map(ToString::to_string).collect();
    let total = grouped(problems.total);
    messages.push(match problems.listed.len() as u64 {
        listed if listed < problems.total => format!("{total} problems; the first {listed} are listed"),
        1 => "1 problem".to_owned(),
        _ => format!("{total} problems"),
    });
    let hints: BTreeSet<&str> = problems.listed.iter().map(|problem| problem.hint()).collect();
    let hints: Vec<String> = hints.into_iter().map(|hint| Hint::new(hint).render(flag)).collect();
    Problem::refused(messages.join("\nerror: "), hints.join("\nhint: "))
}

/// A file of records, as it appears in JSON.
#[derive(Serialize)]
struct ConvertResult<'a> {
    file: &'a PathBuf,
    records: u64,
    test_records: u64,
}

fn convert(arguments: &ConvertArguments) -> Result<String, Problem> {
    let Converted { records, test_records, shape } =
        sordino_data::convert(&arguments.source.source()?, &arguments.out)?;
    if arguments.source.json {
        return Ok(json(&ConvertResult { file: &arguments.out, records, test_records }));
    }
    let tests = match test_records {
        0 => String::new(),
        count => format!(" and {} test records", grouped(count)),
    };
    Ok(format!(
        "{}: {} records{tests} of shape {shape}\nThis file is as private as the data. Delete it with the data.\n",
        arguments.out.display(),
        grouped(records),
    ))
}

fn show(arguments: &SourceArguments) -> Result<String, Problem> {
    let overview = sordino_data::overview(&arguments.source()?)?;
    if arguments.json {
        return Ok(json(&overview));
    }
    let width = overview.parts.iter().map(|part| part.name.chars().count()).max().unwrap_or(0);
    let line = |part: &sordino_data::OverviewPart| format!("{:width$}  {}\n", part.name, part.content);
    Ok(overview.parts.iter().map(line).collect())
}
