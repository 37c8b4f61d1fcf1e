"""The privacy guarantee of a trained model, and the total privacy cost of several models."""

from __future__ import annotations

import contextlib
import decimal
import html
import json
import math
import multiprocessing
import os
import re
import threading
import warnings
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple


class PrivacyWarning(UserWarning):
    """Warns that another fit on the same records adds to their privacy cost."""


class Guarantee:
    """The privacy guarantee of a trained model.

    ``str(guarantee)`` is the statement to publish. Notebooks show the guarantee as a table.

    Attributes
    ----------
    epsilon, delta : float or None
        The proved epsilon and its delta; None if the model is not private.
    """

    def __init__(self, statement: str, facts: Dict[str, Any]) -> None:
        self._statement, self._facts = statement, facts

    @classmethod
    def _of(cls, fitted: Any) -> "Guarantee":
        return cls(fitted.statement, json.loads(fitted.facts or "{}"))

    @property
    def epsilon(self) -> Optional[float]:
        """The proved epsilon of the whole training run; None if the model is not private."""
        return self._facts.get("epsilon")

    @property
    def delta(self) -> Optional[float]:
        """The delta of the guarantee; None if the model is not private."""
        return self._facts.get("delta")

    @property
    def private(self) -> bool:
        """Whether the model satisfies differential privacy."""
        return bool(self._facts.get("private"))

    @property
    def _unit(self) -> Tuple[Any, Any]:
        return self._facts.get("unit"), self._facts.get("records_per_unit")

    def to_dict(self) -> Dict[str, Any]:
        """All details of the guarantee, and its statement as ``statement``."""
        return {**json.loads(json.dumps(self._facts)), "statement": self._statement}

    def __str__(self) -> str:
        return self._statement

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guarantee) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self._statement)

    def _repr_html_(self) -> str:
        first, *rest = self._statement.splitlines()
        parts, rows = [f"<p><b>{html.escape(first)}</b></p>"], []
        for line in filter(None, rest):
            row = re.match(r"  (\S+(?: \S+)*)  +(.*)", line)
            if row:
                label, text = (html.escape(part) for part in row.groups())
                rows.append(f'<tr><th style="text-align: left">{label}</th><td style="text-align: left">{text}</td></tr>')
            else:
                parts.append(f"<p>{html.escape(line)}</p>")
        return f'<div class="sordino-guarantee">{"".join(parts)}<table>{"".join(rows)}</table></div>'


def total_guarantee(guarantees: Sequence[Guarantee]) -> Tuple[float, float]:
    """The total privacy cost of several models that were trained on the same records.

    This is basic composition: epsilons and deltas add up. It also holds if later runs were chosen by the results of earlier runs. If all runs
    were fixed beforehand, ``sordino.Plan.compose`` gives a smaller epsilon.

    Guarantees for different units of privacy cannot be added. For example, a guarantee for one record is not a guarantee for a person with
    several records.

    Parameters
    ----------
    guarantees : sequence of Guarantee
        The guarantees of the models.

    Returns
    -------
    epsilon, delta : float
        Infinite and 1 if one of the models is not private, or if the models protect different units of privacy.
    """
    private = all(guarantee.epsilon is not None and guarantee.delta is not None for guarantee in guarantees)
    if not private or len({guarantee._unit for guarantee in guarantees}) > 1:
        return float("inf"), 1.0
    return _sum([guarantee.epsilon or 0.0 for guarantee in guarantees]), min(_sum([guarantee.delta or 0.0 for guarantee in guarantees]), 1.0)


def _sum(values: Sequence[float]) -> float:
    """The sum of the numbers in their shortest decimal form, rounded up."""
    exact = sum(decimal.Decimal(repr(value)) for value in values)
    total = float(exact)
    return total if decimal.Decimal(repr(total)) >= exact else math.nextafter(total, math.inf)


# The fits of this process by the shape of a record: the run folder or None, and the guarantee or None if the fit was interrupted.
_uses: Dict[Tuple[int, ...], List[Tuple[Optional[str], Optional[Guarantee]]]] = {}
_lock = threading.Lock()


def note_use(shape: Tuple[int, ...], guarantee: Optional[Guarantee], run_folder: Optional[str] = None, stacklevel: int = 4) -> None:
    """Counts a fit on records of this shape, and issues a warning from the second fit on. ``stacklevel`` is that of ``warnings.warn``.

    ``guarantee`` is None if the fit was interrupted. The fit is then counted without a warning, because an exception is being raised. A run that
    is resumed in the same process is counted once.
    """
    folder = None if run_folder is None else os.path.abspath(run_folder)
    with _lock:
        uses = _uses.setdefault(shape, [])
        if folder is not None:
            uses[:] = [use for use in uses if use[0] != folder]
        uses.append((folder, guarantee))
        found = [use[1] for use in uses]
    message = _warning(shape, found)
    if guarantee is not None and message is not None:
        warnings.warn(message, PrivacyWarning, stacklevel=stacklevel)


@contextlib.contextmanager
def counted_if_interrupted(shape: Tuple[int, ...], run_folder: Optional[str]) -> Iterator[None]:
    """Counts a fit that ends with an exception, except a TypeError or ValueError that is not of the progress function: these are raised before any
    record is used."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, (TypeError, ValueError)) or getattr(error, "stopped_training", False):
            note_use(shape, None, run_folder)
        raise


def _warning(shape: Tuple[int, ...], found: List[Optional[Guarantee]]) -> Optional[str]:
    """The text of the warning after the last of these fits; None if there is no warning."""
    worker = multiprocessing.current_process().name != "MainProcess"
    if len(found) < 2 and not worker:
        return None
    shown = " x ".join(map(str, shape)) + (" features" if len(shape) == 1 else " values")
    counted = f"this is fit number {len(found)} of this process on records with {shown}"
    others = ". This is a worker process, and the fits of other processes are not counted" if worker else ""
    return (
        f"{counted}{others}. If all fits use the same records, {_total(found)}: the costs of all fits add up. "
        "Cross-validation and GridSearchCV fit many models; the command `sordino tune` searches at a lower privacy cost."
    )


def _total(found: List[Optional[Guarantee]]) -> str:
    guarantees = [guarantee for guarantee in found if guarantee is not None]
    epsilon, delta = total_guarantee(guarantees)
    models = f"the {len(found)} models together" if len(found) > 1 else "this model and those of other processes together"
    if len(guarantees) < len(found):
        return "the total is NOT KNOWN, because a fit was interrupted: count its whole privacy budget as spent"
    if not all(guarantee.private for guarantee in guarantees):
        return f"{models} have NO guarantee, because at least one of them is not private"
    if len(found) == 1:
        return f"the total is NOT KNOWN here: add ({rounded_up(epsilon, 4)}, {rounded_up(delta, 3)}) for this model to the costs of the others"
    if delta >= 1.0:
        return "the total is NOT KNOWN, because the fits protect different units of privacy"
    return f"{models} satisfy ({rounded_up(epsilon, 4)}, {rounded_up(delta, 3)})-differential privacy"


def rounded_up(value: float, digits: int) -> str:
    """A positive number, rounded up to this many significant digits."""
    return f"{float(decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING).create_decimal(repr(value))):.{digits}g}"
