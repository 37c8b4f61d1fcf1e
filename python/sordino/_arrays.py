"""Arrays for the extension module. C-contiguous arrays of float32 or uint8 are not copied."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np


def as_records(x: Any) -> np.ndarray:
    """The records of ``x`` as a C-contiguous array of float32 or uint8. Other arrays are copied and converted."""
    if hasattr(x, "toarray") and hasattr(x, "nnz"):
        raise TypeError("X must be dense: sparse arrays are not supported\nhint: use X.toarray()")
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise ValueError("X has masked values\nhint: replace them by a public constant such as 0: X.filled(0)")
    x = np.asarray(x)
    _check_axes(x)
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    if x.dtype.kind not in "fiubO":
        raise ValueError(f"X must have numbers, got dtype {x.dtype}\nhint: encode text and dates as numbers, or give a schema")
    try:
        with np.errstate(over="ignore"):
            return np.require(x, dtype=np.float32, requirements=["C", "A"])
    except (TypeError, ValueError) as error:
        if "NAType" in str(error):
            raise TypeError(
                "X has missing values (pd.NA)\nhint: replace them by a public constant: X.fillna(0), or give a schema in which the column has missing = 0.0"
            ) from None
        raise type(error)(f"X must have numbers: {error}\nhint: encode text as numbers, or give a schema") from None


def _check_axes(x: np.ndarray) -> None:
    if x.dtype.kind == "c":
        raise ValueError("Complex data not supported\nhint: give the real and the imaginary part as two features")
    if x.ndim < 2:
        raise ValueError(
            f"Expected 2D array, got {'scalar' if x.ndim == 0 else '1D'} array instead\n"
            "hint: Reshape your data: X.reshape(-1, 1) if it has one feature, X.reshape(1, -1) if it is one record"
        )
    if x.ndim > 4:
        raise ValueError(f"X must have 2 axes (features), or 3 or 4 axes (images), got {x.ndim}: dim too large\nhint: flatten the records: X.reshape(len(X), -1)")
    if x.shape[0] == 0:
        raise ValueError(f"Found array with 0 sample(s) (shape={x.shape}) while a minimum of 1 is required.")
    if 0 in x.shape[1:]:
        raise ValueError(f"Found array with 0 feature(s) (shape={x.shape}) while a minimum of 1 is required.")


def class_numbers(y: np.ndarray, classes: Any) -> Tuple[np.ndarray, np.ndarray]:
    """The sorted classes, and the class index of each label. Without ``classes``, they are taken from ``y``."""
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        place = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(f"y[{place}]: must be a label, got {y[place]}: Input y contains NaN or infinity\nhint: leave the record out")
    if classes is None:
        try:
            known, numbers = np.unique(y, return_inverse=True)
        except TypeError:
            raise ValueError("y has labels of different types\nhint: use one type for all labels") from None
        return known, numbers.astype(np.uint32).reshape(-1)
    if np.ndim(classes) != 1:
        raise ValueError(f"classes must be a list of all possible labels, got {classes!r}\nhint: classes=[\"no\", \"yes\"], or classes=[0, 1]")
    known = np.unique(np.asarray(classes))
    if len(known) == 0:
        raise ValueError("classes must list all possible labels, got an empty list\nhint: classes=[\"no\", \"yes\"]")
    numbers = np.minimum(np.searchsorted(known, y), len(known) - 1)
    wrong = np.flatnonzero(known[numbers] != y)
    if len(wrong):
        place, shown = int(wrong[0]), ", ".join(map(repr, known[:5].tolist())) + (", ..." if len(known) > 5 else "")
        label = y[place : place + 1].tolist()[0]
        same_type = isinstance(label, str) == isinstance(known.tolist()[0], str)
        hint = "add it to classes, or correct the label" if same_type else "give classes and y the same type: numbers, or texts"
        raise ValueError(f"y[{place}]: must be one of {shown}, got {label!r}\nhint: {hint}")
    return known, numbers.astype(np.uint32)


def as_targets(y: Any) -> np.ndarray:
    """The targets of a regressor, as a C-contiguous array of float64 with one or two axes."""
    try:
        y = np.require(np.asarray(y), dtype=np.float64, requirements=["C", "A"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must have numbers: {error}\nhint: give the targets as floats") from None
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise ValueError(f"y must be an array of shape [n] or [n, numbers], got {list(y.shape)}")
    bad = np.flatnonzero(~np.isfinite(y))
    if len(bad):
        place = ", ".join(str(int(index)) for index in np.unravel_index(bad[0], y.shape))
        raise ValueError(f"y[{place}]: must be a finite number, got {y.flat[bad[0]]}: Input y contains NaN or infinity\nhint: leave the record out")
    return y


def units(units: Any, unit: Optional[str], records_per_unit: Optional[int]) -> Dict[str, Any]:
    """The units of privacy of the records, for the extension module. Every record must have a unit."""
    if units is None:
        for name, value in (("unit", unit), ("records_per_unit", records_per_unit)):
            if value is not None:
                raise ValueError(f"{name} is {value!r}, but fit got no units\nhint: give the unit of privacy of each record: fit(..., units=...)")
        return {}
    ids = np.asarray(units)
    if ids.ndim != 1:
        raise ValueError(f"units must have one axis, got {ids.ndim}\nhint: give one identifier for each record")
    names = ids.tolist()
    for place, name in enumerate(names):
        # NaN and NaT are not equal to themselves.
        if name is None or name != name or (isinstance(name, str) and not name.strip()):
            raise ValueError(
                f"units[{place}] is missing\nhint: give every record a unit of privacy; if the unit of a record is not known, give the record its own "
                "identifier, because records with the same identifier are protected as one unit"
            )
    return {"unit": unit or "unit", "ids": [str(name) for name in names], "records_per_unit": records_per_unit}


def as_test(test: Any, units: Any) -> Optional[Tuple[Any, Any, Any]]:
    """The test records, their labels and their units of privacy or None. They have units if the training records, with these ``units``, have them."""
    if test is None:
        return None
    if not isinstance(test, (tuple, list)) or len(test) not in (2, 3):
        got = f"{len(test)} values" if isinstance(test, (tuple, list)) else type(test).__name__
        raise ValueError(f"test must be a pair (X, y), or (X, y, units), got {got}\nhint: test=(X_test, y_test)")
    x, y, own = test if len(test) == 3 else (*test, None)
    if units is not None and own is None:
        raise ValueError("units are given for the training records, but not for the test records\nhint: test=(X_test, y_test, units_test)")
    return x, y, own


def check_other_records(x: Any, test: Any) -> None:
    """Refuses test records that are also training records. The guarantee assumes that a record is in only one of the two sets."""
    if test is None:
        return
    first, second = (value if isinstance(value, np.ndarray) else None for value in (x, test[0]))
    same = x is test[0]
    if first is not None and second is not None:
        try:
            same = same or np.shares_memory(first, second, max_work=10_000)
        except Exception:  # max_work was exceeded, so it is not known whether the arrays overlap.
            pass
    if same:
        raise ValueError("test has records of X\nhint: a record must not be both a training record and a test record; split the records first")


def check_lengths(x: np.ndarray, y: np.ndarray) -> None:
    """Refuses a number of labels that differs from the number of records."""
    if len(x) != len(y):
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[len(x), len(y)]}\nhint: give one label for each record, in the same order"
        )


def names_of(classes: np.ndarray) -> List[str]:
    """The names of the classes, for the extension module."""
    return [str(name) for name in classes.tolist()]


def check_text(y: np.ndarray) -> None:
    """Refuses labels of bytes, which are not texts."""
    if y.dtype.kind == "S" or (y.dtype.kind == "O" and any(isinstance(label, bytes) for label in y.tolist())):
        raise ValueError("y has labels of bytes, which are not supported\nhint: decode them: np.char.decode(y)")


def type_of(classes: np.ndarray) -> Optional[str]:
    """The type of classes, by which ``classes_of`` makes them of their names again; None if it cannot.

    >>> type_of(np.array([False, True])), classes_of(["False", "True"], "|b1")
    ('|b1', array([False,  True]))
    """
    kind = classes.dtype.str
    if classes.dtype.kind == "O":
        kinds = {type(name).__name__ for name in classes.tolist()}
        kind = f"object:{kinds.pop()}" if len(kinds) == 1 else ""
    try:
        again = classes_of(names_of(classes), kind)
    except (TypeError, ValueError, OverflowError):
        return None
    same = again.dtype == classes.dtype and again.tolist() == classes.tolist()
    return kind if same else None


def classes_of(names: Sequence[str], kind: Optional[str]) -> np.ndarray:
    """Classes of their names: of this type, or texts if it is not known."""
    if not kind:
        return np.array(names)
    dtype = np.dtype(object if kind.startswith("object:") else kind)
    parse = _PARSERS.get(kind if dtype.kind == "O" else dtype.kind, str)
    classes = np.empty(len(names), dtype)
    classes[:] = [parse(name) for name in names]
    return classes


def numbers_of(names: Sequence[str]) -> np.ndarray:
    """The numbers that the classes of a schema are, for labels that are numbers."""
    for kind in (int, float):
        try:
            numbers = np.array([kind(name) for name in names])
        except ValueError:
            continue
        if len(np.unique(numbers)) < len(names):
            raise ValueError(
                f"the classes {', '.join(names[:5])} of the schema are not different numbers, but y has numbers\nhint: give y as texts: y.astype(str)"
            )
        return numbers
    return np.array(names)


def _boolean(name: str) -> bool:
    return name == "True"


# By the kind of an array, and by the type of the values in an array of objects.
_PARSERS: Dict[str, Callable[[str], Any]] = {
    "i": int,
    "u": int,
    "f": float,
    "b": _boolean,
    "object:int": int,
    "object:float": float,
    "object:bool": _boolean,
}
