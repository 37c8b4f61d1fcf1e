"""A regressor with differential privacy."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays
from ._base import RegressorMixin, check_column
from ._estimator import NOTES, PARAMETERS, Path, PrivateEstimator
from ._sordino import Data


class PrivateRegressor(RegressorMixin, PrivateEstimator):
    __doc__ = (
        """A regressor that is trained with differential privacy.
"""
        + PARAMETERS.format(
            own="""
    target_range : (float, float), sequence of these, or None
        The public range of ``y``, or of each of its columns. It is used to scale the targets to the range from -1 to 1. By default, they are scaled
        and clipped as the schema states for its target; without a schema, they are not scaled. Predictions are in the units of ``y`` and may lie outside the
        range."""
        )
        + """
    Attributes
    ----------
    guarantee_ : sordino.Guarantee
        The privacy guarantee. ``str(guarantee_)`` is the statement to publish, and ``guarantee_.to_dict()`` has all details.
    n_features_in_, feature_names_in_ : int, ndarray
        As in scikit-learn. With a schema, the number of features that it makes, and the names of the columns that it reads.
    n_steps_ : int
        The number of training steps.
    test_score_ : float or None
        The mean squared error on the test records, for the scaled targets.
"""
        + NOTES
        + """
    Examples
    --------
    >>> import numpy as np
    >>> from sordino import PrivateRegressor
    >>> X = np.random.default_rng(0).random((5000, 2), dtype=np.float32)
    >>> y = 100.0 * X[:, 0]
    >>> model = PrivateRegressor(epsilon=1.0, target_range=(0.0, 100.0)).fit(X, y)
    >>> bool(abs(model.predict([[0.5, 0.5]])[0] - 50.0) < 25.0)
    True
    """
    )

    def __init__(
        self,
        model: Union[str, Mapping[str, Any], None] = None,
        hidden: Union[int, Sequence[int], None] = None,
        *,
        epsilon: Optional[float] = None,
        delta: Optional[float] = None,
        algorithm: Optional[str] = None,
        max_grad_norm: Optional[float] = None,
        epochs: Optional[float] = None,
        batch_size: Optional[int] = None,
        learning_rate: Optional[float] = None,
        target_range: Any = None,
        schema: Any = None,
        unit: Optional[str] = None,
        run_folder: Optional[Path] = None,
        progress: Any = None,
        seed: Optional[int] = None,
        settings: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(
            model=model,
            hidden=hidden,
            epsilon=epsilon,
            delta=delta,
            algorithm=algorithm,
            max_grad_norm=max_grad_norm,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            target_range=target_range,
            schema=schema,
            unit=unit,
            run_folder=run_folder,
            progress=progress,
            seed=seed,
            settings=settings,
        )

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        units: Any = None,
        test: Optional[Tuple[Any, ...]] = None,
        public_test: bool = False,
        resume: bool = False,
    ) -> "PrivateRegressor":
        """Trains the model on private records.

        Parameters
        ----------
        X : array of shape (n, features), (n, height, width), (n, channels, height, width) or (n, height, width, channels)
            The training records.
        y : array of shape (n,) or (n, numbers)
            The targets.
        units : array of shape (n,) or None
            The unit of privacy of each record, such as the identifier of a person with several records. The default is the column that is the ``unit`` of
            the schema.
        test : (X, y), (X, y, units) or None
            Test records, with their units of privacy if ``units`` is given. ``test_score_`` is measured on them, with noise and within the privacy budget.
        public_test : bool
            Whether the test records are public. If they are, ``test_score_`` is exact.
        resume : bool
            Resumes the run in ``run_folder`` with the settings of this run; parameters that differ from them are refused. ``X`` and ``y`` must be those of the first call.
        """
        with self._unchanged_if_it_fails():
            test = _arrays.as_test(test, units)
            _arrays.check_other_records(X, test)
            x = self._records(X, reset=True)
            if y is None:
                raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
            targets = check_column(self, _arrays.as_targets(y))
            _arrays.check_lengths(x, targets)
            targets = self._bounded(targets)
            self._one_number = targets.ndim == 1
            data = Data(x, targets, ranges=self._ranges(targets), preparation=self._preparation(x), **self._units(X, units))
            self._train(x, data, test, public_test, resume)
        self._count(x.shape[1:])
        return self

    def _schema_scale(self, targets: np.ndarray) -> Any:
        """The center, the scale and the bounds of the target in the schema, unless ``target_range`` is given."""
        if self.schema is None or self.target_range is not None or targets.ndim != 1:
            return None
        from ._frames import target_scale

        return target_scale(self.schema)

    def _bounded(self, targets: np.ndarray) -> np.ndarray:
        """The targets, clipped to the bounds of the schema."""
        scale = self._schema_scale(targets)
        return targets if scale is None or scale[2] is None else np.clip(targets, *scale[2])

    def _ranges(self, targets: np.ndarray) -> Optional[List[Tuple[float, float]]]:
        if self.target_range is None:
            scale = self._schema_scale(targets)
            return None if scale is None else [(scale[0] - scale[1], scale[0] + scale[1])]
        try:
            ranges = np.array(self.target_range, dtype=np.float64)
        except (TypeError, ValueError):
            ranges = np.empty(0)
        width = 1 if targets.ndim == 1 else targets.shape[1]
        if ranges.shape == (2,):
            ranges = np.tile(ranges, (width, 1))
        if ranges.shape != (width, 2):
            raise ValueError(f"target_range must be a pair (low, high), or {width} of them, got {self.target_range!r}")
        return [(float(low), float(high)) for low, high in ranges]

    def _test_data(self, test: Any) -> Optional[Data]:
        if test is None:
            return None
        x, targets = self._records(test[0], reset=False), check_column(self, _arrays.as_targets(test[1]))
        _arrays.check_lengths(x, targets)
        targets = self._bounded(targets)
        return Data(x, targets, ranges=self._ranges(targets), **self._units(test[0], test[2]))

    def predict(self, X: Any) -> np.ndarray:
        """The predicted targets of each record, in the units of ``y``."""
        data = self._data(X)
        values = self._fitted.predict_values(data)
        return values[:, 0] if self._one_number else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # With few records and a small privacy budget, the noise makes scores poor.
        tags.regressor_tags.poor_score = True
        tags.target_tags.multi_output = True
        return tags
