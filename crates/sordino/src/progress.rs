//! A progress bar: step, time left, epsilon so far, accuracy on public records. Nothing private is shown.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use sordino_privacy::{Account, Standing, Terms};
use sordino_train::{Measurement, Observer};

use crate::statement::{grouped, rounded_up};

/// How often the epsilon is renewed over a run: pricing takes some milliseconds.
const MILESTONES: u64 = 20;

/// A bar on standard error; invisible unless that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    steps: u64,
    /// The epsilon of the whole plan.
    whole: String,
    /// The epsilon that is shown covers so many steps.
    priced: u64,
    epsilon: String,
    accuracy: String,
}

impl Progress {
    pub(crate) fn new(terms: &Terms) -> Self {
        let steps = terms.steps();
        let whole =
            terms.guarantee().map(|guarantee| rounded_up(guarantee.epsilon.get())).unwrap_or_default();
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template("{bar:20} step {pos}/{len}, {eta} left{wide_msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, steps, whole, priced: 0, epsilon: String::new(), accuracy: String::new() }
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
        if self.bar.is_hidden() || position <= self.priced {
            return;
        }
        // Of the next milestone, so that it is never less than what was spent.
        let every = self.steps.div_ceil(MILESTONES).max(1);
        self.priced = position.next_multiple_of(every).min(self.steps);
        self.epsilon = match account.standing_after(self.priced) {
            Ok(Standing::Private(guarantee)) => {
                format!(", {} of epsilon {} spent", rounded_up(guarantee.epsilon.get()), self.whole)
            }
            Ok(Standing::NotPrivate(_)) => ", NOT PRIVATE".to_owned(),
            Err(_) => String::new(),
        };
        self.show();
    }

    fn resumed(&mut self, checkpoint: u64, position: u64) {
        let lost = position - checkpoint.min(position);
        let note = match lost {
            0 => format!("going on after step {}", grouped(position)),
            _ => format!(
                "going on after step {}; {} steps were paid for and not kept",
                grouped(position),
                grouped(lost)
            ),
        };
        let _ = writeln!(io::stderr(), "{note}");
    }

    fn measured(&mut self, measurement: &Measurement) {
        if let Some(accuracy) = measurement.score.accuracy {
            self.accuracy = format!(", test {:.2} %", 100.0 * accuracy);
            self.show();
        }
    }
}
