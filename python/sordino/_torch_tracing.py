"""The graph of a module, with its values for random records.

``torch.fx`` traces symbolically, so it cannot trace a module that uses the shape of a tensor as a number. Here, all values are
computed during tracing, so shapes are numbers. The module cannot read the values of tensors, so its graph does not depend on them.
"""

import threading
import warnings
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Tuple

import torch
from torch import fx, nn


# torch.fx replaces methods of nn.Module for all threads.
LOCK = threading.Lock()


class Failed(Exception):
    """Raised if a call fails for the random records."""


class NeedsTokens(Exception):
    """Raised if the module reads tokens. The argument is the size of the vocabulary."""


@contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Sets the mode of a module, and restores the former modes afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in modes:
            part.training = training
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def same_buffers(module: nn.Module) -> Iterator[Dict[str, bool]]:
    """Restores the buffers of a module afterwards. The result names the buffers that have changed."""
    before = [(path, part, dict(part._buffers)) for path, part in module.named_modules()]
    copies = {id(value): value.detach().clone() for _, _, own in before for value in own.values() if value is not None}
    changed: Dict[str, bool] = {}
    try:
        yield changed
    finally:
        for path, part, own in before:
            for name, value in own.items():
                if part._buffers.get(name) is not value or (value is not None and not same(value, copies[id(value)])):
                    changed[f"{path}.{name}".lstrip(".")] = True
                    if value is not None:
                        value.data.copy_(copies[id(value)])
            part._buffers.clear()
            part._buffers.update(own)


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether tensors have the same values; NaN is the same as NaN."""
    return bool(((first == second) | ((first != first) & (second != second))).all())


class Traced(fx.Proxy):
    """A tensor during tracing. Everything but its values is known."""

    def known(self) -> Any:
        return self.tracer.results[self.node]

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.known(), name)
        if callable(attribute) or isinstance(attribute, torch.Tensor):
            return super().__getattr__(name)
        return attribute

    def __len__(self) -> int:
        return len(self.known())

    def __iter__(self) -> Iterator:
        if isinstance(self.known(), torch.Tensor):
            raise fx.proxy.TraceError("a loop over the records or values of a tensor")
        return iter([self[index] for index in range(len(self.known()))])


class Tracer(fx.Tracer):
    """Traces a module and computes all values for a sample of records."""

    def __init__(self, sample: torch.Tensor) -> None:
        super().__init__()
        self.sample = sample
        self.results: Dict[fx.Node, Any] = {}
        self.input: Optional[fx.Node] = None
        self.computing, self.thread = False, threading.get_ident()

    def run(self, module: nn.Module) -> fx.Graph:
        """The graph of a module in training mode. The values of its layers are those of evaluation mode."""
        # Gradients are enabled, so requires_grad shows which values are computed from parameters.
        with LOCK, in_mode(module, training=True), torch.enable_grad():
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.trace(module)

    # While values are computed, and in other threads, modules are not traced.

    def call_module(self, m: nn.Module, forward: Any, args: Tuple, kwargs: Dict) -> Any:
        if self.computing or threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Dict) -> Any:
        if self.computing or threading.get_ident() != self.thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def proxy(self, node: fx.Node) -> Traced:
        return Traced(node, self)

    def create_proxy(self, *args: Any, **kwargs: Any) -> Any:
        """A tensor to be traced, or a value that is not a tensor."""
        proxy = super().create_proxy(*args, **kwargs)
        self.computing = True
        try:
            self.results[proxy.node] = self.compute(proxy.node)
        except NeedsTokens:
            raise
        except Exception as error:
            raise Failed(first_line(error)) from error
        finally:
            self.computing = False
        return proxy if contains_tensor(self.results[proxy.node]) else self.results[proxy.node]

    def value(self, node: fx.Node) -> Any:
        if node not in self.results:  # a constant
            self.results[node] = fetch(self.root, node.target)
        return self.results[node]

    def compute(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg(node.args, self.value), fx.node.map_arg(node.kwargs, self.value)
        if node.op == "placeholder":
            self.input = node
            return self.sample
        if node.op == "get_attr":
            return fetch(self.root, node.target)
        if node.op == "call_function":
            return node.target(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        module = self.root.get_submodule(node.target)
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and self.sample.is_floating_point() and self.reads_input(node):
            raise NeedsTokens(module.num_embeddings)
        if type(module) is nn.Embedding and args and is_range(args[0]):
            # The same values, as a view of the parameter.
            return module.weight[: args[0].shape[-1]].expand(*args[0].shape, -1)
        with in_mode(module, training=False):
            return module(*args, **kwargs)

    def reads_input(self, node: fx.Node) -> bool:
        """Whether a node reads the input, possibly after a change of type."""
        source = node.args[0] if node.args else None
        while isinstance(source, fx.Node) and source.op == "call_method" and source.target in ("long", "int", "to", "contiguous"):
            source = source.args[0]
        return source is self.input


def fetch(root: nn.Module, path: str) -> Any:
    value: Any = root
    for name in path.split("."):
        value = getattr(value, name)
    return value


def is_range(index: torch.Tensor) -> bool:
    """Whether each row of an index is 0, 1, 2, ..."""
    return index.dim() > 0 and bool((index == torch.arange(index.shape[-1], device=index.device)).all())


def contains_tensor(result: Any) -> bool:
    if isinstance(result, (tuple, list)):
        return any(contains_tensor(part) for part in result)
    return isinstance(result, torch.Tensor)


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
