//! `options!`: the options of an algorithm, each written down once.

use std::ops::RangeInclusive;

use crate::AlgorithmError;

/// Defines the options of an algorithm: a struct with defaults, checks, serde and help texts.
///
/// Doc comments are the help texts. `= VALUE` is the default; `as "WORDS"` describes a default that depends on the run; `in RANGE` is the
/// permitted range: an inclusive range, [`Above0`](crate::Above0) or [`Below1`](crate::Below1). A crate that uses the macro depends on
/// `serde` with its feature `derive`.
///
/// ```
/// sordino_algorithms::options! {
///     /// Clips to a percentile.
///     pub struct Example {
///         /// Share of gradients that are not clipped.
///         percentile: f64 = 0.5, in sordino_algorithms::Below1;
///         /// Bins of a histogram.
///         bins: usize = 20, in 2..=4096;
///         /// Records of a larger batch.
///         anchor_batch: Option<u64> = None, as "16 batches", in 1..=1_000_000;
///     }
/// }
/// use sordino_algorithms::Options;
///
/// let wrong = Example { percentile: 1.5, ..Example::default() };
/// assert_eq!(
///     wrong.check_ranges().unwrap_err().to_string(),
///     "percentile must be above 0 and below 1, got 1.5"
/// );
/// assert_eq!(Example::default().options()[2].default, "16 batches");
/// assert_eq!(wrong.set_options(), [("percentile", "1.5".to_owned())]);
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[doc = $summary:literal])+
        pub struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $default:expr $(, as $words:literal)? $(, in $range:expr)?;
            )*
        }
    ) => {
        $(#[doc = $summary])+
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[doc = $help])+ pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::Options for $name {
            fn summary(&self) -> &'static str {
                concat!($($summary),+).trim_ascii()
            }

            fn options(&self) -> Vec<$crate::OptionDescription> {
                vec![$($crate::OptionDescription {
                    name: stringify!($field),
                    default: $crate::default_text(&$name::default().$field, &[$($words)?]),
                    meaning: concat!($($help),+).trim_ascii(),
                },)*]
            }

            #[allow(unused_mut, clippy::allow_attributes, reason = "a struct may have no fields")]
            fn set_options(&self) -> Vec<(&'static str, String)> {
                let mut set = Vec::new();
                $(if self.$field != $name::default().$field {
                    set.push((stringify!($field), $crate::default_text(&self.$field, &[])));
                })*
                set
            }

            fn check_ranges(&self) -> Result<(), $crate::AlgorithmError> {
                $($($crate::check_range(stringify!($field), &self.$field, &$range)?;)?)*
                Ok(())
            }
        }
    };
}

/// The value of an option in words.
#[doc(hidden)]
pub fn default_text(default: &impl serde::Serialize, words: &[&str]) -> String {
    match (words, serde_json::to_value(default)) {
        ([words, ..], _) => (*words).to_owned(),
        ([], Ok(serde_json::Value::String(text))) => text,
        ([], Ok(serde_json::Value::Null) | Err(_)) => "none".to_owned(),
        ([], Ok(value)) => {
            let text = value.to_string();
            text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
        }
    }
}

/// Refuses an option outside its range. An option that is not set is accepted.
#[doc(hidden)]
pub fn check_range<V: OptionValue, R: Range<V::Number>>(
    name: &'static str,
    value: &V,
    range: &R,
) -> Result<(), AlgorithmError> {
    match value.number() {
        Some(number) if !range.permits(number) => {
            Err(AlgorithmError::OutOfRange { name, permitted: range.words(), got: number.to_string() })
        }
        _ => Ok(()),
    }
}

/// An option that is a number, or nothing.
#[doc(hidden)]
pub trait OptionValue {
    /// The type of the number.
    type Number: Copy + PartialOrd + std::fmt::Display;
    /// The number, if there is one.
    fn number(&self) -> Option<Self::Number>;
}

/// The numbers that an option may take.
#[doc(hidden)]
pub trait Range<N> {
    /// Whether the number is in the range. A NaN is never in a range.
    fn permits(&self, number: N) -> bool;
    /// The range as text.
    fn words(&self) -> String;
}

/// The range of numbers above 0 and below 1.
#[derive(Debug, Clone, Copy)]
pub struct Below1;

/// The range of numbers above 0, up to and including this one.
#[derive(Debug, Clone, Copy)]
pub struct Above0(pub f64);

impl Range<f64> for Below1 {
    fn permits(&self, number: f64) -> bool {
        number > 0.0 && number < 1.0
    }

    fn words(&self) -> String {
        "above 0 and below 1".to_owned()
    }
}

impl Range<f64> for Above0 {
    fn permits(&self, number: f64) -> bool {
        number > 0.0 && number <= self.0
    }

    fn words(&self) -> String {
        format!("above 0 and at most {}", short(&self.0))
    }
}

impl<N: Copy + PartialOrd + std::fmt::Display> Range<N> for RangeInclusive<N> {
    fn permits(&self, number: N) -> bool {
        self.contains(&number)
    }

    fn words(&self) -> String {
        format!("between {} and {}", short(self.start()), short(self.end()))
    }
}

/// A number in its short form: 1e9, not 1000000000.
fn short(number: &impl std::fmt::Display) -> String {
    let text = number.to_string();
    match text.parse::<f64>() {
        Ok(value) if text.len() > 5 => format!("{value:e}"),
        _ => text,
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl OptionValue for $type {
            type Number = $type;
            fn number(&self) -> Option<$type> {
                Some(*self)
            }
        }

        impl OptionValue for Option<$type> {
            type Number = $type;
            fn number(&self) -> Option<$type> {
                *self
            }
        }
    )*};
}

numbers!(f64, u8, u64, usize);
