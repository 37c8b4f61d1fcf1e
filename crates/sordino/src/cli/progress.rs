//! The progress of a run on standard error: step, time left, the epsilon that is charged, accuracy on public records. Nothing private is
//! shown.

use std::{
    fmt,
    io::{self, Write},
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use sordino_privacy::{Account, PrivacyStatus, Terms};
use sordino_train::{
    Measurement, Observer,
    format::{grouped, rounded_up},
};

/// How often the epsilon is updated over a run.
const MILESTONES: u64 = 20;

/// A bar, or a line from time to time if standard error is not a terminal.
pub(crate) struct ProgressDisplay {
    bar: ProgressBar,
    log: Log,
    steps: u64,
    /// The epsilon of the whole plan.
    whole: String,
    /// The number of steps that the displayed epsilon covers.
    priced: u64,
    charged: String,
    accuracy: String,
}

impl ProgressDisplay {
    pub(crate) fn new(terms: &Terms) -> Self {
        let steps = terms.steps();
        let whole =
            terms.guarantee().map(|guarantee| rounded_up(guarantee.epsilon.get())).unwrap_or_default();
        let bar = bar(steps, "step");
        let log = Log::new(Instant::now());
        Self { bar, log, steps, whole, priced: 0, charged: String::new(), accuracy: String::new() }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self) {
        self.bar.set_message(format!("{}{}", self.charged, self.accuracy));
    }

    /// Prices the steps that are charged and those up to the next milestone, so that the epsilon is never less than what was spent.
    fn price(&mut self, position: u64, account: &Account) {
        if position <= self.priced {
            return;
        }
        // Not at every step: pricing takes some milliseconds.
        let every = self.steps.div_ceil(MILESTONES).max(1);
        self.priced = position.next_multiple_of(every).max(account.charged()).min(self.steps);
        self.charged = match account.privacy_status_after(self.priced) {
            Ok(PrivacyStatus::Private(guarantee)) => {
                let charged = rounded_up(guarantee.epsilon.get());
                // A terminal may be narrow.
                let until = match self.bar.is_hidden() {
                    true => format!(" to step {}", grouped(self.priced)),
                    false => String::new(),
                };
                format!(", epsilon {charged} of {} charged{until}", self.whole)
            }
            Ok(PrivacyStatus::NotPrivate(_)) => ", NOT PRIVATE".to_owned(),
            Err(_) => String::new(),
        };
        self.show();
    }
}

impl Observer for ProgressDisplay {
    fn encoding(&mut self, records: usize) {
        let note =
            format!("applying the frozen layers of the public model to {} records", grouped(records as u64));
        let _ = writeln!(io::stderr(), "{note}");
    }

    fn transforming(&mut self, records: usize) {
        // Fewer records take a few seconds at most.
        if records < 5000 {
            return;
        }
        let _ = writeln!(io::stderr(), "computing the features of {} records", grouped(records as u64));
    }

    fn encoded(&mut self) {
        self.bar.reset_elapsed();
        self.log = Log::new(Instant::now());
    }

    fn stepped(&mut self, position: u64, account: &Account) {
        self.bar.set_position(position);
        if !self.bar.is_hidden() {
            self.price(position, account);
        } else if position < self.steps
            && let Some(line) = self.log.line("step", position, self.steps, Instant::now())
        {
            self.price(position, account);
            let _ = writeln!(io::stderr(), "{line}{}{}", self.charged, self.accuracy);
        }
    }

    fn resumed(&mut self, checkpoint: u64, position: u64) {
        self.log.resumed(position);
        let lost = position - checkpoint.min(position);
        let note = match lost {
            0 => format!("continuing after step {}", grouped(position)),
            _ => format!(
                "continuing after step {}; {} steps were charged and are lost",
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

/// A bar that counts steps or runs.
pub(crate) fn bar(count: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let template = format!("{{bar:10}} {what} {{pos}}/{{len}}{{left}}{{wide_msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        // There is no estimate before the first steps or runs.
        let left = |state: &ProgressState, text: &mut dyn fmt::Write| {
            if state.pos() > 0 && state.eta() > Duration::ZERO {
                let _ = write!(text, ", {:#} left", HumanDuration(state.eta()));
            }
        };
        bar.set_style(style.progress_chars("=> ").with_key("left", left));
    }
    bar
}

/// Lines in place of a bar: none in the first ten seconds, then one every ten seconds, and fewer the longer it takes.
pub(crate) struct Log {
    begun: Instant,
    last: Instant,
    /// The steps of an earlier process.
    before: u64,
}

impl Log {
    pub(crate) fn new(now: Instant) -> Self {
        Self { begun: now, last: now, before: 0 }
    }

    /// Leaves the steps of an earlier process out of the estimate of the time left.
    fn resumed(&mut self, position: u64) {
        self.before = position;
    }

    /// The next line, if it is time for one.
    pub(crate) fn line(&mut self, what: &str, done: u64, all: u64, now: Instant) -> Option<String> {
        let elapsed = now - self.begun;
        let pause = (elapsed / 10).clamp(Duration::from_secs(10), Duration::from_secs(600));
        let here = done.saturating_sub(self.before);
        if now - self.last < pause || here == 0 {
            return None;
        }
        self.last = now;
        let left = elapsed.as_secs_f64() * all.saturating_sub(done) as f64 / here as f64;
        Some(format!(
            "{what} {} of {}, {} so far, about {} left",
            grouped(done),
            grouped(all),
            span(elapsed.as_secs_f64()),
            span(left)
        ))
    }
}

/// A time in its largest unit.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which lines appear in a run of this length, checked every tenth of a second.
    fn lines(length: u64) -> Vec<(u64, String)> {
        let begun = Instant::now();
        let mut log = Log::new(begun);
        let at = |tenth: u64| begun + Duration::from_millis(100 * tenth);
        (1..10 * length)
            .filter_map(|tenth| Some((tenth / 10, log.line("step", 7 * tenth, 70 * length, at(tenth))?)))
            .collect()
    }

    #[test]
    fn a_log_has_few_lines_and_none_for_short_runs() {
        assert!(lines(10).is_empty());
        let minute = lines(60);
        assert_eq!(minute.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [10, 20, 30, 40, 50]);
        assert_eq!(minute[1].1, "step 1,400 of 4,200, 20 s so far, about 40 s left");
        let day = lines(86_400);
        assert!((150..400).contains(&day.len()), "{}", day.len());
        assert!(day.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 601));
    }

    #[test]
    fn steps_of_an_earlier_process_are_not_timed() {
        let begun = Instant::now();
        let mut log = Log::new(begun);
        log.resumed(900);
        assert_eq!(log.line("step", 900, 1000, begun + Duration::from_secs(20)), None);
        let line = log.line("step", 910, 1000, begun + Duration::from_secs(20)).unwrap();
        assert_eq!(line, "step 910 of 1,000, 20 s so far, about 3 min left");
    }
}
