"""A module of PyTorch as a network of the engine."""

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch
from torch import nn

from ._sordino import Network
from ._torch_flow import Flow, row
from ._torch_graph import Graph
from ._torch_layers import Layer, Layers, Problem, collecting
from ._torch_memory import named_tensors, shared
from ._torch_tracing import first_line, in_mode, same_buffers

# The largest permitted difference between the outputs of the engine and of the module, relative to the largest output.
TOLERANCE = 1e-4


class ConversionError(ValueError):
    """Raised if a module cannot be converted.

    Attributes
    ----------
    problems : list of Problem
        All problems, each with its replacement.
    """

    def __init__(self, problems: List[Problem]) -> None:
        self.problems = problems
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"the module cannot be converted into layers of the engine:\n{lines}")


@dataclass
class Conversion:
    """A module as a network of the engine.

    Attributes
    ----------
    description : dict
        The network as a dictionary, in the format of ``docs/engine.md``.
    weights : dict of str to torch.Tensor
        The weights by their names in the engine. They are views of the parameters of the module.
    frozen : set of str
        The names of the weights that are not trained.
    input_shape : tuple of int
        The shape of a record as the engine reads it.
    tokens : bool
        Whether the records are sequences of tokens.
    outputs : int
        The number of outputs.
    log_softmax : bool
        Whether the module applies ``log_softmax`` to the outputs of the network. The loss is the same without it.
    """

    description: Dict[str, Any]
    weights: Dict[str, torch.Tensor]
    frozen: frozenset
    input_shape: Tuple[int, ...]
    tokens: bool
    outputs: int = 0
    log_softmax: bool = False

    def arrays(self) -> Dict[str, np.ndarray]:
        """The current weights of the module as arrays."""
        return {name: np.ascontiguousarray(view.numpy()) for name, view in self.weights.items()}

    def write(self, arrays: Dict[str, np.ndarray]) -> None:
        """Writes weights into the module. Frozen weights are not changed."""
        with torch.no_grad():
            for name, view in self.weights.items():
                if name not in self.frozen:
                    view.copy_(torch.from_numpy(np.asarray(arrays[name])).reshape(view.shape))

    def network(self) -> Network:
        """The network of the engine."""
        return Network(json.dumps(self.description))

    def outputs_of(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs of the engine for records, without dropout."""
        x = x.reshape(len(x), *self.input_shape)
        outputs = torch.from_numpy(self.network().outputs(self.arrays(), np.ascontiguousarray(x.numpy(), np.uint32 if self.tokens else np.float32)))
        return outputs.log_softmax(-1) if self.log_softmax else outputs


def convert(module: nn.Module, input_shape: Tuple[int, ...]) -> Conversion:
    """Converts a module into a network of the engine.

    Parameters
    ----------
    module : nn.Module
        The module, on the CPU, with parameters of type float32. It is not changed.
    input_shape : tuple of int
        The shape of one record, without the number of records.

    Returns
    -------
    Conversion

    Raises
    ------
    ConversionError
        If the module cannot be converted. It lists all problems and their replacements.

    Examples
    --------
    >>> from torch import nn
    >>> import sordino.torch
    >>> conversion = sordino.torch.convert(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (4,))
    >>> [layer["type"] for layer in conversion.description["layers"]]
    ['linear', 'tanh']
    >>> sorted(conversion.weights)
    ['0.bias', '0.weight']
    """
    problems, conversion = find_problems(module, input_shape)
    if conversion is None:
        raise ConversionError(problems)
    return conversion


@torch.inference_mode(False)
def find_problems(module: nn.Module, input_shape: Tuple[int, ...]) -> Tuple[List[Problem], Optional[Conversion]]:
    """All problems of a module; its conversion if there are none."""
    problems = list(parameter_problems(module))
    if any(problem.where == "parameters" for problem in problems):
        return problems, None
    graph = Graph(module, tuple(input_shape))
    problems += graph.problems
    if problems or graph.output is None:
        return problems, None
    with collecting() as found:
        conversion = assemble(graph.output, graph.vocabulary)
    problems = [Problem("forward", *problem) for problem in found]
    if problems:
        return problems, None
    try:
        conversion.outputs = conversion.network().output_width
        expected = dict(conversion.network().parameters())
        if expected != {name: tuple(view.shape) for name, view in conversion.weights.items()}:
            raise ValueError("its parameters have other names or shapes in the engine")
        # Layers may use parts of one parameter.
        if any(shared((name, view, name not in conversion.frozen) for name, view in conversion.weights.items())):
            problems.append(Problem("parameters", "one is used in several layers", "use a parameter for each layer"))
        elif expected.keys() == conversion.frozen:
            problems.append(Problem("parameters", "all have requires_grad=False", "set requires_grad=True for at least one layer"))
        # The number of records differs from that of the trace, because the graph must not depend on it.
        elif not agrees(module, conversion, graph.sample(tuple(input_shape), 5)):
            remedy = "use modules that have the same outputs in every call; F.dropout needs training=self.training"
            problems.append(Problem("forward", "the layers compute other outputs than the module in evaluation mode", remedy))
    except ValueError as error:
        problems.append(Problem("network", str(error).split("\nhint:")[0], "docs/engine.md describes the inputs of each layer"))
    return problems, None if problems else conversion


def parameter_problems(module: nn.Module) -> Iterator[Problem]:
    """Parameters that the engine cannot read, and parameters that modules share."""
    named = [value for part in module.modules() for value in part._parameters.values() if value is not None]
    if any(isinstance(value, nn.parameter.UninitializedParameter) for value in named):
        yield Problem("parameters", "lazy modules have no parameters yet", "call the module once")
        return
    if any(value.device.type != "cpu" for value in named):
        yield Problem("parameters", "are not on the CPU", "use module.cpu(), and move it back after training")
        return
    if any(value.dtype != torch.float32 for value in named):
        yield Problem("parameters", "are not of type float32", "use module.float()")
        return
    if not named:
        yield Problem("parameters", "there are none", "use a module with parameters")
    if any(not bool(value.detach().isfinite().all()) for value in named):
        yield Problem("parameters", "are not finite", "initialise the module again")
        return
    for first, second in shared(named_tensors(module)):
        if first == second:
            yield Problem(second, "has several values at one place in memory", "use a copy of its values, with clone()")
        else:
            yield Problem(second, f"shares memory with {first}, and one of both is trained", "use a parameter for each layer")


def assemble(output: Flow, vocabulary: Optional[int]) -> Conversion:
    """The description, and the weights by their names in the engine."""
    start = output
    while start.dominator is not None:
        start = start.dominator
    shape = start.shape
    sizes = {"features": lambda: shape[0], "image": lambda: list(shape), "sequence": lambda: list(shape)}
    given = {start.kind: sizes[start.kind]()} if vocabulary is None else {"tokens": {"steps": shape[0], "vocabulary": vocabulary}}
    weights: Dict[str, torch.Tensor] = {}
    frozen: List[str] = []
    layers = described(row(output, start), "", weights, frozen)
    description = {"input": given, "layers": layers}
    log_softmax = output.kind == "log_probabilities"
    return Conversion(description, weights, frozenset(frozen), shape, vocabulary is not None, log_softmax=log_softmax)


def described(layers: Layers, prefix: str, weights: Dict[str, torch.Tensor], frozen: List[str]) -> List[Dict[str, Any]]:
    """Layers as dictionaries. Their weights are added to ``weights``."""
    return [describe(layer, prefix, weights, frozen) for layer in layers]


def describe(layer: Layer, prefix: str, weights: Dict[str, torch.Tensor], frozen: List[str]) -> Dict[str, Any]:
    entry: Dict[str, Any] = {"type": layer.type, **layer.settings}
    if layer.type == "residual":
        # Names inside a block begin with the name of the block.
        name = block_name(layer)
        inside = f"{prefix}{name}."
        relative = f"{name}." if name != "residual" else ""
        for branch, parts in (("body", layer.body), ("shortcut", layer.shortcut)):
            entry[branch] = described([strip(part, relative) for part in parts], inside, weights, frozen)
        return {**entry, "name": name}
    if layer.weights:
        name, number = layer.path, 2
        while any(f"{prefix}{name}.{weight}" in weights for weight in layer.weights):
            name, number = f"{layer.path}{number}", number + 1
        entry["name"] = name
        entry.update({"frozen": True} if layer.frozen else {})
        names = {f"{prefix}{name}.{weight}": view for weight, view in layer.weights.items()}
        weights.update(names)
        frozen.extend(names if layer.frozen else ())
    return entry


def paths(layer: Layer) -> List[str]:
    """The paths of all layers with weights in a layer."""
    own = [layer.path] if layer.weights else []
    return own + [path for part in layer.body + layer.shortcut for path in paths(part)]


def block_name(block: Layer) -> str:
    """The common parent path of all layers in a block, as in PyTorch; ``residual`` if there is none."""
    parents = [path.split(".")[:-1] for path in paths(block)]
    shared = []
    for parts in zip(*parents):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared) or "residual"


def strip(layer: Layer, prefix: str) -> Layer:
    """The same layer with paths without a prefix."""
    path = layer.path[len(prefix) :] if layer.path.startswith(prefix) else layer.path
    body, shortcut = ([strip(part, prefix) for part in parts] for parts in (layer.body, layer.shortcut))
    return Layer(layer.type, layer.settings, path, layer.weights, layer.frozen, body, shortcut)


def agrees(module: nn.Module, conversion: Conversion, x: torch.Tensor) -> bool:
    """Whether the engine and the module compute the same outputs for random records."""
    with same_buffers(module), in_mode(module, training=False), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            expected = module(x)
        except Exception as error:
            raise ValueError(f"forward fails in evaluation mode: {first_line(error)}") from error
    if not isinstance(expected, torch.Tensor) or expected.shape[:1] != x.shape[:1]:
        return False
    outputs = conversion.outputs_of(x).reshape(expected.shape)
    return bool((outputs - expected).abs().max() <= TOLERANCE * (1 + expected.abs().max()))
