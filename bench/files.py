#!/usr/bin/env python3
"""Records that stay in their file: peak memory at two sizes, and the time of a step against the same records in memory.

    bench/files.py [--gigabytes G] [--steps N] [--model NAME] [--rounds R] [--small-only] [--folder DIR] [--json FILE]
    bench/files.py --reading [--records N] [--rounds R] [--folder DIR] [--json FILE] [--binary FILE ...]

Builds the sordino binary. Generates float32 records of 3072 values with 10 classes, chunk by chunk, as x.npy and y.npy of G / 10 and
of G gigabytes (10 by default), and trains on both. The smaller one is also trained on from an NPZ archive, which is read into
memory, and as a .sordino file; the three take turns R times, and medians are printed. The larger one is also trained on after the page
cache has dropped it. Needs 1.3 G of disk space.

With --reading, it measures the reading of an NPZ archive of N records (10 million by default) of 8 float32 values with int64 labels:
a run of one step of 256 records, minus the same run on the first 10,000 records. Several binaries take turns.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEATURES = 3072
CLASSES = 10


def header(descr, shape):
    text = str({"descr": descr, "fortran_order": False, "shape": shape})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def generate(folder, gigabytes):
    """Writes x.npy and y.npy; memory does not grow with their size."""
    folder.mkdir()
    block = 4096
    blocks = max(1, int(gigabytes * 1e9 / (4 * FEATURES * block)))
    source = random.Random(1)
    with open(folder / "x.npy", "wb") as x, open(folder / "y.npy", "wb") as y:
        x.write(header("<f4", (block * blocks, FEATURES)))
        y.write(header("|u1", (block * blocks,)))
        for _ in range(blocks):
            # Any bytes, with the exponents of numbers from 1 to 2.
            values = bytearray(source.randbytes(4 * FEATURES * block))
            values[3::4] = b"\x3f" * (FEATURES * block)
            values[2::4] = bytes(b"\x80" * (FEATURES * block))
            x.write(values)
            y.write(bytes(source.randrange(CLASSES) for _ in range(block)))
    return block * blocks


def archive(folder, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name in ["x.npy", "y.npy"]:
            file.write(folder / name, name)


def forget(path):
    """Drops a file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


BINARY = ROOT / "target/release/sordino"


def run(*flags, binary=BINARY):
    """Runs a command; returns its peak memory in MB, its seconds and the seconds of all processors."""
    begun = time.monotonic()
    child = subprocess.Popen([binary, *map(str, flags)], stdout=subprocess.PIPE, text=True)
    # The peak in the resource usage of a child includes its parent's memory before the exec; this one does not.
    peak, done = 0, 0
    while not done:
        for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = max(peak, int(line.split()[1]))
        time.sleep(0.005)
        done, status, usage = os.wait4(child.pid, os.WNOHANG)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{flags} failed")
    return peak / 1e3, time.monotonic() - begun, usage.ru_utime + usage.ru_stime


def train(data, steps, model, folder, before=lambda: None):
    """Trains for two numbers of steps, so that the time of a step does not include the opening of the file."""
    flags = ["train", "--data", data, "--model", model, "--noise-multiplier", 1, "--batch-size", 512, "--json"]
    if not str(data).endswith(".sordino"):
        flags += ["--classes", CLASSES]
    seconds, processors = [], []
    for number in [steps // 10, steps]:
        out = folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        before()
        memory, taken, used = run(*flags, "--steps", number, "--test-fraction", 0, "--out", out)
        seconds.append(taken)
        processors.append(used)
    step = lambda times: 1e3 * (times[1] - times[0]) / (steps - steps // 10)
    return {"peak_mb": memory, "step_ms": step(seconds), "step_processor_ms": step(processors), "seconds": seconds[1]}


def generate_narrow(path, records):
    """Writes an NPZ archive of records of 8 values; memory does not grow with its size."""
    block = 10_000
    source = random.Random(1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        with file.open("x.npy", "w", force_zip64=True) as x:
            x.write(header("<f4", (records, 8)))
            for begin in range(0, records, block):
                count = 8 * min(block, records - begin)
                values = bytearray(source.randbytes(4 * count))
                values[3::4] = b"\x3f" * count
                values[2::4] = b"\x80" * count
                x.write(values)
        with file.open("y.npy", "w", force_zip64=True) as y:
            y.write(header("<i8", (records,)))
            for begin in range(0, records, block):
                count = min(block, records - begin)
                y.write(b"".join(source.randrange(2).to_bytes(8, "little") for _ in range(count)))


def reading(arguments, folder):
    """Seconds, seconds of all processors and peak memory of reading; the binaries take turns."""
    many, few = folder / "many.npz", folder / "few.npz"
    generate_narrow(many, arguments.records)
    generate_narrow(few, 10_000)
    flags = ["train", "--classes", 2, "--noise-multiplier", 1, "--batch-size", 256, "--steps", 1, "--json"]
    taken = {binary: [] for binary in arguments.binary}
    for _ in range(arguments.rounds):
        for binary in arguments.binary:
            times = []
            for data in [few, many]:
                out = folder / "run"
                shutil.rmtree(out, ignore_errors=True)
                times.append(run(*flags, "--data", data, "--out", out, binary=binary))
            (_, few_seconds, few_used), (memory, seconds, used) = times
            one = {"reading_seconds": seconds - few_seconds, "processor_seconds": used - few_used, "peak_mb": memory}
            taken[binary].append(one)
    return {str(binary): median(rounds, 3) for binary, rounds in taken.items()}


def median(rounds, digits=1):
    return {key: round(statistics.median(one[key] for one in rounds), digits) for key in rounds[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small-only", action="store_true", help="only the smaller size")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--reading", action="store_true", help="only the reading of many narrow records")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--binary", type=Path, action="append", help="with --reading: a sordino binary; repeat it to compare")
    arguments = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino"], cwd=ROOT, check=True)
    arguments.binary = arguments.binary or [BINARY]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        folder = Path(folder)
        if arguments.reading:
            results = reading(arguments, folder)
            print(json.dumps(results, indent=2))
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=2) + "\n")
            return
        free = shutil.disk_usage(folder).free / 1e9
        if free < 1.5 * arguments.gigabytes:
            raise SystemExit(f"{folder} has {free:.0f} GB free; {1.5 * arguments.gigabytes:.0f} are needed")
        small, large = folder / "small", folder / "large"
        results = {name: getattr(arguments, name) for name in ["steps", "model", "rounds"]}

        def measure(sources, rounds, before=lambda: None):
            # The sources take turns.
            taken = {name: [] for name in sources}
            for _ in range(rounds):
                for name, data in sources.items():
                    taken[name].append(train(data, arguments.steps, arguments.model, folder, before))
            for name in sources:
                results[name] = median(taken[name])
                print(f"{name}: {results[name]}", flush=True)

        results["small_records"] = generate(small, arguments.gigabytes / 10)
        archive(small, folder / "small.npz")
        memory, seconds, _ = run("data", "convert", small, "--classes", CLASSES, "--out", folder / "small.sordino")
        results["convert"] = {"peak_mb": round(memory, 1), "seconds": round(seconds, 1)}
        print(f"convert: {results['convert']}", flush=True)
        converted = folder / "small.sordino"
        sources = {"small_in_memory": folder / "small.npz", "small_in_file": small, "small_converted": converted}
        measure(sources, arguments.rounds)
        if not arguments.small_only:
            results["large_records"] = generate(large, arguments.gigabytes)
            measure({"large_in_file": large}, 1)
            measure({"large_in_file_not_cached": large}, 1, lambda: forget(large / "x.npy"))
        print(json.dumps(results, indent=2))
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
