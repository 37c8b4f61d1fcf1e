#!/usr/bin/env python3
"""Compares the speed of the scattering transform with that of Kymatio (PyTorch), on images of the same size and on the same cores.

    bench/features.py --mnist DIR [--cifar DIR] [--records 2000] [--rounds 3] [--threads 2] [--json FILE]

Prints a Markdown table of images per second, as medians over the rounds. The programs alternate. Kymatio reads images of random numbers in batches of
128, in single precision, and keeps its results. The time for reading files is not counted. The time of Sordino includes the normalisation and the
rounding to half precision. The column with the default options also includes folding and whitening, for colour images. The statistics of synthetic images
have a column of their own, in seconds.

Kymatio runs in this interpreter, which needs kymatio 0.3.0, torch, numpy and scipy < 1.15. SORDINO_FEATURES may be set to the path of the
example program `features` of the data crate. If it is not set, the program is built.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLAIN = {"type": "scattering", "colours": "plain", "mirror": False, "whiten": 0.0, "normalise": "groups"}
ALL = {"type": "scattering"}


def program() -> str:
    if "SORDINO_FEATURES" in os.environ:
        return os.environ["SORDINO_FEATURES"]
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino-data", "--example", "features"], cwd=ROOT, check=True)
    return str(ROOT / "target/release/examples/features")


def ours(path: str, folder: str, options: dict, records: int, threads: int) -> dict:
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    out = subprocess.run([path, folder, json.dumps(options), str(records)], env=environment, check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def kymatio(shape: tuple, records: int, threads: int) -> float:
    import torch
    from kymatio.torch import Scattering2D

    torch.set_num_threads(threads)
    channels, height, width = shape
    images = torch.rand(records, channels, height, width, generator=torch.Generator().manual_seed(0))
    scattering = Scattering2D(J=2, shape=(height, width), L=8)
    scattering(images[:128])
    begun = time.perf_counter()
    with torch.no_grad():
        out = [scattering(batch) for batch in images.split(128)]
    seconds = time.perf_counter() - begun
    assert sum(len(part) for part in out) == records
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mnist")
    parser.add_argument("--cifar")
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    path, results = program(), []
    sets = [("MNIST", arguments.mnist, (1, 28, 28)), ("CIFAR-10", arguments.cifar, (3, 32, 32))]
    for name, folder, shape in sets:
        if folder is None:
            continue
        times = {"kymatio": [], "plain": [], "all": [], "preparation": []}
        for _ in range(arguments.rounds):
            times["kymatio"].append(kymatio(shape, arguments.records, arguments.threads))
            times["plain"].append(ours(path, folder, PLAIN, arguments.records, arguments.threads)["seconds"])
            default = ours(path, folder, ALL, arguments.records, arguments.threads)
            times["all"].append(default["seconds"])
            times["preparation"].append(default["preparation"])
        medians = {key: statistics.median(values) for key, values in times.items()}
        results.append({"data": name, "records": arguments.records, "threads": arguments.threads, **medians})
    print("| data | Kymatio, images/s | scattering, images/s | default options, images/s | statistics, s |")
    print("| --- | --- | --- | --- | --- |")
    for row in results:
        rate = [f"{row['records'] / row[key]:,.0f}" for key in ("kymatio", "plain", "all")]
        print(f"| {row['data']} | {' | '.join(rate)} | {row['preparation']:.1f} |")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
