//! The quantities of differential privacy as types. Their constructors check the range once.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::AccountingError;

/// Defines a newtype over `f64` whose constructor checks the range.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $what:literal, $range:literal, $hint:literal, $permitted:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            #[doc = concat!("Checks that ", $what, " is ", $range, ".")]
            ///
            /// # Errors
            /// Any other value, including NaN.
            pub fn new(value: f64) -> Result<Self, AccountingError> {
                let permitted: fn(f64) -> bool = $permitted;
                if permitted(value) { Ok(Self(value)) } else { Err(Self::refused(value)) }
            }

            /// The number.
            pub const fn get(self) -> f64 {
                self.0
            }

            fn refused(got: impl ToString) -> AccountingError {
                AccountingError::OutOfRange { what: $what, range: $range, got: got.to_string(), hint: $hint }
            }
        }

        impl TryFrom<f64> for $name {
            type Error = AccountingError;
            fn try_from(value: f64) -> Result<Self, AccountingError> {
                Self::new(value)
            }
        }

        impl From<$name> for f64 {
            fn from(value: $name) -> f64 {
                value.0
            }
        }

        impl FromStr for $name {
            type Err = AccountingError;
            fn from_str(text: &str) -> Result<Self, AccountingError> {
                let value = text.trim().parse().map_err(|_| Self::refused(text))?;
                Self::new(value).map_err(|_| Self::refused(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // 1e-5 reads better than 0.00001.
                if self.0 > 0.0 && self.0 < 1e-3 { fmt::LowerExp::fmt(&self.0, f) } else { fmt::Display::fmt(&self.0, f) }
            }
        }
    };
}

quantity!(
    /// The `epsilon` of (epsilon, delta)-differential privacy.
    Epsilon, "epsilon", "a finite number of at least 0",
    "useful guarantees have an epsilon between 0.01 and 10",
    |v| v.is_finite() && v >= 0.0
);
quantity!(
    /// The `delta` of (epsilon, delta)-differential privacy.
    Delta, "delta", "between 0 and 1, both excluded",
    "choose delta well below 1 / (number of records), for example 1e-5 for 10,000 records",
    |v| v > 0.0 && v < 1.0
);
quantity!(
    /// The probability with which each record joins a batch.
    SamplingRate, "sampling rate", "in (0, 1]",
    "the sampling rate is (batch size) / (number of records), for example 250/60000 = 0.00417",
    |v| v > 0.0 && v <= 1.0
);
quantity!(
    /// The standard deviation of the noise on a sum, divided by the sum's L2 sensitivity to one record.
    NoiseMultiplier, "noise multiplier", "between 1e-6 and 1e12",
    "typical noise multipliers are between 0.5 and 10; without noise there is no guarantee",
    |v| (1e-6..=1e12).contains(&v)
);
quantity!(
    /// The L2 norm to which each record's contribution is clipped.
    ClipNorm, "clipping norm", "a finite number above 0",
    "typical clipping norms are between 0.1 and 10",
    |v| v.is_finite() && v > 0.0
);
quantity!(
    /// The parameter `mu` of Gaussian differential privacy: telling whether a record took part is as hard as telling N(0, 1) from
    /// N(mu, 1).
    Mu, "mu", "a finite number of at least 0",
    "mu is the signal-to-noise ratio of one record; 0 is perfect privacy",
    |v| v.is_finite() && v >= 0.0
);

impl NoiseMultiplier {
    /// Rounded up to six significant digits: short enough to copy, and never less noise.
    #[must_use]
    pub fn shortened(self) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the exponent of a number from 1e-6 to 1e12")]
        let scale = 10_f64.powi(5 - self.0.log10().floor() as i32);
        // The largest permitted multiplier cannot be rounded up.
        Self::new((self.0 * scale).ceil() / scale).unwrap_or(self)
    }
}

/// A number of steps, from 1 to 2^40.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "u64")]
pub struct Steps(u64);

impl Steps {
    /// The largest number of steps. Sums of such numbers are far from overflow.
    pub const MAX: u64 = 1 << 40;

    /// Checks that there is at least one step, and at most [`Steps::MAX`].
    ///
    /// # Errors
    /// Any other number.
    pub fn new(steps: u64) -> Result<Self, AccountingError> {
        if (1..=Self::MAX).contains(&steps) { Ok(Self(steps)) } else { Err(Self::refused(steps)) }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    fn refused(got: impl ToString) -> AccountingError {
        AccountingError::OutOfRange {
            what: "number of steps",
            range: "a whole number of at least 1 (and at most 2^40)",
            got: got.to_string(),
            hint: "steps = epochs / sampling rate",
        }
    }
}

impl TryFrom<i64> for Steps {
    type Error = AccountingError;
    fn try_from(steps: i64) -> Result<Self, AccountingError> {
        u64::try_from(steps).map_err(|_| Self::refused(steps)).and_then(Self::new)
    }
}

impl From<Steps> for u64 {
    fn from(steps: Steps) -> u64 {
        steps.0
    }
}

impl FromStr for Steps {
    type Err = AccountingError;
    fn from_str(text: &str) -> Result<Self, AccountingError> {
        text.trim().parse().map_err(|_| Self::refused(text)).and_then(Self::new)
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A proved lower bound and a proved upper bound on a number that is not known exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bracket<T> {
    /// The number is at least this.
    pub lower: T,
    /// The number is at most this.
    pub upper: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_values_are_refused_or_accepted_as_documented() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(
                Epsilon::new(bad).is_err() && Delta::new(bad).is_err() && SamplingRate::new(bad).is_err()
            );
            assert!(
                NoiseMultiplier::new(bad).is_err() && ClipNorm::new(bad).is_err() && Mu::new(bad).is_err()
            );
        }
        assert!(Epsilon::new(0.0).is_ok() && Mu::new(0.0).is_ok());
        assert!(Delta::new(0.0).is_err() && Delta::new(1.0).is_err());
        assert!(SamplingRate::new(0.0).is_err() && SamplingRate::new(1.0).is_ok());
        assert!(NoiseMultiplier::new(0.0).is_err() && ClipNorm::new(0.0).is_err());
        assert!(Steps::new(0).is_err() && Steps::try_from(-3).is_err() && Steps::new(1).is_ok());
    }

    #[test]
    fn a_shortened_multiplier_is_never_smaller() {
        for value in [1e-6, 0.123_456_78, 1.0, 5.329_418_791, 99.999_999, 1e12] {
            let short = NoiseMultiplier::new(value).unwrap().shortened().get();
            assert!(short >= value && short <= value * 1.000_02, "{value}: {short}");
        }
        assert_eq!(NoiseMultiplier::new(5.329_418_791).unwrap().shortened().get(), 5.32942);
    }

    #[test]
    fn messages_carry_the_value_and_the_range() {
        let message = SamplingRate::new(1.7).unwrap_err().to_string();
        assert_eq!(message, "sampling rate must be in (0, 1], got 1.7");
        let message = "many".parse::<Steps>().unwrap_err().to_string();
        assert_eq!(
            message,
            "number of steps must be a whole number of at least 1 (and at most 2^40), got many"
        );
    }
}
