#!/usr/bin/env python3
"""The accuracy of protecting a person with several records: by units, and by group privacy.

    bench/persons.py [--runs N] [--json FILE]

Builds the sordino binary. Generates a table with several visits for each of 1,500 patients (60 numbers, a binary label, seed 1) and a public test
table of 2,000 other patients. Trains logistic regression for all visits of one patient, at each epsilon and delta 1e-5:

- units: `--unit patient`, with visits averaged;
- group privacy: on visits, with so much noise that the guarantee for any K records together has this epsilon, where K is the number of visits.
"""

import argparse
import json
import math
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/sordino"
DELTA, EPOCHS, FEATURES = 1e-5, 30, 60


def sordino(*arguments):
    command = [str(BINARY), *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def write_table(path, patients, visits, seed):
    """Visits of a patient resemble each other, and so do their labels."""
    source = random.Random(seed)
    fixed = random.Random(7)
    weights = [fixed.gauss(0, 1) for _ in range(FEATURES)]
    with path.open("w") as table:
        table.write(",".join(["patient", *(f"x{i}" for i in range(FEATURES)), "ill"]) + "\n")
        for patient in range(patients):
            person = [source.gauss(0, 0.7) for _ in range(FEATURES)]
            for _ in range(visits):
                x = [value + source.gauss(0, 0.7) for value in person]
                logit = 0.5 * sum(w * value for w, value in zip(weights, x))
                ill = int(source.random() < 1 / (1 + math.exp(-logit)))
                table.write(",".join([f"{seed}-{patient}", *(f"{value:.4f}" for value in x), str(ill)]) + "\n")


def group_noise(epsilon, rate, steps, group):
    """The least noise multiplier for which the guarantee for a group has this epsilon."""
    low, high = 0.3, 3000.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        try:
            found = sordino("epsilon", "--noise-multiplier", middle, "--sample-rate", rate, "--steps", steps, "--delta", DELTA, "--group-size", group)["epsilon"]
        except subprocess.CalledProcessError:
            found = math.inf
        low, high = (middle, high) if found > epsilon else (low, middle)
    return high


def accuracy(folder, number, *flags):
    run = sordino("train", "--data", folder / "train.csv", "--test-data", folder / "test.csv", "--test-set", "public", "--classes", 2, "--delta", DELTA,
                  "--out", folder / f"run-{number}", *flags)
    return 100 * run["test_accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "sordino"], cwd=ROOT, check=True)
    results, number, patients = [], 0, 1500
    for visits in (4, 16):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_table(folder / "train.csv", patients, visits, 1)
            write_table(folder / "test.csv", 2000, 1, 2)
            for epsilon in (1, 4):
                records = patients * visits
                steps = EPOCHS * 16
                noise = group_noise(epsilon, 1 / 16, steps, visits)
                ways = {
                    "units": ["--unit", "patient", "--batch-size", patients // 16, "--epsilon", epsilon],
                    "group privacy": ["--schema", folder / "schema.toml", "--batch-size", records // 16, "--noise-multiplier", f"{noise:.4f}"],
                    "records alone": ["--schema", folder / "schema.toml", "--batch-size", records // 16, "--epsilon", epsilon],
                }
                columns = "".join(f'[[columns]]\nname = "x{i}"\ntype = "number"\n' for i in range(FEATURES))
                (folder / "schema.toml").write_text(
                    'target = "ill"\nothers = "ignore"\n' + columns + '[[columns]]\nname = "ill"\ntype = "category"\nvalues = ["0", "1"]\n'
                )
                for way, flags in ways.items():
                    accuracies = []
                    for _ in range(options.runs):
                        number += 1
                        accuracies.append(accuracy(folder, number, "--steps", steps, *flags))
                    results.append({"visits": visits, "epsilon": epsilon, "way": way, "accuracy": statistics.mean(accuracies), "std": statistics.stdev(accuracies)})
                    print(f"{visits:3} visits, epsilon {epsilon}: {way:14} {results[-1]['accuracy']:.2f} ± {results[-1]['std']:.2f} %", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
