use std::path::Path;

use sordino_data::{Schema, Source, draft, read};

use crate::files::{Directory, classes, gzip, source, values};

const TABLE: &str = "age,pixel0,pixel1,pixel2,work,income\n41,1,2,3,secret-employer,9876543\n";
const SAMPLE: &str = "income,work,age,pixel0,pixel1,pixel2\n10,public,30,0,0,0\n20,none,?,1,1,1\n";

fn drafted(table: &str, sample: Option<&str>) -> String {
    let directory = Directory::new();
    let table = directory.write("t.csv", table);
    let sample = sample.map(|sample| directory.write("s.csv", sample));
    draft(&table, sample.as_deref(), false).unwrap()
}

#[test]
fn a_draft_has_the_names_of_the_header_and_no_value_of_a_record() {
    let text = drafted(TABLE, None);
    assert!(text.contains(
        "target = \"FILL IN: the column to predict, one of age, pixel0, pixel1, pixel2, work, income\"\n"
    ));
    assert!(
        text.contains("names = [\"pixel0\", \"pixel1\", \"pixel2\"]\ntype = \"FILL IN: number,"),
        "{text}"
    );
    for name in ["age", "work", "income"] {
        assert!(text.contains(&format!("[[columns]]\nname = \"{name}\"\n")), "{text}");
    }
    for value in ["41", "secret", "9876543"] {
        assert!(!text.contains(value) && !drafted(TABLE, Some(SAMPLE)).contains(value), "{value}: {text}");
    }
}

#[test]
fn a_public_sample_tells_types_and_some_values() {
    let text = drafted(TABLE, Some(SAMPLE));
    assert!(text.contains("name = \"age\"\ntype = \"number\"\nclip = \"FILL IN: "), "{text}");
    let values = "name = \"work\"\ntype = \"category\"\nvalues = [\"none\", \"public\", \"FILL IN: ";
    assert!(text.contains(values), "{text}");
    let many: String = (0..60).map(|i| format!("{i},word{i},1,1,1,0\n")).collect();
    let text = drafted(TABLE, Some(&format!("age,work,pixel0,pixel1,pixel2,income\n{many}")));
    assert!(text.contains("name = \"work\"\ntype = \"FILL IN: text, ignore or category"), "{text}");
}

/// Fills the gaps one after another: each is refused with its line until none is left.
#[test]
fn a_draft_is_refused_line_by_line_until_its_gaps_are_filled() {
    let mut text = drafted(TABLE, Some(SAMPLE));
    let fill = [
        ("target", "\"work\""),
        ("clip", "[0, 100]"),
        ("center", "40"),
        ("scale", "20"),
        ("clip", "[0, 255]"),
        ("center", "0"),
        ("scale", "255"),
        ("values", "[\"none\", \"public\", \"secret-employer\"]"),
        ("clip", "[0, 1e7]"),
        ("center", "0"),
        ("scale", "1e6"),
    ];
    for (filled, (key, value)) in fill.iter().enumerate() {
        let error = Schema::parse("s.toml", &text).unwrap_err();
        let number = text.lines().position(|line| line.contains("\"FILL IN: ")).unwrap() + 1;
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("s.toml, line {number}: `{key}` is not filled in: ")),
            "{message}"
        );
        let more = fill.len() - filled - 1;
        assert_eq!(message.contains(&format!("; {more} more are to be filled in")), more > 0, "{message}");
        assert!(error.hint().contains("knowledge of the subject"));
        let lines = text.lines().enumerate().map(|(place, line)| match place + 1 == number {
            true => format!("{key} = {value}\n"),
            false => format!("{line}\n"),
        });
        text = lines.collect();
    }
    let schema = Schema::parse("s.toml", &text).unwrap();
    assert_eq!(schema.features(), 5);
    let directory = Directory::new();
    let schema = Some(directory.write("s.toml", &text));
    let sets = read(&Source { schema, ..source(directory.write("t.csv", TABLE)) }).unwrap();
    assert_eq!(classes(&sets.train), [2]);
    assert_eq!(values(&sets.train)[0], 0.05);
}

#[test]
fn tables_of_other_forms_are_drafted_too() {
    let directory = Directory::new();
    let text = |name: &str, bytes: &[u8]| draft(&directory.write(name, bytes), None, false).unwrap();
    assert!(text("t.csv", b"a;b;c\n1;2;3\n").contains("delimiter = \";\""));
    assert!(text("t.tsv", b"a\tb\n1\t2\n").contains("delimiter = \"\\t\""));
    assert!(text("t.csv.gz", &gzip("a,b\n1,2\n")).contains("name = \"b\""));
    // A name that TOML must quote.
    assert!(text("t.csv", "ä \"b\" # c,d\n".as_bytes()).contains("name = "));
    // A record is not taken for a header: a number, a missing value, or the same value twice.
    for record in ["secret,7", "secret,?", "secret,x,x", "secret,"] {
        let text = text("t.csv", format!("{record}\n").as_bytes());
        assert!(text.contains("header = false") && text.contains("name = \"1\""), "{text}");
        assert!(!text.contains("secret"));
    }
    let path = directory.write("t.csv", "secret,hidden\n");
    assert!(!draft(&path, None, true).unwrap().contains("secret"));
}

#[test]
fn what_has_no_schema_and_a_sample_of_another_table_are_refused() {
    let directory = Directory::new();
    let table = directory.write("t.csv", TABLE);
    let refused =
        |path: &Path, sample: Option<&Path>| directory.message(&draft(path, sample, false).unwrap_err());
    let array = directory.write("t.npy", "");
    assert_eq!(refused(&array, None), "t.npy: is not a table, so it needs no schema");
    assert_eq!(refused(&directory.write("e.csv", ""), None), "e.csv: there are no records");
    let sample = directory.write("s.csv", "age,work\n1,2\n");
    assert_eq!(refused(&table, Some(sample.as_path())), "s.csv: the sample has no column `pixel0`");
}

#[test]
fn a_draft_of_json_lines_has_the_keys_and_a_folder_of_texts_needs_none() {
    let directory = Directory::new();
    let path = directory.write("t.jsonl", "{\"1\": \"secret\", \"b\": 2}\n{\"1\": \"more\", \"b\": 3}\n");
    let sample = directory.write("s.csv", "b,1\n7,public\n");
    let text = draft(&path, Some(&sample), false).unwrap();
    let expected = "name = \"1\"\ntype = \"category\"\nvalues = [\"public\", \"FILL IN: ";
    assert!(text.contains(expected) && !text.contains("secret"), "{text}");
    assert!(text.contains("name = \"b\"\ntype = \"number\"\n"), "{text}");
    directory.write("names/Irish.txt", "a\n");
    let message = directory.message(&draft(&directory.path().join("names"), None, false).unwrap_err());
    assert_eq!(message, "names: is not a table, so it needs no schema");
}
