"""`sordino.flower`: one test for each fault of the usual wrappers, and a run with Flower's own server and clients.

The randomness is secret and has no seed; each test states how often chance alone makes it fail.
"""

import contextlib
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

flwr = pytest.importorskip("flwr", minversion="1.41")

import sordino  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, FedAvgM, FedProx  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402
from sordino.flower import PrivateStrategy, clipping_mod  # noqa: E402

DELTA = 1e-5
DOCS = Path(__file__).parents[2] / "docs" / "flower.md"


@pytest.fixture(autouse=True)
def task():
    """Messages can be made only within a run."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class Clients(Grid):
    """A grid whose nodes answer at once: `answer(node, message)` returns a reply, or None if the client drops out."""

    def __init__(self, nodes, answer):
        self.nodes, self.answer, self.asked = list(nodes), answer, []

    def get_node_ids(self):
        return self.nodes

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages:
            self.asked.append([message.metadata.dst_node_id for message in messages])
        replies = [self.answer(message.metadata.dst_node_id, message) for message in messages]
        return [reply for reply in replies if reply is not None]

    run = property(lambda self: None)

    def set_run(self, run):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    push_messages = pull_messages = create_message


def model(dimension=4):
    return ArrayRecord({"weights": Array(np.zeros(dimension, dtype=np.float32))})


def replying(update, examples=1):
    """A client that adds this update to the model."""

    def answer(node, message):
        weights = message.content["arrays"]["weights"].numpy()
        change = update(node) if callable(update) else update
        arrays = ArrayRecord({"weights": Array(weights + np.asarray(change, dtype=np.float32))})
        count = examples(node) if callable(examples) else examples
        return Message(content=RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": count})}), reply_to=message)

    return answer


def along(axis, length=1.0, dimension=4):
    vector = np.zeros(dimension, dtype=np.float32)
    vector[axis] = length
    return vector


def strategy(inner=None, **settings):
    defaults = dict(clients=4, sample_rate=1.0, rounds=1, clipping_norm=1.0, noise_multiplier=0.05, delta=DELTA)
    return PrivateStrategy(inner, **{**defaults, **settings})


def one_round(strategy, grid, arrays=None):
    """The model after one round, as Flower's `start` runs it."""
    arrays = model() if arrays is None else arrays
    messages = strategy.configure_train(1, arrays, ConfigRecord(), grid)
    arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
    return arrays["weights"].numpy().astype(np.float64)


def flowers_own(clients):
    """Flower's wrapper, with little noise."""
    return DifferentialPrivacyServerSideFixedClipping(FedAvg(), noise_multiplier=0.05, clipping_norm=1.0, num_sampled_clients=clients)


# 1. Weights by the number of examples


def opposed():
    """Two clients with opposite updates. The second has a million examples."""
    return Clients([10, 11], replying(lambda node: along(0, 1.0 if node == 10 else -1.0), lambda node: 1 if node == 10 else 1_000_000))


def test_the_number_of_examples_has_no_weight():
    """Ten standard deviations of the noise: 1e-23."""
    moved = one_round(strategy(clients=2), opposed())
    assert abs(moved[0]) < 10 * 0.05 / 2


def test_a_client_moves_the_model_by_at_most_its_share_of_the_clipping_norm():
    """The noise of four coordinates is longer than ten standard deviations with probability 1e-20."""
    grid = Clients([10, 11], replying(lambda node: along(0, 1e6 if node == 10 else 0.0), lambda node: 1_000_000 if node == 10 else 1))
    moved = one_round(strategy(clients=2), grid)
    assert 0.5 - 0.25 < np.linalg.norm(moved) < 0.5 + 0.25


def test_flowers_own_wrapper_weights_by_examples():
    """So the tests above can fail."""
    assert one_round(flowers_own(2), opposed())[0] < -0.75


# 2. The number of replies as divisor


def half_missing():
    """Of eight clients with the same update, four drop out."""
    return Clients(range(10, 18), lambda node, message: replying(along(0))(node, message) if node < 14 else None)


def test_the_divisor_does_not_depend_on_replies():
    """Ten standard deviations of the noise: 1e-23."""
    for grid, expected in [(Clients(range(10, 18), replying(along(0))), 1.0), (half_missing(), 0.5)]:
        moved = one_round(strategy(clients=8), grid)
        assert abs(moved[0] - expected) < 10 * 0.05 / 8 + 1e-3


def test_flowers_own_wrapper_divides_by_the_number_of_replies():
    assert one_round(flowers_own(8), half_missing())[0] > 0.9


# 3. Sampling


def test_nodes_are_sampled_independently_and_the_price_is_that_of_poisson_sampling():
    """40 rounds of 100 clients at rate 1/2. Their number is off by more than six standard deviations with probability 2e-9. All rounds have
    the same number with probability below 1e-40; FedAvg samples a fixed number."""
    private = strategy(clients=100, sample_rate=0.5, rounds=40, noise_multiplier=2.0)
    grid = Clients(range(1000, 1100), replying(along(0)))
    for _ in range(40):
        one_round(private, grid)
    sizes = [len(asked) for asked in grid.asked]
    assert abs(sum(sizes) - 2000) < 6 * math.sqrt(1000)
    assert len(set(sizes)) > 1
    assert all(len(set(asked)) == len(asked) for asked in grid.asked)
    price = sordino.epsilon(noise_multiplier=2.0, sample_rate=0.5, steps=40, delta=DELTA)
    assert private.price.epsilon == private.guarantee.epsilon == price.epsilon
    assert "Poisson sampling at rate 0.5" in str(private.guarantee)


def test_the_wrapped_strategy_does_not_choose_clients():
    grid = Clients(range(10, 14), replying(along(0)))
    one_round(strategy(FedAvg(fraction_train=0.5)), grid)
    assert grid.asked == [[10, 11, 12, 13]]


def test_missing_nodes_add_nothing_and_additional_ones_are_left_out():
    """Ten standard deviations of the noise: 1e-23."""
    few, many = Clients([10, 11], replying(along(0))), Clients(range(10, 20), replying(along(0)))
    assert abs(one_round(strategy(clients=4), few)[0] - 0.5) < 10 * 0.05 / 4 + 1e-3
    assert abs(one_round(strategy(clients=4), many)[0] - 1.0) < 10 * 0.05 / 4 + 1e-3
    assert few.asked == [[10, 11]] and many.asked == [[10, 11, 12, 13]]


# 4. The generator


def seeded_round(make):
    np.random.seed(7)
    random.seed(7)
    return one_round(make(), Clients(range(10, 14), replying(along(0))))


def test_seeds_do_not_repeat_the_noise():
    first, second = (seeded_round(strategy) for _ in range(2))
    assert (first != second).all()


def test_flowers_own_noise_repeats_with_the_seed():
    first, second = (seeded_round(lambda: flowers_own(4)) for _ in range(2))
    assert (first == second).all()


# 5. Composition


def charges(path):
    return sum('"charge"' in line for line in path.read_text().splitlines())


def test_rounds_are_composed_charged_first_and_resumed(tmp_path):
    settings = dict(sample_rate=0.5, rounds=3, noise_multiplier=1.0, ledger=tmp_path / "ledger")
    price = {steps: sordino.epsilon(noise_multiplier=1.0, sample_rate=0.5, steps=steps, delta=DELTA).epsilon for steps in (1, 2, 3)}
    seen = []

    def answer(node, message):
        seen.append(charges(tmp_path / "ledger"))
        if len(seen) > 1 and seen[-1] == 2:
            raise ConnectionError("the network failed")
        return replying(along(0))(node, message)

    # Of 64 clients none is sampled with probability 5e-20.
    private, grid = strategy(clients=64, **settings), Clients(range(10, 74), answer)
    one_round(private, grid)
    assert set(seen) == {1}
    assert private.guarantee.to_dict()["epsilon_so_far"] == price[1]
    with pytest.raises(ConnectionError, match="the network failed"):
        one_round(private, grid)
    assert seen[-1] == 2 and charges(tmp_path / "ledger") == 2
    assert private.guarantee.to_dict()["epsilon_so_far"] == price[2]
    assert private.guarantee.epsilon == price[3] > price[2] > price[1]
    del private
    resumed = strategy(clients=64, resume=True, **settings)
    result = resumed.start(grid, model())
    assert set(result.arrays) == {"weights"} and set(seen) == {1, 2, 3}
    assert resumed.guarantee.epsilon == price[3] and resumed.guarantee.to_dict()["finished"]
    with pytest.raises(ValueError, match="finished"):
        strategy(clients=64, resume=True, **settings).start(grid, model())


def test_no_more_rounds_are_taken_than_planned():
    private, grid = strategy(rounds=2), Clients(range(10, 14), replying(along(0)))
    with pytest.raises(ValueError, match="number of remaining rounds, which is 2 of 2, got 3"):
        private.start(grid, model(), num_rounds=3)
    assert grid.asked == []
    private.start(grid, model(), num_rounds=1)
    private.start(grid, model())
    assert len(grid.asked) == 2
    with pytest.raises(ValueError, match="all 2 rounds were taken"):
        one_round(private, grid)
    assert len(grid.asked) == 2


# 6. Clients that drop out


@pytest.mark.parametrize("failing", ["silent", "error"])
def test_clients_that_drop_out_add_nothing_and_the_noise_stays(failing):
    """The variance of 40,000 numbers is off by more than 5 % (seven standard deviations) with probability 3e-12."""

    def answer(node, message):
        return None if failing == "silent" else Message(Error(code=0, reason="lost"), reply_to=message)

    private = strategy(clients=4, noise_multiplier=2.0)
    moved = one_round(private, Clients(range(10, 14), answer), model(40_000))
    assert private.noise_std == pytest.approx(2.0, rel=1e-3)
    assert np.var(moved) == pytest.approx((private.noise_std / 4) ** 2, rel=0.05)


# 7. Malicious clients


def content(**arrays):
    return RecordDict({"arrays": ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})})


F = np.float32
MALFORMED = {
    "inf": content(weights=along(0, math.inf)),
    "nan": content(weights=along(0, math.nan)),
    "one axis too many": content(weights=np.ones((4, 1), dtype=F)),
    "too long": content(weights=np.ones(5, dtype=F)),
    "a scalar": content(weights=F(1.0)),
    "integers": content(weights=np.ones(4, dtype=np.int64)),
    "text": content(weights=np.array(["1", "2", "3", "4"])),
    "another name": content(bias=np.ones(4, dtype=F)),
    "nothing": RecordDict(),
    "two records": RecordDict({"a": content(weights=np.ones(4, dtype=F))["arrays"], "b": content(weights=np.ones(4, dtype=F))["arrays"]}),
    "bytes that are no array": RecordDict({"arrays": ArrayRecord({"weights": Array("float32", (4,), "numpy.ndarray", b"no")})}),
    "another encoding": RecordDict({"arrays": ArrayRecord({"weights": Array("float32", (4,), "pickle", b"no")})}),
    "float64 beyond float32": content(weights=np.array([1e300, 0, 0, 0])),
}


@pytest.mark.parametrize("reply", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_replies_add_nothing(reply):
    """Ten standard deviations of the noise: 1e-23. One well-formed client arrives."""

    def answer(node, message):
        return replying(along(3))(node, message) if node == 10 else Message(content=reply, reply_to=message)

    moved = one_round(strategy(), Clients(range(10, 14), answer))
    np.testing.assert_allclose(moved, along(3, 0.25), atol=10 * 0.05 / 4 + 1e-3)


def test_huge_updates_are_clipped_on_the_server():
    moved = one_round(strategy(), Clients(range(10, 14), replying(along(1, 3e38))))
    np.testing.assert_allclose(moved, along(1, 1.0), atol=10 * 0.05 / 4 + 1e-3)


def test_a_client_that_replies_twice_counts_once():
    class Doubling(Clients):
        def send_and_receive(self, messages, *, timeout=None):
            return [reply for reply in super().send_and_receive(messages) for _ in range(2)]

    moved = one_round(strategy(), Doubling(range(10, 14), replying(along(0))))
    assert abs(moved[0] - 1.0) < 10 * 0.05 / 4 + 1e-3


# Strategies and models


@pytest.mark.parametrize("inner", [FedAvgM(server_learning_rate=0.5, server_momentum=0.9), FedAdam(eta=0.1), FedProx(proximal_mu=0.1)])
def test_the_wrapped_strategy_makes_the_step(inner):
    """The first step of each. Ten standard deviations of the noise: 1e-23."""
    configs = []

    def answer(node, message):
        configs.append(dict(message.content["config"]))
        return replying(along(0))(node, message)

    private = strategy(inner)
    moved = one_round(private, Clients(range(10, 14), answer))[0]
    # FedAdam: its step has the sign of the update, and is near eta.
    expected, tolerance = {"FedAvgM": (0.5, 0.1), "FedAdam": (0.1, 0.09), "FedProx": (1.0, 0.2)}[type(inner).__name__]
    assert abs(moved - expected) < tolerance
    assert configs[0]["clipping_norm"] == 1.0 and configs[0]["server-round"] == 1
    assert ("proximal-mu" in configs[0]) == isinstance(inner, FedProx)


def test_only_floating_point_arrays_are_trained_and_types_are_kept():
    start = {"a": np.zeros((2, 3), dtype=np.float16), "count": np.array(2**60 + 1), "b": np.zeros((), dtype=np.float64)}
    record = ArrayRecord({name: Array(array) for name, array in start.items()})

    def answer(node, message):
        arrays = {name: array.numpy() + np.ones((), dtype=array.numpy().dtype) for name, array in message.content["arrays"].items()}
        return Message(content=content(**arrays), reply_to=message)

    private = strategy(rounds=2, clipping_norm=10.0, noise_multiplier=0.05)
    arrays = private.start(Clients(range(10, 14), answer), record).arrays
    ended = {name: array.numpy() for name, array in arrays.items()}
    assert {name: array.dtype for name, array in ended.items()} == {name: array.dtype for name, array in start.items()}
    assert {name: array.shape for name, array in ended.items()} == {name: array.shape for name, array in start.items()}
    assert ended["count"] == 2**60 + 1
    # Two rounds of noise with standard deviation 0.05 * 10 / 4.
    assert abs(ended["b"] - 2.0) < 10 * 0.18 and np.abs(ended["a"] - 2.0).max() < 10 * 0.18
    with pytest.raises(ValueError, match="no floating-point numbers"):
        strategy().start(Clients([], answer), ArrayRecord({"count": Array(np.array(7))}))


def test_clients_do_not_evaluate_and_their_metrics_are_discarded():
    grid, seen = Clients(range(10, 14), replying(along(0), examples=123)), []
    private = strategy(rounds=2)
    result = private.start(grid, model(), evaluate_fn=lambda number, arrays: seen.append(number) or MetricRecord({"loss": 0.5}))
    assert seen == [0, 1, 2] and set(result.evaluate_metrics_serverapp) == {0, 1, 2}
    assert not result.train_metrics_clientapp and not result.evaluate_metrics_clientapp
    assert len(grid.asked) == 2


def test_the_noise_multiplier_follows_from_the_budget():
    private = strategy(clients=1000, sample_rate=0.1, rounds=100, noise_multiplier=None, target_epsilon=2.0)
    expected = sordino.noise_multiplier(target_epsilon=2.0, sample_rate=0.1, steps=100, delta=DELTA)
    assert private.noise_multiplier == expected.noise_multiplier and private.price.epsilon <= 2.0
    assert private.guarantee is None
    for wrong in (dict(target_epsilon=2.0), dict(noise_multiplier=None)):
        with pytest.raises(ValueError, match="either target_epsilon or noise_multiplier"):
            strategy(**wrong)
    with pytest.raises(ValueError, match="fraction_train"):
        one_round(strategy(FedAvg(fraction_train=0.0)), Clients(range(4), replying(along(0))))


# The mod


def instruction(norm=1.0, message_type=MessageType.TRAIN):
    config = ConfigRecord({} if norm is None else {"clipping_norm": norm})
    message = Message(content=RecordDict({"arrays": model(), "config": config}), message_type=message_type, dst_node_id=10)
    message.metadata.__dict__["_message_id"] = "1"
    return message


@pytest.mark.parametrize("length, sent", [(0.5, 0.5), (1.0, 1.0), (50.0, 1.0), (3e38, 1.0)])
def test_the_mod_clips_and_sends_nothing_but_arrays(length, sent):
    client = replying(along(2, length), examples=123)
    reply = clipping_mod(instruction(), None, lambda message, context: client(10, message))
    assert list(reply.content) == ["arrays"]
    np.testing.assert_allclose(reply.content["arrays"]["weights"].numpy(), along(2, sent), rtol=1e-6)


def test_the_mod_reads_the_model_before_training_changes_it():
    def client(message, context):
        weights = message.content["arrays"].pop("weights").numpy()
        return Message(content=content(weights=weights + along(1, 9.0)), reply_to=message)

    reply = clipping_mod(instruction(), None, client)
    np.testing.assert_allclose(reply.content["arrays"]["weights"].numpy(), along(1, 1.0), rtol=1e-6)


@pytest.mark.parametrize("reply", MALFORMED.values(), ids=MALFORMED.keys())
def test_the_mod_sends_an_error_in_place_of_a_malformed_reply(reply):
    sent = clipping_mod(instruction(), None, lambda message, context: Message(content=reply, reply_to=message))
    assert sent.has_error() and "finite numbers" in sent.error.reason


def test_the_mod_needs_a_message_of_the_strategy_and_leaves_others_alone():
    called = []

    def client(message, context):
        called.append(message)
        return replying(along(0, 9.0))(10, message)

    refused = clipping_mod(instruction(norm=None), None, client)
    assert refused.has_error() and "needs a message of PrivateStrategy" in refused.error.reason and not called
    other = clipping_mod(instruction(message_type=MessageType.EVALUATE), None, client)
    np.testing.assert_array_equal(other.content["arrays"]["weights"].numpy(), along(0, 9.0))


def test_the_strategy_and_the_mod_work_together():
    grid = Clients(range(10, 14), lambda node, message: clipping_mod(message, None, lambda m, c: replying(along(0, 7.0))(node, m)))
    assert abs(one_round(strategy(), grid)[0] - 1.0) < 10 * 0.05 / 4 + 2e-3


# 8. Flower's own server and clients


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_app(folder):
    """The app of docs/flower.md: each block names its file in its first line."""
    for name, text in re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", DOCS.read_text(), re.DOTALL):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "app" / "__init__.py").write_text("")


@contextlib.contextmanager
def running(commands, environment, logs):
    """Runs commands, each in its own process group, and stops all of them at the end."""
    processes = []
    try:
        for number, command in enumerate(commands):
            with open(logs / f"{number}.log", "wb") as log:
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True))
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until(condition, seconds, processes, logs):
    end = time.monotonic() + seconds
    while not condition():
        stopped = [process.args[0] for process in processes if process.poll() is not None]
        if stopped or time.monotonic() > end:
            texts = "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(logs.glob("*.log")))
            pytest.fail(f"{stopped or 'nothing'} stopped, and the condition does not hold\n{texts}")
        time.sleep(0.2)


def test_a_superlink_and_two_supernodes_train_the_app_of_the_documentation(tmp_path):
    """Three rounds in which both clients take part. The weights end near (6, 0) with a standard deviation of 0.5, so an accuracy below 0.8
    needs an error of more than eight standard deviations: 1e-14."""
    programs = Path(sys.executable).parent
    home, app, logs = tmp_path / "home", tmp_path / "source", tmp_path / "logs"
    for folder in (home, app, logs):
        folder.mkdir()
    write_app(app)
    port = free_port()
    (home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    superlink = [str(programs / "flower-superlink"), "--insecure", "--host", "127.0.0.1", "--port", str(port), "--disable-runtime-dependency-installation"]
    supernode = [str(programs / "flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1"]

    def healthy():
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200

    with running([superlink], environment, logs) as processes:
        wait_until(healthy, 60, processes, logs)
        (tmp_path / "nodes").mkdir()
        nodes = [[*supernode, "--port", str(free_port()), "--node-config", f"partition-id={number}"] for number in range(2)]
        with running(nodes, environment, tmp_path / "nodes") as clients:
            run = [str(programs / "flwr"), "run", str(app), "here"]
            settings = f'clients=2 sample-rate=1.0 rounds=3 epsilon=60.0 folder="{tmp_path}"'
            started = subprocess.run([*run, "--run-config", settings], env=environment, capture_output=True, text=True, timeout=120)
            assert started.returncode == 0, started.stdout + started.stderr
            written = tmp_path / "guarantee.txt"
            wait_until(lambda: written.exists() and written.read_text(), 120, processes + clients, logs)
    guarantee = written.read_text()
    assert re.match(r"This federated model satisfies \((59\.\d+|60\.0000), 1e-5\)-differential privacy\.", guarantee)
    assert "one client's whole contribution" in guarantee
    ledger = (tmp_path / "ledger").read_text().splitlines()
    events = [next(iter(json.loads(line.split(" ", 1)[1]))) for line in ledger]
    assert events[1:] == ["charge"] * 3 + ["closed"]
    test = np.random.default_rng(0).normal(size=(2000, 2))
    assert np.mean((test @ np.load(tmp_path / "weights.npy") > 0) == (test[:, 0] > 0)) > 0.8
