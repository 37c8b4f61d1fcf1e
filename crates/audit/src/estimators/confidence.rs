//! The confidence of a lower bound.

use std::fmt;

/// The probability with which a lower bound holds: between 0 and 1, both excluded.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Confidence(f64);

impl Confidence {
    /// Checks the range.
    ///
    /// # Errors
    /// Any other value, including NaN.
    pub fn new(value: f64) -> Result<Self, BadConfidence> {
        if value > 0.0 && value < 1.0 { Ok(Self(value)) } else { Err(BadConfidence(value)) }
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The permitted probability of error of each of `looks` tests, such that together they err with probability `1 - confidence` at most (Bonferroni).
    pub(super) fn level(self, looks: usize) -> f64 {
        (1.0 - self.0) / looks.max(1) as f64
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A confidence outside of its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BadConfidence(f64);

impl BadConfidence {
    /// What to do about it.
    pub const HINT: &str = "a confidence of 95 % is written as 0.95";
}

impl fmt::Display for BadConfidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "confidence must be between 0 and 1, both excluded, got {}", self.0)
    }
}

impl std::error::Error for BadConfidence {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_strictly_between_0_and_1() {
        assert_eq!(Confidence::new(0.95).unwrap().get(), 0.95);
        for bad in [0.0, 1.0, 95.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(Confidence::new(bad).is_err());
        }
        let message = Confidence::new(95.0).unwrap_err().to_string();
        assert_eq!(message, "confidence must be between 0 and 1, both excluded, got 95");
    }

    #[test]
    fn looks_share_the_probability_of_error() {
        let confidence = Confidence::new(0.9).unwrap();
        assert!((confidence.level(4) - 0.025).abs() < 1e-15);
        assert!((confidence.level(0) - 0.1).abs() < 1e-15);
    }
}
