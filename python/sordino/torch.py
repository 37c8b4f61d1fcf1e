"""Private training of PyTorch modules.

`fit` trains an ``nn.Module`` with differential privacy in Sordino's engine and writes the trained weights into the module::

    module = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    result = sordino.torch.fit(module, x, y, epsilon=1.0, delta=1e-5)
    print(result.guarantee)

The module must consist of layers that the engine supports. `check` lists the layers to replace. These modules and functions are supported:

- ``Linear``, ``Conv2d``, ``Embedding``, ``EmbeddingBag`` (mean), ``LSTM`` and ``GRU`` (any number of layers, one direction),
  ``MultiheadAttention`` (self-attention, causal or without a mask), ``TransformerEncoderLayer``, ``TransformerEncoder``
- ``GroupNorm``, ``InstanceNorm2d`` (without running statistics), ``LayerNorm``
- ``ReLU``, ``GELU`` (both forms), ``Tanh``, ``Sigmoid``, ``Dropout``, ``MaxPool2d``, ``AvgPool2d``, ``AdaptiveAvgPool2d``, ``Flatten``, ``Unflatten``,
  ``Identity``, ``Sequential``, and ``LogSoftmax`` at the end
- residual connections; learned or fixed position embeddings that are added to a sequence; a learned class token before a sequence
- the first step, the last step and the mean of a sequence; the mean of each channel of an image; the pixels of an image as a sequence

The order in which ``forward`` calls layers must not depend on the records. Before training, the outputs of the engine and of the module are compared
on random records.
"""

from __future__ import annotations

import copy
import json
import os
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

try:
    from torch import nn
except ImportError as error:
    raise ImportError("sordino.torch needs PyTorch\nhint: pip install torch") from error

from ._arrays import as_test, check_other_records
from ._arrays import units as as_units
from ._progress import progress_callback
from ._settings import check as check_settings
from ._settings import check_resumed, text
from ._sordino import fit as _fit
from ._torch_conversion import Conversion, ConversionError, convert, find_problems
from ._torch_layers import Problem, batch_norm_replacement
from ._torch_origins import hashes, origins, remember, stored_hashes, warn_of
from ._torch_training import Fit, make_data, records
from .guarantee import counted_if_interrupted, note_use

# The arguments that replace settings for data in files.
_ARGUMENTS = {
    "data": "fit(module, x, y)",
    "classes": "a module with one output for each class",
    "mean": "fit(module, (x - mean) / std, y) with public constants",
    "std": "fit(module, (x - mean) / std, y) with public constants",
    "test_data": "fit(..., test=(x, y))",
    "test_fraction": "fit(..., test=(x, y))",
    "split_seed": "fit(..., test=(x, y))",
    "test_set": "fit(..., test=(x, y), public_test=...)",
}

__all__ = ["Conversion", "ConversionError", "Fit", "Problem", "check", "convert", "fit", "replace_batch_norm"]


def fit(
    module: nn.Module,
    x: Any,
    y: Any,
    *,
    epsilon: Optional[float] = None,
    delta: Optional[float] = None,
    algorithm: Optional[str] = None,
    max_grad_norm: Optional[float] = None,
    epochs: Optional[float] = None,
    batch_size: Optional[int] = None,
    learning_rate: Optional[float] = None,
    units: Any = None,
    unit: Optional[str] = None,
    test: Optional[Tuple[Any, ...]] = None,
    public_test: bool = False,
    run_folder: Union[str, "os.PathLike[str]", None] = None,
    resume: bool = False,
    progress: Union[bool, Callable[[int, int, Optional[float]], Any], None] = None,
    **settings: Any,
) -> Fit:
    """Trains a module on private records, and writes the trained weights into it.

    Training begins with the present weights of the module. **They must be public**, and the guarantee names them by their hash. If they come
    from an earlier private run on the same records, the costs of both runs add up; a `sordino.PrivacyWarning` states the sum if that run was
    in this process. If training fails or is stopped, the module is not changed.
    It is left in the mode (training or evaluation) that it was in.

    Parameters
    ----------
    module : nn.Module
        A module on the CPU with float32 parameters. Parameters with ``requires_grad=False`` are not trained.
    x : tensor or array
        The training records, one for each index of the first axis. float32 values on the CPU are not copied. Images of type uint8 are divided by 255; all other values
        are used as they are. Integers are tokens if the module begins with ``nn.Embedding``.
    y : tensor or array
        Integers are class indices from 0 on, and the loss is cross-entropy. Floats are targets of a regression, and the loss is the squared error.
        The number of classes is the number of outputs of the module. With one output, there are two classes, and the loss is the logistic loss.
    epsilon, delta : float or None
        The privacy budget. By default, delta is 1e-5, and epsilon is 1 unless a ``noise_multiplier`` is given.
    algorithm : str, optional
        The name of an algorithm with its options. The default is ``"dp-sgd"``.
    max_grad_norm : float, optional
        The clipping norm for the gradient of each record.
    epochs : float, optional
        The expected number of passes over the training records.
    batch_size : int, optional
        The expected batch size.
    learning_rate : float, optional
        The learning rate, for gradients divided by the expected batch size.
    units : array, optional
        The unit of privacy of each record, such as the identifier of a person with several records.
    unit : str, optional
        The name of the unit of privacy, such as ``"patient"``.
    test : (x, y) or (x, y, units), optional
        Test records, with their units of privacy if ``units`` is given. The score is measured on them, with noise and within the privacy budget.
    public_test : bool
        Whether the test records are public. If they are, the score is exact.
    run_folder : path, optional
        A new folder for the run, with a ledger and checkpoints.
    resume : bool
        Resumes the run in ``run_folder`` with the settings of this run; settings that differ from them are refused. The module and the records must be those of the first call.
    progress : bool, callable or None
        None shows a progress bar if tqdm is installed and standard error is a terminal. A function is called with the number of completed steps, the
        total number of steps, and the last score or None.
    **settings
        Any other setting of ``sordino train`` by name: ``optimizer="adam"``, ``noise_multiplier=1.1``.

    Returns
    -------
    Fit
        The result, which has the ``guarantee``.

    Raises
    ------
    ConversionError
        If the module cannot be converted. It lists all problems and their replacements, and is raised before any record is read.
    ValueError
        If settings or records are not valid; `sordino.BudgetError` if the plan exceeds the privacy budget.

    Examples
    --------
    >>> import torch, sordino.torch
    >>> x = torch.randn(2000, 8)
    >>> y = (x[:, 0] > 0).long()
    >>> module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    >>> result = sordino.torch.fit(module, x, y, epsilon=1.0, delta=1e-5, epochs=2, progress=False)
    >>> result.guarantee.epsilon <= 1.0
    True
    >>> module(x).shape
    torch.Size([2000, 2])
    """
    check_settings((name for name in settings if name != "records_per_unit"), _ARGUMENTS)
    array = records(x)
    conversion = convert(module, array.shape[1:])
    named = {
        "epsilon": epsilon, "delta": delta, "algorithm": algorithm, "max_grad_norm": max_grad_norm, "epochs": epochs,
        "batch_size": batch_size, "learning_rate": learning_rate,
    }
    loss, per_unit = settings.get("loss"), settings.pop("records_per_unit", None)
    test = as_test(test, units)
    test_array = None if test is None else records(test[0], "test")
    check_other_records(array, None if test is None else (test_array, test[1]))
    in_units = as_units(units, unit, per_unit)
    data = make_data(conversion, array, y, loss, in_units)
    test_data = None if test is None else make_data(conversion, test_array, test[1], loss, {} if test[2] is None else as_units(test[2], unit, per_unit))
    initial, folder = conversion.arrays(), None if run_folder is None else os.fspath(run_folder)
    given = {name: text(value) for name, value in {**named, **settings}.items() if value is not None}
    if resume:
        check_resumed(folder, given)
    # Before training, because the arrays are views of the module.
    before = hashes(initial)
    with progress_callback(progress) as callback, counted_if_interrupted(array.shape[1:], folder):
        fitted = _fit(
            data,
            {} if resume else given,
            network=None if resume else json.dumps(conversion.description),
            initial_weights=None if resume else initial,
            test=test_data,
            public_test=public_test,
            run_folder=folder,
            resume=resume,
            callback=callback,
        )
    trained = fitted.parameters()
    write(conversion, trained)
    if resume and folder:
        before = stored_hashes(folder)
    result = Fit(fitted, origins(before))
    remember(hashes(trained) - before, result.begins_with, result.guarantee)
    note_use(array.shape[1:], result.guarantee, folder, stacklevel=3)
    warn_of(result.begins_with, result.guarantee, stacklevel=3)
    return result


def write(conversion: Conversion, trained: Dict[str, np.ndarray]) -> None:
    """Writes trained weights into the module. The network of a resumed run may differ from the module."""
    if {name: value.shape for name, value in trained.items()} != {name: tuple(view.shape) for name, view in conversion.weights.items()}:
        raise ValueError("the network of the run in run_folder differs from the module\nhint: give the module with which the run was started")
    conversion.write(trained)


def check(module: nn.Module, input_shape: Tuple[int, ...]) -> List[Problem]:
    """Lists everything in a module that cannot be converted into layers of the engine.

    Parameters
    ----------
    module : nn.Module
        The module. It is not changed.
    input_shape : tuple of int
        The shape of one record, without the number of records: ``(784,)`` for vectors, ``(1, 28, 28)`` for images, ``(32,)`` for 32 tokens
        that an ``nn.Embedding`` reads.

    Returns
    -------
    list of Problem
        The parts that cannot be converted, each with its path, the problem and a replacement. Empty if the module can be trained.

    Examples
    --------
    >>> from torch import nn
    >>> import sordino.torch
    >>> module = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 26 * 26, 10))
    >>> for problem in sordino.torch.check(module, (1, 28, 28)):
    ...     print(problem.where, "->", problem.replacement)
    1 (BatchNorm2d) -> use nn.GroupNorm(16, 16), or sordino.torch.replace_batch_norm(module)
    >>> sordino.torch.check(sordino.torch.replace_batch_norm(module), (1, 28, 28))
    []
    """
    return find_problems(module, input_shape)[0]


def replace_batch_norm(module: nn.Module) -> nn.Module:
    """Returns a copy of a module in which BatchNorm is replaced by layers that normalise each record separately.

    ``BatchNorm2d`` becomes ``GroupNorm`` with at most 16 groups, and ``BatchNorm1d`` becomes ``LayerNorm``. The new layers start with weights of 1 and
    biases of 0. All other parameters are copied.

    Parameters
    ----------
    module : nn.Module
        The module. It is not changed.

    Returns
    -------
    nn.Module

    Examples
    --------
    >>> from torch import nn
    >>> import sordino.torch
    >>> norm = sordino.torch.replace_batch_norm(nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32)))[1]
    >>> type(norm).__name__, norm.num_groups, norm.num_channels
    ('GroupNorm', 16, 32)
    """
    if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
        return batch_norm_replacement(module)
    module = copy.deepcopy(module)
    for part in list(module.modules()):
        for name, child in part.named_children():
            if isinstance(child, (nn.BatchNorm1d, nn.BatchNorm2d)):
                setattr(part, name, batch_norm_replacement(child))
    return module
