"""Parts that cannot be converted are named with their replacements."""

import math
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch_modules import Wrapped, image  # noqa: E402

import sordino.torch as st  # noqa: E402


def problems(module, shape):
    return [str(problem) for problem in st.check(module, shape)]


def test_all_problems_are_named_at_once_with_their_replacements():
    module = nn.Sequential(
        nn.Conv2d(1, 32, 3, dilation=2, padding_mode="reflect"), nn.BatchNorm2d(32), nn.LeakyReLU(), nn.Dropout2d(), nn.Flatten(),
        nn.Linear(32 * 24 * 24, 16), nn.BatchNorm1d(16), nn.Linear(16, 2), nn.Softmax(dim=1),
    )
    found = problems(module, (1, 28, 28))
    assert [problem.split(":")[0] for problem in found] == [
        "0 (Conv2d)", "0 (Conv2d)", "1 (BatchNorm2d)", "2 (LeakyReLU)", "3 (Dropout2d)", "6 (BatchNorm1d)", "8 (Softmax)",
    ]
    assert "use nn.GroupNorm(16, 32)" in found[2] and "use nn.LayerNorm((16,)" in found[5]
    with pytest.raises(ValueError, match="BatchNorm1d") as error:
        st.convert(module, (1, 28, 28))
    assert len(error.value.problems) == 7


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else self.norm(x)


def shared_weights():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, second)


def shared_memory(first, second):
    """Two layers; the weight of one is made of the values of the other, or both are made of one tensor."""
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module[0].weight, module[2].weight = first(module), second(module)
    return module


def frozen_first(module):
    """The first layer is frozen and has the memory of the last one, which is trained."""
    module[0].bias.requires_grad_(False)
    return nn.Parameter(module[2].weight.data, requires_grad=False)


def slices_of_one_tensor(step):
    values = torch.randn(8, 4)
    return shared_memory(lambda m: nn.Parameter(values[:4]), lambda m: nn.Parameter(values[step : step + 4]))


def buffer_of_a_parameter():
    module = nn.Linear(4, 2)
    module.register_buffer("last", module.weight.data[-1:])
    return module


def repeated_values():
    module = nn.Linear(4, 4)
    module.weight = nn.Parameter(torch.randn(4).expand(4, 4))
    return module


def overwritten(m, x):
    y = m.fc(x)
    return F.relu(y, inplace=True) + y


def with_hook():
    module = nn.Sequential(nn.Linear(4, 2))
    module[0].register_forward_hook(lambda *_: None)
    return module


def not_finite():
    module = nn.Linear(4, 2)
    module.weight.data.fill_(math.nan)
    return module


def half_frozen():
    module = nn.Linear(4, 2)
    module.bias.requires_grad_(False)
    return module


def several_branches(m, x):
    y = m.fc(x)
    return y + (y + m.fc2(x))


def without_gradient(m, x):
    with torch.no_grad():
        y = m.fc(x)
    return m.last(y)


def cut_between(m, x):
    """The layer without a gradient is frozen, but the one before it is trained."""
    y = m.fc(x)
    with torch.no_grad():
        y = m.middle(y)
    return m.last(y)


def positions(value):
    return lambda: Wrapped(lambda m, x: m.fc(x + value(m))[:, -1], fc=nn.Linear(4, 4), table=nn.Embedding(7, 4))


def fc(forward, **more):
    return Wrapped(forward, fc=nn.Linear(4, 4), **more)


REFUSED = {
    "control flow": (Branching, (4,), "forward: depends on values"),
    "a module beside control flow": (Branching, (4,), "norm (BatchNorm1d)"),
    "wrong shape": (lambda: nn.Linear(4, 2), (5,), "fails for records of shape (5,)"),
    "shared parameters": (shared_weights, (4,), "1.weight: shares memory with 0.weight"),
    "memory of a frozen parameter": (lambda: shared_memory(frozen_first, lambda m: m[2].weight), (4,), "2.weight: shares memory with 0.weight"),
    "slices that overlap": (lambda: slices_of_one_tensor(2), (4,), "2.weight: shares memory with 0.weight"),
    "a buffer of a parameter": (buffer_of_a_parameter, (4,), "last: shares memory with weight"),
    "a parameter that repeats values": (repeated_values, (4,), "weight: has several values at one place"),
    "a layer that is called twice": (lambda: fc(lambda m, x: m.fc(m.fc(x))), (4,), "called more than once"),
    "a value that is overwritten": (lambda: fc(overwritten), (4,), "overwritten"),
    "hooks": (with_hook, (4,), "hooks"),
    "half frozen": (half_frozen, (4,), "requires_grad=False"),
    "a layer in no_grad": (lambda: fc(without_gradient, last=nn.Linear(4, 2)), (4,), "fc (Linear): computes a value without a gradient"),
    "no_grad after a layer": (
        lambda: fc(cut_between, middle=nn.Linear(4, 4).requires_grad_(False), last=nn.Linear(4, 2)), (4,), "middle (Linear): computes a value",
    ),
    "the number in a parameter": (lambda: fc(lambda m, x: F.dropout(m.fc(x), abs(m.fc.bias[0].item()) / 9, m.training)), (4,), "item: computes"),
    "a detached parameter": (positions(lambda m: m.table.weight.detach()), (7, 4), "detach: computes a value without a gradient"),
    "values of a detached parameter": (positions(lambda m: 2 * m.table.weight.detach()), (7, 4), "detach: computes a value without a gradient"),
    "the data of a parameter": (positions(lambda m: dict(m.named_parameters())["table.weight"].data), (7, 4), "without a gradient"),
    "all frozen": (lambda: nn.Linear(4, 2).requires_grad_(False), (4,), "all have requires_grad=False"),
    "no parameters": (lambda: nn.ReLU(), (4,), "there are none"),
    "float64": (lambda: nn.Linear(4, 2).double(), (4,), "module.float()"),
    "another device": (lambda: nn.Linear(4, 2).to("meta"), (4,), "module.cpu()"),
    "not finite": (not_finite, (4,), "finite"),
    "branches that are not residual": (lambda: fc(several_branches, fc2=nn.Linear(4, 4)), (4,), "several branches"),
    "a value added to itself": (lambda: fc(lambda m, x: m.fc(x + x)), (4,), "to itself"),
    "a product": (lambda: fc(lambda m, x: m.fc(x) * 2), (4,), "mul: the engine has no layer for it"),
    "a constant": (lambda: fc(lambda m, x: m.fc(x) + 1), (4,), "adds a constant"),
    "a mean over records": (lambda: fc(lambda m, x: m.fc(x).mean(0)), (4,), "number of records"),
    "several outputs": (lambda: fc(lambda m, x: (m.fc(x), x)), (4,), "returns tuple"),
    "softmax inside": (lambda: fc(lambda m, x: F.log_softmax(m.fc(x), 1) + x), (4,), "log_softmax must be the last"),
    "dropout in evaluation": (lambda: fc(lambda m, x: F.dropout(m.fc(x), 0.9)), (4,), "other outputs than the module"),
    "steps first": (lambda: Wrapped(lambda m, x: m.rnn(x)[0][:, -1], rnn=nn.LSTM(4, 6)), (7, 4), "batch_first=True"),
    "bidirectional": (
        lambda: Wrapped(lambda m, x: m.rnn(x)[0][:, -1], rnn=nn.GRU(4, 6, batch_first=True, bidirectional=True)), (7, 4), "bidirectional",
    ),
    "cell states": (lambda: Wrapped(lambda m, x: m.rnn(x)[1][1][-1], rnn=nn.LSTM(4, 6, batch_first=True)), (7, 4), "cell state"),
    "cross-attention": (
        lambda: Wrapped(lambda m, x: m.a(x, m.fc(x), x)[0][:, 0], a=nn.MultiheadAttention(4, 2, batch_first=True), fc=nn.Linear(4, 4)),
        (7, 4), "self-attention",
    ),
    "dropout of attention": (
        lambda: Wrapped(lambda m, x: m.e(x)[:, 0], e=nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)), (7, 4), "set e.self_attn.dropout = 0.0",
    ),
    "steps first in an encoder": (
        lambda: Wrapped(lambda m, x: m.e(x)[:, 0], e=nn.TransformerEncoderLayer(4, 2, 8, 0.0)), (7, 4), "batch_first=True",
    ),
    "padding token": (lambda: Wrapped(lambda m, x: m.e(x).mean(1), e=nn.Embedding(9, 4, padding_idx=0)), (7,), "padding_idx"),
    "flatten of sequences": (lambda: Wrapped(lambda m, x: m.e(x).flatten(1), e=nn.Embedding(9, 4)), (7,), "changes the shape"),
    "running statistics": (lambda: image(nn.InstanceNorm2d(2, affine=True, track_running_stats=True), nn.Conv2d(2, 2, 1)), (2, 5, 5), "statistics"),
    "rectangular kernel": (lambda: image(nn.Conv2d(2, 2, (1, 3))), (2, 5, 5), "differs between rows and columns"),
    "ceil mode": (lambda: image(nn.Conv2d(2, 2, 1), nn.MaxPool2d(2, ceil_mode=True)), (2, 5, 5), "ceil_mode"),
    "four dimensions": (lambda: nn.Linear(4, 2), (2, 2, 2, 4), "use vectors, sequences"),
    "an image as output": (lambda: nn.Conv2d(2, 2, 1), (2, 5, 5), "must end in a vector"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_parts_that_cannot_be_converted_are_named(name):
    make, shape, expected = REFUSED[name]
    found = problems(make(), shape)
    assert any(expected in problem for problem in found), found


def test_memory_is_shared_only_if_ranges_overlap_and_one_is_trained():
    assert problems(slices_of_one_tensor(4), (4,)) == []
    frozen = shared_memory(frozen_first, lambda m: m[2].weight).requires_grad_(False)
    assert problems(nn.Sequential(frozen, nn.Linear(4, 2)), (4,)) == []
    turned = nn.Linear(4, 4)
    turned.weight = nn.Parameter(torch.randn(4, 4).t())
    assert problems(turned, (4,)) == []


def test_frozen_layers_may_be_used_without_a_gradient():
    module = fc(without_gradient, last=nn.Linear(4, 2))
    module.fc.requires_grad_(False)
    assert problems(module, (4,)) == []
    module = positions(lambda m: m.table.weight.detach())()
    module.table.requires_grad_(False)
    assert problems(module, (7, 4)) == []


def test_without_pytorch_the_error_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; import sordino.torch"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode != 0 and "sordino.torch needs PyTorch\nhint: pip install torch" in result.stderr


def test_batch_norm_is_replaced_in_a_copy():
    module = nn.Sequential(nn.Conv2d(1, 24, 3), nn.BatchNorm2d(24), nn.Sequential(nn.Flatten(), nn.Linear(24 * 36, 8), nn.BatchNorm1d(8)))
    replaced = st.replace_batch_norm(module)
    assert isinstance(module[1], nn.BatchNorm2d) and isinstance(replaced[1], nn.GroupNorm) and isinstance(replaced[2][2], nn.LayerNorm)
    assert st.check(replaced, (1, 8, 8)) == []
    assert torch.equal(module[0].weight, replaced[0].weight)


class Counting(nn.Module):
    """Keeps a running mean of the records."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean.mul_(0.9)
        self.mean = self.mean + 1
        return self.fc(x)


def test_buffers_that_forward_changes_are_named_and_restored():
    module = Counting()
    buffer = module.mean
    assert [problem.where for problem in st.check(module, (4,))] == ["mean"]
    assert module.mean is buffer and torch.equal(buffer, torch.zeros(4))
