"""Estimators with differential privacy and the interface of scikit-learn, and how trained ones are read."""

from __future__ import annotations

import json
import os
from typing import Union

import numpy as np

from . import _arrays
from ._estimator import Path
from ._sordino import Fitted
from .classifier import PrivateClassifier
from .regressor import PrivateRegressor

__all__ = ["PrivateClassifier", "PrivateRegressor", "load", "open"]


def load(path: Path) -> Union[PrivateClassifier, PrivateRegressor]:
    """Reads a model that ``save`` wrote.

    The result predicts and has its guarantee, its schema, the names of its features and the type of its classes. The other parameters have
    their defaults, because those of training are not stored in the file.
    """
    return _estimator(Fitted.load(os.fspath(path)))


def open(run_folder: Path) -> Union[PrivateClassifier, PrivateRegressor]:  # noqa: A001
    """Opens the model of a run, after checking that its ledger, settings and weights agree.

    The classes of a model that the command line has trained are texts. If it was trained on a table, the result reads data frames by the schema of
    the run.
    """
    return _estimator(Fitted.open(os.fspath(run_folder)))


def _estimator(fitted: Fitted) -> Union[PrivateClassifier, PrivateRegressor]:
    estimator: Union[PrivateClassifier, PrivateRegressor]
    made = json.loads(fitted.preparation or "{}")
    if fitted.classes:
        estimator = PrivateClassifier()
        estimator.classes_ = _arrays.classes_of(fitted.classes, made.get("labels"))
    else:
        estimator = PrivateRegressor()
        estimator._one_number = fitted.outputs == 1
    schema, names, axes = made.get("schema"), made.get("features"), made.get("axes", fitted.input_shape)
    if schema is not None:
        from ._frames import columns_read

        estimator.schema = json.loads(schema) if schema.startswith("{") else schema
        names = columns_read(estimator.schema)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    # The channels of an image may come first or last, if it is not known how the records were given.
    if len(axes) == 1 or "axes" in made:
        estimator.n_features_in_ = axes[0]
    estimator._unknown_names = "axes" not in made
    estimator._set(fitted)
    return estimator
