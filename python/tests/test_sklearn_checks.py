"""The estimator checks of scikit-learn.

Each estimator is checked twice: without a seed, which is the default, and with a seed, so that checks that compare two fits can pass.
"""

import pytest

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from sordino import PrivateClassifier, PrivateRegressor  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::sordino.PrivacyWarning"),
]

# Checks that fail without a seed, with the reason. With a seed, all checks pass.
NOISE = "compares the predictions of two fits, and two private fits differ"
EXPECTED_FAILURES = {
    "check_classifier_data_not_an_array": NOISE,
    "check_regressor_data_not_an_array": NOISE,
    "check_supervised_y_2d": NOISE,
    "check_regressors_int": NOISE,
    "check_fit_idempotent": NOISE,
}

ESTIMATORS = [PrivateClassifier(), PrivateRegressor(), PrivateClassifier(seed=0), PrivateRegressor(seed=0)]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES if estimator.seed is None else {})
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
