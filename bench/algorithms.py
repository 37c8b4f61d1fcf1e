#!/usr/bin/env python3
"""The cost and the accuracy of every algorithm.

    bench/algorithms.py [--rounds N] [--seconds S] [--repeats R] [--mnist DIR] [--json FILE]

Builds the example algorithm_steps and the sordino binary. Costs are per record gradient that an algorithm evaluates (a difference
evaluates two), as medians of ratios to dp-sgd in rounds in which all algorithms take turns. Accuracies are means of R private runs at
equal (epsilon, delta): on Mushroom with all defaults, and on MNIST, if DIR has its four IDX files, at the budgets of the papers.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build():
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    command = ["cargo", "build", "--release", "--quiet", "-p", "sordino-train", "--example", "algorithm_steps"]
    subprocess.run(command, cwd=ROOT, check=True)


def costs(rounds, seconds):
    program = ROOT / "target/release/examples/algorithm_steps"
    lines = subprocess.run([program, str(rounds), str(seconds)], cwd=ROOT, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in lines.stdout.splitlines()]
    return {name: statistics.median(row[name] / row["dp-sgd"] for row in rows) for name in rows[0]}


def compare(*flags):
    with tempfile.TemporaryDirectory() as folder:
        command = [ROOT / "target/release/sordino", "compare", "--json", *map(str, flags)]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["rows"]


def show(title, rows):
    print(f"\n{title}\n\n| algorithm | mean | spread | worst | proved epsilon |\n| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        spread = row["standard_deviation"] or 0
        epsilon = "none" if row["epsilon"] is None else f"{row['epsilon']:.4g}"
        print(f"| `{row['algorithm']}` | {100 * row['mean']:.2f} | {100 * spread:.2f} | {100 * row['worst']:.2f} | {epsilon} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    build()
    result = {"cost": costs(arguments.rounds, arguments.seconds)}
    print("| algorithm | time per gradient evaluated / dp-sgd's (asked: 1.3) |\n| --- | ---: |")
    for name, ratio in result["cost"].items():
        print(f"| `{name}` | {ratio:.2f} |")
    repeats = ("--repeats", arguments.repeats)
    for epsilon in (0.1, 0.3, 1):
        result[f"mushroom {epsilon}"] = rows = compare("--epsilon", epsilon, *repeats)
        show(f"Mushroom, epsilon {epsilon}", rows)
    if arguments.mnist:
        data = ("--data", arguments.mnist, *repeats)
        for epsilon in (0.4, 0.6, 1.2):
            pace = ("--delta", "1.6667e-6", "--batch-size", 250, "--epochs", 5, "--learning-rate", 10)
            rows = compare(*data, *pace, "--epsilon", epsilon, "--algorithms", "dp-sgd,dynamic")
            result[f"mnist, dynamic, {epsilon}"] = rows
            show(f"MNIST, 2-conv network, epsilon {epsilon}, delta 1/(10 N)", rows)
        # What the text around the tables says: ten epochs, a constant learning rate.
        pace = ("--delta", "1.6667e-6", "--batch-size", 250, "--epsilon", 1.2, "--epochs", 10, "--learning-rate", 10)
        result["mnist, dynamic, ten epochs"] = rows = compare(*data, *pace, "--algorithms", "dp-sgd,dynamic")
        show("MNIST, 2-conv network, epsilon 1.2, ten epochs", rows)
        for name, rate in (("dp-sgd", 5), ("dynamic", 10)):
            pace = ("--delta", "1.6667e-6", "--batch-size", 250, "--epsilon", 0.4, "--epochs", 5, "--schedule", "constant")
            rows = compare(*data, *pace, "--learning-rate", rate, "--algorithms", name)
            result[f"mnist, constant rate, {name}"] = rows
            show(f"MNIST, 2-conv network, epsilon 0.4, constant learning rate {rate}", rows)
        for epsilon in (1, 2, 4):
            pace = ("--batch-size", 500, "--epochs", 4)
            rows = compare(*data, *pace, "--epsilon", epsilon, "--algorithms", "dp-sgd,dc-sgd-p,dc-sgd-e,quantile,dynamic,dice")
            result[f"mnist, dc-sgd, {epsilon}"] = rows
            show(f"MNIST, 2-conv network, epsilon {epsilon}, delta 1e-5", rows)
        for model, rate in ((ROOT / "bench/lenet.toml", 40), ("lenet5", 60)):
            pace = ("--batch-size", 1024, "--epochs", 30, "--learning-rate", rate, "--schedule", "constant", "--average", 0.995)
            rows = compare(*data, *pace, "--model", model, "--epsilon", 5, "--algorithms", "dp-sgd")
            result[f"mnist, {model}"] = rows
            show(f"MNIST, {model}, epsilon 5, delta 1e-5", rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
