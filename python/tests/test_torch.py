"""Networks that are converted from PyTorch modules have the same outputs."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_modules import MODELS, Encoder, MnistCnn, ResNet20, Wrapped, image, sample  # noqa: E402

import sordino.torch as st  # noqa: E402


def randomise(module):
    """Sets all parameters to random values, because initial values such as 0 and 1 can hide errors."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            scale = 0.3 if parameter.dim() == 1 else 1 / math.sqrt(max(1, parameter[0].numel()))
            parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if "norm" in name and name.endswith("weight") else 0.0))
    return module


def assert_same_outputs(module, shape):
    module = randomise(module)
    conversion = st.convert(module, shape)
    x = sample(module, shape)
    module.eval()
    with torch.no_grad():
        expected = module(x)
    outputs = conversion.outputs_of(x).reshape(expected.shape)
    difference = (outputs - expected).abs().max() / expected.abs().max()
    assert difference <= 1e-5, difference
    return conversion


LAYERS = {
    "linear": lambda: (nn.Linear(7, 4), (7,)),
    "linear without bias": lambda: (nn.Linear(7, 4, bias=False), (7,)),
    "linear on sequences": lambda: (Wrapped(lambda m, x: m.fc(x).mean(1), fc=nn.Linear(7, 4)), (5, 7)),
    "conv2d": lambda: (image(nn.Conv2d(3, 8, 3)), (3, 9, 11)),
    "conv2d, stride and padding": lambda: (image(nn.Conv2d(2, 5, 5, stride=2, padding=2, bias=False)), (2, 9, 8)),
    "conv2d, groups": lambda: (image(nn.Conv2d(4, 8, 3, groups=2)), (4, 6, 6)),
    "conv2d, same": lambda: (image(nn.Conv2d(2, 4, 3, padding="same")), (2, 6, 7)),
    "conv2d, valid": lambda: (image(nn.Conv2d(2, 4, 3, padding="valid")), (2, 6, 7)),
    "conv2d, winograd": lambda: (image(nn.Conv2d(16, 16, 3, padding=1)), (16, 9, 9)),
    "group norm": lambda: (image(nn.Conv2d(1, 6, 3), nn.GroupNorm(3, 6)), (1, 8, 8)),
    "instance norm": lambda: (image(nn.Conv2d(1, 6, 3), nn.InstanceNorm2d(6, affine=True)), (1, 8, 8)),
    "layer norm": lambda: (nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6)), (5,)),
    "layer norm, epsilon": lambda: (nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6, eps=1e-2)), (5,)),
    "layer norm without parameters": lambda: (nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6, elementwise_affine=False)), (5,)),
    "embedding": lambda: (Wrapped(lambda m, x: m.table(x).mean(dim=1), table=nn.Embedding(30, 6)), (8,)),
    "embedding bag": lambda: (nn.EmbeddingBag(30, 6, mode="mean"), (8,)),
    "embedding, last step": lambda: (Wrapped(lambda m, x: m.table(x)[:, -1], table=nn.Embedding(30, 6)), (8,)),
    "embedding, first step": lambda: (Wrapped(lambda m, x: m.table(x)[:, 0, :], table=nn.Embedding(30, 6)), (8,)),
    "lstm, last output": lambda: (Wrapped(lambda m, x: m.rnn(x)[0][:, -1, :], rnn=nn.LSTM(4, 6, batch_first=True)), (7, 4)),
    "gru, last output": lambda: (Wrapped(lambda m, x: m.rnn(x)[0][:, -1], rnn=nn.GRU(4, 6, batch_first=True)), (7, 4)),
    "lstm, last state": lambda: (Wrapped(lambda m, x: m.rnn(x)[1][0][-1], rnn=nn.LSTM(4, 6, 3, batch_first=True)), (7, 4)),
    "gru, last state": lambda: (Wrapped(lambda m, x: m.rnn(x)[1].squeeze(0), rnn=nn.GRU(4, 6, batch_first=True)), (7, 4)),
    "lstm, mean": lambda: (Wrapped(lambda m, x: m.rnn(x)[0].mean(1), rnn=nn.LSTM(4, 6, 2, batch_first=True, dropout=0.5)), (7, 4)),
    "attention": lambda: (Wrapped(lambda m, x: m.a(x, x, x)[0].mean(1), a=nn.MultiheadAttention(8, 2, batch_first=True)), (6, 8)),
    "encoder layer": lambda: (Wrapped(lambda m, x: m.e(x).mean(1), e=nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)), (6, 8)),
    "relu": lambda: (nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True)), (5,)),
    "tanh": lambda: (nn.Sequential(nn.Linear(5, 6), nn.Tanh()), (5,)),
    "sigmoid": lambda: (nn.Sequential(nn.Linear(5, 6), nn.Sigmoid()), (5,)),
    "gelu": lambda: (nn.Sequential(nn.Linear(5, 6), nn.GELU()), (5,)),
    "gelu, tanh": lambda: (nn.Sequential(nn.Linear(5, 6), nn.GELU(approximate="tanh")), (5,)),
    "dropout": lambda: (nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.3), nn.Identity()), (5,)),
    "max pool": lambda: (image(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2)), (1, 9, 8)),
    "max pool, padding": lambda: (image(nn.Conv2d(1, 4, 3), nn.MaxPool2d(3, 2, 1)), (1, 9, 8)),
    "average pool": lambda: (image(nn.Conv2d(1, 4, 3), nn.AvgPool2d(3, 2)), (1, 9, 8)),
    "global average pool": lambda: (image(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), size=4), (1, 9, 6)),
    "adaptive average pool": lambda: (image(nn.Conv2d(1, 4, 3, padding=1), nn.AdaptiveAvgPool2d((2, 3)), size=24), (1, 8, 12)),
    "unflatten": lambda: (nn.Sequential(nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 3, 3), nn.Flatten()), (36,)),
    "log softmax": lambda: (nn.Sequential(nn.Linear(5, 6), nn.LogSoftmax(dim=1)), (5,)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("seed", range(3))
def test_the_outputs_of_a_layer_agree(name, seed):
    torch.manual_seed(seed)
    assert_same_outputs(*LAYERS[name]())


@pytest.mark.parametrize("seed", range(20))
def test_the_outputs_of_layers_of_random_sizes_agree(seed):
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)

    def number(low, high):
        return int(torch.randint(low, high + 1, (), generator=draw))

    channels, height, width, groups = number(1, 5), number(9, 16), number(9, 16), number(1, 4)
    kernel, stride, padding, hidden = number(1, 5), number(1, 3), number(0, 2), groups * number(1, 6)
    convolution = [nn.Conv2d(channels, hidden, kernel, stride, padding), nn.GroupNorm(groups, hidden), nn.Tanh(), nn.AdaptiveAvgPool2d(1)]
    assert_same_outputs(nn.Sequential(*convolution, nn.Flatten(), nn.Linear(hidden, number(1, 9))), (channels, height, width))
    steps, inner = number(1, 9), 4 * number(1, 4)
    kind = (nn.LSTM, nn.GRU)[seed % 2]
    recurrent = {"rnn": kind(number(1, 1) * channels, inner, number(1, 3), batch_first=True), "fc": nn.Linear(inner, number(1, 9))}
    assert_same_outputs(Wrapped(lambda m, x: m.fc(m.rnn(x)[0][:, -1]), **recurrent), (steps, channels))
    encoder = nn.TransformerEncoderLayer(inner, 2, number(1, 20), 0.0, batch_first=True, norm_first=bool(seed % 2))
    assert_same_outputs(Wrapped(lambda m, x: m.e(x)[:, 0], e=encoder), (steps, inner))


@pytest.mark.parametrize("name", MODELS)
def test_the_outputs_of_a_model_agree(name):
    torch.manual_seed(0)
    module, shape = MODELS[name]()
    conversion = assert_same_outputs(module, shape)
    # The outputs also agree after other weights are written into the module.
    conversion.write({name: array + 0.01 for name, array in conversion.arrays().items()})
    x = sample(module, shape)
    with torch.no_grad():
        expected = module.eval()(x)
    assert torch.allclose(conversion.outputs_of(x), expected, rtol=1e-4, atol=1e-5)


def test_parameters_have_the_names_of_pytorch():
    module = ResNet20()
    assert set(st.convert(module, (3, 32, 32)).weights) == set(module.state_dict())


def test_a_conversion_changes_neither_modes_nor_random_numbers():
    module = MnistCnn()
    module.conv1.eval()
    modes = [part.training for part in module.modules()]
    torch.manual_seed(1)
    before, state = {name: value.clone() for name, value in module.state_dict().items()}, torch.get_rng_state()
    st.convert(module, (1, 28, 28))
    assert [part.training for part in module.modules()] == modes
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_layers_with_frozen_parameters_are_frozen():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    module[0].requires_grad_(False)
    conversion = st.convert(module, (4,))
    assert conversion.frozen == {"0.weight", "0.bias"}
    assert conversion.description["layers"][0]["frozen"] is True
    before = module[0].weight.clone()
    conversion.write({name: array + 1 for name, array in conversion.arrays().items()})
    assert torch.equal(module[0].weight, before)


def test_modules_can_be_converted_in_threads():
    from concurrent.futures import ThreadPoolExecutor

    def work(seed):
        module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        x = torch.randn(3, 4)
        return [st.check(module, (4,)) == [] and module(x).shape == (3, 2) for _ in range(3)]

    with ThreadPoolExecutor(8) as pool:
        assert all(all(results) for results in pool.map(work, range(16)))
    assert torch.is_tensor(nn.Linear(2, 2)(torch.zeros(1, 2)))


def test_the_default_dtype_of_pytorch_does_not_matter():
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    torch.set_default_dtype(torch.float64)
    try:
        assert st.check(module, (4,)) == []
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_positions_are_trained_even_if_gradients_are_disabled(context):
    module = Encoder(False, "relu", "parameter")
    with context():
        assert st.convert(module, (12,)).frozen == frozenset()


def test_shapes_may_be_used_as_numbers():
    def forward(m, x):
        assert x.dim() == 2 and len(x) > 0 and x.shape[-1] == 4
        records, width = x.shape
        for layer in range(width // 2):
            x = torch.relu(input=m.layers[layer](x))
        return m.fc(x.view(records, -1))

    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    assert_same_outputs(Wrapped(forward, layers=layers, fc=nn.Linear(4, 3)), (4,))
