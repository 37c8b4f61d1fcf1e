//! Columns of texts.

use sordino_data::Dataset;
use sordino_data::{
    DataError, Labels, PredictionOptions, Schema, Source, TextEncoder, Truncation, read, read_test,
    read_unlabelled,
};
use sordino_nn::Shape;

use crate::files::{Directory, classes, source, starts, texts, tokens, unlabelled};

const SCHEMA: &str = "target = 'kind'\n[[columns]]\nname = 'review'\ntype = 'text'\ntokenizer = 'bytes'\n\
                      max_length = 12\n[[columns]]\nname = 'kind'\ntype = 'category'\nvalues = ['neg', 'pos']\n";

const PAIRS: &str = "target = 'y'\n[[columns]]\nname = 'q'\ntype = 'text'\ntokenizer = 'bytes'\n[[columns]]\n\
                     name = 'y'\ntype = 'category'\nvalues = ['0', '1']\n[[columns]]\nname = 's'\ntype = 'text'\n\
                     tokenizer = 'bytes'\n[[columns]]\nname = 'index'\ntype = 'ignore'\n";

fn bytes(path: impl Into<std::path::PathBuf>) -> Source {
    Source { tokenizer: Some("bytes".to_owned()), ..source(path) }
}

#[test]
fn a_column_of_texts_becomes_tokens() {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", SCHEMA));
    let csv = "kind,review\npos,\" a, \"\"b\"\"\nc \"\nneg,\nneg,NA\npos,much longer than that\n";
    let json = "{\"review\": \" a, \\\"b\\\"\\nc \", \"kind\": \"pos\"}\n{\"review\": null, \"kind\": \"neg\"}\n\
                {\"review\": \"NA\", \"kind\": \"neg\"}\n{\"review\": \"much longer than that\", \"kind\": \"pos\"}\n";
    for (name, text) in [("t.csv", csv), ("t.jsonl", json)] {
        let sets = read(&Source { schema: schema.clone(), ..source(directory.write(name, text)) }).unwrap();
        assert_eq!(sets.train.shape(), Shape::Tokens { steps: 12, vocabulary: 258 });
        // An empty text is one reserved token; no text counts as missing; nothing is trimmed.
        assert_eq!(texts(&sets.train), [" a, \"b\"\nc ", "|", "NA", "much longer "]);
        assert_eq!(classes(&sets.train), [1, 0, 0, 1]);
        assert!(!format!("{sets:?}").contains("much"));
    }
}

#[test]
fn two_columns_of_texts_form_a_pair_in_the_order_of_the_schema() {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", PAIRS));
    let path = directory.write("t.csv", "s,index,y,q\nyes.,7,1,why?\n,8,0,who?\n");
    let source = Source { schema, ..source(path) };
    let sets = read(&source).unwrap();
    assert_eq!(texts(&sets.train), ["why?|yes.", "who?|"]);
    let test = read_test(&directory.write("u.csv", "q,s,index,y\na,b,1,0\n"), &source, &sets).unwrap();
    assert_eq!((texts(&test), classes(&test)), (vec!["a|b".to_owned()], &[0][..]));
    let new = Source { path: directory.write("new.csv", "s,q\nb,a\n"), ..source };
    assert_eq!(texts(&unlabelled(&new).unwrap()), ["a|b"]);
}

#[test]
fn without_a_schema_a_tokenizer_makes_the_columns_texts() {
    let directory = Directory::new();
    let path = directory.write("t.tsv", "sentence\tlabel\ngood \t1\nbad\t0\n");
    let sets = read(&Source { classes: Some(2), ..bytes(path) }).unwrap();
    assert_eq!(
        (texts(&sets.train), classes(&sets.train)),
        (vec!["good ".to_owned(), "bad".to_owned()], &[1, 0][..])
    );
    assert_eq!(sets.train.shape(), Shape::Tokens { steps: 256, vocabulary: 258 });
    // Only the length: the default tokenizer.
    let path = directory.write("t.csv", "1,a question,a sentence\n0,b,c\n");
    let target = Some("1".to_owned());
    let sets = read(&Source { max_length: Some(9), target, classes: Some(2), ..source(path) }).unwrap();
    assert_eq!(sets.train.shape(), Shape::Tokens { steps: 9, vocabulary: 16384 });
    assert_eq!(tokens(&sets.train)[0].len(), 5);
    let text = toml(&sets.schema.unwrap());
    assert!(text.contains("tokenizer = \"hashed,size=16384\"\nmax_length = 9\n"), "{text}");
    let path = directory.write("wide.csv", "a,b,c,1\n");
    let error = read(&Source { classes: Some(2), ..bytes(path) }).unwrap_err();
    assert!(error.to_string().contains("3 columns are texts; a record is one text or a pair"), "{error}");
}

fn toml(schema: &Schema) -> String {
    toml::to_string(schema).unwrap()
}

#[test]
fn settings_override_the_schema() {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", SCHEMA));
    let path = directory.write("t.csv", "review,kind\nabc,pos\n");
    let tokenizer = Some("characters,alphabet=cba".to_owned());
    let source = Source { schema, tokenizer, max_length: Some(8), ..source(path) };
    let sets = read(&source).unwrap();
    assert_eq!(sets.train.shape(), Shape::Tokens { steps: 8, vocabulary: 6 });
    assert_eq!(tokens(&sets.train), [[5, 4, 3]]);
    // The schema that a run keeps reads the same tokens.
    let kept = Some(directory.write("kept.toml", toml(&sets.schema.unwrap())));
    let again = read(&Source { schema: kept, path: source.path, ..Source::default() }).unwrap();
    assert_eq!((tokens(&again.train), again.train.shape()), (vec![vec![5, 4, 3]], sets.train.shape()));
}

#[test]
fn a_schema_or_a_setting_truncates_long_texts_in_the_middle() {
    let directory = Directory::new();
    let path = directory.write("t.csv", "review,kind\n0123456789ABCDEF,pos\nshort,neg\n");
    let middle = SCHEMA.replace("max_length", "truncation = 'middle'\nmax_length");
    let schema = Some(directory.write("s.toml", &middle));
    let kept = ["012345ABCDEF", "short"];
    let sets = read(&Source { schema, ..source(path.clone()) }).unwrap();
    assert_eq!(texts(&sets.train), kept);
    let schema = Some(directory.write("s.toml", SCHEMA));
    let sets = read(&Source { schema: schema.clone(), ..source(path.clone()) }).unwrap();
    assert_eq!(texts(&sets.train), ["0123456789AB", "short"]);
    let truncation = Some(Truncation::Middle);
    let sets = read(&Source { schema, truncation, ..source(path.clone()) }).unwrap();
    assert_eq!(texts(&sets.train), kept);
    // The schema that a run keeps reads the same tokens.
    let schema = Some(directory.write("kept.toml", toml(&sets.schema.unwrap())));
    assert_eq!(texts(&read(&Source { schema, ..source(path) }).unwrap().train), kept);
}

#[test]
fn pairs_are_not_truncated_in_the_middle() {
    let pairs = PAIRS.replace("type = 'text'", "type = 'text'\ntruncation = 'middle'");
    let by_schema = refused(&pairs, b"s,index,y,q\nyes.,7,1,why?\n", |_| ());
    let by_setting = refused(PAIRS, b"s,index,y,q\nyes.,7,1,why?\n", |source| {
        source.truncation = Some(Truncation::Middle);
    });
    for (message, _) in [by_schema, by_setting] {
        assert!(message.contains("column `q` cannot have truncation = \"middle\""), "{message}");
    }
}

fn refused(schema: &str, text: &[u8], change: impl FnOnce(&mut Source)) -> (String, DataError) {
    let directory = Directory::new();
    let mut source = source(directory.write("t.csv", text));
    source.schema = Some(directory.write("s.toml", schema));
    change(&mut source);
    let error = read(&source).unwrap_err();
    (directory.message(&error), error)
}

#[test]
fn broken_utf8_is_refused_with_its_line() {
    let (message, error) = refused(SCHEMA, b"review,kind\nfine,pos\ncaf\xe9,neg\n", |_| ());
    assert_eq!(message, "t.csv, line 3, column 1 (review): must be UTF-8, got `caf\u{fffd}`");
    assert!(error.hint().contains("iconv"), "{}", error.hint());
    let (message, _) = refused(SCHEMA, b"review,kind\n\"a\n\nb\xe9\",neg\n", |_| ());
    assert!(
        message.contains("line 2, column 1 (review): must be UTF-8 (line 3 of the text is not)"),
        "{message}"
    );
    // For prediction, the row is kept apart.
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", SCHEMA));
    let source = Source { schema, ..source(directory.write("t.csv", b"review\na\n\xff\nb\n")) };
    let rows = read_unlabelled(&source, &PredictionOptions::default()).unwrap();
    assert_eq!(texts(rows.records.as_ref().unwrap()), ["a", "b"]);
    assert!(rows.rows[1].refused.is_some() && rows.rows.len() == 3);
}

#[test]
fn texts_exclude_other_features() {
    let with = |column: &str| format!("{SCHEMA}[[columns]]\nname = 'c'\n{column}\n");
    for (schema, part) in [
        (with("type = 'number'"), "column `review` is a text, so `c` cannot be a feature"),
        (with("type = 'category'\nvalues = ['a']"), "column `review` is a text, so `c` cannot be a feature"),
        (with("type = 'text'"), "the columns `review` and `c` form a pair"),
        (SCHEMA.replace("max_length", "length"), "unknown field `length`"),
        (SCHEMA.replace("'bytes'", "'words'"), "tokenizer must be bytes, characters"),
        (SCHEMA.replace("12", "7"), "max_length must be 8 to 65536 tokens, got 7"),
    ] {
        let (message, _) = refused(&schema, b"review,kind,c\na,pos,1\n", |_| ());
        // A tokenizer is checked when the columns are known.
        assert!(message.contains(part) || message.contains("column `c` is not in the schema"), "{message}");
    }
    let features = |source: &mut Source| source.features = Some(3);
    let (message, _) = refused(SCHEMA, b"review,kind\na,pos\n", features);
    assert_eq!(message, "number of features must be left out for texts, got 3");
    let numbers =
        "target = 'y'\n[[columns]]\nname = 'x'\ntype = 'number'\n[[columns]]\nname = 'y'\ntype = 'number'\n";
    let (message, _) = refused(numbers, b"x,y\n1,1\n", |source| source.tokenizer = Some("bytes".to_owned()));
    assert_eq!(message, "tokenizer must be left out for a table without texts, got bytes");
}

#[test]
fn a_text_that_is_the_target_is_predicted_token_by_token() {
    let directory = Directory::new();
    let schema = "target = 'ref'\n[[columns]]\nname = 'ref'\ntype = 'text'\ntokenizer = 'bytes'\n[[columns]]\n\
                  name = 'mr'\ntype = 'text'\ntokenizer = 'bytes'\n";
    let schema = Some(directory.write("s.toml", schema));
    let path = directory.write("t.csv", "mr,ref\nab,xyz\n,w\nabc,v\n");
    let source = Source { schema, ..source(path) };
    let sets = read(&source).unwrap();
    assert_eq!(texts(&sets.train), ["ab|xyz|", "|w|", "abc|v|"]);
    assert_eq!(starts(&sets.train), [3, 1, 4]);
    assert!(sets.train.classes().is_empty() && sets.train.scales().is_empty());
    // A prompt has no text.
    assert_eq!(texts(&unlabelled(&source).unwrap()), ["ab|", "|", "abc|"]);
    // A split keeps whole records and where their predictions begin.
    let (train, test) = sets.train.split(0.34, 1).unwrap();
    for part in [&train, &test.unwrap()] {
        for (text, &from) in texts(part).iter().zip(starts(part)) {
            assert_eq!(text.find('|').unwrap() + 1, from);
        }
    }
}

#[test]
fn a_file_txt_has_a_text_on_each_line_for_prediction() {
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", SCHEMA));
    let source = Source { schema, ..source(directory.write("t.txt", "a, b\r\n\n c \nxé")) };
    assert_eq!(texts(&unlabelled(&source).unwrap()), ["a, b", " c ", "xé"]);
    let pairs = Some(directory.write("p.toml", PAIRS));
    let error = unlabelled(&Source { schema: pairs, ..source }).unwrap_err();
    assert_eq!(directory.message(&error), "t.txt: has one text for each record, but the schema describes 2");
}

#[test]
fn a_record_does_not_change_the_others() {
    let encoder = TextEncoder::new("hashed", 8).unwrap();
    let many: Vec<String> = (0..5000).map(|i| format!("text {i}")).collect();
    let mut all: Vec<&str> = many.iter().map(String::as_str).collect();
    let before = tokens(&Dataset::from_texts(&all, Labels::none(), &encoder).unwrap());
    assert_eq!(before.len(), 5000);
    all[17] = "quite another text, which is longer and has other words";
    let after = tokens(&Dataset::from_texts(&all, Labels::none(), &encoder).unwrap());
    for (place, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(before != after, place == 17);
    }
    // A file gives the same records in the same order.
    let directory = Directory::new();
    let path = directory.write(
        "t.csv",
        format!("text,y\n{}", many.iter().map(|text| format!("{text},0\n")).collect::<String>()),
    );
    let (tokenizer, max_length) = (Some("hashed".to_owned()), Some(8));
    let sets = read(&Source { tokenizer, max_length, classes: Some(2), ..source(path) }).unwrap();
    assert_eq!(tokens(&sets.train), before);
}

#[test]
fn texts_in_memory_need_as_many_labels() {
    let encoder = TextEncoder::new("bytes", 8).unwrap();
    let error = Dataset::from_texts(&["a", "b"], &[true], &encoder).unwrap_err();
    assert_eq!(error.to_string(), "y: there are 1 labels for 2 texts");
    let none: [&str; 0] = [];
    let error = Dataset::from_texts(&none, Labels::none(), &encoder).unwrap_err();
    assert_eq!(error.to_string(), "texts: there are no records");
}

#[test]
fn a_row_without_end_is_refused() {
    let directory = Directory::new();
    let long = "x".repeat(65 << 20);
    for (name, begin, place) in [
        ("t.csv", "a,1\n\"", "t.csv, line 2"),
        ("t.jsonl", "{\"a\": \"b\", \"c\": 1}\n{\"", "t.jsonl, line 2"),
    ] {
        let path = directory.write(name, format!("{begin}{long}"));
        let target = name.ends_with("jsonl").then(|| "c".to_owned());
        let error = read(&Source { classes: Some(2), target, ..bytes(path) }).unwrap_err();
        assert_eq!(directory.message(&error), format!("{place}: is longer than 64 MiB"));
    }
}
