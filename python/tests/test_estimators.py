"""The behaviour of the estimators."""

import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import sordino
from sordino.guarantee import rounded_up
from sordino import PrivacyWarning, PrivateClassifier, PrivateRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sordino.PrivacyWarning")


def records(count=3000, features=4):
    x = np.random.default_rng(0).random((count, features), dtype=np.float32)
    return x, np.where(x[:, 0] > 0.5, "yes", "no")


@pytest.fixture(scope="module")
def fitted():
    x, y = records()
    return PrivateClassifier(epsilon=2.0, classes=["no", "yes"]).fit(x, y)


def test_a_classifier_learns_and_states_its_guarantee(fitted):
    x, y = records()
    assert fitted.score(x, y) > 0.9
    assert fitted.classes_.tolist() == ["no", "yes"]
    guarantee = fitted.guarantee_
    assert 0.0 < guarantee.epsilon <= 2.0 and guarantee.delta == 1e-5 and guarantee.private
    assert str(guarantee).startswith("This logistic model satisfies (")
    facts = guarantee.to_dict()
    assert facts["steps"] == fitted.n_steps_ > 0 and facts["statement"] == str(guarantee)
    assert "NOT protected" not in str(guarantee)
    page = guarantee._repr_html_()
    assert "<table>" in page and "epsilon</th>" in page and page.count("<tr>") > 5


def test_probabilities_belong_to_the_classes(fitted):
    x, _ = records()
    probabilities = fitted.predict_proba(x[:100])
    assert probabilities.shape == (100, 2) and np.allclose(probabilities.sum(axis=1), 1.0)
    assert (fitted.classes_[probabilities.argmax(axis=1)] == fitted.predict(x[:100])).all()


def test_classes_that_are_not_declared_are_named_in_the_statement():
    x, y = records()
    model = PrivateClassifier().fit(x, y)
    assert "The list of the 2 classes was taken from the training labels and is NOT protected" in str(model.guarantee_)
    assert model.guarantee_.to_dict()["observed_classes"] is True


def test_a_declared_class_need_not_occur():
    x, y = records()
    model = PrivateClassifier(classes=["no", "perhaps", "yes"]).fit(x, y)
    assert model.predict_proba(x[:5]).shape == (5, 3)


def test_labels_keep_their_type():
    x, y = records()
    for labels in (y == "yes", np.where(y == "yes", 7, -3), np.where(y == "yes", 1.5, 0.5), y.astype(object)):
        if labels.dtype == np.float64:
            labels = labels * 2
        predicted = PrivateClassifier().fit(x, labels).predict(x[:20])
        assert predicted.dtype == labels.dtype and set(predicted.tolist()) <= set(labels.tolist())


def test_a_regressor_predicts_in_the_units_of_the_targets():
    x, _ = records()
    y = 1e6 + 1e5 * x[:, 0]
    model = PrivateRegressor(epsilon=4.0, target_range=(1e6, 1.1e6), epochs=30).fit(x, y)
    assert model.score(x, y) > 0.5
    assert model.predict(x[:3]).shape == (3,)
    two = PrivateRegressor(target_range=[(1e6, 1.1e6), (0.0, 1.0)]).fit(x, np.stack([y, x[:, 1]], axis=1))
    assert two.predict(x[:3]).shape == (3, 2)


def test_images_of_bytes_are_divided_by_255():
    x = np.random.default_rng(1).integers(0, 256, (300, 8, 8)).astype(np.uint8)
    y = x.mean(axis=(1, 2)) > 127
    settings = dict(model="logistic", seed=1, settings={"steps": 20})
    bytes_, floats = PrivateClassifier(**settings).fit(x, y), PrivateClassifier(**settings).fit((x / 255.0).astype(np.float32), y)
    for name, values in bytes_.parameters().items():
        assert np.array_equal(values, floats.parameters()[name])
    with pytest.raises(ValueError, match="uint8"):
        bytes_.predict(x / 255.0)
    with pytest.raises(ValueError, match="float32"):
        floats.predict(x)


def test_channels_may_come_last():
    first = np.random.default_rng(1).integers(0, 256, (200, 3, 8, 8)).astype(np.uint8)
    last, y = np.ascontiguousarray(first.transpose(0, 2, 3, 1)), first[:, 0].mean(axis=(1, 2)) > 127
    settings = dict(model="logistic", seed=1, settings={"steps": 5})
    one, other = (PrivateClassifier(**settings).fit(x, y).parameters() for x in (first, last))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_four_axes_are_read_as_the_documentation_states():
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    assert "`[n, 16, 8, 4]` is an image of 16 by 8 pixels with 4 channels" in page
    for axes, shape in (((16, 8, 4), [4, 16, 8]), ((16, 8, 2), [16, 8, 2]), ((16, 7, 4), [16, 7, 4])):
        x = np.zeros((20, *axes), dtype=np.float32)
        model = PrivateClassifier(model="logistic", classes=[0, 1], settings={"steps": 1}).fit(x, np.arange(20) % 2)
        assert model._fitted.input_shape == shape


def test_arrays_of_any_layout_give_the_same_model():
    x, y = records(500)
    fit = lambda x: PrivateClassifier(seed=3, settings={"steps": 10}).fit(x, y).parameters()["linear.weight"]  # noqa: E731
    expected = fit(x)
    wide = np.zeros((500, 8), dtype=np.float32)
    wide[:, ::2] = x
    unaligned = np.frombuffer(b"\0" + x.tobytes(), dtype=np.uint8)[1:].view(np.float32).reshape(x.shape)
    for other in (np.asfortranarray(x), wide[:, ::2], x.astype(np.float64), x.astype(object), x.tolist(), x.astype(">f4"), unaligned):
        assert np.array_equal(fit(other), expected)
    assert np.array_equal(fit(x[::-1][::-1]), expected)


def test_integers_booleans_and_half_precision_are_numbers():
    x, y = records(500)
    for dtype in (np.int64, np.uint16, np.int8, bool, np.float16, np.uint8):
        PrivateClassifier(settings={"steps": 3}).fit((4 * x).astype(dtype), y).predict((4 * x).astype(dtype))
    # Bytes that are not images are not divided.
    fit = lambda x: PrivateClassifier(seed=3, settings={"steps": 5}).fit(x, y).parameters()["linear.weight"]  # noqa: E731
    assert np.array_equal(fit((4 * x).astype(np.uint8)), fit((4 * x).astype(np.uint8).astype(np.float64)))


def test_a_model_can_be_pickled_saved_and_loaded(fitted, tmp_path):
    x, _ = records()
    fitted.save(tmp_path / "model.safetensors")
    for copy in (pickle.loads(pickle.dumps(fitted)), sordino.load(tmp_path / "model.safetensors")):
        assert (copy.predict(x) == fitted.predict(x)).all()
        assert copy.guarantee_ == fitted.guarantee_
    x, y = records(500)
    regressor = PrivateRegressor(settings={"steps": 3}).fit(x, x[:, 0])
    regressor.save(tmp_path / "regressor.safetensors")
    assert np.array_equal(sordino.load(tmp_path / "regressor.safetensors").predict(x), regressor.predict(x))


def test_a_run_folder_can_be_opened(tmp_path):
    x, y = records(500)
    model = PrivateClassifier(run_folder=tmp_path / "run").fit(x, y)
    assert (sordino.open(tmp_path / "run").predict(x) == model.predict(x)).all()
    with pytest.raises(ValueError, match="run"):
        PrivateClassifier(run_folder=tmp_path / "run").fit(x, y)


def test_test_scores_are_noisy_for_private_and_exact_for_public_records():
    x, y = records(3000)
    protected = PrivateClassifier(epsilon=2.0, classes=["no", "yes"]).fit(x[:2000], y[:2000], test=(x[2000:], y[2000:]))
    assert 0.0 <= protected.test_score_ <= 1.0
    assert "protected by the same guarantee" in str(protected.guarantee_)
    public = PrivateClassifier(classes=["no", "yes"]).fit(x[:2000], y[:2000], test=(x[2000:], y[2000:]), public_test=True)
    assert public.test_score_ == public.score(x[2000:], y[2000:])


def test_records_of_a_unit_are_protected_together():
    x, y = records(900)
    model = PrivateClassifier(unit="patient", settings={"records_per_unit": 3}).fit(x, y, units=np.arange(900) // 3)
    facts = model.guarantee_.to_dict()
    assert facts["unit"] == "patient" and facts["training_records"] == 300 and facts["records_per_unit"] == 3


def test_a_network_can_be_given_as_a_dictionary():
    x, y = records(500)
    network = {"input": {"features": 4}, "layers": [{"type": "linear", "outputs": 8}, {"type": "relu"}, {"type": "linear", "outputs": 2}]}
    model = PrivateClassifier(network, settings={"steps": 3}).fit(x, y)
    assert model.predict(x).shape == (500,)
    assert PrivateClassifier(hidden=[5], settings={"steps": 3}).fit(x, y).guarantee_.private


def test_a_model_with_a_seed_is_not_private():
    x, y = records(500)
    model = PrivateClassifier(seed=1).fit(x, y)
    assert not model.guarantee_.private and "NOT PRIVATE" in str(model.guarantee_)
    assert sordino.total_guarantee([model.guarantee_]) == (float("inf"), 1.0)


def test_later_fits_warn_with_the_total_cost():
    x, y = records(400, features=23)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        models = [PrivateClassifier(epsilon=0.5).fit(x, y) for _ in range(3)]
    told = [str(warning.message) for warning in caught if warning.category is PrivacyWarning]
    epsilon, delta = sordino.total_guarantee([model.guarantee_ for model in models])
    assert len(told) == 2 and "fit number 3" in told[1] and f"({rounded_up(epsilon, 4)}, {rounded_up(delta, 3)})" in told[1]
    assert epsilon >= sum(model.guarantee_.epsilon for model in models) and abs(delta - 3e-5) < 1e-9


def test_pipelines_and_grid_searches_work_and_warn():
    pytest.importorskip("sklearn")
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    x, y = records(600, features=29)
    pipeline = make_pipeline(FunctionTransformer(np.sqrt), PrivateClassifier(epsilon=3.0, classes=["no", "yes"]))
    assert clone(pipeline).fit(x, y).score(x, y) > 0.6
    with pytest.warns(PrivacyWarning, match="differential privacy"):
        search = GridSearchCV(PrivateClassifier(), {"epochs": [1, 5]}, cv=2).fit(x, y)
    assert search.best_params_["epochs"] in (1, 5)


def test_data_frames_keep_the_names_of_their_columns():
    pandas = pytest.importorskip("pandas")
    x, y = records(500)
    frame = pandas.DataFrame(x, columns=["a", "b", "c", "d"])
    model = PrivateClassifier(settings={"steps": 3}).fit(frame, pandas.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_a_data_frame_is_read_by_its_schema():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("sordino._frames")
    x, y = records(500)
    colour = np.where(x[:, 1] > 0.5, "red", "green")
    frame = pandas.DataFrame({"age": 100 * x[:, 0], "colour": colour, "note": "text"})
    schema = {
        "target": "member",
        "columns": [
            {"name": "age", "type": "number", "scale": 100},
            {"name": "colour", "type": "category", "values": ["red", "green"]},
            {"name": "note", "type": "ignore"},
            {"name": "member", "type": "category", "values": ["no", "yes"]},
        ],
    }
    model = PrivateClassifier(epsilon=3.0, schema=schema).fit(frame, y)
    assert model.n_features_in_ == 3 and model.classes_.tolist() == ["no", "yes"]
    assert model.score(frame, y) > 0.7 and "NOT protected" not in str(model.guarantee_)
    assert (model.predict(frame[["note", "colour", "age"]]) == model.predict(frame)).all()


def test_progress_is_reported_to_a_callback():
    x, y = records()
    seen = []
    PrivateClassifier(progress=lambda *progress: seen.append(progress)).fit(x, y)
    assert seen and seen[-1][0] == seen[-1][1] and [step for step, *_ in seen] == sorted(step for step, *_ in seen)


def test_an_exception_in_the_callback_stops_training():
    def refuse(step, steps, score):
        raise KeyError("enough")

    x, y = records()
    with pytest.raises(KeyError, match="enough"):
        PrivateClassifier(progress=refuse, settings={"steps": 100_000}).fit(x, y)


def run(code, **kwargs):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, **kwargs)


def test_the_import_does_not_load_optional_packages():
    done = run("import sordino, sys; print([name for name in ('sklearn', 'pandas', 'torch', 'tqdm') if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_estimators_work_without_scikit_learn():
    done = run(
        """
import sys
for name in ("sklearn", "sklearn.base", "tqdm", "tqdm.auto"):
    sys.modules[name] = None
import numpy as np, pickle, sordino
x = np.random.default_rng(0).random((2000, 3), dtype=np.float32)
model = sordino.PrivateClassifier(epsilon=2.0, progress=True).fit(x, x[:, 0] > 0.5)
assert model.score(x, x[:, 0] > 0.5) > 0.8
assert repr(model) == "PrivateClassifier(epsilon=2.0, progress=True)", repr(model)
assert model.set_params(epochs=3).get_params()["epochs"] == 3
assert (pickle.loads(pickle.dumps(model)).predict(x) == model.predict(x)).all()
try:
    model.predict(x[:, :2])
except ValueError as error:
    print(error)
regressor = sordino.PrivateRegressor(target_range=(0, 1)).fit(x, x[:, 0])
assert regressor.score(x, x[:, 0]) > 0.0
"""
    )
    assert done.returncode == 0, done.stderr
    assert "X has 2 features, but PrivateClassifier is expecting 3 features as input." in done.stdout
    assert "step" in done.stderr
