//! `model!`: the options of a model, each written down once. `models!`: the one list of all models.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ModelConfig;
use crate::{Description, Network, NetworkError, Shape};

/// A model of the list: what it reads, and its layers for data of some shape.
pub(crate) trait ModelType {
    /// Its name.
    const NAME: &'static str;
    /// The records that it reads.
    const READS: Reads;

    /// The network for records of this shape. With 0 outputs it predicts the next token.
    fn describe(&self, input: Shape, outputs: usize) -> Result<Description, String>;
}

/// The records that a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Vectors, and images as vectors of pixels.
    Values,
    /// Images.
    Images,
    /// Sequences of tokens.
    Tokens,
}

impl Reads {
    /// Whether records of this shape are among them.
    pub fn permits(self, input: Shape) -> bool {
        match input {
            Shape::Features(_) => self == Reads::Values,
            Shape::Image { .. } => self != Reads::Tokens,
            Shape::Tokens { .. } => self == Reads::Tokens,
            Shape::Sequence { .. } => false,
        }
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reads::Values => "numbers or images",
            Reads::Images => "images",
            Reads::Tokens => "tokens",
        })
    }
}

/// An option of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelOption {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: String,
    /// What it means.
    pub meaning: &'static str,
}

/// Defines a model: a struct of options with defaults, checks, serde and help texts.
///
/// Doc comments are the help texts. `= VALUE` is the default; `as "WORDS"` describes a default that depends on the data; `in RANGE` is the
/// permitted range.
macro_rules! model {
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

        impl $name {
            pub(super) fn summary(&self) -> &'static str {
                concat!($($summary),+).trim_ascii()
            }

            pub(super) fn options(&self) -> Vec<$crate::models::ModelOption> {
                vec![$($crate::models::ModelOption {
                    name: stringify!($field),
                    default: $crate::models::registry::text(&$name::default().$field, &[$($words)?]),
                    meaning: concat!($($help),+).trim_ascii(),
                },)*]
            }

            pub(super) fn check_ranges(&self) -> Result<(), String> {
                $($($crate::models::registry::check(stringify!($field), &self.$field, &$range)?;)?)*
                Ok(())
            }
        }
    };
}
pub(crate) use model;

/// Declares the module of each model and makes the enum of all of them. An entry is `module: Type`.
macro_rules! models {
    ($($module:ident: $type:ident),* $(,)?) => {
        $(mod $module;)*
        $(pub use $module::$type;)*

        /// Any model of the list, with its options.
        ///
        /// In files it is a table with a `type` and options: `{"type": "vit-tiny", "patch": 4}`.
        #[derive(Debug, Clone, PartialEq)]
        pub enum ModelConfig {
            $(
                #[doc = concat!("[`", stringify!($type), "`]")]
                $type($type),
            )*
        }

        impl ModelConfig {
            /// All models with their default options.
            pub fn all() -> Vec<ModelConfig> {
                vec![$(ModelConfig::$type($type::default())),*]
            }

            /// Its name.
            pub fn name(&self) -> &'static str {
                match self { $(ModelConfig::$type(_) => <$type as $crate::models::registry::ModelType>::NAME),* }
            }

            /// The records that it reads.
            pub fn reads(&self) -> Reads {
                match self { $(ModelConfig::$type(_) => <$type as $crate::models::registry::ModelType>::READS),* }
            }

            /// What it is.
            pub fn summary(&self) -> &'static str {
                match self { $(ModelConfig::$type(model) => model.summary()),* }
            }

            /// Its options.
            pub fn options(&self) -> Vec<ModelOption> {
                match self { $(ModelConfig::$type(model) => model.options()),* }
            }

            fn check_ranges(&self) -> Result<(), String> {
                match self { $(ModelConfig::$type(model) => model.check_ranges()),* }
            }

            fn layers(&self, input: $crate::Shape, outputs: usize) -> Result<$crate::Description, String> {
                use $crate::models::registry::ModelType;
                match self { $(ModelConfig::$type(model) => model.describe(input, outputs)),* }
            }

            /// The model of this name with these options; none if there is no such name.
            fn read(name: &str, options: ::serde_json::Value) -> Option<::serde_json::Result<ModelConfig>> {
                $(if <$type as $crate::models::registry::ModelType>::NAME == name {
                    return Some(::serde_json::from_value(options).map(ModelConfig::$type));
                })*
                None
            }

            fn written(&self) -> ::serde_json::Result<::serde_json::Value> {
                match self { $(ModelConfig::$type(model) => ::serde_json::to_value(model)),* }
            }
        }

        $(impl From<$type> for ModelConfig {
            fn from(model: $type) -> ModelConfig {
                ModelConfig::$type(model)
            }
        })*
    };
}
pub(crate) use models;

impl ModelConfig {
    /// The names of all models.
    pub fn names() -> Vec<&'static str> {
        ModelConfig::all().iter().map(ModelConfig::name).collect()
    }

    /// Checks the ranges of the options.
    ///
    /// # Errors
    /// An option that is out of range.
    pub fn check(&self) -> Result<(), NetworkError> {
        self.check_ranges()
            .map_err(|problem| NetworkError::Description(format!("{}: {problem}", self.name())))
    }

    /// The layers of the model for records of this shape and this many outputs. With 0 outputs it predicts the next token.
    ///
    /// # Errors
    /// Options that are out of range or do not fit the data, or records that the model does not read.
    pub fn describe(&self, input: Shape, outputs: usize) -> Result<Description, NetworkError> {
        let name = self.name();
        let refuse = |problem: String| NetworkError::Description(problem);
        self.check()?;
        if !self.reads().permits(input) {
            return Err(refuse(format!(
                "{name} reads {}, but the data has records of {input}",
                self.reads()
            )));
        }
        if outputs == 0 && !matches!(self, ModelConfig::Gpt(_)) {
            return Err(refuse(format!("{name} predicts a class or numbers; gpt predicts the next token")));
        }
        self.layers(input, outputs).map_err(|problem| refuse(format!("{name}: {problem}")))
    }

    /// The network for records of this shape and this many outputs.
    ///
    /// # Errors
    /// As [`describe`](Self::describe), and layers that do not fit each other.
    pub fn network(&self, input: Shape, outputs: usize) -> Result<Network, NetworkError> {
        Network::new(&self.describe(input, outputs)?)
    }
}

/// The table of all models in `docs/models.md`, as Markdown.
pub fn markdown_table() -> String {
    let row = |model: &ModelConfig| {
        let options = model.options().into_iter().map(|option| {
            format!("`{}` ({}): {}", option.name, option.default, option.meaning.trim_end_matches('.'))
        });
        let options = options.collect::<Vec<_>>().join("<br>");
        format!("| `{}` | {} | {} | {options} |\n", model.name(), model.summary(), model.reads())
    };
    let rows: String = ModelConfig::all().iter().map(row).collect();
    format!("| name | what it is | reads | options (default) |\n| --- | --- | --- | --- |\n{rows}")
}

impl Serialize for ModelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut written = self.written().map_err(serde::ser::Error::custom)?;
        if let Some(table) = written.as_object_mut() {
            table.insert("type".to_owned(), self.name().into());
        }
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ModelConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ModelConfig, D::Error> {
        use serde::de::Error;
        let mut options = serde_json::Map::deserialize(deserializer)?;
        let name = options.remove("type").ok_or_else(|| D::Error::missing_field("type"))?;
        let name = name.as_str().ok_or_else(|| D::Error::custom("type must be a string"))?;
        match ModelConfig::read(name, options.into()) {
            Some(read) => read.map_err(D::Error::custom),
            None => {
                let names = ModelConfig::names().join(", ");
                Err(D::Error::custom(format!("type must be one of {names}, got {name}")))
            }
        }
    }
}

/// Widths of layers: a number, or several of them as in `64x32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widths(pub Vec<usize>);

impl fmt::Display for Widths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&widths.join("x"))
    }
}

impl Serialize for Widths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Widths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Widths, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let widths = text.split('x').map(|width| width.trim().parse()).collect::<Result<_, _>>();
        widths.map(Widths).map_err(|_| {
            serde::de::Error::custom(format!("widths are numbers such as 128 or 64x32, got {text}"))
        })
    }
}

/// The value of an option in words.
pub(super) fn text(value: &impl Serialize, words: &[&str]) -> String {
    match (words, serde_json::to_value(value)) {
        ([words, ..], _) => (*words).to_owned(),
        ([], Ok(serde_json::Value::String(text))) => text,
        ([], Ok(serde_json::Value::Null) | Err(_)) => "none".to_owned(),
        ([], Ok(value)) => value.to_string(),
    }
}

/// Refuses an option outside its range.
pub(super) fn check(name: &str, value: &impl Sizes, range: &RangeInclusive<usize>) -> Result<(), String> {
    match value.sizes().iter().find(|size| !range.contains(size)) {
        Some(size) => Err(format!("{name} must be {} to {}, got {size}", range.start(), range.end())),
        None => Ok(()),
    }
}

/// An option that has a range: the sizes that it sets.
pub(super) trait Sizes {
    fn sizes(&self) -> Vec<usize>;
}

impl Sizes for usize {
    fn sizes(&self) -> Vec<usize> {
        vec![*self]
    }
}

impl Sizes for Option<usize> {
    fn sizes(&self) -> Vec<usize> {
        self.iter().copied().collect()
    }
}

impl Sizes for Widths {
    fn sizes(&self) -> Vec<usize> {
        self.0.clone()
    }
}
