//! Tests with normal statistics.

use crate::{Check, estimators::normal::quantile};

/// A test with a normal statistic: `measured` has standard deviation `deviation` around `expected`.
pub(super) struct Normal {
    /// The probability of a false alarm.
    pub(super) rate: f64,
}

impl Normal {
    pub(super) fn two_sided(
        &self,
        name: &str,
        meaning: &str,
        measured: f64,
        expected: f64,
        deviation: f64,
    ) -> Check {
        let margin = -quantile(0.5 * self.rate) * deviation;
        Check {
            name: name.to_owned(),
            meaning: meaning.to_owned(),
            measured,
            low: expected - margin,
            high: expected + margin,
            false_alarm_rate: self.rate,
        }
    }

    pub(super) fn at_most(
        &self,
        name: &str,
        meaning: &str,
        measured: f64,
        most: f64,
        deviation: f64,
    ) -> Check {
        let check = self.two_sided(name, meaning, measured, most, deviation);
        Check { low: 0.0, high: most - quantile(self.rate) * deviation, ..check }
    }

    /// A test of the mean of `count` squares of standard normal variates, by the formula of Wilson and Hilferty for their quantiles.
    pub(super) fn mean_square(&self, name: &str, meaning: &str, measured: f64, count: f64) -> Check {
        let spread = 2.0 / (9.0 * count);
        let at = |deviations: f64| (1.0 - spread + deviations * spread.sqrt()).max(0.0).powi(3);
        let margin = -quantile(0.5 * self.rate);
        let check = self.two_sided(name, meaning, measured, 1.0, 0.0);
        // The formula is rough in the lower tail of few squares.
        let low = if count < 30.0 { 0.0 } else { at(-margin) };
        Check { low, high: at(margin), ..check }
    }

    /// A test that a sound mechanism always passes.
    pub(super) fn certain(name: &str, meaning: &str, measured: f64, low: f64, high: f64) -> Check {
        let (name, meaning) = (name.to_owned(), meaning.to_owned());
        Check { name, meaning, measured, low, high, false_alarm_rate: 0.0 }
    }
}
