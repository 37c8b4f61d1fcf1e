//! The choice of a tokenizer, as text: `hashed,size=16384`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::error::{DataError, quoted};

/// Permitted sizes of the vocabulary of hashed words.
const SIZES: std::ops::RangeInclusive<u32> = 16..=1 << 24;

/// A tokenizer that has not been read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Bytes,
    /// The alphabet, or `None` for the default.
    Characters(Option<String>),
    /// The size of the vocabulary.
    Hashed(u32),
    /// A `tokenizer.json`.
    File(PathBuf),
}

impl Choice {
    /// Reads `bytes`, `characters`, `characters,alphabet=...`, `hashed`, `hashed,size=...` or the path of a `.json` file.
    pub(crate) fn parse(text: &str) -> Result<Choice, DataError> {
        let (name, option) = text.split_once(',').unwrap_or((text, ""));
        match (name.trim(), option.trim_ascii_start().split_once('=')) {
            _ if text.ends_with(".json") => Ok(Choice::File(text.into())),
            ("bytes", None) if option.is_empty() => Ok(Choice::Bytes),
            ("characters", None) if option.is_empty() => Ok(Choice::Characters(None)),
            // The alphabet is the rest of the text. It may contain commas.
            ("characters", Some(("alphabet", alphabet))) => checked(alphabet),
            ("hashed", None) if option.is_empty() => Ok(Choice::Hashed(1 << 14)),
            ("hashed", Some(("size", size))) => match size.trim().parse() {
                Ok(size) if SIZES.contains(&size) => Ok(Choice::Hashed(size)),
                _ => Err(refused(
                    format!("hashed with a size of {} to {}", SIZES.start(), SIZES.end()),
                    size,
                    "the size is the public number of tokens, such as {tokenizer=hashed,size=16384}",
                )),
            },
            _ => Err(refused(
                "bytes, characters[,alphabet=...], hashed[,size=...], or a file tokenizer.json".to_owned(),
                text,
                "a tokenizer is public and never derived from the records, such as {tokenizer=hashed,size=16384}",
            )),
        }
    }

    /// The path of the tokenizer's file, if the text names one.
    pub(crate) fn file(text: &str) -> Option<&Path> {
        text.ends_with(".json").then(|| Path::new(text))
    }
}

fn checked(alphabet: &str) -> Result<Choice, DataError> {
    let mut seen = HashSet::new();
    let twice = alphabet.chars().find(|character| !seen.insert(*character));
    match twice {
        None if !alphabet.is_empty() => Ok(Choice::Characters(Some(alphabet.to_owned()))),
        _ => Err(refused(
            "characters with an alphabet of different characters, at least 1".to_owned(),
            alphabet,
            "list each character once, as in {tokenizer=characters,alphabet=abc}; all others share one token",
        )),
    }
}

fn refused(permitted: String, got: &str, hint: &str) -> DataError {
    DataError::Setting { what: "tokenizer", permitted, got: quoted(got.as_bytes()), hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_options_is_a_choice() {
        let parse = |text| Choice::parse(text).unwrap();
        assert_eq!(parse("bytes"), Choice::Bytes);
        assert_eq!(parse("characters"), Choice::Characters(None));
        assert_eq!(parse("characters,alphabet=ab,c="), Choice::Characters(Some("ab,c=".to_owned())));
        assert_eq!(parse("hashed"), parse(crate::text::DEFAULT_TOKENIZER));
        assert_eq!(parse("hashed, size=64"), Choice::Hashed(64));
        assert_eq!(parse("a/tokenizer.json"), Choice::File("a/tokenizer.json".into()));
    }

    #[test]
    fn other_texts_are_refused_with_the_range() {
        for (text, part) in [
            ("", "must be bytes, characters"),
            ("words", "got `words`"),
            ("bytes,size=3", "must be bytes, characters"),
            ("hashed,sizes=3", "must be bytes, characters"),
            ("hashed,size=15", "a size of 16 to 16777216, got `15`"),
            ("hashed,size=-1", "got `-1`"),
            ("characters,alphabet=", "at least 1, got ``"),
            ("characters,alphabet=aba", "different characters"),
        ] {
            let message = Choice::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
