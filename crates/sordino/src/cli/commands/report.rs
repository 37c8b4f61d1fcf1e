//! `sordino report`: runs, comparisons, audits and reproduced tables as one page.

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use crate::report::{
    json,
    page::{Evidence, json_report, page},
};
use clap::{Args, ValueEnum};
use sordino_report::{Chart, MARK, Page};
use sordino_train::write_whole;

use crate::cli::{outputs::WRITABLE, problem::Problem};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Folders of runs, and JSON files of comparisons, audits and reproduced tables
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Form of the report
    #[arg(long, value_name = "FORM", default_value = "html")]
    format: Format,
    /// File to write, or a new folder for all charts [default: report.html in the folder of the first path; md, json and a single chart are
    /// printed]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write this chart only, with --format svg
    #[arg(long, value_name = "NAME")]
    chart: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One self-contained file for a browser
    Html,
    /// Markdown, with the numbers of charts as tables
    Md,
    /// One JSON object with all numbers
    Json,
    /// The charts
    Svg,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, Problem> {
    if arguments.chart.is_some() && arguments.format != Format::Svg {
        return Err(Problem::refused("--chart needs --format svg", "add --format svg"));
    }
    let out = match (arguments.format, &arguments.out) {
        (Format::Html, None) => Some(default_path(&arguments.paths[0])),
        (_, out) => out.clone(),
    };
    // Whether the file can be written is checked before the work.
    if let Some(path) = &out {
        check_replaceable(path, arguments.format)?;
    }
    let mut evidence = Vec::new();
    for path in &arguments.paths {
        evidence.push((path.display().to_string(), Evidence::read(path)?));
    }
    let page = page(&evidence);
    let text = match arguments.format {
        Format::Html => page.to_html(),
        Format::Md => page.to_markdown(),
        Format::Json => json(&json_report(&evidence)),
        Format::Svg => return charts(&page, arguments.chart.as_deref(), out.as_deref()),
    };
    written(text, out.as_deref())
}

/// A line about this command, for the end of another command's output on a terminal.
pub(crate) fn mention(path: &Path) -> String {
    match io::stdout().is_terminal() {
        true => format!("\nTo write a report page: sordino report {}\n", path.display()),
        false => String::new(),
    }
}

/// The text itself, or a sentence about the file that it was written to.
fn written(text: String, out: Option<&Path>) -> Result<String, Problem> {
    let Some(path) = out else { return Ok(text) };
    write_whole(path, text.as_bytes()).map_err(|error| Problem::refused(error.to_string(), WRITABLE))?;
    Ok(format!("written: {}\n", path.display()))
}

/// `report.html` in the folder of a run, or beside a file.
fn default_path(first: &Path) -> PathBuf {
    let folder = if first.is_dir() { Some(first) } else { first.parent() };
    folder.unwrap_or(Path::new("")).join("report.html")
}

/// Refuses a file that exists, unless it is an earlier report, and a folder that is not empty.
fn check_replaceable(path: &Path, format: Format) -> Result<(), Problem> {
    let is_report = || {
        let mut head = Vec::new();
        let read = File::open(path).and_then(|file| file.take(1024).read_to_end(&mut head));
        read.is_ok() && String::from_utf8_lossy(&head).contains(MARK)
    };
    let is_empty_folder = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let replaceable = match format {
        Format::Html => is_report(),
        Format::Svg => is_empty_folder(),
        Format::Md | Format::Json => false,
    };
    match !path.exists() || replaceable {
        true => Ok(()),
        false => Err(Problem::refused(
            format!("{} exists already and is not a report that can be replaced", path.display()),
            "choose another name with --out, or remove what exists",
        )),
    }
}

/// One chart, or all charts into a folder.
fn charts(page: &Page, name: Option<&str>, out: Option<&Path>) -> Result<String, Problem> {
    let charts = named(page);
    let names = || charts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = name {
        let Some((_, chart)) = charts.iter().find(|(other, _)| other == name) else {
            return Err(Problem::refused(
                format!("--chart must be one of {}, got {name}", names()),
                "leave out --chart and give --out FOLDER to write all of them",
            ));
        };
        return written(chart.picture.to_svg(), out);
    }
    let Some(folder) = out else {
        return Err(Problem::refused(
            "--format svg needs --chart NAME or --out FOLDER",
            format!("the charts are {}", names()),
        ));
    };
    let cannot = |error| {
        Problem::refused(format!("cannot create {}: {error}", folder.display()), "choose another folder")
    };
    fs::create_dir_all(folder).map_err(cannot)?;
    let mut text = String::new();
    for (name, chart) in &charts {
        let path = folder.join(format!("{name}.svg"));
        text += &written(chart.picture.to_svg(), Some(&path))?;
    }
    Ok(text)
}

/// All charts with their names, which begin with the number of the part if there are several parts.
fn named(page: &Page) -> Vec<(String, &Chart)> {
    let several = page.parts.len() > 1;
    let parts = page.parts.iter().enumerate();
    parts
        .flat_map(|(number, part)| {
            part.charts().into_iter().map(move |chart| match several {
                true => (format!("{}-{}", number + 1, chart.name), chart),
                false => (chart.name.clone(), chart),
            })
        })
        .collect()
}
