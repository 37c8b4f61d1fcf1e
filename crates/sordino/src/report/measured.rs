//! What was measured on test records, as lines of text and as tables.

use sordino_train::{
    Metrics, Score,
    format::grouped,
    measurement::{ClassMetrics, Estimate},
};

/// What was measured on the test records of a run.
#[derive(Clone)]
pub struct Measured<'a> {
    /// The score.
    pub score: Option<Score>,
    /// All metrics, if they are known.
    pub metrics: Option<&'a Metrics>,
    /// What the units of privacy are called.
    pub units: String,
    /// The names of the classes.
    pub classes: &'a [String],
    /// Whether the test records are protected.
    pub protected: bool,
    /// Whether the test records are declared to be public.
    pub public: bool,
}

/// Classes are listed one by one up to this number.
const LISTED: usize = 12;

/// A share as a percentage, with its interval.
fn percentage(estimate: Estimate) -> String {
    let Estimate { value, low, high } = estimate;
    format!("{:.2} % ({:.2} to {:.2})", 100.0 * value, 100.0 * low, 100.0 * high)
}

/// A number with its interval.
fn number(estimate: Estimate) -> String {
    let Estimate { value, low, high } = estimate;
    format!("{value:.4} ({low:.4} to {high:.4})")
}

impl Measured<'_> {
    /// The lines of a report: what is measured, and the result.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let units = &self.units;
        let where_ = match (self.protected, self.metrics) {
            (true, Some(metrics)) => {
                format!("measured with noise on {} protected {units}", grouped(metrics.records))
            }
            (true, None) => format!("measured with noise on protected {units}"),
            (false, _) if self.public => "on the test set, which is public and not protected".to_owned(),
            (false, _) => "on the test set, measured exactly because the run is not private".to_owned(),
        };
        let score = self.score.unwrap_or_default();
        let interval = |scale: f64, digits: usize| {
            let [low, high] = score.interval?.map(|end| scale * end);
            Some(format!(" ({low:.digits$} to {high:.digits$})"))
        };
        let mut lines = Vec::new();
        if let Some(accuracy) = score.accuracy {
            let interval = interval(100.0, 2).unwrap_or_default();
            lines.push(("accuracy", format!("{:.2} %{interval}, {where_}", 100.0 * accuracy)));
        }
        if let Some(error) = score.mean_squared_error {
            let interval = interval(1.0, 4).unwrap_or_default();
            lines.push(("error", format!("{error:.4}{interval} mean squared, {where_}")));
        }
        if let Some(loss) = score.token_loss {
            let interval = interval(1.0, 4).unwrap_or_default();
            lines.push((
                "loss",
                format!("{loss:.4}{interval} per token (perplexity {:.1}), {where_}", loss.exp()),
            ));
        }
        lines.extend(self.metrics.map(|metrics| self.more_lines(metrics)).unwrap_or_default());
        lines
    }

    fn more_lines(&self, metrics: &Metrics) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if let Some(majority) = metrics.majority {
            let name = self.name(majority.class);
            let share = percentage(majority.share);
            lines.push(("baseline", format!("{share} by always predicting the most frequent class, {name}")));
        }
        if let Some(balanced) = metrics.balanced_accuracy {
            lines.push(("balanced", format!("{} mean recall of the classes", percentage(balanced))));
        }
        if let (Some(auc), Some(precision)) = (metrics.auc, metrics.average_precision) {
            lines.push(("ranking", format!("AUC {}; average precision {}", number(auc), number(precision))));
        }
        if let (Some(loss), Some(error)) = (metrics.log_loss, metrics.calibration_error) {
            lines.push((
                "probability",
                format!("log loss {}; calibration error {}", number(loss), number(error)),
            ));
        }
        if let Some(temperature) = metrics.temperature {
            lines.push((
                "temperature",
                format!(
                    "{:.3}, fitted to this measurement and applied to predicted probabilities: log loss {}{}",
                    temperature.value,
                    number(temperature.log_loss),
                    match temperature.calibration_error {
                        Some(error) => format!("; calibration error {}", number(error)),
                        None => " at most".to_owned(),
                    }
                ),
            ));
        }
        if metrics.classes.len() <= LISTED {
            for (class, of) in metrics.classes.iter().enumerate() {
                lines.push(("class", format!("{}: {}", self.name(class), described(of))));
            }
        }
        if let Some(error) = metrics.mean_absolute_error {
            lines.push(("", format!("{} mean absolute", number(error))));
        }
        lines
    }

    /// The name of a class.
    pub fn name(&self, class: usize) -> String {
        self.classes.get(class).cloned().unwrap_or_else(|| class.to_string())
    }

    /// Rows of a table: metric, value, and the ends of its interval.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let Some(metrics) = self.metrics else { return Vec::new() };
        let share = |label: &str, estimate: Option<Estimate>| {
            let Estimate { value, low, high } = estimate?;
            Some([label.to_owned(), percent(value), percent(low), percent(high)])
        };
        let plain = |label: &str, estimate: Option<Estimate>| {
            let Estimate { value, low, high } = estimate?;
            Some([label.to_owned(), four(value), four(low), four(high)])
        };
        let majority = metrics.majority.map(|majority| majority.share);
        let frequent = metrics.majority.map_or(String::new(), |majority| self.name(majority.class));
        let temperature = metrics.temperature;
        let mut rows: Vec<[String; 4]> = [
            share("Accuracy", metrics.accuracy),
            share(&format!("Accuracy of always predicting {frequent}, the most frequent class"), majority),
            share("Balanced accuracy", metrics.balanced_accuracy),
            plain("AUC", metrics.auc),
            plain("Average precision", metrics.average_precision),
            plain("Log loss", metrics.log_loss),
            plain("Log loss with the temperature", temperature.map(|fitted| fitted.log_loss)),
            plain("Calibration error", metrics.calibration_error),
            plain(
                "Calibration error with the temperature",
                temperature.and_then(|fitted| fitted.calibration_error),
            ),
            plain("Mean squared error", metrics.mean_squared_error),
            plain("Mean absolute error", metrics.mean_absolute_error),
            plain("Loss per token", metrics.token_loss),
        ]
        .into_iter()
        .flatten()
        .collect();
        for (class, of) in metrics.classes.iter().enumerate() {
            rows.extend(share(&format!("Recall of {}", self.name(class)), of.recall));
            rows.extend(share(&format!("Precision of {}", self.name(class)), of.precision));
        }
        rows
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn four(value: f64) -> String {
    format!("{value:.4}")
}

fn described(class: &ClassMetrics) -> String {
    let unknown = "too few records to tell".to_owned();
    let recall = class.recall.map_or(unknown, |recall| format!("recall {}", percentage(recall)));
    let precision = class.precision.map(|precision| format!("; precision {}", percentage(precision)));
    recall + &precision.unwrap_or_default()
}
