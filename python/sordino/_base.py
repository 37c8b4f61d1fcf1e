"""The base classes of scikit-learn, or minimal replacements if it is not installed."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

from ._arrays import check_text

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d, validate_data

    def check_names(estimator: Any, x: Any, reset: bool) -> None:
        """Sets or checks ``n_features_in_`` and ``feature_names_in_``."""
        validate_data(estimator, x, reset=reset, skip_check_array=True)

    def check_labels(y: Any) -> np.ndarray:
        """The labels of a classifier, as an array with one axis."""
        y = column_or_1d(y, warn=True)
        check_text(y)
        try:
            check_classification_targets(y)
        except TypeError:
            raise ValueError("y has labels of different types\nhint: use one type for all labels") from None
        return y

    def check_column(estimator: Any, y: np.ndarray) -> np.ndarray:
        """The targets of a regressor; a single column becomes an array with one axis."""
        return column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y

except ImportError:
    import inspect

    class NotFittedError(ValueError, AttributeError):  # type: ignore[no-redef]
        """Raised if a model is used before it is fitted."""

    class BaseEstimator:  # type: ignore[no-redef]
        """Gets and sets the parameters of the constructor by name."""

        def get_params(self, deep: bool = True) -> Dict[str, Any]:
            """The parameters of the constructor."""
            return {name: getattr(self, name) for name in inspect.signature(type(self).__init__).parameters if name != "self"}

        def set_params(self, **params: Any) -> "BaseEstimator":
            """Sets parameters of the constructor."""
            known = self.get_params()
            for name, value in params.items():
                if name not in known:
                    raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {sorted(known)!r}.")
                setattr(self, name, value)
            return self

        def __repr__(self) -> str:
            defaults = inspect.signature(type(self).__init__).parameters
            changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value is not defaults[name].default]
            return f"{type(self).__name__}({', '.join(changed)})"

        def __getstate__(self) -> Dict[str, Any]:
            return dict(self.__dict__)

        def __setstate__(self, state: Dict[str, Any]) -> None:
            self.__dict__.update(state)

    class ClassifierMixin:  # type: ignore[no-redef]
        """The score of a classifier."""

        _estimator_type = "classifier"

        def score(self, X: Any, y: Any) -> float:
            """The accuracy."""
            return float(np.mean(self.predict(X) == np.asarray(y)))  # type: ignore[attr-defined]

    class RegressorMixin:  # type: ignore[no-redef]
        """The score of a regressor."""

        _estimator_type = "regressor"

        def score(self, X: Any, y: Any) -> float:
            """The coefficient of determination."""
            y = np.asarray(y, dtype=np.float64)
            error, total = np.sum((y - self.predict(X)) ** 2), np.sum((y - y.mean(axis=0)) ** 2)  # type: ignore[attr-defined]
            return float(1.0 - error / total) if total > 0.0 else 0.0

    def check_names(estimator: Any, x: Any, reset: bool) -> None:
        """Sets or checks ``n_features_in_`` and ``feature_names_in_``."""
        count, names = np.shape(x)[1] if np.ndim(x) > 1 else 0, getattr(x, "columns", None)
        if reset:
            estimator.n_features_in_ = count
            if names is not None:
                estimator.feature_names_in_ = np.asarray(names, dtype=object)
            elif hasattr(estimator, "feature_names_in_"):
                del estimator.feature_names_in_
        elif count != getattr(estimator, "n_features_in_", count):
            name = type(estimator).__name__
            raise ValueError(f"X has {count} features, but {name} is expecting {estimator.n_features_in_} features as input.")
        elif names is not None and list(names) != list(getattr(estimator, "feature_names_in_", names)):
            raise ValueError("The feature names should match those that were passed during fit.")

    def check_labels(y: Any) -> np.ndarray:
        """The labels of a classifier, as an array with one axis."""
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"y must have one axis, got shape {y.shape}")
        check_text(y)
        return y

    def check_column(estimator: Any, y: np.ndarray) -> np.ndarray:
        """The targets of a regressor; a single column becomes an array with one axis."""
        return y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
