#!/usr/bin/env python3
"""Compares the Python package with Opacus, diffprivlib and dp_accounting in one run on one machine.

    bench/python.py [--mnist DIR] [--rounds 3] [--json FILE]

Prints three Markdown tables with one number in each cell:
- Private logistic regression on Mushroom, and an MLP on MNIST: seconds from arrays to a fitted model, and test accuracy. Epsilon, delta, epochs,
  expected batch size, clipping norm and learning rate are equal. diffprivlib has only epsilon. A separate row has Sordino's defaults. The libraries alternate. Seconds are the median
  over the rounds, and accuracies are the mean.
- The time of one call of `epsilon`: Sordino on 1,000 different settings, and the PLD accountant of dp_accounting on the first 100 of them.
- The same training run with the wheel and with the binary.

Creates a virtual environment in ~/.cache/sordino-bench/python and installs the wheel of this checkout into it. With SORDINO_BENCH_VENV, it uses
that environment, which must have the packages and the wheel, and installs nothing. SORDINO_BIN is the path of the binary. Without it, the binary is
built.
"""

import argparse
import gzip
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# diffprivlib 0.6.6 does not run with later versions of scikit-learn.
PACKAGES = ["torch==2.9.1", "opacus==1.6.0", "diffprivlib==0.6.6", "dp-accounting==0.6.0", "scikit-learn==1.5.2", "numpy"]
DELTA = 1e-5
THREADS = 2


# The libraries: this part runs inside the virtual environment.


def mushroom():
    """The records with one-hot features; a fifth of them are test records."""
    import numpy

    rows = gzip.decompress((ROOT / "crates/data/embedded/mushroom.csv.gz").read_bytes()).decode().split()
    table = numpy.array([row.split(",") for row in rows])
    features = [(table[:, column, None] == numpy.unique(table[:, column])) for column in range(1, 23)]
    return split(numpy.concatenate(features, axis=1).astype("float32"), (table[:, 0] == "p").astype("int64"))


def split(x, y):
    import numpy

    order = numpy.random.default_rng(0).permutation(len(x))
    cut = len(x) // 5
    test, train = order[:cut], order[cut:]
    return x[train], y[train], x[test], y[test]


def mnist(folder):
    import numpy

    def read(name, header):
        path = next(Path(folder).glob(name))
        return numpy.frombuffer(path.read_bytes(), dtype="uint8", offset=header)

    parts = []
    for part in ("train", "t10k"):
        x = read(f"{part}-images*", 16).reshape(-1, 784).astype("float32") / 255
        parts += [numpy.ascontiguousarray(x), read(f"{part}-labels*", 8).astype("int64")]
    return tuple(parts)


def tasks(folder):
    """The settings of each task. `rate` and `clip` are the learning rate, which is constant, and the clipping norm."""
    found = {"logistic regression, Mushroom": dict(data=mushroom, hidden=(), epochs=20, batch=256, epsilon=1.0, rate=2.0, clip=1.0)}
    if folder:
        found["MLP 784-128-10, MNIST"] = dict(
            data=lambda: mnist(folder), hidden=(128,), epochs=10, batch=512, epsilon=2.0, rate=0.5, clip=1.0
        )
    return found


def with_sordino(task, x, y, **settings):
    import sordino

    model = {"model": "mlp", "hidden": list(task["hidden"])} if task["hidden"] else {"model": "logistic"}
    estimator = sordino.PrivateClassifier(
        **model, epsilon=task["epsilon"], delta=DELTA, epochs=task["epochs"], batch_size=task["batch"],
        classes=sorted(set(y.tolist())), progress=False, **settings,
    )
    estimator.fit(x, y)
    return estimator.predict


def with_equal_settings(task, x, y):
    """Sordino with the clipping norm, the learning rate and the schedule that Opacus has."""
    return with_sordino(task, x, y, max_grad_norm=task["clip"], settings={"learning_rate": task["rate"], "schedule": "constant"})


def with_opacus(task, x, y):
    import torch
    from opacus import PrivacyEngine

    # Two classes have one output, as in Sordino's logistic regression.
    classes = int(y.max()) + 1
    sizes = [x.shape[1], *task["hidden"], classes if classes > 2 else 1]
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(data, batch_size=task["batch"])
    optimizer = torch.optim.SGD(model.parameters(), lr=task["rate"])
    model, optimizer, loader = PrivacyEngine(accountant="prv").make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, epochs=task["epochs"], target_epsilon=task["epsilon"],
        target_delta=DELTA, max_grad_norm=task["clip"],
    )
    entropy = torch.nn.functional.cross_entropy
    binary_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    loss = entropy if classes > 2 else lambda outputs, labels: binary_entropy(outputs[:, 0], labels.float())
    for _ in range(task["epochs"]):
        for batch, labels in loader:
            optimizer.zero_grad()
            loss(model(batch), labels).backward()
            optimizer.step()

    def predict(x):
        with torch.no_grad():
            outputs = model(torch.from_numpy(x))
            return (outputs.argmax(1) if classes > 2 else (outputs[:, 0] > 0).long()).numpy()

    return predict


def with_diffprivlib(task, x, y):
    from diffprivlib.models import LogisticRegression

    # Rows with one-hot features of 22 columns have this public norm.
    model = LogisticRegression(epsilon=task["epsilon"], data_norm=22**0.5, max_iter=200).fit(x, y)
    return model.predict


def contenders(task):
    found = {"Sordino": with_equal_settings, "Opacus": with_opacus, "Sordino, defaults": with_sordino}
    if not task["hidden"]:
        found["diffprivlib"] = with_diffprivlib
    return found


def fit(folder, name, contender):
    import warnings

    warnings.filterwarnings("ignore")
    task = tasks(folder)[name]
    x, y, test_x, test_y = task["data"]()
    if contender == "Opacus":
        import torch

        torch.set_num_threads(THREADS)
    # Imports are not timed.
    importlib.import_module({"Opacus": "opacus", "diffprivlib": "diffprivlib.models"}.get(contender, "sordino.estimators"))
    start = time.perf_counter()
    predict = contenders(task)[contender](task, x, y)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "accuracy": float((predict(test_x) == test_y).mean())}


def settings():
    """1,000 random settings in the usual ranges."""
    import numpy

    draw, count = numpy.random.default_rng(1), 1000
    noise, rate = draw.uniform(0.6, 3.0, count), 10 ** draw.uniform(-3.5, -1.5, count)
    return [(float(z), float(q), int(t)) for z, q, t in zip(noise, rate, draw.integers(100, 10_000, count))]


def accounting(name, count):
    """The time of each of the first settings, their epsilons, and the time of all of them in two threads."""
    if name == "Sordino":
        import sordino

        price = lambda z, q, t: sordino.epsilon(noise_multiplier=z, sample_rate=q, steps=t, delta=DELTA).epsilon
    else:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant

        def price(z, q, t):
            event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
            accountant = PLDAccountant(value_discretization_interval=1e-4)
            return accountant.compose(dp_accounting.SelfComposedDpEvent(event, t)).get_epsilon(DELTA)

    price(1.0, 0.01, 10)
    chosen, seconds, epsilons = settings()[:count], [], []
    for setting in chosen:
        start = time.perf_counter()
        epsilons.append(price(*setting))
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda setting: price(*setting), chosen))
    return {"seconds": seconds, "epsilons": epsilons, "threaded": time.perf_counter() - start}


def same_run(folder):
    """The same run as that of the binary: an MLP on MNIST with the default settings. The arrays are read before timing starts."""
    import sordino

    x, y, _, _ = mnist(folder)
    start = time.perf_counter()
    sordino.PrivateClassifier(
        model="mlp", epsilon=2.0, delta=DELTA, epochs=10, batch_size=512, classes=list(range(10)), progress=False
    ).fit(x, y)
    return {"seconds": time.perf_counter() - start}


# The comparison: this part needs only the standard library.


def environment():
    if path := os.environ.get("SORDINO_BENCH_VENV"):
        return Path(path) / "bin/python"
    venv = Path.home() / ".cache/sordino-bench/python"
    python = venv / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", ROOT / "python"], check=True)
    return python


def inside(python, *arguments):
    command = [python, __file__, "inside", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def binary():
    if path := os.environ.get("SORDINO_BIN"):
        return Path(path)
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino"], cwd=ROOT, check=True)
    return ROOT / "target/release/sordino"


def binary_run(path, folder):
    """The seconds of the whole command, and the seconds of training without reading the files, which are compared with the wheel."""
    with tempfile.TemporaryDirectory() as out:
        command = [path, "train", "--data", folder, "--model", "mlp", "--epsilon", "2", "--delta", DELTA, "--epochs", "10",
                   "--batch-size", "512", "--out", Path(out) / "run", "--json"]
        start = time.perf_counter()
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        whole = time.perf_counter() - start
        shown = subprocess.run([path, "show", Path(out) / "run", "--json"], check=True, capture_output=True, text=True)
        return whole, json.loads(shown.stdout)["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", metavar="DIR", help="the folder of the IDX files of MNIST")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-settings", type=int, default=100, help="how many of the 1,000 settings dp_accounting computes")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    python, results = environment(), {}

    print("| task | library | seconds | seconds / Sordino's | accuracy in % |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name, task in tasks(arguments.mnist).items():
        rows = {contender: [] for contender in contenders(task)}
        for _ in range(arguments.rounds):
            for contender, found in rows.items():
                found.append(inside(python, "fit", arguments.mnist or "", name, contender))
        results[name] = rows
        own = statistics.median(row["seconds"] for row in rows["Sordino"])
        for contender, found in rows.items():
            seconds = statistics.median(row["seconds"] for row in found)
            accuracy = statistics.mean(row["accuracy"] for row in found)
            print(f"| {name} | {contender} | {seconds:.2f} | {seconds / own:.2f} | {100 * accuracy:.2f} |", flush=True)

    count = arguments.peer_settings
    ours, peer = inside(python, "accounting", "Sordino", 1000), inside(python, "accounting", "dp_accounting", count)
    same = sum(peer["seconds"]) / sum(ours["seconds"][:count])
    gap = max(abs(a - b) / b for a, b in zip(ours["epsilons"], peer["epsilons"]))
    results["accounting"] = {"ours": ours, "peer": peer, "ratio": same, "largest_relative_difference": gap}
    print("\n| accountant | settings | milliseconds per epsilon | in two threads |\n| --- | ---: | ---: | ---: |")
    for name, found in (("Sordino", ours), ("dp_accounting, PLD", peer)):
        number = len(found["seconds"])
        print(f"| {name} | {number:,} | {1000 * sum(found['seconds']) / number:.2f} | {1000 * found['threaded'] / number:.2f} |")
    print(f"\nOn the first {count} settings, dp_accounting takes {same:.0f} times as long. The largest relative difference of the epsilons is {gap:.1e}.")

    if arguments.mnist:
        path = binary()
        pairs = [(inside(python, "same_run", arguments.mnist)["seconds"], *binary_run(path, arguments.mnist)) for _ in range(arguments.rounds)]
        wheel, whole, trained = (statistics.median(column) for column in zip(*pairs))
        results["same run"] = pairs
        print("\n| the same run | seconds | ratio |\n| --- | ---: | ---: |")
        print(f"| binary: training | {trained:.2f} | 1.00 |\n| wheel: `fit` | {wheel:.2f} | {wheel / trained:.3f} |")
        print(f"| binary: the whole command | {whole:.2f} | {whole / trained:.3f} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        case, *rest = sys.argv[2:]
        answer = {
            "fit": lambda: fit(*rest),
            "accounting": lambda: accounting(rest[0], int(rest[1])),
            "same_run": lambda: same_run(*rest),
        }[case]()
        print(json.dumps(answer))
    else:
        main()
