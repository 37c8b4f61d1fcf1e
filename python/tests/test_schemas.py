"""Estimators with a schema: units of privacy, the scale of the target, and refused input."""

import warnings

import numpy as np
import pytest

import sordino
from sordino import PrivateClassifier, PrivateRegressor

pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.filterwarnings("ignore::sordino.PrivacyWarning")

CLASSES = {"name": "y", "type": "category", "values": ["no", "yes"]}
PERSONS = {"target": "y", "unit": "person", "columns": [{"name": "age", "type": "number", "scale": 100}, CLASSES]}


def people(count=600):
    age = np.random.default_rng(0).integers(0, 100, count)
    return pd.DataFrame({"person": np.arange(count) // 3, "age": age}), np.where(age > 50, "yes", "no")


def classifier(**parameters):
    return PrivateClassifier(**{"schema": PERSONS, "epochs": 2, "progress": False, "settings": {"records_per_unit": 3}, **parameters})


def test_the_unit_of_the_schema_is_protected():
    frame, y = people()
    facts = classifier().fit(frame, y).guarantee_.to_dict()
    assert (facts["unit"], facts["records_per_unit"]) == ("person", 3)


def test_units_that_are_given_replace_the_column_of_the_schema():
    frame, y = people()
    model = classifier(unit="household").fit(frame.drop(columns="person"), y, units=np.arange(len(y)) // 2)
    assert model.guarantee_.to_dict()["unit"] == "household"
    assert len(model.predict(frame[["age"]])) == len(y)


def test_a_frame_without_the_unit_of_the_schema_is_refused():
    frame, y = people()
    with pytest.raises(ValueError, match="the unit of the schema, `person`, must be a column of X\nhint: .*units="):
        classifier().fit(frame[["age"]], y)
    frame = frame.astype({"person": object})
    frame.loc[7, "person"] = None
    with pytest.raises(ValueError, match=r"units\[7\] is missing"):
        classifier().fit(frame, y)
    with pytest.raises(ValueError, match="unit is 'household', but the unit of the schema is 'person'"):
        classifier(unit="household").fit(frame, y)


SCALED = {"target": "y", "columns": [{"name": "x", "type": "number"}, {"name": "y", "type": "number", "center": 500, "scale": 100, "clip": [400, 600]}]}


def test_the_target_of_a_regressor_has_the_scale_of_the_schema():
    x = np.random.default_rng(0).random(4000) * 2 - 1
    y = 500 + 100 * x
    frame = pd.DataFrame({"x": x})
    model = PrivateRegressor(schema=SCALED, epsilon=3.0, epochs=10, progress=False).fit(frame, y)
    assert model.score(frame, y) > 0.8


def test_targets_are_clipped_to_the_bounds_of_the_schema():
    x, y = pd.DataFrame({"x": np.zeros(500)}), np.full(500, 550.0)
    far = y.copy()
    y[::2], far[::2] = 600.0, 1e6
    one, two = (PrivateRegressor(schema=SCALED, seed=1, epochs=2, progress=False).fit(x, target) for target in (y, far))
    assert (one.predict(x) == two.predict(x)).all()


def test_the_names_of_features_are_the_columns_that_the_schema_reads(tmp_path):
    frame, y = people()
    model = classifier().fit(frame, y)
    model.save(tmp_path / "model.safetensors")
    for each in (model, sordino.load(tmp_path / "model.safetensors")):
        assert each.feature_names_in_.tolist() == ["age"] and each.n_features_in_ == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (each.predict(frame) == model.predict(frame[["age"]])).all()
    two = {**PERSONS, "columns": [*PERSONS["columns"], {"name": "person", "type": "number"}], "unit": "household"}
    with pytest.raises(ValueError, match="the schema makes 2 features of X, but the model reads 1\nhint: use the schema of training"):
        model.set_params(schema=two).predict(frame)


def test_input_other_than_data_frames_is_refused_with_the_remedy():
    frame, y = people()
    with pytest.raises(TypeError, match=r"got ndarray\nhint: pd.DataFrame\(X, columns=\[...\]\)"):
        classifier().fit(frame.to_numpy(), y)
    sparse = pytest.importorskip("scipy.sparse").csr_matrix(frame.to_numpy())
    with pytest.raises(TypeError, match=r"got csr_matrix\nhint: pd.DataFrame\(X.toarray\(\), columns="):
        classifier().fit(sparse, y)
    missing = frame.astype(object)
    missing.loc[3, "age"] = pd.NA
    with pytest.raises(TypeError, match=r"X has missing values \(pd.NA\)\nhint: .*X.fillna\(0\)"):
        PrivateClassifier().fit(missing, y)
