#!/usr/bin/env python3
"""Predictions, side by side with PyTorch's inference, in one run on one machine.

    bench/predict.py [--models mnist,lstm] [--batches 256,1024] [--rounds N] [--seconds S] [--allow-noise] [--json FILE]

Uses the virtual environment, the models and the example engine_steps of bench/engine.py, and prints one table in Markdown. A call is the
forward pass of one batch, in f32 on two threads by default: `Engine::outputs`, which `sordino predict` and evaluation use, against the module in
evaluation mode under torch.no_grad. Reading of files, tokenization and scores are not included. The contenders take turns and never run at the
same time; a time is the median over all calls of all rounds, a ratio is the median of the ratios within each round.

Disturbed rounds are discarded and repeated (quiet.py). If a row has no quiet round, the script prints what it has and ends with exit code 1,
unless --allow-noise is given. SORDINO_BENCH_VENV and SORDINO_ENGINE_STEPS are those of bench/engine.py.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

import engine
import quiet

MODELS = ["mnist", "lenet5", "resnet20", "lstm", "transformer", "mlp"]


def compare(program, python, model, batch, rounds, seconds, watch):
    """The times of calls of every contender, per quiet round."""
    contenders = {
        "ours": engine.Engine(program, model, "forward", batch),
        "torch": engine.Peer(python, model, "forward", batch),
        "tuned": engine.Peer(python, model, "forward", batch, engine.TUNED),
    }

    def play(number):
        print(f"{model} / {batch}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        names = list(contenders)
        # Every round starts with a different program, so that the order varies.
        shift = number % len(names)
        return {name: watch.turn(contenders[name].go, seconds) for name in names[shift:] + names[:shift]}

    try:
        for name in ("torch", "tuned"):
            contenders[name].answer()
        kept = watch.rounds(rounds, play)
    finally:
        for contender in contenders.values():
            contender.close()
    if not kept:
        return None
    times = {name: [answers[name]["ms"] for answers in kept] for name in contenders}
    middle = {name: [statistics.median(one) for one in all_rounds] for name, all_rounds in times.items()}
    median = {name: statistics.median(sum(all_rounds, [])) for name, all_rounds in times.items()}
    ratios = {name: statistics.median(a / b for a, b in zip(middle["ours"], middle[name])) for name in ("torch", "tuned")}
    return {"model": model, "batch": batch, "median_ms": median, "ratios": ratios, "ms": times}


def row(result):
    median, batch = result["median_ms"], result["batch"]
    rate = lambda name: f"{1e3 * batch / median[name]:,.0f}"
    ratio = lambda name: f"{result['ratios'][name]:.2f}" + ("!" if result["ratios"][name] > 1 else "")
    times = [f"{median[name]:.3g}" for name in ("torch", "tuned", "ours")]
    return [f"{result['model']} / {batch}", *times, rate("torch"), rate("ours"), ratio("torch"), ratio("tuned")]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="which models, separated by commas (default: %(default)s)")
    parser.add_argument("--batches", default="256,1024", help="records in a call, separated by commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which every contender runs once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a contender runs in a round (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of every contender (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all times and ratios to FILE")
    quiet.add_options(parser)
    chosen = parser.parse_args()
    chosen.models, chosen.batches = chosen.models.split(","), [int(batch) for batch in chosen.batches.split(",")]
    if unknown := [model for model in chosen.models if model not in engine.MODELS]:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(engine.MODELS)}")
    if chosen.rounds < 1 or chosen.seconds <= 0 or min(chosen.batches) < 1 or chosen.threads < 1:
        parser.error("there must be at least one round, longer than 0 seconds, at least one record in a batch, and at least one thread")
    return chosen


def main():
    chosen = options()
    os.environ["SORDINO_BENCH_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(chosen.threads)
    python, program = engine.prepare()
    watch, results, failures = quiet.Watch(chosen), [], []
    heads = ["model / batch", "PyTorch ms", "tuned ms", "ours ms", "PyTorch records/s", "ours records/s", "ours / PyTorch", "ours / tuned PyTorch"]
    engine.table(heads, [])
    for model, batch in [(model, batch) for model in chosen.models for batch in chosen.batches]:
        try:
            result = compare(program, python, model, batch, chosen.rounds, chosen.seconds, watch)
        except engine.Failure as failure:
            failures.append(f"{model} / {batch} fails: {failure}")
            continue
        if not result:
            break
        results.append(result)
        print("| " + " | ".join(row(result)) + " |", flush=True)
    print("\nA ratio above 1 ends in !")
    for text in [*failures, watch.report()]:
        print("\n" + text)
    if chosen.json:
        setting = {"processors": os.cpu_count(), "threads": chosen.threads, "rounds": chosen.rounds, "seconds": chosen.seconds, "packages": engine.PACKAGES, "quiet": watch.figures()}
        Path(chosen.json).write_text(json.dumps({**setting, "results": results, "failures": failures}) + "\n")
    return watch.exit_code() or int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
