"""Training with differential privacy and proved guarantees."""

from typing import TYPE_CHECKING, Any

from . import datasets
from ._sordino import BudgetError, Plan, Price, Step, __version__, epsilon, noise_multiplier
from .guarantee import Guarantee, PrivacyWarning, total_guarantee

if TYPE_CHECKING:
    from .estimators import PrivateClassifier, PrivateRegressor, load, open  # noqa: A004

__all__ = [
    "BudgetError",
    "Guarantee",
    "Plan",
    "Price",
    "PrivacyWarning",
    "PrivateClassifier",
    "PrivateRegressor",
    "Step",
    "__version__",
    "datasets",
    "epsilon",
    "load",
    "noise_multiplier",
    "open",
    "total_guarantee",
]

# Imported on first use, because they import scikit-learn.
_LAZY = {"PrivateClassifier": "estimators", "PrivateRegressor": "estimators", "load": "estimators", "open": "estimators"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list:
    return sorted({*globals(), *__all__})
