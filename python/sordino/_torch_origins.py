"""Weights that private fits of this process have produced. For a later fit on the same records, they are not public."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from typing import Dict, Iterable, List, Set, Tuple

import numpy as np

from .guarantee import Guarantee, PrivacyWarning, total_guarantee

# The fits whose records went into a tensor, by the hash of its values. Other modules may load single tensors.
_origins: Dict[bytes, Tuple[Guarantee, ...]] = {}
_lock = threading.Lock()


def hashes(arrays: Dict[str, np.ndarray]) -> Set[bytes]:
    """The hash of each tensor."""
    return {hashlib.sha256(np.ascontiguousarray(array, "<f4").data).digest() for array in arrays.values() if array.size}


def stored_hashes(run_folder: str) -> Set[bytes]:
    """The hash of each tensor with which the run in a folder began."""
    try:
        with open(os.path.join(run_folder, "initial.safetensors"), "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return set()
    start = 8 + int.from_bytes(content[:8], "little")
    tensors = [tensor for name, tensor in json.loads(content[8:start]).items() if name != "__metadata__"]
    return {hashlib.sha256(content[start + begin : start + end]).digest() for begin, end in (tensor["data_offsets"] for tensor in tensors)}


def origins(initial: Iterable[bytes]) -> List[Guarantee]:
    """The guarantees of the earlier fits that produced initial weights."""
    with _lock:
        found = [guarantee for weights in initial for guarantee in _origins.get(weights, ())]
    return list({id(guarantee): guarantee for guarantee in found}.values())


def remember(produced: Iterable[bytes], begins_with: List[Guarantee], guarantee: Guarantee) -> None:
    """Notes the fits that went into weights."""
    with _lock:
        for weights in produced:
            _origins.setdefault(weights, (*begins_with, guarantee))


def together(begins_with: List[Guarantee], guarantee: Guarantee) -> str:
    """What a fit and those that produced its initial weights guarantee together."""
    epsilon, delta = total_guarantee([*begins_with, guarantee])
    if delta >= 1.0:
        return "together they guarantee NOTHING, because some are not private"
    return f"together they satisfy ({epsilon:.4g}, {delta:.3g})-differential privacy"


def warn_of(begins_with: List[Guarantee], guarantee: Guarantee, stacklevel: int) -> None:
    """Warns if training began with weights of earlier fits, at the place of the call that many levels above."""
    if begins_with:
        fit = "private fit" if all(earlier.private for earlier in begins_with) else "fit"
        earlier = f"an earlier {fit}" if len(begins_with) == 1 else f"{len(begins_with)} earlier {fit}s"
        warnings.warn(
            f"training begins with the weights of {earlier}. If they used the same records, the costs add up: {together(begins_with, guarantee)}.",
            PrivacyWarning,
            stacklevel=stacklevel,
        )
