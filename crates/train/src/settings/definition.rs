//! How settings are defined: one macro call makes the types, the parser and the help of all of them.

use std::path::PathBuf;

use sordino_accounting::{Accountant, ClipNorm, Delta, Epsilon, NoiseMultiplier, Steps};
use sordino_data::ImageSize;

use crate::TrainError;

/// What a front end needs in order to offer a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingInfo {
    /// Its name, with `_` between words.
    pub name: &'static str,
    /// Older names that are still accepted.
    pub aliases: &'static [&'static str],
    /// What it means, and its default.
    pub help: &'static str,
    /// A short name for its value, such as `N`.
    pub value_name: &'static str,
    /// The group that it belongs to.
    pub heading: &'static str,
    /// The permitted values, if they can be listed.
    pub permitted: &'static [&'static str],
    /// Whether its value is a number, which may begin with `-`.
    pub is_number: bool,
}

/// Where the value of a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user set it.
    User,
    /// A default that does not depend on the data.
    Default,
    /// A default that follows from public facts about the data, such as the number of records.
    PublicFact,
}

/// The value of a setting, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Value<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Value<T> {
    pub(crate) fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// What the user set, or this default.
    pub(crate) fn given_or(given: Option<T>, default: T, origin: Origin) -> Self {
        match given {
            Some(value) => Self::new(value, Origin::User),
            None => Self::new(default, origin),
        }
    }
}

/// What the user set, if anything.
pub(crate) fn given<T>(value: Option<T>) -> Option<Value<T>> {
    value.map(|value| Value::new(value, Origin::User))
}

/// The value of a setting as text.
pub trait SettingValue: Sized {
    /// The permitted values, if they can be listed.
    const PERMITTED: &'static [&'static str] = &[];
    /// Whether it is a number.
    const IS_NUMBER: bool = false;

    /// Parses the value of the setting with this name.
    ///
    /// # Errors
    /// A text that is not permitted.
    fn parse(name: &'static str, text: &str) -> Result<Self, TrainError>;
}

impl SettingValue for PathBuf {
    fn parse(_name: &'static str, text: &str) -> Result<Self, TrainError> {
        Ok(text.into())
    }
}

impl SettingValue for String {
    fn parse(_name: &'static str, text: &str) -> Result<Self, TrainError> {
        Ok(text.to_owned())
    }
}

macro_rules! numbers {
    ($($type:ty: $permitted:literal),*) => {$(
        impl SettingValue for $type {
            const IS_NUMBER: bool = true;

            fn parse(name: &'static str, text: &str) -> Result<Self, TrainError> {
                text.trim().parse().map_err(|_| {
                    TrainError::refused(format!("{name} must be {}, got {text}", $permitted), format!("correct {{{name}}}"))
                })
            }
        }
    )*};
}

numbers!(f64: "a number", u64: "a whole number of at least 0", usize: "a whole number of at least 0");

/// Quantities whose own errors have the permitted range.
macro_rules! quantities {
    ($($type:ty),*) => {$(
        impl SettingValue for $type {
            const IS_NUMBER: bool = true;

            fn parse(_name: &'static str, text: &str) -> Result<Self, TrainError> {
                Ok(text.parse()?)
            }
        }
    )*};
}

quantities!(Epsilon, Delta, NoiseMultiplier, ClipNorm, Steps);

impl SettingValue for Accountant {
    fn parse(_name: &'static str, text: &str) -> Result<Self, TrainError> {
        Ok(text.parse()?)
    }
}

impl SettingValue for ImageSize {
    fn parse(_name: &'static str, text: &str) -> Result<Self, TrainError> {
        Ok(text.parse()?)
    }
}

impl SettingValue for Vec<usize> {
    fn parse(name: &'static str, text: &str) -> Result<Self, TrainError> {
        text.split(',').map(|part| usize::parse(name, part)).collect()
    }
}

impl SettingValue for Vec<f64> {
    const IS_NUMBER: bool = true;

    fn parse(name: &'static str, text: &str) -> Result<Self, TrainError> {
        text.split(',').map(|part| f64::parse(name, part)).collect()
    }
}

/// Makes an enum whose variants are the permitted values of a setting.
macro_rules! permitted_values {
    ($(#[doc = $about:literal])+ pub enum $type:ident { $($(#[doc = $help:literal])+ $variant:ident = $text:literal,)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $type {
            $($(#[doc = $help])+ #[serde(rename = $text)] $variant,)+
        }

        impl SettingValue for $type {
            const PERMITTED: &'static [&'static str] = &[$($text),+];

            fn parse(name: &'static str, text: &str) -> Result<Self, TrainError> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(TrainError::refused(
                        format!("{name} must be one of {}, got {text}", Self::PERMITTED.join(", ")),
                        format!("try {{{name}={}}}", Self::PERMITTED[0]),
                    )),
                }
            }
        }
    };
}

/// Makes [`Settings`](crate::Settings) and [`SettingValues`](crate::SettingValues), with everything that follows from the list.
macro_rules! settings {
    ($($heading:literal {
        $($(#[doc = $help:literal])+ $name:ident: $type:ty = $value_name:literal $(, alias $alias:literal)?;)+
    })+) => {
        /// What the user set about a run. What is not set has a default.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Settings {
            $($($(#[doc = $help])+ pub $name: Option<$type>,)+)+
        }

        /// The value of every setting that a run uses, and where it comes from.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct SettingValues {
            $($($(#[doc = $help])+ pub $name: Option<Value<$type>>,)+)+
        }

        impl Settings {
            /// All settings, for front ends.
            pub const ALL: &'static [SettingInfo] = &[$($(SettingInfo {
                name: stringify!($name),
                aliases: &[$($alias)?],
                help: concat!($($help),+),
                value_name: $value_name,
                heading: $heading,
                permitted: <$type as SettingValue>::PERMITTED,
                is_number: <$type as SettingValue>::IS_NUMBER,
            },)+)+];

            /// Sets a setting to a value that is given as text. Names may be written with `-` or with `_`.
            ///
            /// # Errors
            /// A name that is not in [`ALL`](Self::ALL), or a value that is not permitted.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), TrainError> {
                match name.replace('-', "_").as_str() {
                    $($(stringify!($name) $(| $alias)? => {
                        self.$name = Some(<$type as SettingValue>::parse(stringify!($name), text)?);
                    })+)+
                    _ => return Err(unknown(name)),
                }
                Ok(())
            }

            /// The names of the settings that are set.
            pub fn names(&self) -> Vec<&'static str> {
                let all = [$($((stringify!($name), self.$name.is_some()),)+)+];
                all.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
            }

            /// The settings that `keep` selects.
            #[must_use]
            pub fn retain(mut self, keep: impl Fn(&SettingInfo) -> bool) -> Self {
                for info in Self::ALL.iter().filter(|info| !keep(info)) {
                    match info.name {
                        $($(stringify!($name) => self.$name = None,)+)+
                        _ => {}
                    }
                }
                self
            }

            /// These settings; those that are not set are taken from others.
            fn filled_from(self, other: Self) -> Self {
                Self { $($($name: self.$name.or(other.$name),)+)+ }
            }
        }

        impl SettingValues {
            /// The values alone, as settings that give the same run.
            pub fn to_settings(&self) -> Settings {
                Settings { $($($name: self.$name.as_ref().map(|value| value.value.clone()),)+)+ }
            }

            /// Where the value of each setting comes from. Settings that the run does not use are left out.
            pub fn origins(&self) -> Vec<(&'static str, Origin)> {
                let all = [$($((stringify!($name), self.$name.as_ref().map(|value| value.origin)),)+)+];
                all.into_iter().filter_map(|(name, origin)| Some((name, origin?))).collect()
            }
        }
    };
}

pub(crate) use {permitted_values, settings};
