"""The count of fits on the same records, and refused records and units of privacy."""

import os
import warnings

import numpy as np
import pytest

import sordino
from sordino import PrivacyWarning, PrivateClassifier, total_guarantee
from sordino.guarantee import rounded_up


def data(count=400, features=5):
    x = np.random.default_rng(features).random((count, features), dtype=np.float32)
    return x, x[:, 0] > 0.5


def classifier(**parameters):
    return PrivateClassifier(**{"classes": [False, True], "epochs": 1, "progress": False, **parameters})


def stop(*_):
    raise RuntimeError("stop")


def test_the_second_fit_warns_with_the_total_rounded_up():
    x, y = data(features=31)
    first = classifier().fit(x, y)
    with pytest.warns(PrivacyWarning, match=r"fit number 2 .* together satisfy \(") as caught:
        second = classifier().fit(x, y)
    epsilon, delta = total_guarantee([first.guarantee_, second.guarantee_])
    text = str(caught[0].message)
    shown = text[text.index("(") + 1 : text.index(")")].split(", ")
    assert float(shown[0]) >= epsilon and float(shown[1]) >= delta


@pytest.mark.parametrize("value, digits, text", [(1.99914, 4, "2"), (1.9981, 4, "1.999"), (2e-5, 3, "2e-05"), (2.0001e-5, 3, "2.01e-05")])
def test_totals_are_rounded_up(value, digits, text):
    assert rounded_up(value, digits) == text


def test_an_interrupted_fit_is_counted():
    x, y = data(features=32)
    with pytest.raises(RuntimeError, match="stop"):
        classifier(epochs=20_000, progress=stop).fit(x, y)
    with pytest.warns(PrivacyWarning, match="fit number 2 .* NOT KNOWN, because a fit was interrupted"):
        classifier().fit(x, y)


@pytest.mark.parametrize("kind, features", [(ValueError, 41), (TypeError, 42), (sordino.BudgetError, 43)])
def test_a_fit_is_counted_if_its_progress_function_raises_any_exception(kind, features):
    def fail(*_):
        raise kind("stop")

    x, y = data(features=features)
    with pytest.raises(kind, match="stop"):
        classifier(epochs=20_000, progress=fail).fit(x, y)
    with pytest.warns(PrivacyWarning, match="fit number 2 .* NOT KNOWN, because a fit was interrupted"):
        classifier().fit(x, y)


def test_a_resumed_run_is_counted_once(tmp_path):
    x, y = data(features=33)
    run = tmp_path / "run"
    with pytest.raises(RuntimeError, match="stop"):
        classifier(epochs=20_000, progress=stop, run_folder=run).fit(x, y)
    model = classifier(epochs=20_000, run_folder=run)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        model.fit(x, y, resume=True)


def test_a_refused_fit_is_not_counted():
    x, y = data(features=34)
    with pytest.raises(ValueError, match="epsilon"):
        classifier(epsilon=-1.0).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        classifier().fit(x, y)


def test_totals_of_different_units_are_not_known():
    x, y = data(features=35)
    one = classifier().fit(x, y)
    with pytest.warns(PrivacyWarning, match="NOT KNOWN, because the fits protect different units"):
        other = classifier(unit="patient").fit(x, y, units=np.arange(400) // 2)
    assert total_guarantee([one.guarantee_, other.guarantee_]) == (float("inf"), 1.0)


@pytest.mark.parametrize("missing", [None, float("nan"), "", np.datetime64("NaT")])
def test_a_record_without_a_unit_is_refused(missing):
    x, y = data()
    units = np.array([*range(399), missing], dtype=object)
    with pytest.raises(ValueError, match=r"units\[399\] is missing"):
        classifier(unit="patient").fit(x, y, units=units)


@pytest.mark.parametrize("parameters", [{"unit": "patient"}, {"settings": {"records_per_unit": 3}}])
def test_unit_settings_without_units_are_refused(parameters):
    x, y = data()
    with pytest.raises(ValueError, match=r"fit\(\.\.\., units=\.\.\.\)"):
        classifier(**parameters).fit(x, y)


@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[100:200], lambda x: x.reshape(-1).reshape(x.shape)])
def test_training_records_are_refused_as_test_records(part):
    x, y = data()
    with pytest.raises(ValueError, match="test has records of X"):
        classifier().fit(x, y, test=(part(x), y[: len(part(x))]))


def test_disjoint_parts_of_one_array_are_accepted_as_test_records():
    x, y = data(features=36)
    model = classifier().fit(x[:300], y[:300], test=(x[300:], y[300:]))
    assert model.test_score_ is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_accountant_works_in_a_child_process():
    price = sordino.epsilon(noise_multiplier=1.0, sample_rate=0.01, steps=1000, delta=1e-5).epsilon
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(sordino.epsilon(noise_multiplier=1.0, sample_rate=0.01, steps=1000, delta=1e-5).epsilon).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert float(os.read(reading, 100)) == price
