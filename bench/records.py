#!/usr/bin/env python3
"""Trains on public data sets with the release build of the command, mostly with its defaults, and compares accuracies with published ones.

    bench/records.py DATA [--tasks mushroom,mnist,...] [--runs 5] [--json FILE]

DATA has the folders mnist, fashion-mnist, cifar10, imdb, sst2, names and minilm, in the formats of their publishers. Every run is private and has fresh random
numbers. All settings were chosen before these runs, on parts of the training sets. The seconds are medians of the time of the whole process.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TENTH = 1 / 600_000
CNN = "--model mnist-cnn,tanh=true"
SENTENCES = "--encoder {data}/minilm --pooling all-layers"
# For each task: the folder, the settings, and for each privacy budget (epsilon, delta) three accuracies in %: the best of the five papers at this claimed epsilon, the best published one
# of training from scratch, and the goal.
TASKS = {
    "mushroom": ("mushroom", "", {(0.1, 1e-5): (None, None, 96.5), (0.3, 1e-5): (None, None, 99.0), (1, 1e-5): (96.98, None, 99.8)}),
    "mnist": ("mnist", "", {(0.4, TENTH): (94.35, None, 97.2), (1.2, TENTH): (96.34, None, 98.3), (1, 1e-5): (None, 97.8, 98.3), (3, 1e-5): (97.16, 98.7, 98.9)}),
    "mnist-cnn": ("mnist", CNN, {(3, 1e-5): (97.16, 98.1, 98.5)}),
    "fashion-mnist": ("fashion-mnist", "", {(1, 1e-5): (83.2, 86.3, 88.8), (3, 1e-5): (83.81, 89.7, 90.2)}),
    "cifar10": ("cifar10", "", {(1, 1e-5): (None, 63.2, 67.5), (3, 1e-5): (64.5, 70.0, 71.5)}),
    "imdb": ("imdb", "", {(1, 1e-5): (70.8, None, 85), (2, 1e-5): (81.2, None, 86)}),
    "sst2": ("sst2", SENTENCES, {(2, 1e-5): (82.24, None, 86)}),
    "names": ("names", "", {(1, 1e-5): (67.3, None, 70), (2, 1e-5): (72.0, None, 74), (8, 1e-5): (75.75, None, 78)}),
}


def train(data, source, settings, budget, folder):
    where = [] if source == "mushroom" else ["--data", data / source]
    settings = settings.replace("{data}", str(data)).split()
    command = [ROOT / "target/release/sordino", "train", "--json", *where, "--out", folder, *settings, "--epsilon", str(budget[0]), "--delta", repr(budget[1])]
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return {**json.loads(done.stdout), "process_seconds": time.perf_counter() - begun}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write every report to FILE")
    arguments = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    data, reports = arguments.data.resolve(), {}
    shown = lambda number: "-" if number is None else f"{number:g}"
    print("| task | epsilon | delta | mean (%) | standard deviation | the papers (%) | best published (%) | goal (%) | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for task in arguments.tasks.split(","):
        source, settings, budgets = TASKS[task]
        for budget, (papers, published, goal) in budgets.items():
            with tempfile.TemporaryDirectory() as folder:
                runs = [train(data, source, settings, budget, Path(folder) / str(number)) for number in range(arguments.runs)]
            accuracies = [100 * run["test_accuracy"] for run in runs]
            spread = statistics.stdev(accuracies) if len(runs) > 1 else 0.0
            seconds = statistics.median(run["process_seconds"] for run in runs)
            print(
                f"| {task} | {budget[0]:g} | {budget[1]:.2g} | {statistics.mean(accuracies):.2f} | {spread:.2f} "
                f"| {shown(papers)} | {shown(published)} | {shown(goal)} | {seconds:.0f} |",
                flush=True,
            )
            reports[f"{task} {budget[0]}"] = runs
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(reports) + "\n")


if __name__ == "__main__":
    main()
