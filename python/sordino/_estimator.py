"""What the two estimators have in common."""

from __future__ import annotations

import contextlib
import json
import numbers
import os
import tempfile
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, Union

import numpy as np

from . import _arrays, _settings
from ._base import BaseEstimator, NotFittedError, check_names
from ._progress import progress_callback
from ._sordino import Data, Fitted
from ._sordino import fit as _fit
from .guarantee import Guarantee, counted_if_interrupted, note_use

Path = Union[str, "os.PathLike[str]"]

PARAMETERS = """
    Parameters
    ----------
    model : str, dict or None
        The name of a model with its options, such as ``"logistic"``, ``"mlp"`` or ``"vit-tiny,patch=4"``; a network as a dictionary with ``input``
        and ``layers``. The default depends on the shape of the records.
    hidden : sequence of int or None
        The widths of the hidden layers. The default of ``model`` is then ``"mlp"``.
    epsilon, delta : float or None
        The privacy budget. By default, delta is 1e-5, and epsilon is 1 unless ``settings`` has a ``noise_multiplier``.
    algorithm : str or None
        The name of an algorithm with its options. The default is ``"dp-sgd"``.
    max_grad_norm : float or None
        The clipping norm for the gradient of each record.
    epochs : float or None
        The expected number of passes over the training records.
    batch_size : int or None
        The expected batch size.
    learning_rate : float or None
        The learning rate, for gradients divided by the expected batch size.{own}
    schema : str, path, dict or None
        The public schema of a pandas data frame: columns, categories and scales. The categories of its target are the ``classes``, if ``classes`` is not
        given.
    unit : str or None
        The name of the unit of privacy, such as ``"patient"``. It requires ``fit(..., units=...)``, or a schema with a ``unit``. By default, it is the unit
        of the schema; without one, each record is a unit.
    run_folder : path or None
        A new folder for the run, with a ledger and checkpoints. A run that was stopped is resumed by ``fit(X, y, resume=True)``.
    progress : bool, callable or None
        None shows a progress bar if tqdm is installed and standard error is a terminal. A function is called with the number of completed steps, the
        total number of steps, and the last score or None, at most every 50 ms. An exception in the function stops training.
    seed : int or None
        Makes training reproducible and NOT PRIVATE. By default, all randomness comes from the operating system.
    settings : dict or None
        Any other setting of ``sordino train`` by name, such as ``{{"optimizer": "adam", "noise_multiplier": 1.1}}``.
"""

NOTES = """
    Notes
    -----
    float32 and uint8 arrays that are C-contiguous are not copied. Images of uint8 (arrays with 3 or 4 axes) are divided by 255; all other
    numbers are used as they are. Scale features by public constants: a pipeline step that is fitted to the records, such as
    ``StandardScaler``, is NOT covered by the guarantee. Do not change the arrays while a model is fitted: the guarantee still
    holds, but the model is then trained on a mixture of old and new values.

    Ctrl-C stops training after the current step and raises ``KeyboardInterrupt``. The whole plan counts as spent; with a ``run_folder``, the run can be
    resumed.

    Every fit has a privacy cost, and the costs of all fits on the same records add up. Later fits in a process on records of the same shape issue a
    :class:`sordino.PrivacyWarning` with the total cost. ``GridSearchCV`` and cross-validation fit many models; the command ``sordino tune`` searches at a lower
    cost. ``score`` on private records is exact, so its result is NOT covered by the guarantee: use public records, or ``fit(..., test=...)``,
    which adds noise.
"""


# The arguments that replace settings for data in files.
_ARGUMENTS = {
    "data": "fit(X, y)",
    "classes": "classes=[...]",
    "schema": "schema=...",
    "target": "fit(X, y)",
    "unit": "unit=... and fit(..., units=...)",
    "mean": "fit((X - mean) / std, y) with public constants",
    "std": "fit((X - mean) / std, y) with public constants",
    "test_data": "fit(..., test=(X, y))",
    "test_fraction": "fit(..., test=(X, y))",
    "split_seed": "fit(..., test=(X, y))",
    "test_set": "fit(..., test=(X, y), public_test=...)",
}


class PrivateEstimator(BaseEstimator):
    """The base class of both estimators."""

    def __init__(self, **params: Any) -> None:
        for name, value in params.items():
            setattr(self, name, value)

    # Fitting

    def _train(self, x: np.ndarray, data: Data, test: Any, public_test: bool, resume: bool) -> None:
        settings, test_data = self._settings(), self._test_data(test)
        folder = None if self.run_folder is None else os.fspath(self.run_folder)
        if resume:
            _settings.check_resumed(folder, settings)
            settings = {}
        with progress_callback(self.progress) as callback, counted_if_interrupted(x.shape[1:], folder):
            fitted = _fit(
                data,
                settings,
                network=json.dumps(self.model) if isinstance(self.model, Mapping) and not resume else None,
                test=test_data,
                public_test=public_test,
                run_folder=folder,
                resume=resume,
                callback=callback,
            )
        self._set(fitted)

    def _count(self, axes: Tuple[int, ...]) -> None:
        note_use(axes, self.guarantee_, None if self.run_folder is None else os.fspath(self.run_folder))

    @contextlib.contextmanager
    def _unchanged_if_it_fails(self) -> Iterator[None]:
        """Restores all attributes after an exception: an estimator has either its old or its new model."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _set(self, fitted: Fitted) -> None:
        self._fitted, self.guarantee_ = fitted, Guarantee._of(fitted)
        self.n_steps_ = int(self.guarantee_.to_dict().get("steps", 0))
        self.test_score_ = fitted.score

    def _settings(self) -> Dict[str, str]:
        if not isinstance(self.settings or {}, Mapping) or not all(isinstance(name, str) for name in self.settings or {}):
            raise ValueError(f'settings must be a dictionary of names and values, got {self.settings!r}\nhint: settings={{"optimizer": "adam"}}')
        settings = {name: value for name, value in (self.settings or {}).items() if name != "records_per_unit"}
        _settings.check(settings, _ARGUMENTS)
        hidden = self.hidden
        named = {
            "model": None if isinstance(self.model, Mapping) else self.model,
            "hidden": [hidden] if isinstance(hidden, numbers.Integral) else hidden,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "algorithm": self.algorithm,
            "max_grad_norm": self.max_grad_norm,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "seed": self.seed,
        }
        if named["hidden"] is not None and self.model is None:
            named["model"] = "mlp"
        for name, value in named.items():
            if value is None:
                continue
            if name in settings:
                raise ValueError(f"{name} is given twice\nhint: leave it out of settings")
            settings[name] = value
        return {name: _settings.text(value) for name, value in settings.items()}

    def _records(self, x: Any, reset: bool) -> np.ndarray:
        if self.schema is not None:
            from . import _frames

            x = _frames.encode(x, self.schema)
        elif getattr(self, "_unknown_names", False) and not reset and hasattr(x, "columns"):
            raise ValueError(
                "it is not known which columns the model reads, so the names in X cannot be checked\n"
                "hint: give an array with the features in the order of training: X[[...]].to_numpy()"
            )
        if reset:
            self._unknown_names = False
        array = _arrays.as_records(x)
        if self.schema is None:
            check_names(self, x if hasattr(x, "columns") else array, reset)
        elif reset:
            self.n_features_in_, self.feature_names_in_ = array.shape[1], np.array(_frames.columns_read(self.schema), dtype=object)
        elif array.shape[1] != self.n_features_in_:
            raise ValueError(f"the schema makes {array.shape[1]} features of X, but the model reads {self.n_features_in_}\nhint: use the schema of training")
        return array

    def _preparation(self, x: np.ndarray, labels: Optional[str] = None) -> str:
        """What prediction needs after ``load``, which is stored with the model."""
        made: Dict[str, Any] = {"axes": x.shape[1:], "labels": labels}
        if self.schema is not None:
            from ._frames import read_schema

            made["schema"] = read_schema(self.schema).to_json()
        elif all(isinstance(name, str) for name in getattr(self, "feature_names_in_", [None])):
            made["features"] = self.feature_names_in_.tolist()
        return json.dumps(made)

    def _units(self, x: Any, units: Any) -> Dict[str, Any]:
        """The units of privacy: ``units``, or else the column of ``x`` that the schema names."""
        settings, unit = self.settings if isinstance(self.settings, Mapping) else {}, self.unit
        if self.schema is not None:
            from ._frames import unit_of, units_in

            named = unit_of(self.schema)
            if units is None and None not in (unit, named) and unit != named:
                raise ValueError(f"unit is {unit!r}, but the unit of the schema is {named!r}\nhint: remove one of them, or give fit(..., units=...)")
            units, unit = units_in(x, self.schema) if units is None else units, unit or named
        return _arrays.units(units, unit, settings.get("records_per_unit"))

    # Predicting

    def _data(self, x: Any) -> Data:
        self._check_fitted()
        return Data(self._records(x, reset=False))

    def _check_fitted(self) -> None:
        if not hasattr(self, "_fitted"):
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before using it.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def parameters(self) -> Dict[str, np.ndarray]:
        """The trained parameters by name."""
        self._check_fitted()
        return self._fitted.parameters()

    # Storing

    def save(self, path: Path) -> None:
        """Writes the model to one safetensors file: weights, public facts about the data and the guarantee. ``sordino.load`` reads it."""
        self._check_fitted()
        self._fitted.save(os.fspath(path))

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(super().__getstate__())
        if isinstance(state.get("_fitted"), Fitted):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "model.safetensors")
                self._fitted.save(path)
                with open(path, "rb") as file:
                    state["_fitted"] = file.read()
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        if isinstance(state.get("_fitted"), bytes):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "model.safetensors")
                with open(path, "wb") as file:
                    file.write(state["_fitted"])
                state = {**state, "_fitted": Fitted.load(path)}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.seed is None
        tags.target_tags.required = True
        return tags
