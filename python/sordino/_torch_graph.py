"""The graph of a module, converted to values and layers."""

import inspect
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
import torch.nn.functional as F
from torch import fx, nn

from ._torch_blocks import CAUSAL, masked
from ._torch_flow import KIND_OF_INPUT, Flow
from ._torch_functions import FUNCTIONS
from ._torch_layers import MODULES, READS, Layer, Problem, Unsupported, collecting, reason
from ._torch_memory import named_tensors, shared
from ._torch_tracing import NeedsTokens, Tracer, contains_tensor, first_line, same_buffers

# Modules whose layers depend on shapes, with the functions and arguments that compute the same.
AS_FUNCTIONS = {
    nn.Flatten: ("flatten", ()), nn.Unflatten: ("unflatten", ()), nn.LogSoftmax: ("log_softmax", ("dim",)),
    nn.AdaptiveAvgPool2d: ("adaptive_avg_pool2d", ("output_size",)),
}
NO_FUNCTION = "the engine has no layer for it"
USE_LAYERS = "use modules and functions of layers that docs/engine.md lists"
NO_GRADIENT = "computes a value without a gradient from parameters that are trained"
FREEZE = "set requires_grad=False for these parameters, or leave torch.no_grad and detach out"
NUMBERS = ("item", "tolist", "equal", "allclose")
RECORDS = 3
ROOT = "module"


class OneInput(nn.Module):
    """Calls a module with one input. The other parameters of ``forward`` have their defaults."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        return self.module(x)


class Unread:
    """A result that the engine does not have."""


UNREAD = Unread()


class State:
    """The last hidden states of a recurrent network, one for each of its layers."""

    def __init__(self, sequence: Flow, layers: int) -> None:
        self.sequence, self.layers = sequence, layers

    def last(self) -> Flow:
        return self.sequence.then(self.sequence.shape[1:], [Layer("last_step")])


class Graph:
    """The flow of values through a module.

    Attributes
    ----------
    problems : list of Problem
        The parts that cannot be converted. If there are none, `output` is a value.
    output : Flow or None
        The output of the module.
    """

    def __init__(self, module: nn.Module, shape: Tuple[int, ...]) -> None:
        self.problems: List[Problem] = []
        self.output: Optional[Flow] = None
        self.values: Dict[fx.Node, Any] = {}
        self.trained: Set[fx.Node] = set()
        self.root = OneInput(module)
        self.called: Dict[str, int] = {}
        self.vocabulary: Optional[int] = None
        traced = self.trace(shape)
        if traced is None:
            self.check_modules(module)
            return
        for node in traced.nodes:
            self.check_gradient(node)
            self.convert(node)

    def trace(self, shape: Tuple[int, ...]) -> Optional[fx.Graph]:
        """The graph for random records, which are tokens if an embedding reads them."""
        tracer = Tracer(self.sample(shape, RECORDS))
        failed = f"fails for records of shape {shape}"
        try:
            with same_buffers(self.root.module) as changed:
                graph = tracer.run(self.root)
        except NeedsTokens as error:
            self.vocabulary = error.args[0]
            return self.trace(shape)
        except fx.proxy.TraceError as error:
            self.add("forward", f"depends on values: {first_line(error)}", "call layers in an order that does not depend on values")
            return None
        except Exception as error:
            conv = any(isinstance(part, nn.Conv2d) for part in self.root.module.modules())
            hint = "images have an axis for channels: x[:, None] for grey images" if conv and len(shape) == 2 else ""
            self.add("forward", f"{failed}: {first_line(error)}", hint or "check the shape of one record, without the number of records")
            return None
        for name in changed:
            self.add(name, "is a buffer that forward changes, so it could store values of records", "remove the buffer")
        self.results, self.value = tracer.results, tracer.value
        return graph

    def sample(self, shape: Tuple[int, ...], records: int) -> torch.Tensor:
        """Random records."""
        generator = torch.Generator("cpu").manual_seed(records)
        if self.vocabulary is not None:
            return torch.randint(self.vocabulary, (records, *shape), generator=generator, device="cpu")
        return torch.randn(records, *shape, generator=generator, dtype=torch.float32, device="cpu")

    def add(self, where: str, problem: str, replacement: str) -> None:
        new = Problem(where, problem, replacement)
        if new not in self.problems:
            self.problems.append(new)

    def check_modules(self, module: nn.Module) -> None:
        """Finds problems of individual modules if the graph is not known."""
        inside: Tuple[str, ...] = ()
        for path, part in module.named_modules():
            if list(part.children()) and type(part) not in MODULES or path.startswith(inside):
                continue
            inside += (f"{path}.",)
            self.module_layers(part, path)

    def module_layers(self, module: nn.Module, path: str) -> List[Layer]:
        """The layers of a module, for any input."""
        layers: List[Layer] = []
        with collecting() as found:
            if type(module) in MODULES:
                layers = MODULES[type(module)](module, path)
            elif type(module) not in AS_FUNCTIONS and type(module).__module__.startswith("torch.nn"):
                raise reason(module)
        for problem in found:
            self.add(place(path, module), *problem)
        return layers

    def check_gradient(self, node: fx.Node) -> None:
        """The engine trains a parameter through every value that is computed from it, so each of these must have a gradient."""
        if node.op == "output" or not self.is_trained(node):
            return
        if has_gradient(self.value(node)) and self.where(node) not in NUMBERS:
            self.trained.add(node)
        else:
            self.add(self.where(node), NO_GRADIENT, FREEZE)

    def is_trained(self, node: fx.Node) -> bool:
        """Whether the value of a node is computed from parameters that are trained."""
        if node.op == "get_attr":
            value = self.value(node)
            others = [(name, other, trained) for name, other, trained in named_tensors(self.root) if trained]
            return isinstance(value, torch.Tensor) and (value.requires_grad or any(shared([*others, ("", value, False)])))
        own = self.root.get_submodule(node.target).parameters() if node.op == "call_module" else ()
        return any(parameter.requires_grad for parameter in own) or not self.trained.isdisjoint(node.all_input_nodes)

    def where(self, node: fx.Node) -> str:
        """The place of a node in the module."""
        if node.op != "call_module":
            return node.target if isinstance(node.target, str) else function_name(node.target)
        return place(node.target[len(ROOT) + 1 :] or ROOT, self.root.get_submodule(node.target))

    def convert(self, node: fx.Node) -> None:
        """Converts a node that depends on values of records."""
        arguments = [self.values.get(source) for source in node.all_input_nodes]
        if node.op == "output":
            self.finish(self.argument(node.args[0]))
            return
        result = self.value(node)
        if node.op == "placeholder":
            kind = "tokens" if self.vocabulary is not None else KIND_OF_INPUT.get(result.dim() - 1, "")
            self.values[node] = Flow(kind, tuple(result.shape[1:]))
            if not kind:
                self.add("input", f"records of shape {tuple(result.shape[1:])}", "use vectors, sequences (2 dimensions), images (3) or tokens")
        elif any(value is not None for value in arguments) and contains_tensor(result):
            self.values[node] = self.convert_call(node, result)

    def convert_call(self, node: fx.Node, result: Any) -> Any:
        args, kwargs = self.argument(node.args), self.argument(node.kwargs)
        where, value = self.where(node), None
        with collecting() as found:
            if any(self.values.get(source) is UNREAD for source in node.all_input_nodes):
                raise Unsupported("uses the cell state of an LSTM or the attention weights", "use the output or the hidden state")
            if node.op == "call_module":
                module, path = self.root.get_submodule(node.target), node.target[len(ROOT) + 1 :] or ROOT
                value = self.call_module(module, path, args, kwargs, result)
            else:
                value = call_function(where, args, kwargs, result)
        for problem in found:
            self.add(where, *problem)
        if value is None and isinstance(result, torch.Tensor):
            # The conversion continues, to find all problems.
            return Flow(KIND_OF_INPUT.get(result.dim() - 1, ""), tuple(result.shape[1:]))
        return value

    def argument(self, argument: Any) -> Any:
        """Arguments of a call: values where they depend on records, else the constants themselves."""
        return fx.node.map_arg(argument, lambda node: self.values[node] if node in self.values else self.value(node))

    def call_module(self, module: nn.Module, path: str, args: Tuple, kwargs: Dict, result: Any) -> Any:
        if type(module) in AS_FUNCTIONS:
            name, attributes = AS_FUNCTIONS[type(module)]
            return call_function(name, [*args, *(getattr(module, attribute) for attribute in attributes)], {}, result)
        if type(module) not in MODULES:
            raise reason(module)
        check_hooks(module)
        self.called[path] = self.called.get(path, 0) + 1
        if self.called[path] > 1 and next(module.parameters(), None) is not None:
            raise Unsupported("is called more than once, so its parameters are shared", "use a separate module for each call")
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        flow = next(iter(bound.values()))
        if not isinstance(flow, Flow):
            raise Unsupported("reads a value that does not depend on the input", "call it with values that are computed from the records")
        shape = record_shape(result if isinstance(result, torch.Tensor) else result[0])
        flow.read(*READS[type(module)])
        if type(module) in CAUSAL:
            return call_attention(module, path, flow, bound, shape)
        layers = MODULES[type(module)](module, path)
        if isinstance(module, nn.RNNBase):
            return call_recurrent(module, flow.then(shape, layers), bound)
        check_others(bound)
        return flow.then(shape, layers, in_place=getattr(module, "inplace", False))

    def finish(self, output: Any) -> None:
        if isinstance(output, Flow):
            self.output = output
        elif not self.problems:
            self.add("forward", f"returns {type(output).__name__}", "return one tensor, with a row for each record")


def call_function(name: str, args: Any, kwargs: Dict, result: Any) -> Any:
    """Calls the conversion of a function."""
    if not args:
        first, *_ = kwargs
        args, kwargs = (kwargs[first],), {name: value for name, value in kwargs.items() if name != first}
    if name == "getitem" and isinstance(args[0], tuple):
        return args[0][args[1]]
    if isinstance(args[0], State):
        return state_of(args[0], name, args[1:])
    if name not in FUNCTIONS:
        raise Unsupported(NO_FUNCTION, USE_LAYERS)
    if isinstance(args[0], Flow) and args[0].kind == "log_probabilities":
        raise Unsupported("reads log probabilities", "log_softmax must be the last function")
    try:
        return FUNCTIONS[name](*args, **kwargs, shape=record_shape(result))
    except TypeError as error:
        raise Unsupported(f"{NO_FUNCTION} with these arguments ({first_line(error)})", USE_LAYERS) from error


def state_of(state: State, name: str, args: Any) -> Flow:
    """The state of the last layer of a recurrent network."""
    index = args[0] if args else None
    last = name == "getitem" and index in (-1, state.layers - 1) and not isinstance(index, bool)
    if last or (name == "squeeze" and state.layers == 1 and index in (0, None)):
        return state.last()
    raise Unsupported("uses states of a recurrent network", "use the last state of its last layer, h[-1]")


def call_attention(module: nn.Module, path: str, flow: Flow, bound: Dict[str, Any], shape: Tuple[int, ...]) -> Any:
    if isinstance(module, nn.MultiheadAttention):
        if not (bound.get("key") is flow and bound.get("value") is flow):
            raise Unsupported("query, key and value are not the same", "use self-attention")
        return (flow.then(shape, masked(module, path, bound, flow.shape[0])), UNREAD)
    return flow.then(shape, masked(module, path, bound, flow.shape[0]))


def call_recurrent(module: nn.RNNBase, sequence: Flow, bound: Dict[str, Any]) -> Any:
    first = bound.get("hx")
    states = first if isinstance(first, tuple) else (first,)
    if any(not isinstance(state, torch.Tensor) or bool(state.any()) or state.requires_grad for state in states if state is not None):
        raise Unsupported("has initial states other than zeros", "leave out the initial states")
    state = State(sequence, module.num_layers)
    return (sequence, (state, UNREAD) if isinstance(module, nn.LSTM) else state)


def check_others(bound: Dict[str, Any]) -> None:
    """Refuses additional arguments of a module."""
    others = [name for name, value in list(bound.items())[1:] if value is not None]
    if others:
        raise Unsupported(f"has the additional argument {others[0]}", "leave it out")


def check_hooks(module: nn.Module) -> None:
    """Refuses hooks and parametrizations, such as weight normalisation."""
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks or hasattr(part, "parametrizations"):
            raise Unsupported("has hooks or parametrizations", "remove them")


def record_shape(result: Any) -> Tuple[int, ...]:
    """The shape of a record in a batch."""
    if not isinstance(result, torch.Tensor) or result.dim() == 0 or result.shape[0] != RECORDS:
        raise Unsupported("the first dimension of its result is not the number of records", "keep the records separate, in the first dimension")
    return tuple(result.shape[1:])


def has_gradient(result: Any) -> bool:
    """Whether all numbers in a result have a gradient."""
    if isinstance(result, (tuple, list)):
        return all(has_gradient(part) for part in result)
    return not isinstance(result, torch.Tensor) or result.requires_grad


def function_name(target: Any) -> str:
    if target is F.max_pool2d:
        return "max_pool2d"
    return getattr(target, "__name__", str(target))


def place(path: str, module: nn.Module) -> str:
    return f"{path} ({type(module).__name__})"

