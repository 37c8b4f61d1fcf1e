#!/usr/bin/env python3
"""Which algorithm wins when the search for its settings is paid for?

The question of Tables II to V of the DC-SGD paper, at one total budget: DP-SGD tries 10 clipping norms, DC-SGD-P 9 percentiles, and DC-SGD-E
nothing. The noise of a run follows from the method that prices the search. As in the paper, a cell is the mean accuracy of the best settings over
several runs, where the best settings are picked by that mean. `tune` runs whole searches: a cell is the mean over searches of the accuracy of
the selected run. Standard library only.

    bench/tuning_costs.py target/release/sordino                                  # Mushroom, a few minutes
    bench/tuning_costs.py target/release/sordino --mnist DIR --epsilon 2 --repeats 2 --searches 0    # MNIST, an hour on two cores
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

GRIDS = {
    "dp-sgd": ("max_grad_norm", [0.05, 0.1, 0.2, 0.5, 1, 2, 4, 6, 8, 10]),
    "dc-sgd-p": ("percentile", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
    "dc-sgd-e": None,
    "dp-sgd,": None,  # with the default settings
}
METHODS = ["free", "liu-talwar", "composition", "papernot-steinke"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sordino", type=pathlib.Path)
    parser.add_argument("--mnist", metavar="DIR", help="the folder of the IDX files of MNIST")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1, 2])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--searches", type=int, default=20, help="how many whole searches `tune` runs for each algorithm")
    parser.add_argument("--algorithms", nargs="+", choices=list(GRIDS), default=list(GRIDS))
    arguments = parser.parse_args()
    if arguments.mnist:
        run = ["--data", arguments.mnist, "--model", "mnist-cnn", "--mean", "0.1307", "--std", "0.3081",
               "--optimizer", "adam", "--learning-rate", "0.001", "--schedule", "constant"]
        records, delta, epochs = 60000, 1 / 60000, 10
    else:
        run, records, delta, epochs = [], 6499, 1e-5, 10
    rate = 256 / records
    run += ["--epochs", str(epochs), "--batch-size", "256", "--delta", repr(delta)]
    steps = round(epochs / rate)

    def call(*command):
        command = [str(arguments.sordino.resolve()), *map(str, command), "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def noise(method, candidates, epsilon):
        plan = ["--epsilon", epsilon, "--delta", repr(delta), "--sample-rate", repr(rate), "--steps", steps]
        if method != "free" and candidates > 1:
            plan += ["--tuning", method, "--candidates", candidates]
        return call("noise", *plan)["noise_multiplier"]

    print("| epsilon | algorithm | settings | price of the search | noise multiplier | accuracy in % | spread |")
    print("| ---: | --- | ---: | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for epsilon in arguments.epsilon:
            for algorithm in arguments.algorithms:
                grid = GRIDS[algorithm]
                space = pathlib.Path(folder) / f"{algorithm}.toml"
                count = len(grid[1]) if grid else 1
                if grid:
                    space.write_text(f"{grid[0]} = {grid[1]}\n")
                for method in METHODS if grid else ["free"]:
                    multiplier = noise(method, count, epsilon)
                    tune = ["--tune", space] if grid else []
                    rows = call("compare", *run, "--algorithms", algorithm.rstrip(","), "--noise-multiplier", multiplier,
                                "--repeats", arguments.repeats, *tune)["rows"]
                    best = max(rows, key=lambda row: row["mean"])
                    line(epsilon, algorithm, count, method, multiplier, best["mean"], best["standard_deviation"])
                if grid and arguments.searches:
                    searches = [
                        call("tune", *run, "--algorithm", algorithm, "--space", space, "--epsilon", epsilon,
                             "--trials", count, "--out", pathlib.Path(folder) / f"{algorithm}-{epsilon}-{i}")
                        for i in range(arguments.searches)
                    ]
                    found = [search["test_accuracy"] for search in searches]
                    line(epsilon, algorithm, count, "`tune`, whole searches", None, statistics.mean(found),
                         statistics.stdev(found) if len(found) > 1 else 0.0)


def line(epsilon, algorithm, count, method, multiplier, mean, spread):
    algorithm = "dp-sgd, default settings" if algorithm.endswith(",") else algorithm
    noise = "" if multiplier is None else f"{multiplier:.2f}"
    print(f"| {epsilon:g} | {algorithm} | {count} | {method} | {noise} | {100 * mean:.2f} | {100 * spread:.2f} |", flush=True)


if __name__ == "__main__":
    main()
