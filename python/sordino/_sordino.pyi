"""Type stubs of the extension module."""

import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, Union, overload

import numpy as np
from numpy.typing import NDArray

_Number = Union[float, int, np.floating, np.integer]
_Numbers = Union[Sequence[float], Sequence[int], NDArray[np.floating], NDArray[np.integer]]
_Floats = Union[float, NDArray[np.float64]]
_Accountant = Literal["pld", "rdp", "gdp-clt", "zcdp", "tcdp", "first-participation"]
_Sampling = Literal["poisson", "fixed-size", "full-batch", "rotating", "stateful"]

__version__: str

def command(arguments: List[str]) -> int: ...

class BudgetError(ValueError): ...

# --- Accounting

def epsilon(
    *,
    noise_multiplier: Union[_Number, _Numbers],
    sample_rate: Union[_Number, _Numbers, None] = None,
    steps: Union[_Number, _Numbers],
    delta: Union[_Number, _Numbers],
    accountant: _Accountant = "pld",
    group_size: Optional[int] = None,
    sampling: _Sampling = "poisson",
    batch_size: Optional[int] = None,
    population: Optional[int] = None,
    max_batch_size: Optional[int] = None,
    groups: Optional[int] = None,
    later_shift: Optional[float] = None,
) -> Price: ...
def noise_multiplier(
    *,
    target_epsilon: Union[_Number, _Numbers],
    sample_rate: Union[_Number, _Numbers, None] = None,
    steps: Union[_Number, _Numbers],
    delta: Union[_Number, _Numbers],
    accountant: _Accountant = "pld",
    sampling: _Sampling = "poisson",
    batch_size: Optional[int] = None,
    population: Optional[int] = None,
    max_batch_size: Optional[int] = None,
    groups: Optional[int] = None,
    later_shift: Optional[float] = None,
) -> Price: ...

class Price:
    @property
    def epsilon(self) -> _Floats: ...
    @property
    def epsilon_lower(self) -> Optional[_Floats]: ...
    @property
    def delta(self) -> _Floats: ...
    @property
    def proved(self) -> bool: ...
    @property
    def relation(self) -> str: ...
    @property
    def accountant(self) -> str: ...
    @property
    def group_size(self) -> int: ...
    @property
    def noise_multiplier(self) -> Optional[_Floats]: ...
    @property
    def steps(self) -> Union[int, NDArray[np.int64]]: ...
    def __float__(self) -> float: ...

class Step:
    def __init__(
        self,
        *,
        noise_multiplier: Union[_Number, _Numbers],
        sample_rate: Optional[_Number] = None,
        steps: _Number,
        sampling: _Sampling = "poisson",
        batch_size: Optional[int] = None,
        population: Optional[int] = None,
        max_batch_size: Optional[int] = None,
        groups: Optional[int] = None,
        later_shift: Optional[float] = None,
    ) -> None: ...
    @property
    def noise_multiplier(self) -> Union[float, List[float]]: ...
    @property
    def sample_rate(self) -> Optional[float]: ...
    @property
    def steps(self) -> int: ...
    @property
    def sampling(self) -> str: ...
    @property
    def batch_size(self) -> Optional[int]: ...
    @property
    def population(self) -> Optional[int]: ...
    @property
    def max_batch_size(self) -> Optional[int]: ...
    @property
    def groups(self) -> Optional[int]: ...
    @property
    def later_shift(self) -> Optional[float]: ...

class Plan:
    def __init__(self, steps: Optional[Iterable[Step]] = None, /) -> None: ...
    @staticmethod
    def from_multipliers(
        noise_multipliers: _Numbers,
        *,
        sample_rate: Optional[_Number] = None,
        sampling: _Sampling = "poisson",
        batch_size: Optional[int] = None,
        population: Optional[int] = None,
        max_batch_size: Optional[int] = None,
        groups: Optional[int] = None,
        later_shift: Optional[float] = None,
    ) -> Plan: ...
    @staticmethod
    def from_json(text: str, /) -> Plan: ...
    def to_json(self) -> str: ...
    def compose(self, other: Plan, /) -> Plan: ...
    def epsilon(
        self,
        delta: Union[_Number, _Numbers],
        *,
        accountant: _Accountant = "pld",
        group_size: Optional[int] = None,
    ) -> Price: ...
    @overload
    def delta(self, epsilon: _Number) -> float: ...
    @overload
    def delta(self, epsilon: _Numbers) -> NDArray[np.float64]: ...
    @overload
    def profile(self, epsilons: _Number) -> float: ...
    @overload
    def profile(self, epsilons: _Numbers) -> NDArray[np.float64]: ...
    @overload
    def tradeoff(self, alphas: _Number, *, floor: Optional[float] = None) -> float: ...
    @overload
    def tradeoff(self, alphas: _Numbers, *, floor: Optional[float] = None) -> NDArray[np.float64]: ...
    def mu(self, *, floor: Optional[float] = None) -> float: ...
    @property
    def steps(self) -> int: ...
    @property
    def relation(self) -> str: ...
    def __add__(self, other: Plan) -> Plan: ...
    def __mul__(self, runs: int) -> Plan: ...
    def __rmul__(self, runs: int) -> Plan: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Step: ...
    def __iter__(self) -> Iterator[Step]: ...

# --- Data frames

_Columns = List[Tuple[str, Any]]

class Schema:
    @staticmethod
    def read(path: Union[str, os.PathLike[str]]) -> Schema: ...
    @staticmethod
    def from_toml(text: str) -> Schema: ...
    @staticmethod
    def from_json(text: str) -> Schema: ...
    def to_json(self) -> str: ...
    @property
    def target(self) -> Optional[str]: ...
    @property
    def classes(self) -> Optional[List[str]]: ...
    @property
    def features(self) -> int: ...
    def encode(self, columns: _Columns) -> NDArray[np.float32]: ...
    def encode_labelled(self, columns: _Columns) -> Tuple[NDArray[np.float32], NDArray[np.uint32]]: ...

# Training

class Data:
    """Records for training or prediction; the array is not copied."""

    def __init__(
        self,
        x: NDArray[Any],
        y: Optional[NDArray[Any]] = None,
        *,
        classes: Optional[Sequence[str]] = None,
        observed_classes: bool = False,
        ranges: Optional[Sequence[Tuple[float, float]]] = None,
        vocabulary: Optional[int] = None,
        shape: Optional[str] = None,
        unit: Optional[str] = None,
        ids: Optional[Sequence[str]] = None,
        records_per_unit: Optional[int] = None,
        preparation: Optional[str] = None,
    ) -> None: ...
    def __len__(self) -> int: ...

class Fitted:
    """A trained model with its guarantee."""

    @staticmethod
    def load(path: str) -> Fitted: ...
    @staticmethod
    def open(folder: str) -> Fitted: ...
    def save(self, path: str) -> None: ...
    def predict_classes(self, data: Data) -> NDArray[np.uint32]: ...
    def predict_proba(self, data: Data) -> NDArray[np.float64]: ...
    def predict_values(self, data: Data) -> NDArray[np.float64]: ...
    def parameters(self) -> Dict[str, NDArray[np.float32]]: ...
    @property
    def classes(self) -> List[str]: ...
    @property
    def outputs(self) -> int: ...
    @property
    def input_shape(self) -> List[int]: ...
    @property
    def preparation(self) -> Optional[str]: ...
    @property
    def score(self) -> Optional[float]: ...
    @property
    def history(self) -> List[Tuple[int, float]]: ...
    @property
    def finished(self) -> bool: ...
    @property
    def epsilon(self) -> Optional[float]: ...
    @property
    def delta(self) -> Optional[float]: ...
    @property
    def not_private_because(self) -> Optional[str]: ...
    @property
    def statement(self) -> str: ...
    @property
    def facts(self) -> str: ...

def fit(
    data: Data,
    settings: Mapping[str, str],
    *,
    network: Optional[str] = None,
    initial_weights: Optional[Dict[str, NDArray[np.float32]]] = None,
    test: Optional[Data] = None,
    public_test: bool = False,
    run_folder: Optional[str] = None,
    resume: bool = False,
    callback: Optional[Callable[[int, int, Optional[float]], Any]] = None,
) -> Fitted: ...
def setting_headings() -> Dict[str, str]: ...

# Federated training

class UpdateVault:
    """Draws clients, clips and sums their updates, adds noise, and keeps the ledger."""

    def __init__(
        self,
        dimension: int,
        *,
        clients: int,
        sample_rate: float,
        rounds: int,
        clipping_norm: float,
        noise_multiplier: float,
        delta: float,
        target_epsilon: Optional[float] = None,
        ledger: Union[str, os.PathLike[str], None] = None,
        resume: bool = False,
    ) -> None: ...
    def round(
        self, ask: Callable[[List[int]], Iterable[Optional[NDArray[np.float32]]]]
    ) -> Optional[Tuple[NDArray[np.float32], float]]: ...
    def close(self) -> None: ...
    @property
    def rounds_left(self) -> int: ...
    @property
    def statement(self) -> str: ...
    @property
    def facts(self) -> str: ...

# Data

def mushroom(
    test_fraction: float, split_seed: int
) -> Tuple[Tuple[NDArray[np.float32], NDArray[np.uint32]], Optional[Tuple[NDArray[np.float32], NDArray[np.uint32]]], List[str]]: ...

# Networks

class Network:
    """A network of the engine, described in JSON by ``input`` and ``layers``."""

    def __init__(self, description: str) -> None: ...
    def parameters(self) -> List[Tuple[str, Tuple[int, ...]]]: ...
    @property
    def output_width(self) -> int: ...
    def outputs(self, weights: Dict[str, NDArray[np.float32]], x: NDArray[Any]) -> NDArray[np.float32]: ...
