//! A name with options, in one word: `adam,beta2=0.99`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Parses `NAME,KEY=VALUE,...` as the variant called NAME with these options. A list of numbers is written `0.5/0.75`.
pub(crate) fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut parts = text.split(',').map(str::trim);
    let mut map = Map::new();
    map.insert("type".to_owned(), parts.next().unwrap_or_default().into());
    for part in parts {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("options are written KEY=VALUE, got {part:?}"))?;
        let value = value.trim();
        let value =
            serde_json::from_str(value).ok().or_else(|| numbers(value)).unwrap_or_else(|| value.into());
        if map.insert(key.trim().replace('-', "_"), value).is_some() {
            return Err(format!("{} is set twice", key.trim()));
        }
    }
    serde_json::from_value(map.into()).map_err(|error| in_plain_words(&error.to_string()))
}

/// The parser's error without the names of Rust types: `expected a number, got "nan"`.
fn in_plain_words(problem: &str) -> String {
    let kinds = [
        ("f64", "a number"),
        ("usize", "a whole number"),
        ("u64", "a whole number"),
        ("u32", "a whole number"),
        ("u8", "a whole number"),
        ("a boolean", "true or false"),
        ("a string", "text"),
    ];
    if problem.contains("untagged enum") {
        return "expected a number or text".to_owned();
    }
    let wrong = problem.strip_prefix("invalid type: ").or(problem.strip_prefix("invalid value: "));
    let plain = wrong.and_then(|rest| {
        let (found, expected) = rest.rsplit_once(", expected ")?;
        let (_, kind) = kinds.into_iter().find(|(name, _)| *name == expected)?;
        let found = ["string ", "integer ", "floating point ", "boolean "]
            .iter()
            .find_map(|kind| found.strip_prefix(kind))
            .unwrap_or(if found == "sequence" { "a list" } else { found });
        Some(format!("expected {kind}, got {}", found.replace('`', "")))
    });
    plain.unwrap_or_else(|| {
        problem.replace("unknown variant", "unknown value").replace("unknown field", "unknown option")
    })
}

/// A list of numbers with slashes between them. One number, or text that is not a finite number, is not a list.
fn numbers(text: &str) -> Option<Value> {
    let number =
        |part: &str| part.trim().parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from);
    text.contains('/').then(|| text.split('/').map(number).collect::<Option<Value>>()).flatten()
}

#[cfg(test)]
mod tests {
    use sordino_optim::{OptimizerConfig, Schedule};

    use super::*;

    #[test]
    fn names_and_options_are_parsed() {
        assert_eq!(named::<Schedule>("cosine").unwrap(), Schedule::Cosine { last: 0.0 });
        assert_eq!(
            named::<Schedule>("step, every=10, factor=0.5").unwrap(),
            Schedule::Step { every: Some(10), at: Vec::new(), factor: 0.5 }
        );
        for (text, at) in
            [("step,at=0.5/0.75,factor=0.1", vec![0.5, 0.75]), ("step,at=0.5,factor=0.1", vec![0.5])]
        {
            assert_eq!(named::<Schedule>(text).unwrap(), Schedule::Step { every: None, at, factor: 0.1 });
        }
        assert_eq!(named::<OptimizerConfig>("adam").unwrap(), OptimizerConfig::named("adam").unwrap());
        for (text, part) in [
            ("adam,beta3=1", "beta3"),
            ("adam,beta2", "KEY=VALUE"),
            ("adam,beta2=x", "x"),
            ("adam,beta2=nan", "expected a number, got \"nan\""),
            ("adam,beta2=true", "expected a number, got true"),
            ("adam,beta2=0.1/0.2", "expected a number, got a list"),
            ("sgdd", "unknown value `sgdd`"),
            ("adam,beta2=0.9,beta2=0.8", "twice"),
        ] {
            let message = named::<OptimizerConfig>(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
