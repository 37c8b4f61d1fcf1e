//! `registry!`: the one list of all algorithms.

use serde::Serialize;

use crate::{About, Algorithm, AlgorithmConfig, OptionDescription, Options};

/// Declares the module of each algorithm and makes the enum of all of them. An entry is `module: Type`.
macro_rules! registry {
    ($($module:ident: $type:ident),* $(,)?) => {
        $(mod $module;)*
        $(pub use $module::$type;)*

        /// Any algorithm of this crate, with its options.
        ///
        /// In files it is a table with a `type` and options: `{"type": "dc-sgd-p", "percentile": 0.7}`.
        #[derive(Debug, Clone, PartialEq)]
        pub enum AlgorithmConfig {
            $(
                #[doc = concat!("[`", stringify!($type), "`]")]
                $type($type),
            )*
        }

        impl AlgorithmConfig {
            /// All algorithms with their default options.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$type($type::default())),*]
            }

            /// The algorithm of this name with these options; none if there is no such name.
            fn read(name: &str, options: ::serde_json::Value) -> Option<::serde_json::Result<Self>> {
                $(if $type::default().about().name == name {
                    return Some(::serde_json::from_value(options).map(Self::$type));
                })*
                None
            }

            fn written(&self) -> ::serde_json::Result<::serde_json::Value> {
                match self { $(Self::$type(algorithm) => ::serde_json::to_value(algorithm)),* }
            }
        }

        $(impl From<$type> for AlgorithmConfig {
            fn from(algorithm: $type) -> Self {
                Self::$type(algorithm)
            }
        })*

        impl Options for AlgorithmConfig {
            fn summary(&self) -> &'static str {
                match self { $(Self::$type(algorithm) => algorithm.summary()),* }
            }

            fn options(&self) -> Vec<OptionDescription> {
                match self { $(Self::$type(algorithm) => algorithm.options()),* }
            }

            fn set_options(&self) -> Vec<(&'static str, String)> {
                match self { $(Self::$type(algorithm) => algorithm.set_options()),* }
            }

            fn check_ranges(&self) -> Result<(), AlgorithmError> {
                match self { $(Self::$type(algorithm) => algorithm.check_ranges()),* }
            }
        }

        impl Algorithm for AlgorithmConfig {
            fn about(&self) -> About {
                match self { $(Self::$type(algorithm) => algorithm.about()),* }
            }

            fn check(&self) -> Result<(), AlgorithmError> {
                match self { $(Self::$type(algorithm) => algorithm.check()),* }
            }

            fn defaults(&self, max_grad_norm: Option<ClipNorm>) -> Result<Defaults, AlgorithmError> {
                match self { $(Self::$type(algorithm) => algorithm.defaults(max_grad_norm)),* }
            }

            fn accountant(&self, sampling: Sampling) -> Accountant {
                match self { $(Self::$type(algorithm) => algorithm.accountant(sampling)),* }
            }

            fn kept_vectors(&self) -> u64 {
                match self { $(Self::$type(algorithm) => algorithm.kept_vectors()),* }
            }

            fn plan(&self, facts: &RunFacts, noise: NoiseSource) -> Result<Plan, AlgorithmError> {
                match self { $(Self::$type(algorithm) => algorithm.plan(facts, noise)),* }
            }

            fn provable_plan(&self, facts: &RunFacts, plan: &Plan) -> Option<(Plan, Accountant)> {
                match self { $(Self::$type(algorithm) => algorithm.provable_plan(facts, plan)),* }
            }

            fn notes(&self, facts: &RunFacts, plan: &Plan) -> Vec<String> {
                match self { $(Self::$type(algorithm) => algorithm.notes(facts, plan)),* }
            }

            fn start<G: Gradients>(
                &self,
                facts: &RunFacts,
                plan: &Plan,
            ) -> Result<Box<dyn Steps<G>>, AlgorithmError>
            where
                G::Point: 'static,
            {
                match self { $(Self::$type(algorithm) => algorithm.start(facts, plan)),* }
            }
        }
    };
}
pub(crate) use registry;

/// The algorithms that have an option of this name.
pub fn owners(option: &str) -> Vec<&'static str> {
    let has = |algorithm: &AlgorithmConfig| algorithm.options().iter().any(|other| other.name == option);
    AlgorithmConfig::all()
        .iter()
        .filter(|algorithm| has(algorithm))
        .map(|algorithm| algorithm.about().name)
        .collect()
}

/// An algorithm as `sordino algorithms --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlgorithmDescription {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// `sound`, `as-published` or `not-private`.
    pub promise: &'static str,
    /// What is proved about it.
    pub verdict: String,
    /// Where it comes from.
    pub reference: &'static str,
    /// Its options.
    pub options: Vec<OptionDescription>,
}

impl AlgorithmDescription {
    /// The description of an algorithm.
    pub fn of(algorithm: &impl Algorithm) -> Self {
        let About { name, reference, verdict } = algorithm.about();
        Self {
            name,
            summary: algorithm.summary(),
            promise: verdict.kind(),
            verdict: verdict.to_string(),
            reference,
            options: algorithm.options(),
        }
    }
}

/// The table of all algorithms in `docs/algorithms.md`, as Markdown.
pub fn markdown_table() -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let row = |algorithm: &AlgorithmConfig| {
        let about = AlgorithmDescription::of(algorithm);
        let options = about.options.iter().map(|option| {
            format!("`{}` ({}): {}", option.name, option.default, option.meaning.trim_end_matches('.'))
        });
        let options = options.collect::<Vec<_>>().join("<br>");
        let cells = [about.summary, &about.verdict, about.reference, &options].map(cell);
        format!("| `{}` | {} |\n", about.name, cells.join(" | "))
    };
    let rows: String = AlgorithmConfig::all().iter().map(row).collect();
    format!(
        "| name | what it does | what is proved | reference | options (default) |\n| --- | --- | --- | --- | --- |\n{rows}"
    )
}

impl serde::Serialize for AlgorithmConfig {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut written = self.written().map_err(serde::ser::Error::custom)?;
        if let Some(table) = written.as_object_mut() {
            table.insert("type".to_owned(), self.about().name.into());
        }
        written.serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for AlgorithmConfig {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut options = serde_json::Map::deserialize(deserializer)?;
        let name = options.remove("type").ok_or_else(|| D::Error::missing_field("type"))?;
        let name = name.as_str().ok_or_else(|| D::Error::custom("type must be a string"))?;
        match Self::read(name, options.into()) {
            Some(read) => read.map_err(D::Error::custom),
            None => {
                let names: Vec<&str> = Self::all().iter().map(|algorithm| algorithm.about().name).collect();
                Err(D::Error::custom(format!("type must be one of {}, got {name}", names.join(", "))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_read_and_written_with_its_options() {
        for algorithm in AlgorithmConfig::all() {
            algorithm.check().unwrap();
            let name = algorithm.about().name;
            let read = |json| serde_json::from_value::<AlgorithmConfig>(json);
            assert_eq!(read(serde_json::json!({ "type": name })).unwrap(), algorithm);
            let written = serde_json::to_value(&algorithm).unwrap();
            let mut keys: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
            keys.retain(|key| *key != "type");
            let options = algorithm.options();
            let mut named: Vec<&str> = options.iter().map(|option| option.name).collect();
            keys.sort_unstable();
            named.sort_unstable();
            assert_eq!(keys, named, "{name}");
            assert_eq!(read(written).unwrap(), algorithm, "{name}");
            assert!(read(serde_json::json!({ "type": name, "colour": "blue" })).is_err(), "{name}");
        }
        assert_eq!(owners("bins"), ["dc-sgd-p", "dc-sgd-e"]);
        let unknown = serde_json::from_str::<AlgorithmConfig>(r#"{"type":"dp-sdg"}"#).unwrap_err();
        assert!(unknown.to_string().contains("one of dp-sgd, "), "{unknown}");
    }

    #[test]
    fn names_are_unique_and_published_algorithms_name_a_sound_one() {
        let all = AlgorithmConfig::all();
        let names: Vec<&str> = all.iter().map(|algorithm| algorithm.about().name).collect();
        for algorithm in &all {
            assert_eq!(names.iter().filter(|name| **name == algorithm.about().name).count(), 1);
            if let crate::Verdict::AsPublished { instead, .. } = algorithm.about().verdict {
                let sound = all.iter().find(|other| other.about().name == instead).unwrap();
                assert!(sound.about().verdict.is_sound(), "{}", algorithm.about().name);
            }
        }
    }

    /// `UPDATE_DOCS=1 cargo test -p sordino-algorithms` writes the table.
    #[test]
    fn the_table_in_the_docs_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/algorithms.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (begin, end) = ("<!-- algorithms: generated -->\n", "<!-- end -->");
        let (before, rest) = text.split_once(begin).expect("the table's first line");
        let (_, after) = rest.split_once(end).expect("the table's last line");
        let current = format!("{before}{begin}{}{end}{after}", markdown_table());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, current).unwrap();
        } else {
            assert!(text == current, "run UPDATE_DOCS=1 cargo test -p sordino-algorithms");
        }
    }
}
