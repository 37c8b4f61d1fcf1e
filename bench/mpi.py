#!/usr/bin/env python3
"""Measures training on several MPI ranks, and computes the step time of larger clusters from it.

    bench/mpi.py DATA [--rounds 3] [--json FILE] [--figure FILE.svg]

DATA has the folders `mnist` and `cifar10`. Needs Open MPI, and builds the binary with the feature `mpi` unless SORDINO_BIN names one.

The first table is measured. It has the time of a step on 1, 2 and 4 ranks with one thread each and the same expected batch size, the
efficiency `t_1 / (R t_R)`, and the share of a step that rank 0 spends in messages, which includes waiting for the slowest rank. A row for one
process with two threads shows what two cores of this machine can do. With more ranks than cores, the time does not measure speed, so the
efficiency of 4 ranks is left out on 2 cores.

The second table is computed. A step on R ranks takes

    t(R) = serial + work / R (1 + imbalance(R)) + reduce(R) + broadcast(R),

where `work` and `serial` follow from the measured times of 1 and 2 ranks without messages, `imbalance` is the expected
relative excess of the largest of R Poisson parts of a batch of B records, `sqrt(2 ln R / (B / R))`, and a message of n bytes takes
ceil(log2 R) (latency + n / bandwidth). The reduction has 8 bytes for each parameter, and the broadcast has 4.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASKS = {
    "MNIST-CNN": dict(data="mnist", model="mnist-cnn", batch=1024, steps=100),
    "ResNet-20": dict(data="cifar10", model="resnet20", batch=256, steps=10),
    "MLP 784-128-10": dict(data="mnist", model="mlp,hidden=128", batch=4096, steps=150),
}
NETWORKS = {"10 Gbit Ethernet": (30e-6, 1.25e9), "100 Gbit InfiniBand": (2e-6, 12.5e9)}
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def binary():
    if path := os.environ.get("SORDINO_BIN"):
        return Path(path)
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino", "--features", "mpi"], cwd=ROOT, check=True)
    return ROOT / "target/release/sordino"


def train(path, folder, task, ranks, steps, threads=1):
    """The seconds of a run, those that rank 0 spends in messages, and the number of parameters."""
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", SORDINO_MPI_TIMES="1")
    cores = os.cpu_count()
    alone = ["taskset", "-c", ",".join(map(str, range(threads)))]
    start = alone if ranks == 1 else ["mpirun", "-n", str(ranks), *(["--bind-to", "core"] if ranks <= cores else ["--oversubscribe"])]
    with tempfile.TemporaryDirectory() as out:
        command = [*start, path, "train", "--data", Path(folder) / task["data"], "--model", task["model"], "--noise-multiplier", 1, "--delta", "1e-5",
                   "--steps", steps, "--batch-size", task["batch"], "--test-fraction", 0, "--out", Path(out) / "run", "--json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
        if done.returncode:
            raise SystemExit(done.stderr)
    found = re.search(r"rank 0 spent ([0-9.]+) seconds in messages, with sums of ([0-9]+) numbers", done.stderr)
    messages, parameters = (float(found[1]), int(found[2])) if found else (0.0, 0)
    return json.loads(done.stdout)["seconds"], messages, parameters


def run(path, folder, task, ranks, threads=1):
    """The seconds of a step and the share of messages."""
    seconds, messages, parameters = train(path, folder, task, ranks, task["steps"], threads)
    return seconds / task["steps"], messages / seconds, parameters


def without_test_set(folder, place):
    """A folder with the training files alone, so that only training is timed."""
    place.mkdir(parents=True)
    for file in folder.iterdir():
        if not file.name.startswith(("t10k", "test")):
            (place / file.name).symlink_to(file.resolve())


def step_time(fit, batch, ranks, network):
    latency, bandwidth = network
    rounds = math.ceil(math.log2(ranks)) if ranks > 1 else 0
    messages = rounds * (2 * latency + 12 * fit["parameters"] / bandwidth)
    imbalance = math.sqrt(2 * math.log(ranks) / (batch / ranks)) if ranks > 1 else 0.0
    return fit["serial"] + fit["work"] / ranks * (1 + imbalance) + messages


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    path, cores, results = binary(), os.cpu_count(), {}
    places = tempfile.TemporaryDirectory()
    for name in ("mnist", "cifar10"):
        without_test_set(arguments.data / name, Path(places.name) / name)
    data = Path(places.name)

    print("| model, batch | ranks | threads | ms per step | efficiency | share of messages |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, task in TASKS.items():
        times, threaded = {ranks: [] for ranks in (1, 2, 4)}, []
        for _ in range(arguments.rounds):
            for ranks, found in times.items():
                found.append(run(path, data, task, ranks))
            threaded.append(run(path, data, task, 1, 2)[0])
        median = {ranks: statistics.median(t for t, _, _ in found) for ranks, found in times.items()}
        share = {ranks: statistics.median(s for _, s, _ in found) for ranks, found in times.items()}
        for ranks in times:
            efficiency = f"{median[1] / (ranks * median[ranks]):.2f}" if ranks <= cores else "-"
            print(f"| {name}, {task['batch']:,} | {ranks} | 1 | {1000 * median[ranks]:.1f} | {efficiency} | {share[ranks]:.3f} |", flush=True)
        both = statistics.median(threaded)
        print(f"| {name}, {task['batch']:,} | 1 | 2 | {1000 * both:.1f} | {median[1] / (2 * both):.2f} | 0.000 |", flush=True)
        parameters = times[2][0][2]
        # Without its messages, rank 0 of 2 spends serial + work / 2 in a step, and one process spends serial + work.
        work = min(median[1], max(0.0, 2 * (median[1] - median[2] * (1 - share[2]))))
        results[name] = {"seconds": median, "share": share, "parameters": parameters, "work": work, "serial": median[1] - work, "batch": task["batch"]}

    print("\n| model, batch | network | " + " | ".join(f"{size} ranks" for size in SIZES) + " |")
    print("| --- | --- |" + " ---: |" * len(SIZES))
    for name, fit in results.items():
        for network, numbers in NETWORKS.items():
            cells = [f"{1000 * step_time(fit, fit['batch'], size, numbers):.2f}" for size in SIZES]
            print(f"| {name}, {fit['batch']:,} | {network} | " + " | ".join(cells) + " |")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))
    if arguments.figure:
        arguments.figure.write_text(figure(results))


def figure(results):
    """Speed-up against ranks, both on logarithmic axes: measured points and computed curves."""
    width, height, left, top = 760, 420, 70, 30
    x = lambda ranks: left + math.log2(ranks) / 10 * (width - left - 190)
    y = lambda speedup: height - 50 - math.log2(max(speedup, 0.5)) / 10 * (height - 50 - top)
    colours = ["#1f6fb2", "#c2571a", "#3a8f3a"]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for power in range(0, 11, 2):
        parts.append(f'<line x1="{x(2**power):.1f}" y1="{y(1):.1f}" x2="{x(2**power):.1f}" y2="{y(1024):.1f}" stroke="#ddd"/>')
        parts.append(f'<line x1="{x(1):.1f}" y1="{y(2**power):.1f}" x2="{x(1024):.1f}" y2="{y(2**power):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x(2**power):.1f}" y="{height - 30}" text-anchor="middle">{2**power}</text>')
        parts.append(f'<text x="{left - 8}" y="{y(2**power) + 4:.1f}" text-anchor="end">{2**power}</text>')
    parts.append(f'<line x1="{x(1):.1f}" y1="{y(1):.1f}" x2="{x(1024):.1f}" y2="{y(1024):.1f}" stroke="#999" stroke-dasharray="2 4"/>')
    parts.append(f'<text x="{(x(1) + x(1024)) / 2:.0f}" y="{height - 8}" text-anchor="middle">ranks</text>')
    parts.append(f'<text x="16" y="{height / 2}" transform="rotate(-90 16 {height / 2})" text-anchor="middle">speed-up of a step</text>')
    label = top + 10
    for (name, fit), colour in zip(results.items(), colours):
        for (network, numbers), dash in zip(NETWORKS.items(), ["6 4", "none"]):
            one = step_time(fit, fit["batch"], 1, numbers)
            points = " ".join(f"{x(size):.1f},{y(one / step_time(fit, fit['batch'], size, numbers)):.1f}" for size in SIZES)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
            parts.append(f'<line x1="{width - 180}" y1="{label}" x2="{width - 150}" y2="{label}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
            parts.append(f'<text x="{width - 144}" y="{label + 4}">{name.split()[0]}, {network.split()[0]} Gbit</text>')
            label += 20
        for ranks in (1, 2):
            parts.append(f'<circle cx="{x(ranks):.1f}" cy="{y(fit["seconds"][1] / fit["seconds"][ranks]):.1f}" r="4" fill="{colour}"/>')
    parts.append(f'<text x="{width - 180}" y="{label + 10}">dots: measured</text><text x="{width - 180}" y="{label + 26}">lines: computed</text>')
    parts.append(f'<text x="{width - 180}" y="{label + 42}">dotted: ideal</text></svg>')
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
