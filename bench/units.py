#!/usr/bin/env python3
"""The price of units: a private step whose records form units of 8, against the same records without units.

    bench/units.py [--models mnist,lstm] [--size N] [--rounds N] [--seconds S] [--no-memory]

Builds the example engine_steps, or takes the executable that SORDINO_ENGINE_STEPS names. The two steps run one after the other, in
alternating order from round to round, and never at the same time. A ratio is the median over rounds of the ratios of the median times. The second table has
the peak memory for two sizes of the batch.
"""

import argparse
import json
import os
import statistics
import subprocess

from engine import MODELS, ROOT, table

TARGET = 1.15
# With fewer units, some workers would have nothing to do.
LEAST_UNITS = 4
MEMORY = ["mnist", "mlp", "lstm", "resnet20"]


def run(executable, model, mode, seconds, batch):
    command = [executable, model, mode, str(seconds), str(batch)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def executable():
    if named := os.environ.get("SORDINO_ENGINE_STEPS"):
        return named
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino-nn", "--example", "engine_steps"], cwd=ROOT, check=True)
    return str(ROOT / "target/release/examples/engine_steps")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="which models, separated by commas (default: %(default)s)")
    parser.add_argument("--size", type=int, default=8, help="records in a unit (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=8, help="rounds in which both steps run once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a step runs in a round (default: %(default)s)")
    parser.add_argument("--no-memory", action="store_true", help="leave the table of peak memory out")
    return parser.parse_args()


def main():
    chosen = options()
    steps, mode = executable(), f"units{chosen.size}"
    rows = []
    for model in chosen.models.split(","):
        batch = max(MODELS[model][0], LEAST_UNITS * chosen.size) // chosen.size * chosen.size
        times = {"private": [], mode: []}
        for number in range(chosen.rounds):
            for name in list(times) if number % 2 == 0 else reversed(times):
                times[name].append(statistics.median(run(steps, model, name, chosen.seconds, batch)["ms"]))
        ratio = statistics.median(own / plain for own, plain in zip(times[mode], times["private"]))
        own, plain = statistics.median(times[mode]), statistics.median(times["private"])
        rows.append([f"{model} / {batch}", f"{plain:.3g}", f"{own:.3g}", f"{ratio:.2f}" + ("!" if ratio > TARGET else "")])
    table(["model / records in the batch", "private ms", f"units of {chosen.size} ms", "units / private"], rows)
    print(f"\nThe target is {TARGET}. A ratio beyond it ends in !")
    if not chosen.no_memory:
        rows = []
        for model in MEMORY:
            for batch in (256, 8192 if model in ("mnist", "mlp") else 1024):
                peaks = [run(steps, model, name, 0.1, batch)["peak_mib"] for name in ("private", mode)]
                rows.append([f"{model} / {batch}", *(f"{peak:.0f}" for peak in peaks)])
        table(["model / records in the batch", "private, peak MiB", f"units of {chosen.size}, peak MiB"], rows)


if __name__ == "__main__":
    main()
