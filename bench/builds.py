#!/usr/bin/env python3
"""Compares the time of private steps of two builds of the engine, side by side in one run on one machine.

    bench/builds.py OLD NEW [--models mnist,lstm] [--rounds N] [--seconds S]

OLD and NEW are executables of the example engine_steps (cargo build --release -p sordino-nn --example engine_steps; keep a copy of
the old one). They run one after the other, in alternating order from round to round, and never at the same time. A ratio is the median over
rounds of NEW's median time divided by OLD's; its spread is the middle half of the rounds. The fastest step of all rounds is printed too, because other
processes hardly affect it.
"""

import argparse
import json
import statistics
import subprocess

MODELS = ["mnist", "lenet5", "mlp", "logistic", "embedding_mlp", "lstm", "gru", "transformer", "resnet20"]


def steps(executable, model, seconds):
    output = subprocess.run([executable, model, "private", str(seconds)], check=True, capture_output=True, text=True)
    return json.loads(output.stdout)["ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    print("| private step | old, fastest (ms) | new, fastest (ms) | fastest, new / old | median, new / old | middle half of the rounds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for model in arguments.models.split(","):
        times = {"old": [], "new": []}
        for number in range(arguments.rounds):
            order = [("old", arguments.old), ("new", arguments.new)]
            for name, executable in order if number % 2 == 0 else reversed(order):
                times[name].append(steps(executable, model, arguments.seconds))
        ratios = [statistics.median(new) / statistics.median(old) for old, new in zip(times["old"], times["new"])]
        low, _, high = statistics.quantiles(ratios, n=4)
        old, new = (min(map(min, times[name])) for name in ("old", "new"))
        print(f"| {model} | {old:.3g} | {new:.3g} | {new / old:.3f} | {statistics.median(ratios):.3f} | {low:.3f} to {high:.3f} |", flush=True)


if __name__ == "__main__":
    main()
