//! A comparison as a part of a report.

use sordino_report::{Axis, Block, Chart, DotPlot, DotRow, Notice, Part, Section, Table, Tone};
use sordino_train::format::{grouped, rounded_claim, rounded_up};

use super::{
    Choice, Comparison,
    result::{Row, Setup},
};

impl Comparison {
    /// The part of a report about this comparison.
    pub fn part(&self, name: &str) -> Part {
        let mut sections = vec![self.accuracy()];
        if self.rows.iter().any(|row| row.claimed_epsilon.is_some()) {
            sections.push(self.claims());
        }
        let maps: Vec<Chart> = self.maps().iter().map(super::maps::Map::chart).collect();
        if !maps.is_empty() {
            sections.push(Section::new("All settings that were tried").with(Block::Charts(maps)));
        }
        sections.push(self.how_it_was_made());
        Part { title: format!("Comparison {name}"), verdict: self.verdict(), sections }
    }

    fn verdict(&self) -> Notice {
        let total = &self.total;
        let runs = format!("All {} runs together", grouped(total.runs));
        let not_kept = "The runs of a comparison are not kept. Choosing among them by their results is covered by the cost of all runs together, \
                        and not by the epsilon of one run.";
        let (tone, headline) = match (total.epsilon_of_all, total.delta_of_all) {
            (Some(epsilon), Some(delta)) => (
                Tone::Good,
                format!(
                    "{runs} satisfy ({}, {delta:e})-differential privacy for {}, under {}.",
                    rounded_up(epsilon),
                    total.unit_of_all.as_deref().unwrap_or("one training record"),
                    total.relation_of_all.as_deref().unwrap_or("the relation of their plans")
                ),
            ),
            _ if total.not_private.is_empty() => {
                (Tone::Bad, format!("The total cost of all {} runs is NOT KNOWN.", grouped(total.runs)))
            }
            _ => (
                Tone::Bad,
                format!(
                    "{runs} guarantee NOTHING, because runs of these algorithms are not private: {}.",
                    total.not_private.join(", ")
                ),
            ),
        };
        Notice { tone, headline, details: vec![not_kept.to_owned()] }
    }

    /// The rows that are shown. If a grid of settings was tried, this is the best row of each algorithm.
    fn shown(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.best != Some(false))
    }

    fn accuracy(&self) -> Section {
        let columns = [
            "algorithm",
            ">mean in %",
            ">+- in %",
            ">spread in %",
            ">worst in %",
            ">runs",
            ">proved epsilon",
            ">seconds per run",
        ];
        let mut table = Table::new(
            "Test accuracy of each algorithm. The spread is the standard deviation over runs. Epsilon is that of one run.",
            &columns,
        );
        let mut plot = DotPlot::new("Test accuracy", Axis::linear("test accuracy in %"));
        for row in self.shown() {
            let [mean, deviation, worst] =
                [row.mean, row.standard_deviation.unwrap_or(f64::NAN), row.worst].map(|share| 100.0 * share);
            table = table.row([
                row.name(),
                format!("{mean:.2}"),
                row.interval.map_or("-".to_owned(), |half| format!("{:.2}", 100.0 * half)),
                row.standard_deviation.map_or("-".to_owned(), |_| format!("{deviation:.2}")),
                format!("{worst:.2}"),
                row.test_accuracies.len().to_string(),
                row.proved(),
                format!("{:.1}", row.seconds),
            ]);
            let label = if row.private { row.name() } else { format!("{} (NOT PRIVATE)", row.name()) };
            let dot = DotRow::new(label, mean)
                .single(row.test_accuracies.iter().map(|share| 100.0 * share))
                .series(usize::from(!row.private));
            plot = plot.row(match row.standard_deviation {
                Some(_) => dot.spread(mean - deviation, mean + deviation),
                None => dot,
            });
        }
        let chart = Chart {
            name: "comparison".to_owned(),
            title: "Test accuracy".to_owned(),
            description: "The mean of each algorithm is a dot, its spread (one standard deviation to each side) a bar, and single runs are short \
                          lines."
                .to_owned(),
            picture: plot.picture(),
            numbers: Table::default(),
        };
        let mut section = Section::new("Accuracy at equal privacy budgets")
            .with(Block::Charts(vec![chart]))
            .with(Block::Table(table));
        let note = self.accuracy_note();
        if !note.is_empty() {
            section = section.with(Block::Paragraph(note.trim().replace('\n', " ")));
        }
        if self.rows.iter().any(|row| row.best.is_some()) {
            section = section.with(Block::Paragraph(format!(
                "Each row has the settings with the best mean test accuracy for its algorithm; {} settings were tried in all. The epsilon of a \
                 row does not cover this choice; that of all runs together does.",
                self.rows.len()
            )));
        }
        section
    }

    fn claims(&self) -> Section {
        let columns =
            ["algorithm", ">claimed epsilon", ">proved for the runs", ">provable as published", "verdict"];
        let mut table = Table::new("The epsilon that a paper claims, and what is proved", &columns);
        for row in self.shown() {
            let Some(claimed) = row.claimed_epsilon else { continue };
            let verdict = match (row.claims_too_little(), row.private) {
                (false, _) => "the proved epsilon is at most the claim",
                (true, true) => "the claim is not proved",
                (true, false) => "the claim is not proved, and the runs are NOT PRIVATE",
            };
            table = table.row([
                row.name(),
                rounded_claim(claimed),
                row.proved(),
                row.provable_epsilon.map_or("-".to_owned(), rounded_up),
                verdict.to_owned(),
            ]);
        }
        Section::new("Published claims and what is proved").with(Block::Table(table)).with(Block::Paragraph(
            "The provable epsilon of an algorithm as published is a calculation only. Its runs have no guarantee."
                .to_owned(),
        ))
    }

    fn how_it_was_made(&self) -> Section {
        let section = Section::new("How the comparison was made");
        let Some(setup) = self.setup() else {
            return section.with(Block::Paragraph(
                "An earlier version wrote this file. It does not state the data and the model.".to_owned(),
            ));
        };
        let Setup { version, data, model, training_records, test_records, repeats, epsilon, delta } = setup;
        let mut points = Vec::new();
        let mut point = |label: &str, text: String| points.push((label.to_owned(), text));
        point("Data", data.as_ref().map_or("in memory".to_owned(), |path| path.display().to_string()));
        point("Training records", grouped(*training_records));
        let protection = match self.rows.iter().any(|row| row.protected) {
            true => "which are protected: noise was added to what was measured on them",
            false => "which are public and not protected",
        };
        point("Test records", format!("{}, {protection}", grouped(*test_records)));
        point("Model", model.clone().unwrap_or_default());
        if let (Some(epsilon), Some(delta)) = (epsilon, delta) {
            point("Privacy budget of each run", format!("epsilon {epsilon} at delta {delta:e}"));
        }
        point("Runs of each algorithm", repeats.to_string());
        point("Version", format!("Sordino {version}"));
        section.with(Block::Points(points))
    }
}

impl Row {
    fn name(&self) -> String {
        match self.tuned.as_ref().map(Choice::to_string).filter(|tuned| !tuned.is_empty()) {
            Some(tuned) => format!("{} {tuned}", self.algorithm),
            None => self.algorithm.clone(),
        }
    }

    fn proved(&self) -> String {
        self.epsilon.filter(|_| self.private).map_or("NOT PRIVATE".to_owned(), rounded_up)
    }
}
