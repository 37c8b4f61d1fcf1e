use sordino_data::Schema;

const COLUMN: &str = "[[columns]]\nname = \"a\"\ntype = \"number\"\n";

fn refused(text: &str) -> String {
    let error = Schema::parse("s.toml", text).unwrap_err();
    assert!(!error.hint().is_empty());
    error.to_string()
}

/// A schema of one number with this line added.
fn number(line: &str) -> String {
    refused(&format!("{COLUMN}{line}\n"))
}

/// A schema of one category with these values.
fn category(values: &str) -> String {
    refused(&format!("[[columns]]\nname = \"a\"\ntype = \"category\"\n{values}\n"))
}

#[test]
fn a_schema_is_the_same_after_it_is_written() {
    let text = "header = false\ndelimiter = \"\\t\"\ntarget = 2\n[[columns]]\nname = \"a\"\ntype = \"number\"\n\
                clip = [0, 1]\nmissing = 0.5\n[[columns]]\nname = \"b\"\ntype = \"category\"\nvalues = [\"x\", \"y\"]\n\
                [[columns]]\nname = \"c\"\ntype = \"category\"\nvalues = [\"x\"]\nunknown = \"ignore\"\n";
    let schema = Schema::parse("s.toml", text).unwrap();
    assert_eq!(schema.features(), 2);
    let written = toml::to_string(&schema).unwrap();
    assert_eq!(toml::from_str::<Schema>(&written).unwrap(), schema);
}

#[test]
fn deserialised_schemas_are_checked() {
    let error = toml::from_str::<Schema>(&format!("{COLUMN}scale = 0\n")).unwrap_err();
    assert!(error.to_string().contains("scale must be finite and not 0"), "{error}");
}

#[test]
fn unknown_keys_and_types_are_refused() {
    assert!(refused("colour = 1\n").starts_with("s.toml: unknown field `colour`, expected one of `header`"));
    let message = refused(&format!("header = true\nheaders = 1\n{COLUMN}"));
    assert!(message.starts_with("s.toml, line 2: unknown field `headers`"), "{message}");
    assert!(number("centre = 1").contains("unknown field `centre`"), "{}", number("centre = 1"));
    let message = refused("[[columns]]\nname = \"a\"\ntype = \"string\"\n");
    assert!(
        message.contains("unknown variant `string`, expected one of `number`, `category`, `text`, `ignore`")
    );
    assert!(refused("[[columns]]\nname = \"a\"\n").contains("missing field `type`"));
    assert!(refused("header = true\n").contains("missing field `columns`"));
    assert!(refused(&format!("target = 1.5\n{COLUMN}")).contains("a column's name, or its number from 1"));
    assert!(refused("header = \n").starts_with("s.toml, line 1: "), "{}", refused("header = \n"));
}

#[test]
fn numbers_must_be_finite_and_scales_not_zero() {
    for bad in ["0", "nan", "inf"] {
        let shown = if bad == "nan" { "NaN" } else { bad };
        let expected = format!("s.toml: column `a`: scale must be finite and not 0, got {shown}");
        assert_eq!(number(&format!("scale = {bad}")), expected);
    }
    assert_eq!(number("center = nan"), "s.toml: column `a`: center must be finite, got NaN");
    assert_eq!(number("missing = inf"), "s.toml: column `a`: missing must be a finite number, got inf");
    for (clip, shown) in [("[1, 0]", "[1, 0]"), ("[0, 0]", "[0, 0]"), ("[nan, 1]", "[NaN, 1]")] {
        let expected =
            format!("s.toml: column `a`: clip must be two finite numbers, the lower first, got {shown}");
        assert_eq!(number(&format!("clip = {clip}")), expected);
    }
}

#[test]
fn vocabularies_list_each_value_once() {
    assert_eq!(category("values = []"), "s.toml: column `a`: values must not be empty");
    assert_eq!(category("values = [\"x\", \"x\"]"), "s.toml: column `a`: the value \"x\" is listed twice");
    assert_eq!(
        category("values = [\" x\"]"),
        "s.toml: column `a`: the value \" x\" begins or ends with a space"
    );
    assert!(category("values = [\"x\"]\nunknown = \"zero\"").contains("unknown variant `zero`"));
}

#[test]
fn names_of_columns_must_differ() {
    assert_eq!(refused(&format!("{COLUMN}{COLUMN}")), "s.toml: the name `a` is used by two columns");
    let unnamed = "[[columns]]\nname = \"\"\ntype = \"ignore\"\n";
    assert!(Schema::parse("s.toml", &format!("{unnamed}{COLUMN}")).is_ok());
    assert_eq!(refused(&format!("{unnamed}{unnamed}{COLUMN}")), "s.toml: the name `` is used by two columns");
    let spaced = unnamed.replace("\"\"", "\" \"");
    assert_eq!(refused(&format!("{spaced}{COLUMN}")), "s.toml: column 1 has the name \" \"");
}

#[test]
fn targets_are_columns_that_can_be_targets() {
    let with = |target: &str, column: &str| {
        refused(&format!("target = {target}\n{COLUMN}[[columns]]\nname = \"b\"\n{column}\n"))
    };
    let plain = "type = \"number\"";
    assert_eq!(with("\"c\"", plain), "s.toml: the target `c` is not one of the 2 columns");
    assert_eq!(with("0", plain), "s.toml: the target 0 is not one of the 2 columns");
    assert_eq!(with("3", plain), "s.toml: the target 3 is not one of the 2 columns");
    assert_eq!(with("2", "type = \"ignore\""), "s.toml: the target `b` is ignored");
    assert_eq!(
        with("2", "type = \"category\"\nvalues = [\"x\"]"),
        "s.toml: the target `b` must have 2 to 65536 classes, got 1"
    );
    assert_eq!(
        with("2", "type = \"category\"\nvalues = [\"x\", \"y\"]\nunknown = \"ignore\""),
        "s.toml: the target `b` must not ignore unknown values"
    );
    assert_eq!(
        with("2", "type = \"number\"\nmissing = 0"),
        "s.toml: the target `b` must not replace missing values"
    );
    assert_eq!(
        refused(&format!("target = \"a\"\n{COLUMN}")),
        "s.toml: the columns become 0 features; at least 1 is needed"
    );
}

#[test]
fn delimiters_are_single_ascii_characters() {
    for (bad, shown) in [("'\"'", "'\"'"), ("\"\\n\"", "'\\n'"), ("\"é\"", "'é'")] {
        let expected = format!(
            "s.toml: delimiter must be an ASCII character other than a quote or a line end, got {shown}"
        );
        assert_eq!(refused(&format!("delimiter = {bad}\n{COLUMN}")), expected);
    }
    assert!(refused(&format!("delimiter = \"ab\"\n{COLUMN}")).starts_with("s.toml, line 1: "));
}

#[test]
fn a_rule_for_several_columns_is_a_rule_for_each() {
    let rule = "type = \"number\"\nscale = 2.0\n";
    let several = Schema::parse("s.toml", &format!("[[columns]]\nnames = [\"a\", \"b\"]\n{rule}")).unwrap();
    let each = format!("[[columns]]\nname = \"a\"\n{rule}[[columns]]\nname = \"b\"\n{rule}");
    assert_eq!(several, Schema::parse("s.toml", &each).unwrap());
    assert_eq!(toml::from_str::<Schema>(&toml::to_string(&several).unwrap()).unwrap(), several);
    assert!(
        refused(&format!("[[columns]]\nnames = []\n{rule}")).contains("rule 1 under [[columns]] has no name")
    );
    assert!(refused(&format!("[[columns]]\nnames = [\"a\", \"a\"]\n{rule}")).contains("used by two columns"));
    assert!(refused(&format!("[[columns]]\nname = 1\n{rule}")).contains("a name, or a list of names"));
}

#[test]
fn other_columns_are_ignored_only_with_a_header() {
    let message = refused(&format!("header = false\nothers = \"ignore\"\n{COLUMN}"));
    assert!(message.contains("others = \"ignore\" needs a table with a header"), "{message}");
    let schema = Schema::parse("s.toml", &format!("others = \"ignore\"\n{COLUMN}")).unwrap();
    assert_eq!(toml::from_str::<Schema>(&toml::to_string(&schema).unwrap()).unwrap(), schema);
}

#[test]
fn a_gap_in_a_list_or_behind_a_sign_is_found_and_one_in_a_comment_is_not() {
    let values = |line: &str| format!("{COLUMN}[[columns]]\nname = \"c\"\ntype = \"category\"\n{line}\n");
    assert!(
        refused(&values("values = [\"#1\", \"FILL IN: more\"]"))
            .contains("line 7: `values` is not filled in")
    );
    assert!(
        refused(&values("values = [\n  \"FILL IN: more\"]")).contains("line 8: a value is not filled in")
    );
    assert!(Schema::parse("s.toml", &format!("# \"FILL IN: x\"\n{COLUMN}")).is_ok());
}
