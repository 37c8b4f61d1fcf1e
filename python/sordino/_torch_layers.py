"""Modules of PyTorch as layers of the engine: one function for each module."""

import math
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Problem:
    """A part of a module that cannot be converted.

    Attributes
    ----------
    where : str
        The path of the part in the module, and its type: ``layer1.0.bn1 (BatchNorm2d)``.
    problem : str
        Why it cannot be converted.
    replacement : str
        What to use in its place.
    """

    where: str
    problem: str
    replacement: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.replacement}"


class Unsupported(Exception):
    """A problem and its replacement. The caller adds the path in the module."""


Found = List[Tuple[str, str]]
_found: ContextVar[Found] = ContextVar("found")


@contextmanager
def collecting() -> Iterator[Found]:
    """Collects the problems and replacements that are found in the context, so that all of them are reported at once."""
    found: Found = []
    token = _found.set(found)
    try:
        yield found
    except Unsupported as problem:
        found.append(problem.args)
    except Exception:
        # A conversion continues after a problem and may fail because of it.
        if not found:
            raise
    finally:
        _found.reset(token)


def refuse(condition: bool, problem: str, replacement: str) -> None:
    """Adds the problem to those found if the condition holds."""
    if condition and (problem, replacement) not in _found.get():
        _found.get().append((problem, replacement))


@dataclass
class Layer:
    """A layer of the engine.

    The weights are views of the parameters of the module: they are read before training and written after it.
    """

    type: str
    settings: Dict[str, Any] = field(default_factory=dict)
    path: str = ""
    weights: Dict[str, torch.Tensor] = field(default_factory=dict)
    frozen: bool = False
    body: List["Layer"] = field(default_factory=list)
    shortcut: List["Layer"] = field(default_factory=list)


Layers = List[Layer]
MODULES: Dict[type, Callable[[nn.Module, str], Layers]] = {}
READS: Dict[type, Tuple[str, ...]] = {}


def converts(*types: type, reads: Tuple[str, ...] = ("features", "image", "sequence")) -> Callable:
    """Registers a function that converts modules of these types, which read values of these kinds."""

    def register(function: Callable[[nn.Module, str], Layers]) -> Callable[[nn.Module, str], Layers]:
        for type_ in types:
            MODULES[type_], READS[type_] = function, reads
        return function

    return register


def with_weights(type_: str, path: str, parameters: Dict[str, torch.Tensor], **settings: Any) -> Layer:
    """A layer with parameters. The engine trains all parameters of a layer or none."""
    trained = {parameter.requires_grad for parameter in parameters.values()}
    refuse(len(trained) > 1, "some of its parameters have requires_grad=False and others do not", "freeze all of them or none")
    weights = {name: parameter.detach() for name, parameter in parameters.items()}
    return Layer(type_, settings, path, weights, frozen=trained == {False})


def own_parameters(module: nn.Module) -> Dict[str, torch.Tensor]:
    """The parameters of a module, without those of its submodules."""
    return dict(module.named_parameters(recurse=False))


def one_size(value: Any, name: str) -> int:
    """The side of a square."""
    sizes = (value, value) if isinstance(value, int) else tuple(value)
    refuse(len(set(sizes)) != 1, f"{name}={sizes} differs between rows and columns", f"use the same {name} for both")
    return sizes[0]


@converts(nn.Linear, reads=("features", "sequence"))
def linear(module: nn.Linear, path: str) -> Layers:
    settings = {"inputs": module.in_features, "outputs": module.out_features, "bias": module.bias is not None}
    return [with_weights("linear", path, own_parameters(module), **settings)]


@converts(nn.Conv2d, reads=("image",))
def conv2d(module: nn.Conv2d, path: str) -> Layers:
    refuse(module.padding_mode != "zeros", f"padding_mode={module.padding_mode!r}", 'use padding_mode="zeros"')
    refuse(one_size(module.dilation, "dilation") != 1, f"dilation={module.dilation}", "use dilation=1")
    kernel, stride = one_size(module.kernel_size, "kernel_size"), one_size(module.stride, "stride")
    padding = module.padding
    if padding == "same":
        refuse(kernel % 2 == 0, 'padding="same" with an even kernel pads one side more than the other', "use an odd kernel_size")
        padding = kernel // 2
    padding = 0 if padding == "valid" else one_size(padding, "padding")
    settings = {"channels": module.out_channels, "kernel": kernel, "stride": stride, "padding": padding, "groups": module.groups}
    return [with_weights("conv2d", path, own_parameters(module), bias=module.bias is not None, **settings)]


@converts(nn.GroupNorm, reads=("image",))
def group_norm(module: nn.GroupNorm, path: str) -> Layers:
    refuse(not module.affine, "affine=False", "use affine=True")
    refuse(module.affine and module.bias is None, "bias=False", "use bias=True")
    refuse(module.eps != 1e-5, f"eps={module.eps}", "use eps=1e-5")
    return [with_weights("group_norm", path, own_parameters(module), groups=module.num_groups)]


@converts(nn.InstanceNorm2d, reads=("image",))
def instance_norm(module: nn.InstanceNorm2d, path: str) -> Layers:
    groups = f"nn.GroupNorm({module.num_features}, {module.num_features})"
    refuse(module.track_running_stats, "track_running_stats=True keeps statistics of private records", f"use {groups}")
    refuse(not module.affine, "affine=False", f"use {groups}")
    refuse(module.eps != 1e-5, f"eps={module.eps}", "use eps=1e-5")
    return [with_weights("group_norm", path, own_parameters(module), groups=module.num_features)]


@converts(nn.LayerNorm, reads=("features", "sequence"))
def layer_norm(module: nn.LayerNorm, path: str) -> Layers:
    shape = tuple(module.normalized_shape)
    refuse(len(shape) != 1, f"normalized_shape={shape} has several dimensions", "normalise the last one; for images use nn.GroupNorm(1, channels)")
    parameters = own_parameters(module)
    refuse(len(parameters) == 1, "bias=False", "use bias=True, or elementwise_affine=False")
    return [with_weights("layer_norm", path, parameters, epsilon=module.eps, affine=bool(parameters))]


def check_embedding(module: nn.Module) -> None:
    refuse(module.padding_idx is not None, "padding_idx excludes a vector from training", "leave padding_idx out")
    refuse(module.max_norm is not None, "max_norm changes the vectors in the forward pass", "leave max_norm out")
    refuse(module.scale_grad_by_freq, "scale_grad_by_freq=True makes gradients depend on the other records", "use scale_grad_by_freq=False")


@converts(nn.Embedding, reads=("tokens",))
def embedding(module: nn.Embedding, path: str) -> Layers:
    check_embedding(module)
    return [with_weights("embedding", path, own_parameters(module), width=module.embedding_dim)]


@converts(nn.EmbeddingBag, reads=("tokens",))
def embedding_bag(module: nn.EmbeddingBag, path: str) -> Layers:
    check_embedding(module)
    refuse(module.mode != "mean", f"mode={module.mode!r}", 'use mode="mean"')
    return [with_weights("embedding", path, own_parameters(module), width=module.embedding_dim), Layer("mean_over_steps")]


@converts(nn.ReLU)
def relu(module: nn.ReLU, path: str) -> Layers:
    return [Layer("relu")]


@converts(nn.Tanh)
def tanh(module: nn.Tanh, path: str) -> Layers:
    return [Layer("tanh")]


@converts(nn.GELU)
def gelu(module: nn.GELU, path: str) -> Layers:
    return [Layer("gelu" if module.approximate == "none" else "gelu_tanh")]


@converts(nn.Sigmoid)
def sigmoid(module: nn.Sigmoid, path: str) -> Layers:
    return [Layer("tempered_sigmoid", {"scale": 1.0, "temperature": 1.0, "offset": 0.0})]


@converts(nn.Dropout)
def dropout(module: nn.Dropout, path: str) -> Layers:
    return dropout_layers(module.p)


def dropout_layers(rate: float) -> Layers:
    """Dropout at this rate; no layer at rate 0."""
    refuse(rate >= 1, f"p={rate} sets all values to zero", "use p below 1")
    return [Layer("dropout", {"rate": rate})] if rate > 0 else []


@converts(nn.Identity)
def identity(module: nn.Identity, path: str) -> Layers:
    return []


@converts(nn.MaxPool2d, reads=("image",))
def max_pool(module: nn.MaxPool2d, path: str) -> Layers:
    refuse(module.return_indices, "return_indices=True", "use return_indices=False")
    return max_pool_layers(module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)


def max_pool_layers(kernel: Any, stride: Any, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Layers:
    refuse(ceil_mode, "ceil_mode=True", "use ceil_mode=False")
    refuse(one_size(dilation, "dilation") != 1, f"dilation={dilation}", "use dilation=1")
    kernel = one_size(kernel, "kernel_size")
    settings = {"kernel": kernel, "stride": one_size(stride or kernel, "stride"), "padding": one_size(padding, "padding")}
    return [Layer("max_pool", settings)]


@converts(nn.AvgPool2d, reads=("image",))
def average_pool(module: nn.AvgPool2d, path: str) -> Layers:
    options = module.ceil_mode, module.count_include_pad, module.divisor_override
    return average_pool_layers(module.kernel_size, module.stride, module.padding, *options)


def average_pool_layers(
    kernel: Any, stride: Any, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None
) -> Layers:
    refuse(ceil_mode, "ceil_mode=True", "use ceil_mode=False")
    refuse(one_size(padding, "padding") != 0, f"padding={padding}", "use padding=0")
    refuse(divisor_override is not None, f"divisor_override={divisor_override}", "leave divisor_override out")
    kernel = one_size(kernel, "kernel_size")
    return [Layer("average_pool", {"kernel": kernel, "stride": one_size(stride or kernel, "stride")})]


# Modules that the engine does not have, by the name of their type: the problem and the replacement.
MIXES = "normalises over the records of a batch, so there are no per-record gradients"
SOFTMAX = ("the loss already applies softmax to the outputs", "remove it, and apply it to the outputs of the trained module")
ACTIVATION = ("the engine does not have this activation", "use nn.ReLU, nn.GELU, nn.Tanh or nn.Sigmoid")
DROPOUT = ("the engine has dropout of single values only", "use nn.Dropout")
IMAGES = ("the engine has two-dimensional convolutions and pooling only", "use the two-dimensional module, with images of channels, rows and columns")
REFUSED: Dict[str, Tuple[str, str]] = {
    "Softmax": SOFTMAX,
    "LeakyReLU": ACTIVATION, "PReLU": ACTIVATION, "RReLU": ACTIVATION, "ReLU6": ACTIVATION, "ELU": ACTIVATION, "SELU": ACTIVATION,
    "CELU": ACTIVATION, "SiLU": ACTIVATION, "Mish": ACTIVATION, "Softplus": ACTIVATION, "Softsign": ACTIVATION, "Hardtanh": ACTIVATION,
    "Hardswish": ACTIVATION, "Hardsigmoid": ACTIVATION, "LogSigmoid": ACTIVATION, "Tanhshrink": ACTIVATION, "GLU": ACTIVATION,
    "Dropout1d": DROPOUT, "Dropout2d": DROPOUT, "Dropout3d": DROPOUT, "AlphaDropout": DROPOUT, "FeatureAlphaDropout": DROPOUT,
    "Conv1d": IMAGES, "Conv3d": IMAGES, "MaxPool1d": IMAGES, "MaxPool3d": IMAGES, "AvgPool1d": IMAGES, "AvgPool3d": IMAGES,
    "ConvTranspose2d": ("the engine does not have transposed convolutions", "use nn.Conv2d"),
    "AdaptiveMaxPool2d": ("the engine does not have it", "use nn.MaxPool2d or nn.AdaptiveAvgPool2d"),
    "RNN": ("the engine does not have plain recurrent networks", "use nn.LSTM or nn.GRU with batch_first=True"),
    "RMSNorm": ("the engine does not have it", "use nn.LayerNorm"),
    "TransformerDecoder": ("the engine has encoders only", "use nn.TransformerEncoder"),
    "TransformerDecoderLayer": ("the engine has encoders only", "use nn.TransformerEncoderLayer"),
    "Transformer": ("the engine has encoders only", "use nn.TransformerEncoder"),
    "Bilinear": ("the engine does not have it", "use nn.Linear"),
    "LocalResponseNorm": ("the engine does not have it", "use nn.GroupNorm"),
}


def batch_norm_replacement(module: nn.Module) -> nn.Module:
    """A layer that normalises each record separately, in place of BatchNorm."""
    if isinstance(module, nn.BatchNorm1d):
        return nn.LayerNorm(module.num_features)
    return nn.GroupNorm(math.gcd(module.num_features, 16), module.num_features)


def reason(module: nn.Module) -> Unsupported:
    """Why a module whose type is not registered cannot be converted."""
    name = type(module).__name__
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        use = f"nn.{batch_norm_replacement(module)}".split(", eps")[0] + ")"
        return Unsupported(MIXES, f"use {use}, or sordino.torch.replace_batch_norm(module)")
    problem, replacement = REFUSED.get(name, ("the engine does not have this module", "docs/engine.md lists the layers of the engine"))
    return Unsupported(problem, replacement)


def activation_of(function: Any) -> Layers:
    """An activation that is given as a function or as a module."""
    if isinstance(function, nn.Module) and type(function) in (nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid):
        return MODULES[type(function)](function, "")
    names = {F.relu: "relu", torch.relu: "relu", F.gelu: "gelu", torch.tanh: "tanh"}
    if function not in names:
        raise Unsupported(f"activation={function!r}", 'use activation="relu" or "gelu"')
    return [Layer(names[function])]
