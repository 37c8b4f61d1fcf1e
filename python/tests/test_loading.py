"""A model that is loaded or resumed reads and names the same things as the one that was trained."""

import subprocess
import sys

import numpy as np
import pytest

import sordino
from sordino import PrivateClassifier, PrivateRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sordino.PrivacyWarning")
pd = pytest.importorskip("pandas")

SCHEMA = {
    "target": "answer",
    "columns": [
        {"name": "age", "type": "number", "center": 50, "scale": 50},
        {"name": "height", "type": "number", "scale": 200},
        {"name": "answer", "type": "category", "values": ["no", "yes"]},
    ],
}


def table(count=2000):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"height": random.uniform(100, 200, count), "age": random.uniform(0, 100, count)})
    return frame, np.where(frame["age"] > 50, "yes", "no")


def copies(model, folder):
    model.save(folder / "model.safetensors")
    return sordino.load(folder / "model.safetensors"), sordino.open(folder / "run")


def test_a_loaded_model_reads_data_frames_by_its_schema(tmp_path):
    frame, y = table()
    model = PrivateClassifier(epsilon=3.0, schema=SCHEMA, run_folder=tmp_path / "run").fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert "schema" in str(model.guarantee_)
    for copy in copies(model, tmp_path):
        assert (copy.predict(frame[["age", "height"]]) == model.predict(frame)).all()
        assert copy.score(frame, y) == model.score(frame, y)


def test_a_loaded_model_knows_the_names_and_the_order_of_its_features(tmp_path):
    frame, y = table()
    frame = (frame - 100.0) / 100.0
    model = PrivateClassifier(epsilon=3.0, classes=["no", "yes"], run_folder=tmp_path / "run").fit(frame, y)
    for copy in copies(model, tmp_path):
        assert copy.feature_names_in_.tolist() == ["height", "age"]
        assert (copy.predict(frame) == model.predict(frame)).all()
        with pytest.raises(ValueError, match="feature names"):
            copy.predict(frame[["age", "height"]])


@pytest.mark.parametrize(
    "classes",
    [
        ["007", "7"],
        ["1_0", "10"],
        ["inf", "nan"],
        ["0", "1"],
        [False, True],
        [0.0, 1.0],
        np.array([1.0, 2.0], dtype=np.float32),
        np.array([3, 200], dtype=np.uint8),
        np.array(["no", "yes"], dtype=object),
        [-5, 10**17],
    ],
    ids=str,
)
def test_a_loaded_model_has_the_same_classes(classes, tmp_path):
    x = np.random.default_rng(0).random((500, 2), dtype=np.float32)
    classes = np.asarray(classes)
    y = classes[(x[:, 0] > 0.5).astype(int)]
    model = PrivateClassifier(classes=classes, settings={"steps": 5}, run_folder=tmp_path / "run").fit(x, y)
    for copy in copies(model, tmp_path):
        assert copy.classes_.dtype == model.classes_.dtype
        assert copy.classes_.tolist() == model.classes_.tolist()
        assert list(map(type, copy.classes_.tolist())) == list(map(type, model.classes_.tolist()))
        assert copy.score(x, y) == model.score(x, y) > 0.0


def test_labels_of_bytes_are_refused():
    x = np.random.default_rng(0).random((500, 2), dtype=np.float32)
    for dtype in ("S1", object):
        with pytest.raises(ValueError, match="bytes.*\\nhint"):
            PrivateClassifier().fit(x, np.array([b"a", b"b"], dtype=dtype)[(x[:, 0] > 0.5).astype(int)])


@pytest.mark.parametrize("shape", [(8, 9), (3, 8, 9), (8, 9, 3)], ids=str)
def test_a_loaded_model_reads_images_like_those_of_training(shape, tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (300, *shape), dtype=np.uint8)
    y = np.arange(300) % 2
    model = PrivateClassifier(classes=[0, 1], settings={"steps": 2}, run_folder=tmp_path / "run").fit(x, y)
    for copy in copies(model, tmp_path):
        assert copy.n_features_in_ == model.n_features_in_
        assert np.array_equal(copy.predict_proba(x), model.predict_proba(x))


def command(*arguments):
    subprocess.run([sys.executable, "-m", "sordino", *map(str, arguments)], check=True, capture_output=True)


def test_images_for_a_model_of_the_command_line_have_channels_first_or_last(tmp_path):
    run = tmp_path / "run"
    x = np.random.default_rng(0).random((200, 8, 8, 3)).astype(np.float32)
    np.savez(tmp_path / "images.npz", x=x, y=np.arange(200) % 2)
    command("train", "--data", tmp_path / "images.npz", "--classes", 2, "--steps", 2, "--test-fraction", 0, "--out", run)
    opened = sordino.open(run)
    assert opened.classes_.tolist() == ["0", "1"]
    assert np.array_equal(opened.predict_proba(x), opened.predict_proba(np.ascontiguousarray(x.transpose(0, 3, 1, 2))))


def test_a_table_of_the_command_line_is_read_by_its_schema(tmp_path):
    frame, y = table(1000)
    labelled = frame.assign(answer=y)
    labelled.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "schema.toml").write_text(
        'target = "answer"\n[[columns]]\nname = "age"\ntype = "number"\ncenter = 50\nscale = 50\n'
        '[[columns]]\nname = "height"\ntype = "number"\nscale = 200\n'
        '[[columns]]\nname = "answer"\ntype = "category"\nvalues = ["no", "yes"]\n'
    )
    data = ("--data", tmp_path / "table.csv", "--schema", tmp_path / "schema.toml")
    command("train", *data, "--epsilon", 3, "--test-fraction", 0, "--out", tmp_path / "run")
    opened = sordino.open(tmp_path / "run")
    assert opened.score(frame[["age", "height"]], y) > 0.9
    opened.save(tmp_path / "model.safetensors")
    assert sordino.load(tmp_path / "model.safetensors").score(frame, y) > 0.9


def test_a_data_frame_is_refused_if_the_names_of_the_features_are_not_known(tmp_path):
    frame, y = table(1000)
    lines = [f"{int(label == 'yes')} 1:{age / 100} 2:{height / 200}" for label, age, height in zip(y, frame["age"], frame["height"])]
    (tmp_path / "records.svm").write_text("\n".join(lines) + "\n")
    data = ("--data", tmp_path / "records.svm", "--feature-count", 2, "--classes", 2)
    command("train", *data, "--epsilon", 3, "--test-fraction", 0, "--out", tmp_path / "run")
    opened = sordino.open(tmp_path / "run")
    x = np.column_stack([frame["age"] / 100, frame["height"] / 200]).astype(np.float32)
    opened.predict(x)
    with pytest.raises(ValueError, match="names in X cannot be checked"):
        opened.predict(pd.DataFrame(x, columns=["age", "height"]))


def stopped(model, x, y, **test):
    def stop(step, steps, score):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        model.set_params(progress=stop).fit(x, y, **test)
    return model.set_params(progress=False)


def test_a_run_is_not_resumed_with_other_public_facts(tmp_path):
    x = np.random.default_rng(0).random((2000, 3), dtype=np.float32)
    y = (x[:, 0] > 0.5).astype(int)
    steps = {"steps": 20000}
    model = stopped(PrivateClassifier(settings=steps, run_folder=tmp_path / "classes"), x, y)
    with pytest.raises(ValueError, match="began with classes that were taken from the labels"):
        model.set_params(classes=[0, 1]).fit(x, y, resume=True)
    with pytest.raises(ValueError, match="began with the classes 0, 1, but is resumed with the classes no, yes"):
        model.set_params(classes=None).fit(x, np.where(y, "yes", "no"), resume=True)
    assert "NOT protected" in str(model.fit(x, y, resume=True).guarantee_)

    model = stopped(PrivateRegressor(target_range=(0, 1), settings=steps, run_folder=tmp_path / "range"), x, x[:, 0])
    with pytest.raises(ValueError, match="0 to 2 become -1 to 1"):
        model.set_params(target_range=(0, 2)).fit(x, x[:, 0], resume=True)
    model.set_params(target_range=(0, 1)).fit(x, x[:, 0], resume=True)
    assert "public range: 0 to 1 become -1 to 1" in str(model.guarantee_)

    model = PrivateClassifier(classes=[0, 1], settings=steps, run_folder=tmp_path / "test")
    other = np.random.default_rng(1).random((300, 3), dtype=np.float32)
    test = {"test": (other, (other[:, 0] > 0.5).astype(int))}
    stopped(model, x, y, public_test=True, **test)
    with pytest.raises(ValueError, match="public test records.*\\nhint: .*public_test=True"):
        model.fit(x, y, resume=True, **test)
    assert model.fit(x, y, resume=True, public_test=True, **test).test_score_ > 0.5
