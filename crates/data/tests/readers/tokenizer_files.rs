//! `tokenizer.json`. The tokens are those of `transformers` (fixtures/make.py).

use std::path::PathBuf;

use sordino_data::{Source, Text, TextEncoder, Truncation, read};
use sordino_nn::Shape;

use crate::files::{Directory, source, tokens};

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    path.display().to_string()
}

fn encoder(name: &str, max_length: usize) -> TextEncoder {
    TextEncoder::new(&fixture(name), max_length).unwrap()
}

#[test]
fn special_tokens_are_added_and_the_closing_one_is_kept() {
    // The file itself pads to 12 and cuts at 4.
    let encoder = encoder("wordpiece.json", 8);
    assert_eq!(encoder.vocabulary(), 16);
    for (text, expected) in [
        ("A good film.", &[2, 4, 6, 5, 15, 3][..]),
        ("", &[2, 3]),
        ("Unhelpful films", &[2, 7, 8, 9, 5, 14, 3]),
        ("é[SEP]", &[2, 1, 3, 3]),
        ("who wrote it ? who wrote it ?", &[2, 10, 11, 12, 13, 10, 11, 3]),
    ] {
        assert_eq!(encoder.encode(Text::One(text)).unwrap(), expected, "{text}");
    }
}

#[test]
fn special_tokens_are_kept_by_truncation_in_the_middle() {
    let encoder = encoder("wordpiece.json", 8).with_truncation(Truncation::Middle);
    for (text, expected) in [
        ("who wrote it ? who wrote it ?", &[2, 10, 11, 12, 11, 12, 13, 3][..]),
        ("A good film.", &[2, 4, 6, 5, 15, 3]),
        ("", &[2, 3]),
    ] {
        assert_eq!(encoder.encode(Text::One(text)).unwrap(), expected, "{text}");
    }
    for text in [Text::Pair("a", "b"), Text::Prompt("a"), Text::Continuation { prompt: "a", text: "b" }] {
        let message = encoder.encode(text).unwrap_err().to_string();
        assert_eq!(message, "truncation must be end for pairs of texts and for language models, got middle");
    }
    // Truncation at the end is restored.
    let end = encoder.with_truncation(Truncation::End);
    assert_eq!(
        end.encode(Text::One("who wrote it ? who wrote it ?")).unwrap(),
        [2, 10, 11, 12, 13, 10, 11, 3]
    );
}

#[test]
fn a_pair_is_encoded_as_the_file_states() {
    let pair = |max_length, second| {
        encoder("wordpiece.json", max_length).encode(Text::Pair("who wrote it?", second)).unwrap()
    };
    assert_eq!(pair(8, "a film."), [2, 10, 11, 12, 3, 4, 5, 3]);
    assert_eq!(pair(12, "a film."), [2, 10, 11, 12, 13, 3, 4, 5, 15, 3]);
    assert_eq!(pair(8, "a good good good good good film."), [2, 10, 11, 3, 4, 6, 6, 3]);
    assert_eq!(pair(12, "a good good good good good film."), [2, 10, 11, 12, 13, 3, 4, 6, 6, 6, 6, 3]);
}

#[test]
fn a_file_without_special_tokens_has_a_token_for_an_empty_text() {
    let encoder = encoder("byte_level.json", 8);
    assert_eq!(encoder.vocabulary(), 261);
    assert_eq!(encoder.encode(Text::One("the hell")).unwrap(), [83, 257, 220, 257, 259]);
    assert_eq!(encoder.encode(Text::One("é the")).unwrap(), [127, 102, 258]);
    assert_eq!(encoder.encode(Text::Pair("the", " the")).unwrap(), [83, 257, 258]);
    assert_eq!(encoder.encode(Text::One("")).unwrap(), [260]);
    assert_eq!(encoder.encode(Text::Prompt("the")).unwrap(), [83, 257, 260]);
    let text = Text::Continuation { prompt: "the", text: " the" };
    assert_eq!(encoder.encode(text).unwrap(), [83, 257, 260, 258, 260]);
}

#[test]
fn a_file_is_found_relative_to_the_schema() {
    let directory = Directory::new();
    directory.write("run/tokenizer.json", std::fs::read(fixture("wordpiece.json")).unwrap());
    let schema = "target = 'y'\n[[columns]]\nname = 'x'\ntype = 'text'\ntokenizer = 'tokenizer.json'\nmax_length = 9\n\
                  [[columns]]\nname = 'y'\ntype = 'number'\n";
    let schema = Some(directory.write("run/schema.toml", schema));
    let sets = read(&Source { schema, ..source(directory.write("t.csv", "x,y\na film,1\n")) }).unwrap();
    assert_eq!(sets.train.shape(), Shape::Tokens { steps: 9, vocabulary: 16 });
    assert_eq!(tokens(&sets.train), [[2, 4, 5, 3]]);
    let file = sets.schema.unwrap().tokenizer_file().unwrap();
    assert_eq!(file, directory.path().join("run/tokenizer.json"));
}

#[test]
fn a_file_that_is_not_a_tokenizer_is_refused() {
    let directory = Directory::new();
    let good = std::fs::read_to_string(fixture("wordpiece.json")).unwrap();
    let message = |name: &str, text: &str, max_length| {
        let path = directory.write(name, text).display().to_string();
        directory.message(&TextEncoder::new(&path, max_length).unwrap_err())
    };
    for text in ["", "{}", "[1]", "{\"version\": \"1.0\"}", &good[..good.len() / 2], "\u{0}"] {
        let message = message("t.json", text, 8);
        assert!(message.starts_with("t.json: is not a tokenizer.json: "), "{message}");
    }
    // No token for unknown words, and special tokens outside the vocabulary.
    let text = good.replace("\"unk_token\":\"[UNK]\"", "\"unk_token\":\"[OTHER]\"");
    assert!(
        message("t.json", &text, 8).starts_with("t.json: cannot encode a text: "),
        "{}",
        message("t.json", &text, 8)
    );
    let text = good.replace("\"ids\":[3]", "\"ids\":[99]");
    assert_eq!(message("t.json", &text, 8), "t.json: adds the token 99, but its vocabulary ends at 16");
    let path = directory.path().join("absent.json").display().to_string();
    let error = TextEncoder::new(&path, 8).unwrap_err();
    assert!(
        directory.message(&error).starts_with("absent.json: ") && error.hint().contains("check the path")
    );
    // Random merges.
    let text = std::fs::read_to_string(fixture("byte_level.json")).unwrap();
    let random = text.replace("\"dropout\":null", "\"dropout\":0.1");
    assert_ne!(random, text);
    let refused = message("t.json", &random, 8);
    assert_eq!(refused, "t.json: the dropout of the model must be null or 0, got 0.1");
    // A language model needs a separator.
    let text = std::fs::read_to_string(fixture("byte_level.json")).unwrap().replace("<|endoftext|>", "<unk>");
    let path = directory.write("t.json", text).display().to_string();
    let error = TextEncoder::new(&path, 8).unwrap().encode(Text::Prompt("a")).unwrap_err();
    assert!(
        error.to_string().contains("a language model needs one of the tokens <|endoftext|>, </s>, [SEP]")
    );
}

#[test]
fn damaged_tokenizers_give_an_encoder_or_an_error() {
    let directory = Directory::new();
    for name in ["wordpiece.json", "byte_level.json"] {
        let good = std::fs::read(fixture(name)).unwrap();
        for place in (0..good.len()).step_by(7) {
            let mut bytes = good.clone();
            bytes[place] ^= 0x15;
            let path = directory.write("t.json", bytes).display().to_string();
            if let Ok(encoder) = TextEncoder::new(&path, 8) {
                for text in ["", "a good film", "é"] {
                    if let Ok(tokens) = encoder.encode(Text::One(text)) {
                        assert!((1..=8).contains(&tokens.len()));
                    }
                }
            }
        }
    }
}

/// The crate `tokenizers` cuts the only letter of `a` at both ends, and panics.
#[test]
fn a_decoder_that_panics_is_an_error() {
    let mut file: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("wordpiece.json")).unwrap()).unwrap();
    file["decoder"] = serde_json::json!({"type": "Strip", "content": "a", "start": 1, "stop": 1});
    let directory = Directory::new();
    let path = directory.write("tokenizer.json", file.to_string());
    let encoder = TextEncoder::new(&path.display().to_string(), 8).unwrap();
    assert_eq!(encoder.decode(&[5, 6]).unwrap(), "filmgood");
    let error = encoder.decode(&[4]).unwrap_err();
    assert!(error.to_string().ends_with("tokenizer.json: cannot decode tokens"), "{error}");
}
