"""Tensors that share memory. Training one of them would change the others."""

from typing import Iterable, Iterator, Tuple

import torch
from torch import nn


def named_tensors(module: nn.Module) -> Iterator[Tuple[str, torch.Tensor, bool]]:
    """All parameters and buffers with their names, and whether they are trained."""
    for path, part in module.named_modules():
        for name, value in (*part._parameters.items(), *part._buffers.items()):
            if value is not None:
                yield f"{path}.{name}".lstrip("."), value, name in part._parameters and value.requires_grad


def in_memory(value: torch.Tensor) -> bool:
    """Whether a tensor has values in the memory of the CPU."""
    lazy = isinstance(value, nn.parameter.UninitializedTensorMixin)
    return not lazy and value.device.type == "cpu" and value.layout is torch.strided and value.numel() > 0


def memory_range(value: torch.Tensor) -> Tuple[int, int]:
    """The first address of the values of a tensor, and the address after the last one."""
    last = sum(stride * (size - 1) for stride, size in zip(value.stride(), value.shape))
    return value.data_ptr(), value.data_ptr() + (last + 1) * value.element_size()


def repeats_itself(value: torch.Tensor) -> bool:
    """Whether several values of a tensor may have one address, as after ``expand``."""
    last = 0
    for stride, size in sorted((stride, size) for stride, size in zip(value.stride(), value.shape) if size > 1):
        if stride <= last:
            return True
        last += stride * (size - 1)
    return False


def shared(tensors: Iterable[Tuple[str, torch.Tensor, bool]]) -> Iterator[Tuple[str, str]]:
    """Pairs of names of tensors whose ranges overlap, if one of both is trained. A trained tensor that repeats itself is a pair with itself."""
    ranges = [(*memory_range(value), name, trained, value) for name, value, trained in tensors if in_memory(value)]
    # The largest end so far, of tensors that are trained and of those that are not.
    ends = {True: (0, ""), False: (0, "")}
    for start, end, name, trained, value in sorted(ranges, key=lambda found: found[0]):
        last, first = max(ends.values()) if trained else ends[True]
        if start < last:
            yield first, name
        elif trained and repeats_itself(value):
            yield name, name
        ends[trained] = max(ends[trained], (end, name))
