#!/usr/bin/env python3
"""Trains models other than the defaults on texts, with the release build of the command, and prints accuracy, epsilon and seconds.

    bench/learning.py DATA [--tasks imdb-bag,sst2-lora,...] [--repeats R] [--json FILE]

bench/records.py measures the defaults. DATA has the folders imdb, sst2 and minilm, in the formats of their publishers. Every run is private and starts from fresh
randomness. The seconds are those of the whole process: reading, tokenising, encoding and training.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOMENTUM = "--optimizer momentum --schedule constant"
# The task, its settings, and the accuracy that the papers report at the same epsilon.
TASKS = {
    "imdb-bag": ("imdb", f"--model bag-of-words,first=1000,size=6000,rank_power=2 --tokenizer {{minilm}}/tokenizer.json --max-length 4096 --epsilon 1 --batch-size 4096 --steps 80 --learning-rate 6 {MOMENTUM} --average 0.9", 70.8),
    "imdb": ("imdb", f"--encoder {{minilm}} --pooling all-layers --max-length 256 --truncation middle --model logistic --epsilon 1 --batch-size 4096 --steps 120 --learning-rate 8 {MOMENTUM} --average 0.95", 70.8),
    "imdb-words": ("imdb", f"--model embedding-mlp --epsilon 1 --batch-size 4096 --steps 120 --learning-rate 4 {MOMENTUM} --average 0.9", 70.8),
    "sst2-lora": ("sst2", "--model {minilm} --train lora,rank=4 --pooling standardised-mean --max-length 64 --epsilon 2 --batch-size 1024 --steps 90 --optimizer adam --learning-rate 0.006", 82.2),
}


def train(name, data, folder):
    source, settings, _ = TASKS[name]
    settings = settings.replace("{minilm}", str(data / "minilm")).split()
    command = [ROOT / "target/release/sordino", "train", "--json", "--data", data / source, "--out", folder, *settings]
    begun = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {**json.loads(done.stdout), "process_seconds": time.perf_counter() - begun}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write every report to FILE")
    arguments = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    data, reports = arguments.data.resolve(), {}
    print("| task | epsilon | mean test accuracy (%) | lowest (%) | the papers (%) | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in arguments.tasks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            runs = [train(name, data, Path(folder) / str(number)) for number in range(arguments.repeats)]
        accuracies = [100 * run["test_accuracy"] for run in runs]
        seconds = statistics.median(run["process_seconds"] for run in runs)
        print(
            f"| {name} | {runs[0]['epsilon']:.4f} | {statistics.mean(accuracies):.2f} | {min(accuracies):.2f} | {TASKS[name][2]} | {seconds:.0f} |",
            flush=True,
        )
        reports[name] = runs
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(reports) + "\n")


if __name__ == "__main__":
    main()
