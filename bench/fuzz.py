#!/usr/bin/env python3
"""Damaged files for every reader, many of them: python3 bench/fuzz.py [SHARE] [PROGRAM]

Builds the fuzzer (crates/fuzz) and reads the numbers of inputs below, or a share of them such as 0.1. The rows that it prints are the table
in docs/testing.md. Fast readers get more inputs than slow ones.
"""

import os
import subprocess
import sys

THOUSANDS = {
    "plan": 2000, "algorithm": 2000, "schedule-file": 1000,
    "schema": 500, "svmlight": 500, "npy": 400, "grid": 400,
    "ledger": 300, "settings": 300, "pretrained-config": 300, "json-lines": 300, "model-name": 300, "weights": 300,
    "parquet-table": 300, "parquet-images": 300,
    "network": 200, "svmlight-gzip": 200, "cache": 200, "checkpoint": 200, "saved-model": 200,
    "npz": 150, "npy-folder": 150, "idx-images": 150, "idx-labels": 150, "tokenizer": 150, "config": 150,
    "ledger-of-run": 150, "pretrained-weights": 150,
    "csv": 100, "csv-schema": 100, "png": 100, "jpeg": 100, "metrics": 100,
    "text-lines": 50, "cifar": 40, "plan-price": 40, "settings-price": 10,
}


def main():
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    program = sys.argv[2] if len(sys.argv) > 2 else "target/debug/sordino-fuzz"
    if len(sys.argv) <= 2:
        # The development profile is optimised, and it checks for overflows.
        subprocess.run(["cargo", "build", "-p", "sordino-fuzz"], check=True)
    failed = []
    print("| target | inputs | accepted | seconds |\n| --- | ---: | ---: | ---: |", flush=True)
    for target, thousands in THOUSANDS.items():
        inputs = max(1, round(1000 * thousands * share))
        done = subprocess.run([program, target, str(inputs)], stdout=subprocess.PIPE, text=True)
        print("".join(done.stdout.splitlines(True)[2:]), end="", flush=True)
        failed += [target] if done.returncode else []
    print(f"{sum(THOUSANDS.values()) * share * 1000:.0f} inputs; failed: {', '.join(failed) or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    main()
