"""Data frames are encoded by a schema in the same way as a CSV file with the same table."""

import doctest
import io

import numpy as np
import pytest

pd = pytest.importorskip("pandas")

from sordino import _frames  # noqa: E402

SCHEMA = """
target = "income"
[[columns]]
name = "age"
type = "number"
clip = [0, 100]
center = 40.0
scale = 20.0
missing = 0.25
[[columns]]
name = "weight"
type = "number"
missing = -1.0
[[columns]]
name = "colour"
type = "category"
values = ["red", "green"]
[[columns]]
name = "member"
type = "category"
values = ["True", "False"]
[[columns]]
name = "note"
type = "ignore"
[[columns]]
name = "income"
type = "category"
values = ["low", "high"]
"""

FEATURES = np.array([[1.0, 0.1, 0, 1, 1, 0], [-2.0, -1.0, 0, 0, 0, 1], [3.0, 1e-7, 1, 0, 1, 0]], dtype=np.float32)


def frame(**changes):
    columns = dict(
        age=[60, -3, 1000],
        weight=[0.1, np.nan, 1e-7],
        colour=["green", None, "red"],
        member=[True, False, True],
        note=['a, "b"\nc', None, "ü"],
        income=["high", "low", "low"],
    )
    return pd.DataFrame({**columns, **changes}, index=[9, 3, 5])


def as_csv(table):
    """The same table with the texts of its CSV file."""
    return pd.read_csv(io.StringIO(table.to_csv(index=False)), dtype=str, keep_default_na=False, na_filter=False)


def test_a_frame_has_the_values_of_its_csv_file():
    np.testing.assert_array_equal(_frames.encode(frame(), SCHEMA), FEATURES)
    np.testing.assert_array_equal(_frames.encode(as_csv(frame()), SCHEMA), FEATURES)


AGES = {
    "int8": pd.Series([60, -3, 100], dtype="int8"),
    "uint8": pd.Series([60, 0, 255], dtype="uint8"),
    "uint64": pd.Series([60, 0, 2**63 + 1], dtype="uint64"),
    "big-endian": pd.Series(np.array([60.5, -3, 1000], dtype=">f8").astype(float)),
    "float32": pd.Series([60.1, np.nan, 1000], dtype="float32"),
    "float16": pd.Series([60.1, np.nan, 1000], dtype="float16"),
    "float64": pd.Series([0.1 + 0.2, np.nan, 1e300]),
    "Int64": pd.Series([60, None, 2**53 + 1], dtype="Int64"),
    "Float64": pd.Series([60.25, None, 1000], dtype="Float64"),
    "Float32": pd.Series([60.1, None, 1000], dtype="Float32"),
    "object of numbers": pd.Series([60, None, 1.5], dtype="object"),
    "object of texts": pd.Series(["60", "?", " 1e3 "], dtype="object"),
    "category of numbers": pd.Series([60, None, 60]).astype("category"),
    "string": pd.Series(["60", None, "NA"], dtype="string"),
    "sparse": pd.Series([60.0, 0.0, 1.0]).astype("Sparse[float]"),
}


@pytest.mark.parametrize("kind", AGES)
def test_numbers_of_every_type_are_those_of_the_csv_file(kind):
    table = frame().reset_index(drop=True).assign(age=AGES[kind])
    encoded = _frames.encode(table, SCHEMA)
    np.testing.assert_array_equal(encoded, _frames.encode(as_csv(table), SCHEMA))
    assert encoded.shape == (3, 6) and encoded[0, 0] != 0


COLOURS = {
    "category": pd.Series(["green", None, "red"]).astype("category"),
    "category with others": pd.Series(pd.Categorical(["green", None, "red"], categories=["x", "red", "green"])),
    "string": pd.Series(["green", None, "red"], dtype="string"),
    "object": pd.Series(["green", np.nan, "red"], dtype="object"),
    "spaces": pd.Series([" green", "NA", "red "]),
}


@pytest.mark.parametrize("kind", COLOURS)
def test_categories_of_every_type_are_those_of_the_csv_file(kind):
    table = frame().reset_index(drop=True).assign(colour=COLOURS[kind])
    np.testing.assert_array_equal(_frames.encode(table, SCHEMA), FEATURES)
    np.testing.assert_array_equal(_frames.encode(as_csv(table), SCHEMA), FEATURES)


def test_booleans_of_every_type_are_encoded_by_name():
    for dtype in ["bool", "boolean", "object", "category"]:
        table = frame().assign(member=pd.Series([True, False, True], dtype=dtype, index=[9, 3, 5]))
        np.testing.assert_array_equal(_frames.encode(table, SCHEMA), FEATURES)


def test_dates_and_numbers_have_the_texts_of_the_csv_file():
    times = pd.to_datetime(["2020-01-01", None, "2020-02-03"])
    columns = {
        "date": times,
        "time": times + pd.Timedelta(hours=1),
        "zone": times.tz_localize("UTC"),
        "whole": [1.0, np.nan, 2.0],
        "number": [1, 2, 3],
        "mixed": pd.Series([1, True, "x"], dtype=object),
    }
    table = pd.DataFrame(columns)
    text = as_csv(table)
    for name in columns:
        values = sorted(set(text[name]) - {""})
        schema = {"columns": [{"name": name, "type": "category", "values": values}]}
        encoded = _frames.encode(table[[name]], schema)
        np.testing.assert_array_equal(encoded, _frames.encode(text[[name]], schema), name)
        assert encoded.sum() == (text[name] != "").sum()


def test_the_order_of_columns_does_not_matter():
    np.testing.assert_array_equal(_frames.encode(frame()[["income", "note", "member", "colour", "weight", "age"]], SCHEMA), FEATURES)


def test_prediction_needs_neither_the_target_nor_ignored_columns():
    np.testing.assert_array_equal(_frames.encode(frame().drop(columns=["income", "note"]), SCHEMA), FEATURES)
    np.testing.assert_array_equal(_frames.encode(frame(income=["?", "other", None]), SCHEMA), FEATURES)


def test_labels_are_indices_of_the_classes_of_the_schema():
    for table, y in [
        (frame(), None),
        (frame(), frame()["income"]),
        (frame().drop(columns="income"), frame()["income"]),
        (frame().drop(columns="income"), ["high", "low", "low"]),
        (frame(income="?"), np.array(["high", "low", "low"], dtype=object)),
        (frame().drop(columns="income"), pd.Categorical(["high", "low", "low"])),
    ]:
        features, classes, names = _frames.encode_labelled(table, y, SCHEMA)
        np.testing.assert_array_equal(features, FEATURES)
        np.testing.assert_array_equal(classes, [1, 0, 0])
        assert names == ["low", "high"] and features.dtype == np.float32 and features.flags.c_contiguous


def test_a_schema_is_a_file_a_text_or_a_dictionary(tmp_path):
    path = tmp_path / "people.toml"
    path.write_text(SCHEMA)
    number = dict(name="age", type="number", clip=(0, np.float64(100)), center=40, scale=20.0, missing=0.25)
    colour = {"name": "colour", "type": "category", "values": np.array(["red", "green"])}
    dictionary = {"others": "ignore", "columns": [number, {"name": "weight", "type": "number", "missing": -1}, colour]}
    for schema in [path, str(path), SCHEMA, _frames.read_schema(path)]:
        np.testing.assert_array_equal(_frames.encode(frame(), schema), FEATURES)
    np.testing.assert_array_equal(_frames.encode(frame(), dictionary), FEATURES[:, :4])


def test_bad_schemas_are_refused(tmp_path):
    for schema, error, message in [
        ("no_such_file.toml", ValueError, "no_such_file.toml"),
        (tmp_path, ValueError, str(tmp_path)),
        ("columns = 3\n", ValueError, "schema"),
        ("target = 'x'\ncolumns = [{ name = 'a', type = 'number' }]", ValueError, "the target `x` is not one of the 1 columns"),
        ({}, ValueError, "columns"),
        ({"columns": [{"name": "a", "type": "date"}]}, ValueError, "date"),
        ({"columns": [{"name": "a", "type": "number", "scale": 0}]}, ValueError, "scale"),
        ({"columns": object()}, TypeError, "schema must have"),
        (5, TypeError, "schema must be"),
        (None, TypeError, "schema must be"),
        (b"columns = 3", TypeError, "schema must be"),
    ]:
        with pytest.raises(error, match=message.replace("\\", "\\\\")):
            _frames.encode(frame(), schema)


def test_values_that_the_schema_does_not_permit_are_refused():
    for table, message in [
        (frame(colour=["green", "red", "blue"]), r"the table, row 3, column 3 \(colour\): must be one of `red`, `green`, got `blue`\nhint: .*unknown"),
        (frame(age=[60, "old", 3]), r"row 2, column 1 \(age\): must be a finite number, got `old`"),
        (frame(age=[60, np.inf, 3]), r"row 2, column 1 \(age\): must be a finite number, got `inf`"),
        (frame(member=[1.0, 0.0, 1.0]), r"row 1, column 4 \(member\): must be one of `True`, `False`, got `1.0`"),
        (frame(other=1), "the column `other` is not in the schema"),
        (frame().drop(columns="age"), "no column `age`"),
        (frame().iloc[:0], "record"),
        (pd.concat([frame(), frame()[["age"]]], axis=1), "the column `age` occurs twice"),
    ]:
        with pytest.raises(ValueError, match=message):
            _frames.encode(table, SCHEMA)
        with pytest.raises(ValueError):
            _frames.encode_labelled(table, None, SCHEMA)


def test_bad_labels_are_refused():
    for y, message in [
        (["high", "low", "middle"], r"\(income\): must be one of `low`, `high`, got `middle`"),
        (["high", None, "low"], r"\(income\): must be one of"),
        (["high", "low"], "one value for each row, got 2 values for 3 rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            _frames.encode_labelled(frame(), y, SCHEMA)
    with pytest.raises(ValueError, match="no target with classes"):
        _frames.encode_labelled(frame(), None, "others = 'ignore'\ncolumns = [{ name = 'age', type = 'number' }]")


def test_input_that_is_not_a_data_frame_is_refused():
    for table in [np.ones((3, 6)), [[1]], {"age": [1]}, None, pd.Series([1])]:
        with pytest.raises(TypeError, match="X must be a pandas data frame"):
            _frames.encode(table, SCHEMA)
    with pytest.raises(ValueError, match="several levels"):
        _frames.encode(pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])), SCHEMA)
    with pytest.raises(ValueError, match="texts"):
        _frames.encode(pd.DataFrame({"review": ["good"]}), "columns = [{ name = 'review', type = 'text' }]")


def test_column_names_that_are_numbers_are_converted_to_texts():
    encoded = _frames.encode(pd.DataFrame({0: [1.5], 1: [2.5]}), {"columns": [{"names": ["1", "0"], "type": "number"}]})
    np.testing.assert_array_equal(encoded, [[2.5, 1.5]])


def test_examples_in_docstrings_are_correct():
    assert doctest.testmod(_frames).failed == 0
