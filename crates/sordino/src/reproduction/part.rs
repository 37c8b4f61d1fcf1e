//! The part of a report about a reproduced table.

use sordino_report::{Axis, Block, Chart, DotPlot, DotRow, Notice, Part, Section, Table, Tone};

use crate::comparison::Map;

use super::{
    Measure, SideBySide,
    side_by_side::{FOUND_WITH, Measured, Row, plain},
};

impl SideBySide {
    /// The part of a report about this table.
    pub fn part(&self, name: &str) -> Part {
        let mut sections = vec![Section::new("Side by side").with(Block::Table(self.numbers()))];
        let charts = self.charts();
        if !charts.is_empty() {
            sections.push(Section::new("Charts").with(Block::Charts(charts)));
        }
        let finding = format!("{FOUND_WITH}\n\n{}", self.finding);
        let finding = if self.finding.is_empty() { &self.finding } else { &finding };
        for (title, text) in [("Setting", &self.setting), ("Finding", finding)] {
            if !text.is_empty() {
                sections.push(text.split("\n\n").map(block).fold(Section::new(title), Section::with));
            }
        }
        sections.push(Section::new("How it was made").with(Block::Paragraph(self.provenance())));
        Part {
            title: format!("{} ({name})", self.title),
            verdict: Notice {
                tone: Tone::Neutral,
                headline: format!("{}, with its true epsilon and Sordino's results.", self.source),
                details: self.explanation().lines().map(plain).collect(),
            },
            sections,
        }
    }

    fn numbers(&self) -> Table {
        let lines = self.lines();
        let mut lines = lines.iter();
        let titles: Vec<String> = lines
            .next()
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(place, title)| if place < 2 { title.clone() } else { format!(">{title}") })
            .collect();
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        lines.fold(Table::new(self.title.clone(), &titles), |table, line| table.row(line.clone()))
    }

    /// The charts of each column of the paper's table that has results: heat maps of its grids, or the numbers of its rows.
    fn charts(&self) -> Vec<Chart> {
        let mut columns: Vec<&str> = self.cells.iter().map(|cell| cell.column.as_str()).collect();
        columns.dedup();
        columns
            .into_iter()
            .enumerate()
            .flat_map(|(number, column)| {
                let maps = self.maps(Some(column));
                if maps.is_empty() {
                    self.chart(number + 1, column).into_iter().collect()
                } else {
                    maps.iter().map(Map::chart).collect::<Vec<_>>()
                }
            })
            .collect()
    }

    fn chart(&self, number: usize, column: &str) -> Option<Chart> {
        let cells: Vec<&Row> = self.cells.iter().filter(|cell| cell.column == column).collect();
        cells.iter().find(|cell| cell.published.is_some() || cell.proved.is_some())?;
        let unit = match self.measure {
            Measure::Accuracy => "test accuracy in %",
            Measure::Loss => "test loss per token",
            Measure::Seconds => "seconds",
        };
        let mut plot = DotPlot::new(column, Axis::linear(unit));
        for cell in &cells {
            let dot = |kind: &str, value: f64, deviation: Option<f64>, series: usize| {
                let row = DotRow::new(format!("{}: {kind}", cell.row), value).series(series);
                match deviation {
                    Some(deviation) => row.spread(value - deviation, value + deviation),
                    None => row,
                }
            };
            let measured = |kind: &str, result: &Option<Measured>, series: usize| {
                result.as_ref().map(|result| dot(kind, result.mean, result.standard_deviation, series))
            };
            let rows = [
                cell.paper.map(|paper| dot("paper", paper, cell.paper_standard_deviation, 1)),
                measured("as published", &cell.published, 0),
                measured("proved", &cell.proved, 2),
            ];
            plot = rows.into_iter().flatten().fold(plot, DotPlot::row);
        }
        if let Some(best) = cells.iter().find_map(|cell| cell.best.as_ref()) {
            plot = plot.mark("best", best.mean);
        }
        let has_best = cells.iter().any(|cell| cell.best.is_some());
        let best = if has_best { " The line is the result of Sordino's best known setting." } else { "" };
        Some(Chart {
            name: file_name(&format!("{}-{number}-{column}", self.table)),
            title: column.to_owned(),
            description: format!(
                "For each algorithm: the paper's number, the result as published, and the result with a proved epsilon. Bars are one standard \
                 deviation to each side.{best}"
            ),
            picture: plot.picture(),
            numbers: Table::default(),
        })
    }
}

/// The words of a text with hyphens between them. The text of a result file is not trusted.
fn file_name(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// A paragraph, or a list whose items begin with a hyphen.
fn block(text: &str) -> Block {
    let one_line = |text: &str| plain(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match text.trim().strip_prefix("- ") {
        Some(items) => Block::List(items.split("\n- ").map(one_line).collect()),
        None => Block::Paragraph(one_line(text)),
    }
}

#[cfg(test)]
mod tests {
    use sordino_report::Block;

    use super::{block, file_name};

    #[test]
    fn paragraphs_and_lists_are_in_one_line_each() {
        assert_eq!(block("a\nb `c`"), Block::Paragraph("a b \"c\"".to_owned()));
        assert_eq!(block("- a\n  b - c\n- d"), Block::List(vec!["a b - c".to_owned(), "d".to_owned()]));
    }

    #[test]
    fn names_of_files_have_no_path() {
        assert_eq!(file_name("dp-c4-1-2-MNIST, 0.4"), "dp-c4-1-2-mnist-0-4");
        assert_eq!(file_name("../x/y-1-"), "x-y-1");
    }
}
