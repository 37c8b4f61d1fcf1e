#!/usr/bin/env python3
"""The whole stack, measured: what the vault adds to the engine's step, noise for ten million parameters, and the accuracy of the
models that `sordino train` makes.

    bench/training.py [--rounds N] [--seconds S] [--repeats R] [--mnist DIR] [--json FILE]

Builds the example training_steps and the sordino binary. Ratios are medians of rounds in which the programs take turns.
Mushroom comes with sordino and is trained R times with its defaults; MNIST is trained once if DIR has its four IDX files.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build():
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    command = ["cargo", "build", "--release", "--quiet", "-p", "sordino-train", "--example", "training_steps"]
    subprocess.run(command, cwd=ROOT, check=True)


def stack(rounds, seconds):
    program = ROOT / "target/release/examples/training_steps"
    lines = subprocess.run([program, str(rounds), str(seconds)], cwd=ROOT, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in lines.stdout.splitlines()]
    middle = lambda f: statistics.median(f(row) for row in rows)
    return {
        "rounds": rounds,
        "engine_ms": middle(lambda row: row["engine_ms"]),
        "whole_ms": middle(lambda row: row["whole_ms"]),
        "whole_over_engine": middle(lambda row: row["whole_ms"] / row["engine_ms"]),
        "ledger_share": middle(lambda row: row["ledger_share"]),
        "noise_10m_ms": middle(lambda row: row["noise_10m_ms"]),
        "noise_10m_worst_ms": max(row["noise_10m_ms"] for row in rows),
    }


def train(*flags):
    with tempfile.TemporaryDirectory() as folder:
        command = [ROOT / "target/release/sordino", "train", "--json", "--out", f"{folder}/run", *flags]
        begun = time.monotonic()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout) | {"process_seconds": time.monotonic() - begun}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    build()
    result = {"stack": stack(arguments.rounds, arguments.seconds)}
    print("| measured | value | asked |\n| --- | ---: | ---: |")
    s = result["stack"]
    print(f"| whole step / engine's private step, MNIST network, batch 256 | {s['whole_over_engine']:.3f} | 1.10 |")
    print(f"| the two in ms | {s['whole_ms']:.2f}, {s['engine_ms']:.2f} | |")
    print(f"| of the whole step, syncing the ledger | {100 * s['ledger_share']:.2f} % | 2 % |")
    print(f"| noise for 10 million parameters, median; worst round | {s['noise_10m_ms']:.0f} ms; {s['noise_10m_worst_ms']:.0f} ms | 100 ms |")
    runs = [train() for _ in range(arguments.repeats)]
    scores = [100 * run["test_accuracy"] for run in runs]
    result["mushroom"] = runs
    spread = f"{statistics.mean(scores):.2f} % ({min(scores):.2f} to {max(scores):.2f})"
    seconds = statistics.median(run["process_seconds"] for run in runs)
    print(f"| Mushroom, epsilon {max(run['epsilon'] for run in runs):.4f}, mean of {len(runs)} runs | {spread} | 99.0 % |")
    print(f"| seconds for one of them, as a process | {seconds:.2f} | |")
    if arguments.mnist:
        run = train("--data", str(arguments.mnist), "--epsilon", "3", "--epochs", "30")
        result["mnist"] = run
        print(f"| MNIST, 2-conv network, epsilon {run['epsilon']:.4f} | {100 * run['test_accuracy']:.2f} % | 97 % |")
        print(f"| seconds | {run['process_seconds']:.0f} | 600 |")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
