"""Private training of PyTorch modules."""

import copy
import doctest
import json
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_modules import MODELS, sample  # noqa: E402

import sordino  # noqa: E402
import sordino.torch as st  # noqa: E402
from sordino.guarantee import rounded_up  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::sordino.PrivacyWarning")


def classes_of_vectors(records=600):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(records, 6, generator=generator)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def mlp(outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, outputs))


def accuracy(module, x, y):
    with torch.no_grad():
        return (module.eval()(x).argmax(1) == y).float().mean().item()


def weights(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def test_a_module_learns_and_has_a_guarantee():
    x, y = classes_of_vectors(4000)
    module = mlp()
    result = st.fit(module, x, y, epsilon=3.0, delta=1e-5, epochs=10, progress=False)
    assert accuracy(module, x, y) > 0.9
    assert 0 < result.guarantee.epsilon <= 3.0 and result.finished and result.n_steps > 0
    assert "differential privacy" in str(result.guarantee) and repr(result).startswith("<Fit: ")


def test_the_statement_names_the_initial_weights_which_must_be_public():
    x, y = classes_of_vectors()
    result = st.fit(mlp(), x, y, epochs=1, progress=False)
    assert "built on     initial.safetensors, declared public, with SHA-256" in str(result.guarantee)


def test_a_second_fit_warns_with_the_total_cost():
    x, y = classes_of_vectors()
    module = mlp()
    st.fit(module, x, y, epochs=1, progress=False)
    with pytest.warns(sordino.PrivacyWarning, match="costs of all fits add up") as warned:
        st.fit(module, x, y, epochs=1, progress=False)
    assert warned[0].filename == __file__


def test_a_fit_that_begins_with_the_weights_of_a_private_fit_states_the_total_cost():
    x, y = classes_of_vectors()
    first = mlp()
    one = st.fit(first, x, y, epsilon=1.0, epochs=1, progress=False)
    assert one.begins_with == [] and "earlier" not in repr(one)
    # Another module with another last layer, and records of another shape.
    second = nn.Sequential(nn.Flatten(), nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    second[1].load_state_dict(first[0].state_dict())
    with pytest.warns(sordino.PrivacyWarning, match="begins with the weights of an earlier private fit. .* costs add up") as warned:
        two = st.fit(second, x.reshape(-1, 1, 2, 3), y, epsilon=2.0, epochs=1, progress=False)
    begins = [warning for warning in warned if "begins with" in str(warning.message)]
    total = f"({one.guarantee.epsilon + two.guarantee.epsilon:.4g}, 2e-05)-differential privacy"
    assert len(begins) == 1 and begins[0].filename == __file__ and total in str(begins[0].message)
    assert two.begins_with == [one.guarantee] and total in repr(two)
    # The weights of the second fit come from both.
    with pytest.warns(sordino.PrivacyWarning, match="weights of 2 earlier private fits"):
        three = st.fit(copy.deepcopy(second), x.reshape(-1, 1, 2, 3), y, epochs=1, progress=False)
    assert three.begins_with == [one.guarantee, two.guarantee]


def test_frozen_weights_of_a_private_fit_count_and_public_ones_do_not():
    x, y = classes_of_vectors()
    module = mlp()
    module[0].requires_grad_(False)
    one = st.fit(module, x, y, epochs=1, progress=False)
    # The frozen layer is that of the beginning.
    other = mlp()
    assert st.fit(other, x, y, epochs=1, progress=False).begins_with == []
    module[2].requires_grad_(False)
    module[0].requires_grad_(True).reset_parameters()
    assert st.fit(module, x, y, epochs=1, progress=False).begins_with == [one.guarantee]


def test_weights_of_a_fit_that_is_not_private_leave_no_guarantee():
    x, y = classes_of_vectors()
    module = mlp()
    st.fit(module, x, y, algorithm="none", epochs=1, progress=False)
    with pytest.warns(sordino.PrivacyWarning, match="begins with the weights of an earlier fit. .* guarantee NOTHING"):
        st.fit(module, x, y, epochs=1, progress=False)


def test_training_begins_with_the_weights_of_the_module():
    x, y = classes_of_vectors()
    module = mlp()
    before = weights(module)
    # The learning rate is so small that a step does not move a weight by more than a thousandth.
    st.fit(module, x, y, steps=1, learning_rate=1e-6, noise_multiplier=1.0, epsilon=None, progress=False)
    for name, value in module.state_dict().items():
        assert torch.allclose(value, before[name], atol=1e-3), name
    assert any(not torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_trained_weights_agree_with_the_engine():
    x, y = classes_of_vectors()
    module = mlp()
    result = st.fit(module, x, y, epochs=1, progress=False)
    assert np.array_equal(result._fitted.parameters()["2.weight"], module[2].weight.detach().numpy())
    probabilities = result._fitted.predict_proba(sordino._sordino.Data(x.numpy()))
    with torch.no_grad():
        expected = module(x).softmax(1).numpy()
    assert np.allclose(probabilities, expected, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_trained_model_has_the_outputs_of_the_engine(name):
    torch.manual_seed(0)
    module, shape = MODELS[name]()
    x, before = sample(module, shape, 40), weights(module)
    result = st.fit(module, x, torch.randint(2, (40,)), steps=2, batch_size=20, progress=False)
    changed = [name for name, parameter in module.named_parameters() if not torch.equal(parameter, before[name])]
    assert changed == [name for name, _ in module.named_parameters()]
    conversion = st.convert(module, shape)
    engine = conversion.network().outputs(result._fitted.parameters(), x.numpy().astype(np.uint32 if conversion.tokens else np.float32))
    with torch.no_grad():
        expected = module.eval()(x)
    if conversion.log_softmax:
        engine = torch.from_numpy(engine).log_softmax(1).numpy()
    assert np.abs(engine - expected.numpy()).max() <= 1e-5 * expected.abs().max()


def test_only_parameters_that_are_not_frozen_change():
    x, y = classes_of_vectors()
    module = mlp()
    module[0].requires_grad_(False)
    before = weights(module)
    st.fit(module, x, y, epochs=1, progress=False)
    assert torch.equal(module[0].weight, before["0.weight"]) and torch.equal(module[0].bias, before["0.bias"])
    assert not torch.equal(module[2].weight, before["2.weight"])
    assert [p.requires_grad for p in module.parameters()] == [False, False, True, True]


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_module_does_not_change(training):
    x, y = classes_of_vectors()
    module = mlp().train(training)
    st.fit(module, x, y, epochs=1, progress=False)
    assert all(part.training is training for part in module.modules())


def test_arrays_and_tensors_give_the_same_model():
    x, y = classes_of_vectors()
    first, second = mlp(), mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        st.fit(first, x, y, epochs=1, seed=1, progress=False)
        st.fit(second, x.double().numpy(), y.numpy().astype(np.int8), epochs=1, seed=1, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))


@pytest.mark.parametrize("kind", [torch.float32, torch.uint8])
def test_float32_and_uint8_tensors_are_not_copied(monkeypatch, kind):
    given = []

    class Stop(Exception):
        pass

    def data(x, **_):
        given.append(x)
        raise Stop

    monkeypatch.setattr(sordino._torch_training, "Data", data)
    x = torch.zeros(10, 1, 8, 8, dtype=kind)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))
    with pytest.raises(Stop):
        st.fit(module, x, torch.zeros(10, dtype=torch.long), progress=False)
    assert np.shares_memory(given[0], x.numpy())


def test_one_output_and_two_classes_have_the_logistic_loss():
    x, y = classes_of_vectors(3000)
    for labels, more in ((y, {}), (y.bool(), {}), (y.float(), {"loss": "logistic"}), (y[:, None], {})):
        module = mlp(1)
        st.fit(module, x, labels, epsilon=4.0, epochs=5, progress=False, **more)
        with torch.no_grad():
            assert ((module(x)[:, 0] > 0) == y.bool()).float().mean() > 0.85


def test_floats_are_targets_of_a_regression():
    x, _ = classes_of_vectors(3000)
    target = 0.5 * x[:, :2]
    module = nn.Linear(6, 2)
    nn.init.zeros_(module.weight)
    st.fit(module, x, target, epsilon=4.0, epochs=10, progress=False)
    with torch.no_grad():
        assert (module(x) - target).square().mean() < 0.5 * target.square().mean()
    st.fit(nn.Linear(6, 1), x, target[:, 0], epochs=1, progress=False)


def test_images_sequences_and_tokens_are_trained():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (300,), generator=generator)
    images = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    bytes_ = torch.randint(256, (300, 1, 8, 8), generator=generator, dtype=torch.uint8)
    # With 3 columns, 10 channels and 9 rows, the axes could be taken for rows, columns and channels.
    narrow = nn.Sequential(nn.Conv2d(10, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    cases = [
        (images, torch.randn(300, 1, 8, 8, generator=generator)), (images, bytes_), (narrow, torch.randn(300, 10, 9, 3, generator=generator)),
        (LastState(), torch.randn(300, 5, 4, generator=generator)), (Mean(), torch.randint(20, (300, 7), generator=generator)),
    ]
    for module, x in cases:
        before = weights(module)
        st.fit(module, x, y, epochs=1, progress=False)
        changed = [not torch.equal(value, before[name]) for name, value in module.state_dict().items()]
        assert all(changed), type(module)


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.fc = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.rnn(x)[1][-1])


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.embedding(x).mean(1))


def test_test_records_give_a_score():
    x, y = classes_of_vectors(2000)
    result = st.fit(mlp(), x[:1500], y[:1500], epochs=5, test=(x[1500:], y[1500:]), public_test=True, progress=False)
    assert 0.5 < result.test_score <= 1.0


def test_the_history_has_the_scores_during_training(tmp_path):
    x, y = classes_of_vectors(2000)
    result = st.fit(mlp(), x[:1000], y[:1000], steps=40, test=(x[1000:], y[1000:]), public_test=True, run_folder=tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert result.history == [(line["step"], line["test_accuracy"]) for line in lines] and len(lines) > 2
    assert result.history[-1] == (40, result.test_score)
    assert st.fit(mlp(), x, y, steps=2, progress=False).history == []


def test_units_are_protected_as_a_whole():
    x, y = classes_of_vectors()
    result = st.fit(mlp(), x, y, epochs=1, units=np.arange(len(x)) // 3, unit="patient", progress=False)
    assert "patient" in str(result.guarantee)


def test_a_run_that_was_stopped_is_resumed(tmp_path):
    x, y = classes_of_vectors(2000)
    module = mlp()
    before = weights(module)

    class Stop(Exception):
        pass

    def stop(step, steps, score):
        if step > 0:
            raise Stop

    folder = tmp_path / "run"
    with pytest.raises(Stop):
        st.fit(module, x, y, steps=3000, run_folder=folder, progress=stop)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    other = nn.Linear(6, 2)
    result = st.fit(module, x, y, run_folder=folder, resume=True, progress=False)
    assert result.finished and not torch.equal(module[0].weight, before["0.weight"])
    assert result.begins_with == []
    with pytest.raises(ValueError):
        st.fit(other, x, y, run_folder=folder, resume=True, progress=False)


def test_a_resumed_run_begins_with_the_weights_that_its_folder_has(tmp_path):
    x, y = classes_of_vectors(2000)
    module = mlp()
    one = st.fit(module, x, y, epochs=1, progress=False)
    with pytest.raises(ZeroDivisionError):
        st.fit(module, x, y, steps=3000, run_folder=tmp_path / "run", progress=lambda step, steps, score: step and 1 / 0)
    two = st.fit(mlp(), x, y, run_folder=tmp_path / "run", resume=True, progress=False)
    assert two.begins_with == [one.guarantee]


def test_a_resumed_run_counts_as_one_fit(tmp_path):
    # No other test has records of this shape.
    x = torch.randn(2000, 37)
    y, module = (x[:, 0] > 0).long(), nn.Linear(37, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroDivisionError):
            st.fit(module, x, y, steps=3000, run_folder=tmp_path / "run", progress=lambda step, steps, score: step and 1 / 0)
        one = st.fit(module, x, y, run_folder=tmp_path / "run", resume=True, progress=False)
    with pytest.warns(sordino.PrivacyWarning, match="this is fit number 2 ") as warned:
        two = st.fit(nn.Linear(37, 2), x, y, epochs=1, progress=False)
    total = rounded_up(sordino.total_guarantee([one.guarantee, two.guarantee])[0], 4)
    assert f"({total}, 2e-05)" in str(warned[0].message)
    # A run cannot be counted twice, because a run that has been counted is finished.
    with pytest.raises(ValueError, match="nothing to resume"):
        st.fit(module, x, y, run_folder=tmp_path / "run", resume=True, progress=False)


def test_a_module_is_not_changed_by_an_error():
    x, y = classes_of_vectors()
    module = mlp()
    before = weights(module)
    with pytest.raises(sordino.BudgetError):
        st.fit(module, x, y, epsilon=0.1, noise_multiplier=0.5, epochs=10, progress=False)
    with pytest.raises(ValueError, match="epsilon must be"):
        st.fit(module, x, y, epsilon=-1.0, progress=False)
    with pytest.raises(ValueError):
        st.fit(module, x, y, no_such_setting=1, progress=False)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_problems_are_named_before_records_are_read():
    x = np.full((10, 6), np.nan, np.float32)
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(st.ConversionError, match="replace_batch_norm"):
        st.fit(module, x, np.full(10, 99), progress=False)


BAD = {
    "a class that the module has no output for": (lambda x, y: (x, y + 1), "must be a class from 0 to 1, got 2"),
    "a negative class": (lambda x, y: (x, y - 1), "must be a class from 0 to 1, got -1"),
    "labels of another length": (lambda x, y: (x, y[1:]), "inconsistent numbers"),
    "no records": (lambda x, y: (x[:0], y[:0]), "no records"),
    "NaN": (lambda x, y: (x * float("nan"), y), "must be a finite number"),
    "text": (lambda x, y: (np.array([["a"] * 6] * len(x)), y), "must have numbers"),
    "labels as text": (lambda x, y: (x, np.array(["a"] * len(x))), "class numbers or floats"),
    "too many numbers": (lambda x, y: (x, torch.zeros(len(x), 3)), "must have 2 numbers"),
    "one number for two outputs": (lambda x, y: (x, y.float()), "must have 2 numbers"),
    "one axis": (lambda x, y: (x[:, 0], y), "must have an axis for records"),
    "another device": (lambda x, y: (x.to("meta"), y), "x.cpu()"),
    "sparse": (lambda x, y: (x.to_sparse(), y), "x.to_dense()"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_refused(name):
    make, expected = BAD[name]
    with pytest.raises(ValueError, match=expected):
        st.fit(mlp(), *make(*classes_of_vectors(50)), progress=False)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"data": "mushroom"}, r"hint: use fit\(module, x, y\)"),
        ({"test_fraction": 0.1}, "test="),
        ({"lr": 0.1}, "did you mean learning_rate"),
        ({"target_epsilon": 3.0}, "did you mean epsilon"),
    ],
)
def test_settings_that_describe_files_or_do_not_exist_are_refused(settings, message):
    x, y = classes_of_vectors(50)
    with pytest.raises(ValueError, match=message):
        st.fit(mlp(), x, y, progress=False, **settings)


def test_data_loaders_and_data_sets_are_refused():
    x, y = classes_of_vectors(50)
    data = torch.utils.data.TensorDataset(x, y)
    for values in (data, torch.utils.data.DataLoader(data)):
        with pytest.raises(ValueError, match="x must be a tensor or an array, got .*\nhint: give all records as one tensor"):
            st.fit(mlp(), values, y, progress=False)


def test_the_units_of_test_records_are_given_with_them():
    x, y = classes_of_vectors(200)
    units = np.arange(100) // 2
    result = st.fit(mlp(), x[:100], y[:100], units=units, test=(x[100:], y[100:], 100 + units), epochs=1, progress=False)
    assert result.test_score is not None
    with pytest.raises(ValueError, match="but not for the test records"):
        st.fit(mlp(), x[:100], y[:100], units=units, test=(x[100:], y[100:]), epochs=1, progress=False)


def test_images_without_an_axis_for_channels_are_refused_with_the_remedy():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))
    with pytest.raises(st.ConversionError, match=r"x\[:, None\]"):
        st.fit(module, torch.zeros(10, 8, 8), torch.zeros(10).long(), progress=False)


def test_bad_tokens_are_refused():
    y = np.zeros(4, int)
    for token in (-1, 20):
        with pytest.raises(ValueError, match="must be a token from 0 to 19"):
            st.fit(Mean(), np.full((4, 7), token), y, progress=False)
    with pytest.raises(ValueError, match="which are integers"):
        st.fit(Mean(), np.zeros((4, 7), np.float32), y, progress=False)


def test_a_last_sigmoid_is_refused_for_classes():
    x, y = classes_of_vectors(50)
    with pytest.raises(ValueError, match="ends in Sigmoid"):
        st.fit(nn.Sequential(nn.Linear(6, 1), nn.Sigmoid()), x, y, progress=False)


def test_arrays_that_are_not_contiguous_give_the_same_model():
    x, y = classes_of_vectors()
    first, second = mlp(), mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        st.fit(first, x, y, epochs=1, seed=1, progress=False)
        st.fit(second, np.asfortranarray(x.numpy()), y, epochs=1, seed=1, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))


@pytest.mark.parametrize("module", [st, sordino._torch_conversion], ids=["torch", "conversion"])
def test_examples_in_docstrings_are_correct(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0 and failed == 0
