//! Texts as sequences of tokens.

use std::fmt;

use sordino_nn::Shape;

use super::characters::Characters;
use super::choice::Choice;
use super::truncation::{Truncation, remove_middle};
#[cfg(feature = "tokenizers")]
use super::vocabulary_file::VocabularyFile;
use super::words;
use crate::error::DataError;

/// Permitted values of the maximum length.
const MAX_LENGTHS: std::ops::RangeInclusive<usize> = 8..=1 << 16;

/// The token that represents a text without tokens, for tokenizers without a file.
const EMPTY: u32 = 0;
/// The token between two texts, for tokenizers without a file.
const SEPARATOR: u32 = 1;
/// The number of these tokens.
const RESERVED: u32 = 2;

/// Turns texts into sequences of at most `max_length` tokens, by a public tokenizer.
///
/// | tokenizer | tokens | size of the vocabulary |
/// | --- | --- | --- |
/// | `bytes` | the bytes of the UTF-8 text | 258 |
/// | `characters` | characters; those outside the alphabet share one token. The alphabet is printable ASCII, tab, line end and the letters U+00C0 to U+017F, or `characters,alphabet=...` | that of the alphabet + 3 |
/// | `hashed,size=N` | lowercase words (letters, digits, apostrophes) by the FNV-1a hash of their bytes | N, 16384 by default |
/// | a path `.json` | those of a Hugging Face `tokenizer.json`, with the special tokens that its post-processor adds | that of the file |
///
/// In the first three, token 0 represents a text without tokens, and token 1 separates two texts. Records longer than `max_length` are
/// truncated at the end, or [in the middle](Self::with_truncation). In a pair, the longer text is truncated first. The closing special token
/// of a `tokenizer.json` is kept; the truncation and padding settings of the file are not used.
///
/// # Guarantees
///
/// The tokens of a text depend only on the text and the tokenizer. They are the same in every version. Every text has at least 1 token.
///
/// # Edge cases
///
/// If a `tokenizer.json` adds no special tokens, an empty text becomes the first of the tokens `<|endoftext|>`, `</s>`, `[SEP]`, `<pad>`,
/// `[PAD]`, `<unk>` and `[UNK]` that it has.
///
/// ```
/// use sordino_data::{Dataset, Text, TextEncoder};
///
/// let encoder = TextEncoder::new("bytes", 8)?;
/// assert_eq!(encoder.encode(Text::One("AB"))?, [67, 68]);
/// assert_eq!(encoder.encode(Text::Pair("A", "B"))?, [67, 1, 68]);
///
/// let reviews = Dataset::from_texts(&["good", "bad", ""], &[true, false, false], &encoder)?;
/// assert_eq!(reviews.len(), 3);
/// assert_eq!(reviews.shape(), encoder.shape());
/// # Ok::<(), sordino_data::DataError>(())
/// ```
pub struct TextEncoder {
    tokenizer: Tokenizer,
    max_length: usize,
    truncation: Truncation,
}

enum Tokenizer {
    Bytes,
    Characters(Characters),
    /// The number of words.
    Hashed(u32),
    #[cfg(feature = "tokenizers")]
    File(Box<VocabularyFile>),
}

/// What is encoded as one record.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    /// A text.
    One(&'a str),
    /// Two texts, such as a question and a sentence.
    Pair(&'a str, &'a str),
    /// A text for a language model, and what precedes it: the tokens of the prompt, a separator, those of the text, a separator.
    /// The model learns to predict what follows the first separator.
    Continuation {
        /// What is given; it may be empty.
        prompt: &'a str,
        /// What is predicted.
        text: &'a str,
    },
    /// A prompt and a separator: the part of a [`Continuation`](Self::Continuation) that is given.
    Prompt(&'a str),
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Text<'a> {
        Text::One(text)
    }
}

impl<'a> From<(&'a str, &'a str)> for Text<'a> {
    fn from((first, second): (&'a str, &'a str)) -> Text<'a> {
        Text::Pair(first, second)
    }
}

impl TextEncoder {
    /// Reads the tokenizer if it is a file.
    ///
    /// # Errors
    ///
    /// A tokenizer that is not in the table or cannot be read; a `max_length` outside 8 to 65536, or too short for the special
    /// tokens.
    pub fn new(tokenizer: &str, max_length: usize) -> Result<TextEncoder, DataError> {
        if !MAX_LENGTHS.contains(&max_length) {
            return Err(DataError::Setting {
                what: "max_length",
                permitted: format!("{} to {} tokens", MAX_LENGTHS.start(), MAX_LENGTHS.end()),
                got: max_length.to_string(),
                hint: "it is public and never derived from the records; {max_length=256} is the default"
                    .to_owned(),
            });
        }
        let tokenizer = match Choice::parse(tokenizer)? {
            Choice::Bytes => Tokenizer::Bytes,
            Choice::Characters(alphabet) => Tokenizer::Characters(Characters::new(alphabet.as_deref())),
            Choice::Hashed(size) => Tokenizer::Hashed(size - RESERVED),
            #[cfg(feature = "tokenizers")]
            Choice::File(path) => Tokenizer::File(Box::new(VocabularyFile::read(&path, max_length)?)),
            #[cfg(not(feature = "tokenizers"))]
            Choice::File(path) => {
                return Err(DataError::file(
                    path.display().to_string(),
                    "this build cannot read a tokenizer.json",
                    "build with the feature `tokenizers`, or use {tokenizer=hashed}",
                ));
            }
        };
        Ok(TextEncoder { tokenizer, max_length, truncation: Truncation::End })
    }

    /// The same encoder with a different truncation of long texts. [`Truncation::Middle`] is for records of one text: pairs of texts and
    /// texts for language models are then refused. The special tokens at both ends are kept.
    ///
    /// ```
    /// use sordino_data::{Text, TextEncoder, Truncation};
    ///
    /// let encoder = TextEncoder::new("characters,alphabet=ABCDEFGHIJ", 8)?.with_truncation(Truncation::Middle);
    /// assert_eq!(encoder.encode(Text::One("ABCDEFGHIJ"))?, [3, 4, 5, 6, 9, 10, 11, 12]);
    /// # Ok::<(), sordino_data::DataError>(())
    /// ```
    #[must_use]
    pub fn with_truncation(mut self, truncation: Truncation) -> TextEncoder {
        #[cfg(feature = "tokenizers")]
        if let Tokenizer::File(file) = &mut self.tokenizer {
            file.set_truncation((truncation == Truncation::End).then_some(self.max_length));
        }
        self.truncation = truncation;
        self
    }

    /// The shape of a record.
    pub fn shape(&self) -> Shape {
        Shape::Tokens { steps: self.max_length, vocabulary: self.vocabulary() }
    }

    /// The number of tokens that the tokenizer knows.
    pub fn vocabulary(&self) -> usize {
        let own = RESERVED as usize;
        match &self.tokenizer {
            Tokenizer::Bytes => own + 256,
            Tokenizer::Characters(characters) => own + characters.size(),
            Tokenizer::Hashed(words) => own + *words as usize,
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.vocabulary(),
        }
    }

    /// The tokens of a record, at least 1 and at most `max_length`.
    ///
    /// # Errors
    ///
    /// A `tokenizer.json` that cannot encode the text, or that has no separator for a language model.
    pub fn encode(&self, text: Text<'_>) -> Result<Vec<u32>, DataError> {
        self.encode_with_start(text).map(|(tokens, _)| tokens)
    }

    /// The tokens of a record, and the index of the first token that a language model predicts.
    pub(crate) fn encode_with_start(&self, text: Text<'_>) -> Result<(Vec<u32>, usize), DataError> {
        match text {
            Text::One(text) => Ok((self.one(text)?, 1)),
            _ if self.truncation == Truncation::Middle => Err(DataError::Setting {
                what: "truncation",
                permitted: "end for pairs of texts and for language models".to_owned(),
                got: "middle".to_owned(),
                hint: "leave out {truncation}".to_owned(),
            }),
            Text::Pair(first, second) => Ok((self.pair(first, second)?, 1)),
            Text::Prompt(prompt) => {
                let mut tokens = self.plain(prompt)?;
                tokens.truncate(self.max_length - 1);
                tokens.push(self.separator()?);
                let start = tokens.len();
                Ok((tokens, start))
            }
            Text::Continuation { prompt, text } => {
                let (first, second) = (self.plain(prompt)?, self.plain(text)?);
                let separator = self.separator()?;
                let (length, mut tokens) = joined(first, second, separator, self.max_length - 1);
                tokens.push(separator);
                Ok((tokens, length + 1))
            }
        }
    }

    fn one(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let mut tokens = match &self.tokenizer {
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.encode(text)?,
            _ => self.plain(text)?,
        };
        if tokens.is_empty() {
            tokens.push(EMPTY);
        }
        // Texts that are truncated at the end are short enough already.
        remove_middle(&mut tokens, self.max_length);
        Ok(tokens)
    }

    fn pair(&self, first: &str, second: &str) -> Result<Vec<u32>, DataError> {
        #[cfg(feature = "tokenizers")]
        if let Tokenizer::File(file) = &self.tokenizer {
            return file.encode((first, second));
        }
        Ok(joined(self.plain(first)?, self.plain(second)?, SEPARATOR, self.max_length).1)
    }

    /// The first `max_length` tokens of a text, without special tokens; there may be none. All tokens if the middle is removed later.
    fn plain(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let most = if self.truncation == Truncation::End { self.max_length } else { usize::MAX };
        let collect = |tokens: &mut dyn Iterator<Item = u32>| {
            Ok(tokens.take(most).map(|token| RESERVED + token).collect())
        };
        match &self.tokenizer {
            Tokenizer::Bytes => collect(&mut text.bytes().map(u32::from)),
            Tokenizer::Characters(characters) => collect(&mut characters.tokens(text)),
            Tokenizer::Hashed(words) => collect(&mut words::tokens(text, *words)),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.plain(text),
        }
    }

    /// The text of tokens that a language model generated. Bytes that are not UTF-8 and unknown characters become U+FFFD.
    ///
    /// # Errors
    ///
    /// The tokenizer `hashed`, whose tokens cannot be decoded; a `tokenizer.json` that cannot decode the tokens.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, DataError> {
        self.check_decodable()?;
        let plain = tokens.iter().filter_map(|token| token.checked_sub(RESERVED));
        match &self.tokenizer {
            Tokenizer::Bytes => {
                let bytes: Vec<u8> = plain.filter_map(|byte| u8::try_from(byte).ok()).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Tokenizer::Characters(characters) => Ok(characters.text(plain)),
            Tokenizer::Hashed(_) => Ok(String::new()),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.decode(tokens),
        }
    }

    /// Checks that tokens can be [decoded](Self::decode).
    ///
    /// # Errors
    ///
    /// The tokenizer `hashed`.
    pub fn check_decodable(&self) -> Result<(), DataError> {
        match &self.tokenizer {
            Tokenizer::Hashed(_) => Err(DataError::Setting {
                what: "tokenizer",
                permitted: "bytes, characters or a tokenizer.json to generate text".to_owned(),
                got: "hashed".to_owned(),
                hint: "hashed tokens cannot be decoded; train with a different {tokenizer}".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The token between the texts of a language model, and at their end.
    ///
    /// # Errors
    ///
    /// A `tokenizer.json` without such a token.
    pub fn separator(&self) -> Result<u32, DataError> {
        match &self.tokenizer {
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.separator(),
            _ => Ok(SEPARATOR),
        }
    }
}

/// Two texts with a separator between them, in at most `max_length` tokens, preceded by the length of the first. The longer text is
/// truncated first.
fn joined(mut first: Vec<u32>, mut second: Vec<u32>, separator: u32, max_length: usize) -> (usize, Vec<u32>) {
    let room = max_length - 1;
    let shorter = first.len().min(second.len()).min(room / 2);
    // One of them is not longer than this, or both are cut to a half.
    if first.len() <= second.len() {
        first.truncate(shorter);
        second.truncate(room - shorter);
    } else {
        second.truncate(shorter);
        first.truncate(room - shorter);
    }
    let length = first.len();
    first.push(separator);
    first.append(&mut second);
    (length, first)
}

impl fmt::Debug for TextEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextEncoder").field("shape", &self.shape()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(tokenizer: &str, max_length: usize, text: Text<'_>) -> Vec<u32> {
        let encoder = TextEncoder::new(tokenizer, max_length).unwrap();
        let tokens = encoder.encode(text).unwrap();
        assert!((1..=max_length).contains(&tokens.len()));
        assert!(tokens.iter().all(|&token| (token as usize) < encoder.vocabulary()));
        tokens
    }

    #[test]
    fn every_text_has_a_token_and_none_has_too_many() {
        for tokenizer in ["bytes", "characters", "characters,alphabet=a", "hashed", "hashed,size=16"] {
            let long = "á b, ".repeat(100);
            for text in ["", " ", "\0", "a", "é\u{10ffff}", &long] {
                encode(tokenizer, 8, Text::One(text));
                for other in ["", "b", &long] {
                    encode(tokenizer, 8, Text::Pair(text, other));
                    encode(tokenizer, 8, Text::Prompt(text));
                    encode(tokenizer, 8, Text::Continuation { prompt: text, text: other });
                }
            }
        }
        assert_eq!(encode("hashed", 8, Text::One("...")), [EMPTY]);
        assert_eq!(encode("bytes", 8, Text::One("0123456789")), [50, 51, 52, 53, 54, 55, 56, 57]);
        assert_eq!(encode("characters,alphabet=ab", 8, Text::One("abc")), [3, 4, 2]);
    }

    #[test]
    fn of_a_pair_the_longer_text_is_cut_first() {
        let pair = |a: usize, b: usize, length| {
            let (a, b) = ("a".repeat(a), "b".repeat(b));
            let tokens = encode("characters,alphabet=ab", length, Text::Pair(&a, &b));
            let count = |token| tokens.iter().filter(|&&other| other == token).count();
            assert_eq!(count(SEPARATOR), 1);
            (count(3), count(4))
        };
        assert_eq!(pair(3, 4, 8), (3, 4));
        assert_eq!(pair(2, 9, 8), (2, 5));
        assert_eq!(pair(9, 2, 8), (5, 2));
        assert_eq!(pair(9, 8, 8), (3, 4));
        assert_eq!(pair(9, 9, 9), (4, 4));
        assert_eq!(pair(0, 0, 8), (0, 0));
        assert_eq!(pair(20, 0, 8), (7, 0));
    }

    #[test]
    fn a_language_model_predicts_what_follows_the_prompt() {
        let encoder = TextEncoder::new("characters,alphabet=ab", 8).unwrap();
        let start = |prompt, text| encoder.encode_with_start(Text::Continuation { prompt, text }).unwrap();
        assert_eq!(start("a", "bb"), (vec![3, 1, 4, 4, 1], 2));
        assert_eq!(start("", "b"), (vec![1, 4, 1], 1));
        assert_eq!(start("aaaaaaaa", "bbbbbbbb"), (vec![3, 3, 3, 1, 4, 4, 4, 1], 4));
        // A prompt has the tokens that precede the text.
        assert_eq!(encoder.encode(Text::Prompt("a")).unwrap(), [3, 1]);
    }

    #[test]
    fn tokens_are_decoded_to_their_text() {
        for (tokenizer, text, expected) in [
            ("bytes", "é a\n", "é a\n"),
            ("characters", "é a\n", "é a\n"),
            ("characters,alphabet=ab", "abc", "ab\u{fffd}"),
        ] {
            let encoder = TextEncoder::new(tokenizer, 16).unwrap();
            let tokens = encoder.encode(Text::One(text)).unwrap();
            assert_eq!(encoder.decode(&tokens).unwrap(), expected, "{tokenizer}");
        }
        let bytes = TextEncoder::new("bytes", 16).unwrap();
        // A byte that is not UTF-8, a separator, and numbers that are not tokens.
        assert_eq!(bytes.decode(&[2 + 0xff, 1, 2 + 65, 258, u32::MAX]).unwrap(), "\u{fffd}A");
        let error = TextEncoder::new("hashed", 16).unwrap().decode(&[2]).unwrap_err();
        assert!(error.to_string().ends_with("to generate text, got hashed"), "{error}");
    }

    #[test]
    fn a_length_outside_its_range_is_refused() {
        for length in [0, 7, 65537, usize::MAX] {
            let message = TextEncoder::new("bytes", length).unwrap_err().to_string();
            assert_eq!(message, format!("max_length must be 8 to 65536 tokens, got {length}"));
        }
    }
}
