"""Converts records and labels of PyTorch to data of the engine; the result of training."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np
import torch

from . import _arrays
from ._sordino import Data, Fitted
from ._torch_conversion import Conversion
from ._torch_origins import together
from .guarantee import Guarantee

# Losses of two classes that share one output.
TWO_CLASSES = ("logistic", "hinge")


class Fit:
    """The result of private training.

    Attributes
    ----------
    guarantee : sordino.Guarantee
        The privacy guarantee of the trained weights. ``print`` shows the statement to publish.
    finished : bool
        Whether training took all steps of its plan.
    n_steps : int
        The number of training steps.
    test_score : float or None
        The score on the test records, if there were any.
    history : list of (int, float)
        The scores on the test records during training, each with the number of steps taken.
    begins_with : list of sordino.Guarantee
        The guarantees of earlier fits of this process that produced the initial weights. The guarantee of this fit does not cover them: for
        records that several of them used, the costs add up.
    """

    def __init__(self, fitted: Fitted, begins_with: Sequence[Guarantee] = ()) -> None:
        self._fitted, self.begins_with = fitted, list(begins_with)
        self.guarantee = Guarantee._of(fitted)
        self.finished, self.test_score, self.history = fitted.finished, fitted.score, fitted.history
        self.n_steps = int(self.guarantee.to_dict().get("steps", 0))

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the weights and the guarantee to one safetensors file, which ``sordino.load`` and ``sordino predict`` read."""
        self._fitted.save(os.fspath(path))

    def __repr__(self) -> str:
        earlier = f" It begins with weights of earlier fits: {together(self.begins_with, self.guarantee)}." if self.begins_with else ""
        return f"<Fit: {str(self.guarantee).splitlines()[0]}{earlier}>"


def array_of(values: Any, name: str) -> np.ndarray:
    """A tensor or array as an array, without a copy."""
    if isinstance(values, torch.Tensor):
        if values.device.type != "cpu":
            raise ValueError(f"{name} must be on the CPU, got {values.device}\nhint: use {name}.cpu()")
        if values.layout is not torch.strided:
            raise ValueError(f"{name} must be dense, got {values.layout}\nhint: use {name}.to_dense()")
        if values.dtype == torch.bfloat16:
            values = values.float()
        return values.detach().numpy()
    if isinstance(values, (torch.utils.data.DataLoader, torch.utils.data.Dataset)):
        hint = "give all records as one tensor, such as dataset.tensors[0]; batches are drawn at random as the guarantee requires"
        raise ValueError(f"{name} must be a tensor or an array, got {type(values).__name__}\nhint: {hint}")
    return np.asarray(values)


def records(x: Any, name: str = "x") -> np.ndarray:
    """Records as an array with an axis for records and at least one axis for their values."""
    array = array_of(x, name)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must have numbers, got {array.dtype}\nhint: use float32, uint8 for images, or int64 for tokens")
    if array.ndim < 2:
        raise ValueError(f"{name} must have an axis for records and axes for their values, got shape {array.shape}")
    if len(array) == 0:
        raise ValueError(f"{name} has no records")
    return array


def make_data(conversion: Conversion, x: np.ndarray, y: Any, loss: Optional[str], units: Dict[str, Any]) -> Data:
    """Data of the engine. The number of classes is the number of outputs of the module, which is public."""
    shape: Dict[str, Any] = conversion.description["input"]
    labels = labels_of(conversion, y, loss)
    _arrays.check_lengths(x, labels["y"])
    if conversion.tokens:
        vocabulary = shape["tokens"]["vocabulary"]
        return Data(tokens_of(x, vocabulary), vocabulary=vocabulary, **labels, **units)
    if x.dtype != np.uint8:
        x = x.astype(np.float32, copy=False)
    x = np.require(x, requirements=["C", "A"])
    return Data(x, shape=json.dumps(shape), **labels, **units)


def tokens_of(x: np.ndarray, vocabulary: int) -> np.ndarray:
    """Tokens as the engine reads them."""
    if x.dtype.kind not in "iu":
        raise ValueError(f"x must have tokens, which are integers, got {x.dtype}\nhint: use int64")
    wrong = np.argwhere((x < 0) | (x >= vocabulary))
    if len(wrong):
        place = ", ".join(map(str, wrong[0]))
        raise ValueError(f"x[{place}]: must be a token from 0 to {vocabulary - 1}, the size of the embedding, got {x[tuple(wrong[0])]}")
    return np.ascontiguousarray(x, dtype=np.uint32)


def labels_of(conversion: Conversion, y: Any, loss: Optional[str]) -> Dict[str, Any]:
    """Class indices for integers, targets of a regression for floats."""
    array, outputs = array_of(y, "y"), conversion.outputs
    if array.ndim == 2 and array.shape[1] == 1:
        array = array.reshape(-1)
    two = loss in TWO_CLASSES
    if array.dtype.kind == "f" and not two:
        return {"y": numbers_of(conversion, array)}
    if array.dtype.kind not in "iub" and not two:
        raise ValueError(f"y must have class numbers or floats, got {array.dtype}\nhint: number the classes from 0")
    last = conversion.description["layers"][-1]["type"]
    if last == "tempered_sigmoid":
        raise ValueError("the module ends in Sigmoid, but the loss already computes probabilities from the outputs\nhint: remove the last Sigmoid")
    if array.ndim != 1:
        raise ValueError(f"y must have one class for each record, got shape {array.shape}")
    classes = 2 if outputs == 1 else outputs
    wrong = np.flatnonzero(~((array >= 0) & (array < classes) & (array == np.floor(array))))
    if len(wrong):
        hint = "the module must have one output for each class, or one output for two classes"
        raise ValueError(f"y[{wrong[0]}]: must be a class from 0 to {classes - 1}, got {array[wrong[0]]}\nhint: {hint}")
    names: List[str] = [str(number) for number in range(classes)]
    return {"y": array.astype(np.uint32), "classes": names}


def numbers_of(conversion: Conversion, y: np.ndarray) -> np.ndarray:
    """Targets of a regression, one for each output."""
    if conversion.log_softmax:
        raise ValueError("the module ends in log_softmax, but y has floats\nhint: give class numbers as integers, or remove log_softmax")
    width = 1 if y.ndim == 1 else y.shape[-1]
    if y.ndim > 2 or width != conversion.outputs:
        raise ValueError(
            f"y must have {conversion.outputs} numbers for each record, as many as the module has outputs, got shape {y.shape}\n"
            "hint: give class numbers as integers"
        )
    return _arrays.as_targets(y)
