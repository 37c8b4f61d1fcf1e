"""The flow of values through a module, and its conversion to a list of layers with residual blocks."""

from dataclasses import dataclass
from typing import List, Optional, Set, Tuple

from ._torch_layers import Layer, Layers, Unsupported

# The kind of the output of a layer. The outputs of all other layers have the kind of their inputs.
KIND_AFTER = {
    "embedding": "sequence", "image_to_sequence": "sequence", "flatten": "features", "global_average_pool": "features",
    "first_step": "features", "last_step": "features", "mean_over_steps": "features",
}
DIMENSIONS = {"tokens": 1, "features": 1, "sequence": 2, "image": 3}
KIND_OF_INPUT = {1: "features", 2: "sequence", 3: "image"}
REAL = ("features", "image", "sequence")
NAMES = {"tokens": "tokens", "features": "vectors", "sequence": "sequences", "image": "images"}


@dataclass
class Memory:
    """The memory of a tensor, which in-place operations overwrite."""

    version: int = 0


class Flow:
    """A value that depends on the input.

    Parameters
    ----------
    kind : str
        ``tokens``, ``features``, ``sequence`` or ``image``; or a form that only some operations read: ``pixels`` (channels, then pixels),
        ``channels_last`` (rows, columns, channels), ``log_probabilities``.
    shape : tuple of int
        The shape of a record in PyTorch.
    sources : tuple of Flow
        The value that the layers read; two values if they are added; none for the input.
    layers : list of Layer
        The layers between the source and this value.
    memory : Memory, optional
        The memory of the tensor if another tensor uses it as well.
    """

    def __init__(
        self, kind: str, shape: Tuple[int, ...], sources: Tuple["Flow", ...] = (), layers: Optional[Layers] = None, memory: Optional[Memory] = None
    ) -> None:
        self.kind, self.shape, self.sources, self.layers = kind, shape, sources, layers or []
        self.memory = memory or Memory()
        self.version = self.memory.version
        # The immediate dominator: the last value that is on every path from the input to this value. The depth is that in the dominator tree.
        self.dominator = None if not sources else sources[0] if len(sources) == 1 else common(*sources)
        self.depth = 0 if self.dominator is None else self.dominator.depth + 1

    def read(self, *kinds: str) -> "Flow":
        """The value itself, if it is of one of these kinds and has not been overwritten."""
        if self.version != self.memory.version:
            raise Unsupported("reads a value that an in-place operation has overwritten", "use inplace=False")
        # Vectors may have additional dimensions of size 1. Only elementwise functions accept them.
        if kinds and (self.kind not in kinds or (kinds != REAL and len(self.shape) != DIMENSIONS[self.kind])):
            needed = " or ".join(NAMES[kind] for kind in kinds)
            raise Unsupported(f"needs {needed}, got records of shape {self.shape}", f"give it {needed}")
        return self

    def then(self, shape: Tuple[int, ...], layers: Layers, in_place: bool = False) -> "Flow":
        """The value after layers."""
        kind = self.kind
        for layer in layers:
            kind = KIND_AFTER.get(layer.type, kind)
        self.memory.version += in_place
        return Flow(kind, shape, (self,), layers, self.memory if in_place else None)

    def seen_as(self, kind: str, shape: Tuple[int, ...]) -> "Flow":
        """The same memory in another form."""
        return Flow(kind, shape, (self,), memory=self.memory)


def common(first: Flow, second: Flow) -> Flow:
    """The last value that is on all paths to both values."""
    while first is not second:
        if first.depth < second.depth:
            first, second = second, first
        if first.dominator is None:
            raise Unsupported("adds values that do not both depend on the input", "add a value and the output of layers that read this value")
        first = first.dominator
    return first


def row(end: Flow, start: Flow, used: Optional[Set[int]] = None) -> Layers:
    """The layers from one value to another; additions become residual blocks."""
    used = set() if used is None else used
    layers: List[Layer] = []
    while end is not start:
        assert end.dominator is not None
        if id(end) in used and (end.layers or len(end.sources) > 1):
            raise Unsupported("the output of a layer is used in several branches", "use branches that start at one value and end in one addition")
        used.add(id(end))
        layers = end.layers + layers
        if len(end.sources) == 2:
            layers = [residual(*(row(source, end.dominator, used) for source in end.sources))] + layers
        end = end.dominator
    return layers


def residual(body: Layers, shortcut: Layers) -> Layer:
    """A block that adds two branches; the shorter one is the shortcut."""
    if len(body) < len(shortcut):
        body, shortcut = shortcut, body
    if not body:
        raise Unsupported("adds a value to itself", "add a value and the output of layers that read this value")
    return Layer("residual", body=body, shortcut=shortcut)
