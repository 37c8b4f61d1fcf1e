"""pandas data frames, encoded by a public schema in the same way as a CSV file with the same table."""

from __future__ import annotations

import json
import os
from typing import Any, List, Mapping, Optional, Tuple, Union

import numpy as np

from ._sordino import Schema

SchemaLike = Union[str, "os.PathLike[str]", Mapping[str, Any], Schema]


def read_schema(schema: SchemaLike) -> Schema:
    """Reads a schema from a TOML file, from TOML text, or from a dictionary with the same keys.

    A string with a newline or an equals sign is TOML text. Any other string is a path.

    >>> schema = read_schema({"target": "y", "columns": [
    ...     {"name": "age", "type": "number", "scale": 100},
    ...     {"name": "y", "type": "category", "values": ["no", "yes"]},
    ... ]})
    >>> schema.target, schema.classes, schema.features
    ('y', ['no', 'yes'], 1)
    """
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        try:
            return Schema.from_json(json.dumps(dict(schema), default=_plain))
        except TypeError as error:
            raise TypeError(f"schema must have only strings, numbers and lists as values: {error}") from None
    if isinstance(schema, str) and ("\n" in schema or "=" in schema):
        return Schema.from_toml(schema)
    if isinstance(schema, (str, os.PathLike)):
        return Schema.read(os.fspath(schema))
    raise TypeError(f"schema must be the path of a TOML file, TOML text or a dictionary, got {type(schema).__name__}")


def to_table(frame: Any, target: Optional[Tuple[str, Any]] = None) -> List[Tuple[str, Any]]:
    """The columns of a data frame with their names, for the extension module. The index is not a column.

    ``target`` is the name and the values of a column. They replace the values of this column in the frame.

    >>> import pandas as pd
    >>> to_table(pd.DataFrame({"age": [31, 42], "colour": ["red", None]}))
    [('age', array([31, 42])), ('colour', ['red', None])]
    """
    names = _names(frame)
    if target is None:
        return [(name, _column(frame.iloc[:, place])) for place, name in enumerate(names)]
    import pandas as pd

    name, values = target
    values = values if isinstance(values, pd.Series) else pd.Series(values)
    if len(values) != len(frame):
        raise ValueError(f"y must have one value for each row, got {len(values)} values for {len(frame)} rows")
    kept = [(other, _column(frame.iloc[:, place])) for place, other in enumerate(names) if other != name]
    return [*kept, (name, _column(values))]


def encode(frame: Any, schema: SchemaLike) -> np.ndarray:
    """The features of a data frame as an array of float32. The target is not read and may be absent.

    >>> import pandas as pd
    >>> text = '''
    ... columns = [{ name = "age", type = "number", scale = 10 }, { name = "colour", type = "category", values = ["red", "green"] }]
    ... '''
    >>> encode(pd.DataFrame({"colour": ["green", None], "age": [5, 30]}), text)
    array([[0.5, 0. , 1. ],
           [3. , 0. , 0. ]], dtype=float32)
    """
    return read_schema(schema).encode(to_table(frame))


def encode_labelled(frame: Any, y: Any, schema: SchemaLike) -> Tuple[np.ndarray, np.ndarray, List[str]]:
    """The features of a data frame, the class index of each record, and the public classes of the schema's target.

    ``y`` has the values of the target. If it is None, the frame must have a column with them.
    """
    schema = read_schema(schema)
    if schema.classes is None or schema.target is None:
        raise ValueError(
            "the schema has no target with classes\nhint: set target to the column to predict, and give this column type = \"category\" and values"
        )
    features, classes = schema.encode_labelled(to_table(frame, None if y is None else (schema.target, y)))
    return features, classes, schema.classes


def unit_of(schema: SchemaLike) -> Optional[str]:
    """The name of the column that identifies the unit of privacy, or None.

    >>> unit_of({"unit": "person", "columns": [{"name": "age", "type": "number"}]})
    'person'
    """
    facts = json.loads(read_schema(schema).to_json())
    unit = facts.get("unit")
    # Without a header, columns are referred to by their number from 1.
    return facts["columns"][unit - 1]["name"] if isinstance(unit, int) else unit


def units_in(frame: Any, schema: SchemaLike) -> Optional[Any]:
    """The column of a data frame with the units of privacy, or None if the schema has no unit."""
    unit = unit_of(schema)
    if unit is None:
        return None
    names = _names(frame)
    if names.count(unit) != 1:
        raise ValueError(
            f"the unit of the schema, `{unit}`, must be a column of X\nhint: add the column, give the units of privacy as fit(..., units=...), or remove unit "
            "from the schema if every record is a unit"
        )
    return frame.iloc[:, names.index(unit)]


def target_scale(schema: SchemaLike) -> Optional[Tuple[float, float, Optional[Tuple[float, float]]]]:
    """The center, the scale and the bounds of a target that is a number, or None.

    >>> target_scale({"target": "y", "columns": [{"name": "x", "type": "number"}, {"name": "y", "type": "number", "center": 50, "scale": 10}]})
    (50.0, 10.0, None)
    """
    schema = read_schema(schema)
    for column in json.loads(schema.to_json())["columns"]:
        if column["name"] == schema.target and column["type"] == "number":
            return column["center"], column["scale"], tuple(column["clip"]) if column.get("clip") else None
    return None


def columns_read(schema: SchemaLike) -> List[str]:
    """The names of the columns from which features are made, in the order of the schema.

    >>> columns_read({"target": "y", "columns": [{"name": ["id", "phone"], "type": "ignore"}, {"name": "age", "type": "number"}, {"name": "y", "type": "number"}]})
    ['age']
    """
    schema = read_schema(schema)
    columns = json.loads(schema.to_json())["columns"]
    return [column["name"] for column in columns if column["type"] != "ignore" and column["name"] != schema.target]


def _names(frame: Any) -> List[str]:
    if not (hasattr(frame, "iloc") and hasattr(frame, "columns")):
        dense = "X.toarray()" if hasattr(frame, "toarray") else "X"
        raise TypeError(
            f"with a schema, X must be a pandas data frame, got {type(frame).__name__}\n"
            f"hint: pd.DataFrame({dense}, columns=[...]) with the names in the schema; or remove the schema"
        )
    if getattr(frame.columns, "nlevels", 1) != 1:
        raise ValueError("the columns of X have several levels\nhint: give each column one name")
    return [str(name) for name in frame.columns]


def _column(series: Any) -> Any:
    """A column as an array of numbers, as indices into a list of strings, or as a list of strings. Missing values are NaN, -1 or None."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return series.cat.codes.to_numpy(np.int64), [str(text) for text in series.cat.categories]
    if isinstance(dtype, np.dtype):
        if dtype == np.float64 or dtype == np.float32:
            return series.to_numpy(dtype.newbyteorder("="))
        if dtype.kind in "iu" and dtype != np.uint64:
            return series.to_numpy(np.int64)
        if dtype.kind == "b":
            return series.to_numpy(np.int64), ["False", "True"]
    missing = series.isna().to_numpy(bool)
    # Dates have the same text as in a CSV file: without the time if all times of the column are midnight.
    values = series.astype(str).tolist() if dtype.kind in "mM" else list(series.array)
    return [None if absent else str(value) for value, absent in zip(values, missing.tolist())]


def _plain(value: Any) -> Any:
    """NumPy values and paths as JSON values."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is not one of them")
