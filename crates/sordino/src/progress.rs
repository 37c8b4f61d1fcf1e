//! A progress bar: step, time left, epsilon so far, accuracy on public records. Nothing private is shown.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use sordino_privacy::{Account, Standing};
use sordino_train::{Measurement, Observer};

use crate::statement::rounded_up;

/// Pricing takes some milliseconds, so the epsilon is not renewed at every step.
const RENEWED_EVERY: Duration = Duration::from_secs(1);

/// A bar on standard error; invisible unless that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    priced: Option<Instant>,
    epsilon: String,
    accuracy: String,
}

impl Progress {
    pub(crate) fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template("{bar:24} step {pos}/{len}, {eta} left{msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, priced: None, epsilon: String::new(), accuracy: String::new() }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self) {
        self.bar.set_message(format!("{}{}", self.epsilon, self.accuracy));
    }
}

impl Observer for Progress {
    fn stepped(&mut self, position: u64, account: &Account) {
        self.bar.set_position(position);
        if !self.bar.is_hidden() && self.priced.is_none_or(|last| last.elapsed() >= RENEWED_EVERY) {
            self.epsilon = match account.standing_after(position) {
                Ok(Standing::Private(guarantee)) => {
                    format!(", epsilon {}", rounded_up(guarantee.epsilon.get()))
                }
                Ok(Standing::NotPrivate(_)) => ", NOT PRIVATE".to_owned(),
                Err(_) => String::new(),
            };
            self.priced = Some(Instant::now());
            self.show();
        }
    }

    fn measured(&mut self, measurement: &Measurement) {
        if let Some(accuracy) = measurement.score.accuracy {
            self.accuracy = format!(", test accuracy {:.2} %", 100.0 * accuracy);
            self.show();
        }
    }
}
