"""A classifier with differential privacy."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays
from ._base import ClassifierMixin, check_labels
from ._estimator import NOTES, PARAMETERS, Path, PrivateEstimator
from ._sordino import Data


class PrivateClassifier(ClassifierMixin, PrivateEstimator):
    __doc__ = (
        """A classifier that is trained with differential privacy.
"""
        + PARAMETERS.format(
            own="""
    classes : sequence or None
        The public list of all classes. By default, the labels that occur in ``y`` become public, and ``guarantee_`` states this."""
        )
        + """
    Attributes
    ----------
    guarantee_ : sordino.Guarantee
        The privacy guarantee. ``str(guarantee_)`` is the statement to publish, and ``guarantee_.to_dict()`` has all details.
    classes_ : ndarray
        The classes, sorted.
    n_features_in_, feature_names_in_ : int, ndarray
        As in scikit-learn. With a schema, the number of features that it makes, and the names of the columns that it reads.
    n_steps_ : int
        The number of training steps.
    test_score_ : float or None
        The accuracy on the test records.
"""
        + NOTES
        + """
    Examples
    --------
    >>> import numpy as np
    >>> from sordino import PrivateClassifier
    >>> X = np.random.default_rng(0).random((5000, 3), dtype=np.float32)
    >>> y = X[:, 0] > 0.5
    >>> model = PrivateClassifier(epsilon=1.0, delta=1e-5, classes=[False, True]).fit(X, y)
    >>> model.guarantee_.epsilon <= 1.0
    True
    >>> model.predict([[0.9, 0.5, 0.5], [0.1, 0.5, 0.5]])
    array([ True, False])
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
        classes: Optional[Sequence[Any]] = None,
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
            classes=classes,
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
    ) -> "PrivateClassifier":
        """Trains the model on private records.

        Parameters
        ----------
        X : array of shape (n, features), (n, height, width), (n, channels, height, width) or (n, height, width, channels)
            The training records.
        y : array of shape (n,)
            The labels.
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
            labels = check_labels(y)
            _arrays.check_lengths(x, labels)
            public = self._public_classes(labels)
            self.classes_, numbers = _arrays.class_numbers(labels, public)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y has {len(self.classes_)} class; a classifier needs at least 2 classes\nhint: list all possible labels as classes=[...]"
                )
            self._observed, names = public is None, _arrays.names_of(self.classes_)
            made = self._preparation(x, _arrays.type_of(self.classes_))
            data = Data(x, numbers, classes=names, observed_classes=self._observed, preparation=made, **self._units(X, units))
            self._train(x, data, test, public_test, resume)
        self._count(x.shape[1:])
        return self

    def _public_classes(self, labels: np.ndarray) -> Any:
        """The classes that are declared, here or in the schema."""
        if self.classes is not None or self.schema is None:
            return self.classes
        from ._frames import read_schema

        names = read_schema(self.schema).classes
        if names is None or labels.dtype.kind not in "biuf":
            return names
        return _arrays.numbers_of(names) if labels.dtype.kind != "b" else [name.lower() == "true" for name in names]

    def _test_data(self, test: Any) -> Optional[Data]:
        if test is None:
            return None
        x, labels = self._records(test[0], reset=False), check_labels(test[1])
        _arrays.check_lengths(x, labels)
        numbers = _arrays.class_numbers(labels, self.classes_)[1]
        return Data(x, numbers, classes=_arrays.names_of(self.classes_), observed_classes=self._observed, **self._units(test[0], test[2]))

    def predict(self, X: Any) -> np.ndarray:
        """The class of each record."""
        data = self._data(X)
        return self.classes_[self._fitted.predict_classes(data)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class of ``classes_``, for each record."""
        data = self._data(X)
        return self._fitted.predict_proba(data)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # With few records and a small privacy budget, the noise makes scores poor.
        tags.classifier_tags.poor_score = True
        return tags
