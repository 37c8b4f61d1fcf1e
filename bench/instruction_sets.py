#!/usr/bin/env python3
"""Private steps with the kernels for smaller instruction sets, as multiples of those for the largest, in one run on one machine.

    bench/instruction_sets.py [--models mnist,lstm] [--rounds N] [--seconds S] [--allow-noise] [--json FILE]

Builds the example engine_steps, or uses the executable that SORDINO_ENGINE_STEPS names. Every round runs each instruction set once (SORDINO_ISA);
a ratio is the median of the ratios of the medians within each round. Disturbed rounds are discarded and repeated (quiet.py).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import quiet

ROOT = Path(__file__).resolve().parent.parent
MODELS = ["mnist", "lenet5", "resnet20", "resnet18", "transformer", "mlp", "lstm", "gru"]
# Without a request, the largest set of the processor.
SETS = {"largest": None, "avx2": "avx2", "portable": "portable"}


def program():
    if own := os.environ.get("SORDINO_ENGINE_STEPS"):
        return own
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino-nn", "--example", "engine_steps"], cwd=ROOT, check=True)
    return str(ROOT / "target/release/examples/engine_steps")


def step(command, requested):
    """The median of the times of private steps, in ms."""
    environment = {name: value for name, value in os.environ.items() if name != "SORDINO_ISA"}
    if requested:
        environment["SORDINO_ISA"] = requested
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return statistics.median(json.loads(output)["ms"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="which models, separated by commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which every instruction set runs once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long an instruction set runs in a round (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all times to FILE")
    quiet.add_options(parser)
    chosen = parser.parse_args()
    watch, executable, times = quiet.Watch(chosen), program(), {}
    print("| model | largest, ms | avx2 / largest | portable / largest |\n| --- | ---: | ---: | ---: |")
    for model in chosen.models.split(","):
        command = [executable, model, "private", str(chosen.seconds)]
        play = lambda _: {name: watch.turn(step, command, requested) for name, requested in SETS.items()}
        if not (kept := watch.rounds(chosen.rounds, play)):
            break
        times[model] = kept
        ratio = lambda name: statistics.median(one[name] / one["largest"] for one in kept)
        print(f"| {model} | {statistics.median(one['largest'] for one in kept):.3g} | {ratio('avx2'):.2f} | {ratio('portable'):.2f} |", flush=True)
    print("\n" + watch.report())
    if chosen.json:
        Path(chosen.json).write_text(json.dumps({"quiet": watch.figures(), "ms": times}) + "\n")
    return watch.exit_code()


if __name__ == "__main__":
    sys.exit(main())
