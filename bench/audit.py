#!/usr/bin/env python3
"""Error rates of audits: false alarms for sound algorithms, planted bugs that are caught, and false claims that are refuted.

    bench/audit.py [--audits N] [--bugs N] [--steps T] [--json FILE]

Builds the sordino binary. Audits every sound algorithm N times (200 by default) on the Mushroom data at epsilon 4, with fresh coins, and
counts audits that fail a test or have a lower bound above epsilon. Audits the algorithms as published 20 times at a claimed
epsilon of 2. Runs the tests of planted bugs with many audits of each (1,000 by default).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/sordino"


def audit(arguments):
    command = [BINARY, "audit", "--json", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "RAYON_NUM_THREADS": "1"})
    if result.returncode not in (0, 1):
        raise RuntimeError(f"{command}: {result.stderr}")
    return result.returncode, json.loads(result.stdout)


def many(count, arguments):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda _: audit(arguments), range(count)))


def row(name, audits):
    attacks = [audit["attacks"][0] for _, audit in audits]
    epsilon = audits[0][1]["claim"]["epsilon"]
    bounds = [attack["lower_bound"] for attack in attacks]
    failed = [c["name"] for _, a in audits for c in a["checks"] if not c["low"] <= c["measured"] <= c["high"]]
    return {
        "algorithm": name,
        "epsilon": epsilon,
        "audits": len(audits),
        "accused": sum(code == 1 for code, _ in audits),
        "failed_tests": failed,
        "mean_bound": statistics.mean(bounds),
        "largest_bound": max(max(a["lower_bound"] for a in result["attacks"] if not a["assumption"] or a["observation"] == "step") for _, result in audits),
        "seconds": statistics.mean(result["seconds"] for _, result in audits),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--bugs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino"], cwd=ROOT, check=True)
    listed = json.loads(subprocess.run([BINARY, "algorithms", "--json"], capture_output=True, text=True, check=True).stdout)
    listed = listed.get("algorithms", listed) if isinstance(listed, dict) else listed
    rows = []
    print("| algorithm | epsilon | audits | refuted or failed | mean step bound | largest bound | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for algorithm in listed:
        if algorithm["promise"] == "not-private":
            continue
        sound = algorithm["promise"] == "sound"
        settings = ["--algorithm", algorithm["name"], "--epsilon", "4" if sound else "2"]
        settings += ["--steps", str(options.steps), "--canaries", "200"] if sound else ["--canaries", "20"]
        result = row(algorithm["name"], many(options.audits if sound else 20, settings))
        rows.append(result)
        print("| {algorithm} | {epsilon:.3f} | {audits} | {accused} | {mean_bound:.3f} | {largest_bound:.3f} | {seconds:.1f} |".format(**result), flush=True)
        if result["failed_tests"]:
            print("failed:", result["failed_tests"])
    command = ["cargo", "test", "--release", "--quiet", "-p", "sordino-audit", "--test", "planted", "--", "--nocapture"]
    tests = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "SORDINO_AUDITS": str(options.bugs)})
    print("\n".join(line for line in tests.stdout.splitlines() if "caught in" in line))
    assert tests.returncode == 0, tests.stdout + tests.stderr
    if options.json:
        bugs = re.findall(r"(\w+): caught in (\d+) of (\d+)", tests.stdout)
        options.json.write_text(json.dumps({"audits": rows, "bugs": bugs}, indent=1))


if __name__ == "__main__":
    main()
