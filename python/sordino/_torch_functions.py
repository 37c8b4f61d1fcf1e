"""Functions and methods on tensors as layers of the engine.

Each function has the arguments of the PyTorch function, with values in place of tensors, and ``shape``, the shape of a record of the result.
"""

from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch
from torch import nn

from ._torch_flow import KIND_OF_INPUT, REAL, Flow
from ._torch_layers import MODULES, Layer, Unsupported, average_pool_layers, dropout_layers, max_pool_layers, refuse

Shape = Tuple[int, ...]
FUNCTIONS: Dict[str, Callable[..., Flow]] = {}


def function(*names: str) -> Callable:
    """Registers a function under its names in PyTorch."""

    def register(convert: Callable[..., Flow]) -> Callable[..., Flow]:
        FUNCTIONS.update({name: convert for name in names})
        return convert

    return register


def pointwise(name: str, module: nn.Module) -> None:
    """Registers an activation and its in-place form."""
    FUNCTIONS[name] = lambda x, inplace=False, *, shape: activate(x, shape, module, inplace)
    FUNCTIONS[name + "_"] = lambda x, *, shape: activate(x, shape, module, True)


def activate(x: Flow, shape: Shape, module: nn.Module, inplace: bool = False) -> Flow:
    return x.read(*REAL).then(shape, MODULES[type(module)](module, ""), inplace)


pointwise("relu", nn.ReLU())
pointwise("tanh", nn.Tanh())
pointwise("sigmoid", nn.Sigmoid())


@function("gelu")
def gelu(x: Flow, approximate: str = "none", *, shape: Shape) -> Flow:
    return activate(x, shape, nn.GELU(approximate))


@function("dropout", "dropout_")
def dropout(x: Flow, p: float = 0.5, training: bool = True, inplace: bool = False, *, shape: Shape) -> Flow:
    return x.read(*REAL).then(shape, dropout_layers(p) if training else [], inplace)


@function("log_softmax")
def log_softmax(x: Flow, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None, *, shape: Shape) -> Flow:
    refuse(dim not in (1, -1, None) or len(shape) != 1, "log_softmax over a dimension other than the outputs of a record", "use dim=1")
    return x.read("features").seen_as("log_probabilities", shape)


@function("max_pool2d")
def max_pool2d(
    x: Flow, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
    *, shape: Shape,
) -> Flow:
    return x.read("image").then(shape, max_pool_layers(kernel_size, stride, padding, dilation, ceil_mode))


@function("avg_pool2d")
def avg_pool2d(x: Flow, kernel_size: Any, stride: Any = None, *options: Any, shape: Shape, **named: Any) -> Flow:
    return x.read("image").then(shape, average_pool_layers(kernel_size, stride, *options, **named))


@function("adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: Flow, output_size: Any, *, shape: Shape) -> Flow:
    """The mean of each channel, or windows of equal size."""
    (_, height, width), (_, rows, columns) = x.read("image").shape, shape
    if (rows, columns) == (1, 1):
        return x.then(shape, [Layer("global_average_pool")])
    kernel = height // rows
    refuse(
        height % rows != 0 or width % columns != 0 or kernel != width // columns,
        f"{rows}x{columns} outputs do not divide {height}x{width} pixels into equal squares", "use an output size that divides the image into equal squares",
    )
    return x.then(shape, [Layer("average_pool", {"kernel": kernel, "stride": kernel})])


@function("mean")
def mean(x: Flow, dim: Any = None, keepdim: bool = False, *, shape: Shape, **options: Any) -> Flow:
    dimensions = {d % (len(x.shape) + 1) for d in ([dim] if isinstance(dim, int) else dim or ())}
    if (x.kind, dimensions) in (("image", {2, 3}), ("pixels", {2})):
        return x.read().then(shape, [Layer("global_average_pool")])
    if (x.kind, dimensions) == ("sequence", {1}):
        return x.read("sequence").then(shape, [Layer("mean_over_steps")])
    raise Unsupported(f"mean over dim={dim} of records of shape {x.shape}", "take the mean over the steps of a sequence or the pixels of an image")


@function("getitem", "select")
def getitem(x: Flow, index: Any, *place: Any, shape: Shape) -> Flow:
    """The first or the last step of a sequence."""
    if place:  # x.select(dim, index)
        index = (slice(None),) * index + place
    index = tuple(i for i in (index if isinstance(index, tuple) else (index,)) if i is not Ellipsis)
    everything, step = slice(None), index[1] if len(index) > 1 else None
    chosen = {0: "first_step", -1: "last_step"}
    if x.kind == "sequence":
        chosen[x.shape[0] - 1] = "last_step"
    whole = len(index) in (2, 3) and index[0] == everything and index[2:] in ((), (everything,))
    if x.kind != "sequence" or not whole or not isinstance(step, int) or step not in chosen:
        raise Unsupported(f"selects a part of records of shape {x.shape}", "take the first or the last step of a sequence, x[:, 0] or x[:, -1]")
    return x.read("sequence").then(shape, [Layer(chosen[step])])


@function("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze")
def reshape(x: Flow, *arguments: Any, shape: Shape, **named: Any) -> Flow:
    """The same values in the same order."""
    if shape == x.read().shape:
        return x
    size = 1
    for length in x.shape:
        size *= length
    if x.kind == "image" and shape == (size,):
        return x.then(shape, [Layer("flatten")])
    if x.kind == "image" and shape == (x.shape[0], size // x.shape[0]):
        return x.seen_as("pixels", shape)
    if x.kind == "channels_last" and shape == (size // x.shape[2], x.shape[2]):
        return x.then(shape, [Layer("image_to_sequence")])
    # The input can be read in any shape with the same order of values.
    if not x.sources and x.kind != "tokens" and len(shape) in KIND_OF_INPUT:
        return Flow(KIND_OF_INPUT[len(shape)], shape, memory=x.memory)
    # A vector may have dimensions of size 1.
    if x.kind == "features" and sum(length != 1 for length in shape) <= 1:
        return x.seen_as("features", shape)
    remedy = "flatten images only; for sequences take the last step or the mean over steps"
    raise Unsupported(f"changes the shape of a record from {x.shape} to {shape}", remedy)


@function("transpose", "permute", "swapaxes")
def transpose(x: Flow, *dimensions: Any, shape: Shape, **named: Any) -> Flow:
    """Pixels as steps."""
    x.read()
    order = list(dimensions[0] if len(dimensions) == 1 else dimensions)
    if x.kind == "pixels" and shape == x.shape[::-1] and (len(order) == 2 or order[:1] == [0]):
        return x.then(shape, [Layer("image_to_sequence")])
    if x.kind == "image" and order in ([0, 2, 3, 1], [0, -2, -1, 1]):
        return x.seen_as("channels_last", shape)
    remedy = "records come first, then steps; use batch_first=True, and x.flatten(2).transpose(1, 2) for the pixels of an image"
    raise Unsupported(f"changes the order of dimensions of records of shape {x.shape}", remedy)


@function("contiguous", "clone", "float", "long", "int", "to", "type", "type_as")
def same(x: Flow, *arguments: Any, shape: Shape, **named: Any) -> Flow:
    """The same values. If a change of the type changes outputs, the final comparison of outputs fails."""
    return x.read()


@function("add", "add_", "iadd")
def add(x: Any, y: Any, alpha: float = 1, *, shape: Shape) -> Flow:
    """A residual block of two values, or the addition of positions to a sequence."""
    refuse(alpha != 1, f"alpha={alpha}", "leave alpha out")
    if isinstance(x, Flow) and isinstance(y, Flow):
        if x.read(*REAL).shape != y.read(*REAL).shape:
            raise Unsupported(f"adds records of shapes {x.shape} and {y.shape}", "add values of the same shape")
        return Flow(x.kind, shape, (x, y))
    flow, constant = (x, y) if isinstance(x, Flow) else (y, x)
    if flow.kind == "sequence" and isinstance(constant, torch.Tensor) and constant.shape[-2:] == flow.shape:
        return flow.read("sequence").then(shape, [of_constant("positions", constant, constant.reshape(-1, *flow.shape)[0])])
    raise Unsupported("adds a constant", "a position for each step of a sequence can be added; scale and shift the data before training")


@function("cat", "concat")
def cat(tensors: Sequence[Any], dim: int = 0, *, shape: Shape) -> Flow:
    """A learned first step of each sequence."""
    token, x = tensors if len(tensors) == 2 else (None, None)
    if not (isinstance(token, torch.Tensor) and isinstance(x, Flow) and x.kind == "sequence" and shape == (x.shape[0] + 1, x.shape[1])):
        raise Unsupported("concatenates tensors", "only a learned first step can be put before a sequence; add branches instead of concatenating them")
    return x.read("sequence").then(shape, [of_constant("class_token", token, token.reshape(-1, x.shape[1])[0])])


def of_constant(type_: str, constant: torch.Tensor, rows: torch.Tensor) -> Layer:
    """A layer whose weights are rows of a parameter or of a constant, which is not trained."""
    rows = rows.detach()
    if not constant.requires_grad:
        return Layer(type_, {}, type_, {"weight": rows.clone()}, frozen=True)
    parameter = constant if isinstance(constant, nn.Parameter) else constant._base
    start = parameter.data_ptr() if isinstance(parameter, nn.Parameter) else 0
    if not start or not start <= rows.data_ptr() < start + parameter.numel() * parameter.element_size():
        raise Unsupported("uses values that are computed from parameters", "use a parameter or its first rows")
    return Layer(type_, {}, type_, {"weight": rows})
