//! Hints: what to change, without the vocabulary of any front end.

use std::fmt;

/// Advice that goes with an error.
///
/// Settings are written in braces: `{accountant=rdp}` is a setting with a value, `{max_batch_size}` a setting alone. A front end
/// renders them in its own vocabulary, the command line as `--accountant rdp`. [`Display`](fmt::Display) renders `accountant = rdp`.
///
/// ```
/// use sordino_train::Hint;
///
/// let hint = Hint::new("use {accountant=rdp} or raise {max_batch_size}");
/// assert_eq!(hint.to_string(), "use accountant = rdp or raise max_batch_size");
/// let flags = hint.render(|name, value| match value {
///     Some(value) => format!("--{name} {value}"),
///     None => format!("--{name}"),
/// });
/// assert_eq!(flags, "use --accountant rdp or raise --max_batch_size");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint(String);

/// A part of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintPart<'a> {
    /// Text.
    Text(&'a str),
    /// A setting, and the value to give it.
    Setting {
        /// Its name, as in [`Settings`](crate::Settings).
        name: &'a str,
        /// The proposed value.
        value: Option<&'a str>,
    },
}

impl Hint {
    /// A hint with settings in braces.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The hint as text and settings. Braces around anything else are text.
    pub fn parts(&self) -> Vec<HintPart<'_>> {
        let (mut parts, mut rest, mut from) = (Vec::new(), self.0.as_str(), 0);
        while let Some(open) = rest[from..].find('{').map(|open| from + open) {
            let setting = rest[open + 1..].split_once('}').and_then(|(inside, _)| setting(inside));
            let Some((name, value, length)) = setting else {
                from = open + 1;
                continue;
            };
            if open > 0 {
                parts.push(HintPart::Text(&rest[..open]));
            }
            parts.push(HintPart::Setting { name, value });
            (rest, from) = (&rest[open + length + 2..], 0);
        }
        if !rest.is_empty() {
            parts.push(HintPart::Text(rest));
        }
        parts
    }

    /// The hint as text, with every setting rendered by this function of its name and its value.
    pub fn render(&self, setting: impl Fn(&str, Option<&str>) -> String) -> String {
        let part = |part| match part {
            HintPart::Text(text) => text.to_owned(),
            HintPart::Setting { name, value } => setting(name, value),
        };
        self.parts().into_iter().map(part).collect()
    }
}

/// The name, value and length of the text in braces, if it is a setting.
fn setting(inside: &str) -> Option<(&str, Option<&str>, usize)> {
    let (name, value) = match inside.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (inside, None),
    };
    let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    named.then_some((name, value, inside.len()))
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(|name, value| match value {
            Some(value) => format!("{name} = {value}"),
            None => name.to_owned(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_between_words() {
        let hint = Hint::new("{out} or {resume=runs/a b}, not both");
        assert_eq!(
            hint.parts(),
            [
                HintPart::Setting { name: "out", value: None },
                HintPart::Text(" or "),
                HintPart::Setting { name: "resume", value: Some("runs/a b") },
                HintPart::Text(", not both"),
            ]
        );
    }

    #[test]
    fn other_braces_stay_as_they_are() {
        for text in ["", "{", "}{", "{}", "[{\"steps\": 3}]", "a {b c} d", "{A=1}"] {
            assert_eq!(Hint::new(text).parts().len(), usize::from(!text.is_empty()), "{text}");
            assert_eq!(Hint::new(text).to_string(), text);
        }
        assert_eq!(Hint::new("{ {steps=7}").to_string(), "{ steps = 7");
    }
}
