"""Invalid input, threads, processes, signals and memory."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import sordino
from sordino import PrivateClassifier, PrivateRegressor
from sordino._sordino import setting_headings

pytestmark = pytest.mark.filterwarnings("ignore::sordino.PrivacyWarning")

X = np.random.default_rng(0).random((200, 3), dtype=np.float32)
Y = X[:, 0] > 0.5


def with_value(place, value, dtype=np.float32):
    x = X.astype(dtype)
    x[place] = value
    return x


@pytest.mark.parametrize(
    "x, message",
    [
        (with_value((3, 2), np.nan), r"x\[3, 2\]: must be a finite number, got NaN"),
        (with_value((7, 0), -np.inf), r"x\[7, 0\]: must be a finite number, got -inf"),
        (with_value((1, 1), 1e300, np.float64), r"x\[1, 1\]: must be a finite number, got inf"),
        (with_value((5, 0), None, object), r"x\[5, 0\]: must be a finite number, got NaN"),
        (with_value((5, 0), "red", object), "X must have numbers: could not convert string to float: 'red'"),
        (X.astype(str), "X must have numbers, got dtype <U"),
        (X.astype(complex), "Complex data not supported"),
        (np.datetime64("2026-01-01") + np.arange(600).reshape(200, 3), "X must have numbers, got dtype datetime64"),
        (np.empty((0, 3), dtype=np.float32), r"0 sample\(s\)"),
        (np.empty((200, 0), dtype=np.float32), r"0 feature\(s\)"),
        (np.float32(3.0), "Reshape your data"),
        (X[:, 0], "Reshape your data"),
        (X.reshape(200, 1, 1, 1, 3), "X must have 2 axes"),
        (X[:100], "inconsistent numbers of samples"),
        (np.ma.masked_greater(X, 0.9), "masked values"),
    ],
)
def test_invalid_records_are_refused_with_their_index(x, message):
    with pytest.raises(ValueError, match=message):
        PrivateClassifier().fit(x, Y)


def test_the_index_of_an_invalid_pixel_is_that_of_the_array():
    for shape in ((20, 8, 9), (20, 3, 8, 9), (20, 8, 9, 3)):
        x = np.zeros(shape, dtype=np.float32)
        x[(4, *(size - 2 for size in shape[1:]))] = np.inf
        place = ", ".join(str(size - 2) for size in shape[1:])
        with pytest.raises(ValueError, match=rf"x\[4, {place}\]"):
            PrivateClassifier().fit(x, Y[:20])


@pytest.mark.parametrize(
    "y, message",
    [
        (np.zeros(200), "class"),
        (None, "requires y"),
        (np.array(["a", 1] * 100, dtype=object), "[Uu]nknown label type|different types|Mix type"),
        (X, "1d array"),
        (np.where(Y, np.nan, 1.0), "NaN"),
        (X[:, 0], "continuous"),
    ],
)
def test_invalid_labels_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        PrivateClassifier().fit(X, y)


def test_a_label_that_is_not_declared_is_refused_with_its_index():
    with pytest.raises(ValueError, match=r"y\[0\]: must be one of 'a', 'b', got 'c'"):
        PrivateClassifier(classes=["a", "b"]).fit(X, np.where(Y, "c", "c"))
    with pytest.raises(ValueError, match=r"y\[4\]: must be a finite number"):
        PrivateRegressor().fit(X, with_value((4, 0), np.nan)[:, 0])


@pytest.mark.parametrize(
    "name, value",
    [
        ("epsilon", -1.0),
        ("epsilon", float("nan")),
        ("epsilon", "much"),
        ("delta", 2.0),
        ("delta", 0.0),
        ("max_grad_norm", 0.0),
        ("epochs", -1.0),
        ("batch_size", 0),
        ("batch_size", -5),
        ("learning_rate", -1.0),
        ("hidden", [0]),
        ("model", "forest"),
        ("algorithm", "dp-magic"),
        ("seed", -1),
        ("noise_multiplier", 0.0),
        ("steps", 0),
        ("optimizer", "lion"),
        ("accountant", "mine"),
        ("sampling", "all"),
        ("records_per_uni", 3),
    ],
)
def test_a_parameter_out_of_range_is_named(name, value):
    known = PrivateClassifier().get_params()
    params = {name: value} if name in known else {"settings": {name: value}}
    with pytest.raises(ValueError) as caught:
        PrivateClassifier(**params).fit(X, Y)
    text = str(caught.value)
    assert "hint: " in text and "--" not in text
    stem = name.rstrip("s")
    assert stem in text or name.replace("_", " ").rstrip("s") in text, text


@pytest.mark.parametrize("value", [(1.0, 0.0), (0.0, float("inf")), "wide", (1.0, 2.0, 3.0), (float("nan"), 1.0)])
def test_an_invalid_target_range_is_refused(value):
    with pytest.raises(ValueError, match="target[_ ]range"):
        PrivateRegressor(target_range=value).fit(X, X[:, 0])


def test_a_plan_above_the_budget_raises_a_budget_error():
    with pytest.raises(sordino.BudgetError, match="hint: "):
        PrivateClassifier(epsilon=0.1, settings={"noise_multiplier": 0.5}).fit(X, Y)


def test_a_parameter_that_is_given_twice_is_refused():
    with pytest.raises(ValueError, match="epsilon is given twice"):
        PrivateClassifier(epsilon=1.0, settings={"epsilon": 2.0}).fit(X, Y)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"settings": "fast"}, "settings must be a dictionary"),
        ({"settings": {3: 4}}, "settings must be a dictionary"),
        ({"settings": {"unit": "patient"}}, "units="),
        ({"settings": {"test_fraction": 0.2}}, "test="),
        ({"settings": {"classes": 2}}, r"classes=\[...\]"),
        ({"settings": {"data": "mushroom"}}, r"data cannot be given as a setting.*\nhint: use fit\(X, y\)"),
        ({"settings": {"test-set": "public"}}, "public_test="),
        ({"settings": {"lr": 0.1}}, "no setting lr\nhint: did you mean learning_rate"),
        ({"settings": {"optimiser": "adam"}}, "did you mean optimizer"),
        ({"settings": {"zzz": 1}}, "the settings are "),
        ({"progress": "yes"}, "progress must be"),
        ({"model": {"layers": 3}}, "the network: "),
        ({"model": "mnist-cnn"}, "mnist-cnn reads images"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        PrivateClassifier(**params).fit(X, Y)


def stop(*_):
    raise RuntimeError("stop")


@pytest.mark.parametrize("failing", [{"epsilon": -1.0}, {"epochs": 100_000, "progress": stop}, {"classes": None}])
def test_a_fit_that_fails_leaves_the_earlier_model(failing):
    model = PrivateClassifier(classes=[False, True], epochs=1, progress=False).fit(X, Y)
    before, state = model.predict(X), {name: value for name, value in vars(model).items() if name.endswith("_")}
    labels = np.zeros(len(X)) if failing.get("classes", 0) is None else np.arange(len(X)) % 3
    with pytest.raises((ValueError, RuntimeError)):
        model.set_params(**{"classes": [0, 1, 2], **failing}).fit(X[:, :2], labels)
    assert {name: value for name, value in vars(model).items() if name.endswith("_")} == state
    assert (model.predict(X) == before).all()


def test_a_first_fit_that_fails_leaves_an_estimator_that_is_not_fitted():
    model = PrivateRegressor(epsilon=-1.0)
    with pytest.raises(ValueError):
        model.fit(X, X[:, 0])
    assert not hasattr(model, "n_features_in_") and vars(model).keys() == vars(PrivateRegressor()).keys()


@pytest.mark.parametrize("name", [name for name, heading in setting_headings().items() if heading == "Data" and name != "records_per_unit"])
def test_settings_that_describe_files_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} cannot be given as a setting: it describes data in files\nhint: use "):
        PrivateClassifier(settings={name: 1}).fit(X, Y)


def test_files_that_are_not_models_are_refused(tmp_path):
    (tmp_path / "text").write_text("not a model, but a text that is long enough")
    for read, path in ((sordino.load, "text"), (sordino.load, "nothing"), (sordino.open, "text"), (sordino.open, "nothing")):
        with pytest.raises(ValueError, match="hint: ") as caught:
            read(tmp_path / path)
        assert "::" not in str(caught.value)


def test_few_records_can_be_fitted():
    for count in (2, 5, 20):
        PrivateClassifier(classes=[False, True]).fit(X[:count], Y[:count]).predict(X)
        PrivateRegressor().fit(X[:count], X[:count, 0]).predict(X)


def test_arrays_that_change_during_training_do_not_void_the_guarantee():
    x, done = np.random.default_rng(1).random((20_000, 20), dtype=np.float32), threading.Event()
    y = x[:, 0] > 0.5

    def change():
        while not done.is_set():
            x[::2] = np.nan
            x[:, 1] = np.inf
            x[:] = 3.4e38

    # The values are finite when they are checked: they change from the first step on.
    changer = threading.Thread(target=change)
    model = PrivateClassifier(progress=lambda *_: changer.is_alive() or changer.start(), classes=[False, True], settings={"steps": 3000})
    try:
        model.fit(x, y)
    finally:
        done.set()
        if changer.ident is not None:
            changer.join()
    assert model.guarantee_.private
    assert all(np.isfinite(values).all() for values in model.parameters().values())


def test_a_hundred_estimators_can_be_fitted_in_threads():
    scores, failures = [], []

    def fit():
        try:
            scores.append(PrivateClassifier(epsilon=5.0).fit(X, Y).score(X, Y))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=fit) for _ in range(100)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures and len(scores) == 100


PRELUDE = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from sordino import PrivateClassifier
x = np.random.default_rng(0).random((2000, 3), dtype=np.float32)
y = x[:, 0] > 0.5
"""


def run(code):
    return subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_can_fork_after_a_fit():
    done = run(
        """
model = PrivateClassifier().fit(x, y)
model.predict(x[:5])
child = os.fork()
if child == 0:
    model.predict(x[:5])
    assert (PrivateClassifier().fit(x, y).predict(x) == model.predict(x)).mean() > 0.5
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
import multiprocessing
def fit(seed):
    return PrivateClassifier(epsilon=3.0).fit(x, y).score(x, y)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert min(pool.map(fit, range(4))) > 0.5
model.fit(x, y)
print("done")
"""
    )
    assert done.stdout.strip() == "done", done.stderr


# A process that a shell started in the background ignores SIGINT, and so do its children.
INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
folder = sys.argv[1]
started = lambda *_: print("started", flush=True)
settings = {"steps": 40000, "batch_size": 16}
model = PrivateClassifier(run_folder=folder, progress=started, epsilon=None, delta=None, settings={**settings, "noise_multiplier": 20.0, "delta": 1e-5})
try:
    model.fit(x, y)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    model.set_params(progress=False).fit(x, y, resume=True)
    print(model.n_steps_, model.guarantee_.to_dict()["finished"], "resumed" in str(model.guarantee_), flush=True)
"""


def test_ctrl_c_stops_a_run_that_can_be_resumed(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + INTERRUPTED, str(tmp_path / "run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "started\n", child.stderr.read()
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=300)
    lines = [line for line in out.splitlines() if line != "started"]
    assert lines == ["interrupted", "40000 True True"], errors


MEMORY = """
import resource
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
{make}
y = np.arange(len(x)) % 2 == 0
PrivateClassifier('logistic', settings={{"steps": 2}}).fit(x[:500], y[:500]).predict(x[:500])
before = peak()
model = PrivateClassifier('logistic', settings={{"steps": 3, "batch_size": 64}}).fit(x, y)
model.predict(x[: len(x) // 2])
print(x.nbytes >> 20, peak() - before)
"""


@pytest.mark.parametrize(
    "make",
    [
        "x = np.full((100_000, 1000), 0.5, dtype=np.float32)",
        "x = np.full((65_000, 3, 32, 32), 7, dtype=np.uint8)",
        "x = np.full((65_000, 32, 32, 3), 7, dtype=np.uint8)",
    ],
)
def test_large_arrays_are_not_copied(make):
    done = run(MEMORY.format(make=make))
    assert done.returncode == 0, done.stderr
    size, growth = map(int, done.stdout.split())
    assert size > 180 and growth < size / 4, (size, growth)
    print(f"{size} MB, peak memory grows by {growth} MB")


@pytest.mark.parametrize("other", [{"epsilon": 2.0}, {"hidden": [9]}, {"model": "logistic", "hidden": None}, {"settings": {"optimizer": "sgd"}}, {"epochs": 1}])
def test_a_resumed_run_refuses_other_settings(tmp_path, other):
    params = {"epsilon": 1.0, "hidden": [8], "epochs": 20_000, "classes": [False, True], "settings": {"optimizer": "adam,beta2=0.99"}, "run_folder": tmp_path / "run"}
    with pytest.raises(RuntimeError, match="stop"):
        PrivateClassifier(progress=stop, **params).fit(X, Y)
    with pytest.raises(ValueError, match="but the run in run_folder has .*\nhint: a resumed run keeps its own settings"):
        PrivateClassifier(progress=stop, **{**params, **other}).fit(X, Y, resume=True)
    with pytest.raises(RuntimeError, match="stop"):
        PrivateClassifier(progress=stop, **params).fit(X, Y, resume=True)


@pytest.mark.parametrize(
    "classes, message",
    [
        (["0", "1"], r"must be one of '0', '1', got [01]\nhint: give classes and y the same type"),
        (2, r"classes must be a list of all possible labels, got 2\nhint: classes=\["),
        ("01", "classes must be a list"),
        ([2, 3], r"must be one of 2, 3, got [01]\nhint: add it"),
    ],
)
def test_classes_that_do_not_fit_the_labels_are_refused(classes, message):
    with pytest.raises(ValueError, match=message):
        PrivateClassifier(classes=classes).fit(X, Y.astype(int))


@pytest.mark.parametrize("test", [X[:10] + 1, (X,), (X, Y, Y, Y), {"X": X}])
def test_test_records_without_labels_are_refused(test):
    with pytest.raises(ValueError, match=r"test must be a pair \(X, y\), or \(X, y, units\), got "):
        PrivateClassifier().fit(X, Y, test=test)


def test_test_records_have_units_if_the_training_records_have_them():
    units, parameters = np.arange(len(X)) // 2, {"unit": "person", "epochs": 1, "progress": False, "settings": {"records_per_unit": 2}}
    model = PrivateClassifier(classes=[False, True], **parameters)
    other = X[:50] / 2
    assert model.fit(X, Y, units=units, test=(other, Y[:50], 1000 + units[:50])).test_score_ is not None
    with pytest.raises(ValueError, match="a person has records in the training set and in the test set"):
        model.fit(X, Y, units=units, test=(other, Y[:50], units[:50]))
    with pytest.raises(ValueError, match=r"hint: test=\(X_test, y_test, units_test\)"):
        model.fit(X, Y, units=units, test=(other, Y[:50]))
    regressor = PrivateRegressor(**parameters)
    assert regressor.fit(X, X[:, 0], units=units, test=(other, other[:, 0], 1000 + units[:50])).test_score_ is not None
