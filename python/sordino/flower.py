"""Federated training with Flower: a strategy wrapper for the server and a mod for clients.

The privacy unit is a client with all its records. See docs/flower.md.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Callable, Iterable, List, Optional, Tuple, Union

import numpy as np

from . import _sordino
from .guarantee import Guarantee

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg, Result, Strategy
except ImportError as error:  # pragma: no cover
    raise ImportError(f"sordino.flower needs Flower: {error}\nhint: pip install flwr") from error

__all__ = ["PrivateStrategy", "clipping_mod"]

# The key that Flower's own mods use.
_CLIPPING_NORM = "clipping_norm"

_log = logging.getLogger("flwr")


class PrivateStrategy(Strategy):
    """Wraps a strategy so that training satisfies differential privacy for clients.

    In each round, the vault charges the ledger, samples clients by Poisson sampling, clips their updates, adds them with equal weights and adds
    noise. The sum is divided by ``sample_rate * clients``, whatever the number of replies. The wrapped strategy receives the result as if it were
    the reply of one client: FedAvg takes it as the new model, and FedAvgM, FedAdam or FedYogi take a step with it.

    A client that drops out, or whose reply is malformed or not finite, adds nothing. The noise stays the same.

    The wrapped strategy does not choose clients. Clients do not evaluate the model, and their metrics are discarded, because metrics have no noise. Use
    ``evaluate_fn`` of `start` with public records.

    Parameters
    ----------
    strategy : Strategy, optional
        The strategy to wrap. The default is FedAvg.
    clients : int
        Public number of clients. A client is a node of Flower. If fewer are connected, the missing ones add nothing. If more are
        connected, the additional ones are left out.
    sample_rate : float
        Probability that a client takes part in a round.
    rounds : int
        Number of rounds of the whole run.
    clipping_norm : float
        Largest norm of a client's update.
    delta : float
        Delta of the guarantee.
    target_epsilon : float, optional
        Privacy budget, from which the noise multiplier is computed. Give either this or `noise_multiplier`.
    noise_multiplier : float, optional
        Standard deviation of the noise on the sum, divided by the clipping norm.
    ledger : path, optional
        File for the ledger. A run that was stopped can be resumed with it. Without it, the whole plan counts as spent.
    resume : bool
        Whether to continue the run of an existing ledger. All rounds that it has charged count as taken, even if they failed.

    Attributes
    ----------
    price : Price
        The guarantee of the whole plan, before any client is asked.
    noise_multiplier : float
        The noise multiplier.
    noise_std : float or None
        Standard deviation of the noise on the last sum of updates, before the division.
    """

    def __init__(
        self,
        strategy: Optional[Strategy] = None,
        *,
        clients: int,
        sample_rate: float,
        rounds: int,
        clipping_norm: float,
        delta: float,
        target_epsilon: Optional[float] = None,
        noise_multiplier: Optional[float] = None,
        ledger: Union[str, os.PathLike[str], None] = None,
        resume: bool = False,
    ) -> None:
        super().__init__()
        if (target_epsilon is None) == (noise_multiplier is None):
            raise ValueError("give either target_epsilon or noise_multiplier\nhint: target_epsilon=2.0 computes the noise multiplier")
        if noise_multiplier is None:
            self.price = _sordino.noise_multiplier(target_epsilon=target_epsilon, sample_rate=sample_rate, steps=rounds, delta=delta)
        else:
            self.price = _sordino.epsilon(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=rounds, delta=delta)
        self.strategy = FedAvg() if strategy is None else strategy
        self.clients, self.sample_rate, self.rounds = clients, sample_rate, rounds
        self.clipping_norm, self.delta, self.target_epsilon = clipping_norm, delta, target_epsilon
        self.noise_multiplier = self.price.noise_multiplier
        self.noise_std: Optional[float] = None
        self._ledger, self._resume = ledger, resume
        self._vault: Optional[_sordino.UpdateVault] = None
        self._timeout: Optional[float] = 3600.0
        self._prepared: Optional[Tuple[_Model, RecordDict, Grid]] = None
        self._warned = False

    @property
    def expected_clients(self) -> float:
        """The expected number of clients in a round. The sum of updates is divided by it."""
        return self.sample_rate * self.clients

    @property
    def guarantee(self) -> Optional[Guarantee]:
        """The privacy guarantee of the trained model; None before the first round."""
        return None if self._vault is None else Guarantee._of(self._vault)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: Optional[int] = None,
        timeout: float = 3600,
        train_config: Optional[ConfigRecord] = None,
        evaluate_config: Optional[ConfigRecord] = None,
        evaluate_fn: Optional[Callable[[int, ArrayRecord], Optional[MetricRecord]]] = None,
    ) -> Result:
        """Trains for `num_rounds` rounds; by default for all remaining rounds. `initial_arrays` must be public.

        The other parameters are those of Flower's strategies.
        """
        vault = self._open(_Model(initial_arrays))
        left = vault.rounds_left
        num_rounds = left if num_rounds is None else num_rounds
        if not 1 <= num_rounds <= left:
            raise ValueError(
                f"num_rounds must be between 1 and the number of remaining rounds, which is {left} of {self.rounds}, got {num_rounds}\n"
                "hint: give the number of rounds of the whole run as rounds=, so that the noise is computed for it"
            )
        self._timeout = timeout
        try:
            result = super().start(grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        finally:
            if vault.rounds_left == 0:
                vault.close()
        for line in str(self.guarantee).splitlines():
            _log.info(line)
        return result

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Prepares the message of this round. Clients are sampled and asked in `aggregate_train`, after the round has been charged."""
        config[_CLIPPING_NORM] = float(self.clipping_norm)
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if not messages:
            raise ValueError(f"{type(self.strategy).__name__} prepared no message\nhint: leave fraction_train at 1.0; sample_rate sets the sampling probability")
        model = _Model(arrays)
        self._open(model)
        self._prepared = model, messages[0].content, grid
        return []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Tuple[Optional[ArrayRecord], Optional[MetricRecord]]:
        """Takes the round: charges it, asks the sampled clients, and applies the noisy sum of their updates."""
        if self._prepared is None or self._vault is None:
            raise RuntimeError("configure_train must be called before aggregate_train")
        model, content, grid = self._prepared
        self._prepared = None
        released = self._vault.round(lambda chosen: self._ask(chosen, model, content, grid))
        if released is None:
            raise ValueError(f"all {self.rounds} rounds were taken\nhint: start a new run, whose privacy cost adds to that of this one")
        total, self.noise_std = released
        private = model.plus(total / np.float32(self.expected_clients))
        key = getattr(self.strategy, "weighted_by_key", "num-examples")
        reply = RecordDict({"arrays": private, "metrics": MetricRecord({key: 1})})
        message = Message(content=reply, message_type=MessageType.TRAIN, dst_node_id=0)
        arrays, _ = self.strategy.aggregate_train(server_round, [message])
        return (None if arrays is None else model.like(arrays)), None

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Asks no client: the metrics of clients have no noise."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Optional[MetricRecord]:
        """Returns None: the metrics of clients have no noise."""
        return None

    def summary(self) -> None:
        """Logs the settings."""
        _log.info("\t├──> Differential privacy: (%s, %s) for %s rounds", self.price.epsilon, self.delta, self.rounds)
        _log.info("\t│\t├── Clients: %s, each sampled with probability %s", self.clients, self.sample_rate)
        _log.info("\t│\t└── Clipping norm: %s, noise multiplier: %s", self.clipping_norm, self.noise_multiplier)
        self.strategy.summary()

    def _open(self, model: "_Model") -> "_sordino.UpdateVault":
        if self._vault is None:
            self._vault = _sordino.UpdateVault(
                model.dimension,
                clients=self.clients,
                sample_rate=self.sample_rate,
                rounds=self.rounds,
                clipping_norm=self.clipping_norm,
                noise_multiplier=self.noise_multiplier,
                delta=self.delta,
                target_epsilon=self.target_epsilon,
                ledger=self._ledger,
                resume=self._resume,
            )
        return self._vault

    def _ask(self, chosen: List[int], model: "_Model", content: RecordDict, grid: Grid) -> List[Optional[np.ndarray]]:
        """The updates of the clients with these numbers. A node has one number in a round."""
        nodes = sorted(grid.get_node_ids())
        if len(nodes) > self.clients and not self._warned:
            self._warned = True
            _log.warning("%s nodes are connected, but clients is %s: the additional nodes are left out", len(nodes), self.clients)
        asked = [nodes[number] if number < len(nodes) else None for number in chosen]
        messages = [Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node) for node in asked if node is not None]
        replies = grid.send_and_receive(messages, timeout=self._timeout) if messages else []
        by_node = {}
        for reply in replies:
            by_node.setdefault(reply.metadata.src_node_id, reply)
        return [model.update(by_node[node]) if node in by_node else None for node in asked]


def clipping_mod(msg: Message, ctxt: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Clips the update of a client to the norm that `PrivateStrategy` sends, and sends nothing but the clipped arrays.

    The server clips again. With this mod, an honest client sends neither the full update nor its number of examples.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[clipping_mod])
    """
    if msg.metadata.message_type != MessageType.TRAIN:
        return call_next(msg, ctxt)
    try:
        (arrays,) = msg.content.array_records.values()
        (config,) = msg.content.config_records.values()
        norm = float(config[_CLIPPING_NORM])  # type: ignore[arg-type]
        # Read before training, which may change the message.
        model = _Model(arrays)
    except (KeyError, TypeError, ValueError) as error:
        return _refusal(msg, f"clipping_mod needs a message of PrivateStrategy: {error!r}")
    reply = call_next(msg, ctxt)
    if reply.has_error():
        return reply
    update = model.update(reply)
    if update is None or not np.isfinite(update).all():
        return _refusal(msg, "clipping_mod: the reply must have the arrays of the message, with finite numbers")
    length = float(np.linalg.norm(update.astype(np.float64)))
    clipped = update if length <= norm else update * np.float32(norm / length)
    return Message(content=RecordDict({"arrays": model.plus(clipped)}), reply_to=msg)


def _refusal(msg: Message, reason: str) -> Message:
    _log.error(reason)
    return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=reason), reply_to=msg)


class _Model:
    """The arrays of a model. Arrays of floating-point numbers are trained; others, such as counters, stay unchanged."""

    def __init__(self, arrays: ArrayRecord) -> None:
        self.arrays = {name: array.numpy() for name, array in arrays.items()}
        self.trained = [name for name, array in self.arrays.items() if array.dtype.kind == "f"]
        self.dimension = sum(self.arrays[name].size for name in self.trained)
        if self.dimension == 0:
            raise ValueError("the arrays have no floating-point numbers to train")

    def update(self, reply: Message) -> Optional[np.ndarray]:
        """The arrays of a reply minus these arrays, as one vector; None if the reply does not fit.

        Clients are not trusted, so no reply may cause an exception: the error would reveal something about one client.
        """
        try:
            (replied,) = reply.content.array_records.values()
            parts = []
            for name in self.trained:
                old, new = self.arrays[name], replied[name].numpy()
                if new.shape != old.shape or new.dtype.kind != "f":
                    return None
                with np.errstate(all="ignore"):
                    parts.append((new.astype(np.float64) - old).astype(np.float32).ravel())
            return np.concatenate(parts)
        except Exception:
            return None

    def plus(self, update: np.ndarray) -> ArrayRecord:
        """The arrays after an update."""
        changed, start = dict(self.arrays), 0
        for name in self.trained:
            old = self.arrays[name]
            part = update[start : start + old.size].reshape(old.shape)
            changed[name], start = (old + part).astype(old.dtype), start + old.size
        return ArrayRecord({name: Array(np.asarray(array)) for name, array in changed.items()})

    def like(self, arrays: ArrayRecord) -> ArrayRecord:
        """The trained arrays of a record in the types of this model. The others stay unchanged, even if a strategy has averaged them."""
        changed = {name: arrays[name].numpy().astype(old.dtype) if name in self.trained else old for name, old in self.arrays.items()}
        return ArrayRecord({name: Array(np.asarray(array)) for name, array in changed.items()})
