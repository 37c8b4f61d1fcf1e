#!/usr/bin/env python3
"""Time and peak memory against batch size, number of records, parameters, sequence length and steps of a plan.

    bench/scaling.py [--only batch,records,parameters,length,plan] [--rounds N] [--large] [--small] [--svg FILE] [--json FILE] [--allow-noise]

Builds the sordino binary and the example engine_steps, and prints one table for each quantity, in Markdown, and the slopes. A slope is that
of a straight line through the logarithms of the last three points, by least squares: 1 if the value grows in proportion, 0 if it does not grow.
A slope above the expected one by more than 0.15 ends in !. The pictures go to docs/scaling.svg, for all quantities only.

- batch, records and parameters: `sordino train` on random records in files x.npy and y.npy. Every point is run with two numbers of steps.
  The time of a step comes from the difference, and what the shorter run takes beyond its steps is the start: reading, checks,
  evaluation on held-back records and writing the model.
- length: private steps of the engine for an LSTM and a transformer, batch 32.
- plan: `sordino epsilon` with the accountants pld and rdp.

Disturbed rounds are discarded and repeated (quiet.py). --large adds 10^8 records (1.7 GB on disk) and 10^8 parameters (about 6 GB of memory).
--small measures the first points only, as a quick check of this script.
"""

import argparse
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import quiet

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/release/sordino"
STEPS = ROOT / "target/release/examples/engine_steps"
TOLERANCE = 0.15
FITTED = 3
# A command that takes less is repeated within its turn, since processor times are counted in ticks of 10 ms.
SHORTEST_TURN = 0.6


def run(command, processor=False):
    """Runs a command; returns its output, its seconds (of the clock or of all processors) and its peak memory in MiB."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begun = time.monotonic()
        child = subprocess.Popen([str(part) for part in command], stdout=output, stderr=errors, text=True, cwd=ROOT)
        # The peak in the resource usage of a child includes its parent's memory before the exec; this one does not.
        peak, done = 0, 0
        try:
            while not done:
                for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        peak = max(peak, int(line.split()[1]))
                time.sleep(0.0002)
                done, status, usage = os.wait4(child.pid, os.WNOHANG)
        except BaseException:
            child.kill()
            child.wait()
            raise
        seconds = usage.ru_utime + usage.ru_stime if processor else time.monotonic() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{errors.read()}")
        output.seek(0)
        return output.read(), seconds, peak / 1024


def header(kind, shape):
    text = str({"descr": kind, "fortran_order": False, "shape": shape})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def generate(folder, records, features):
    """Writes x.npy and y.npy with two classes. The same block of random records is repeated, which is fast; memory stays small."""
    folder.mkdir()
    block, source = min(records, 1 << 16), random.Random(1)
    # Any bytes, with the sign and the exponent of numbers from 1 to 2.
    values = bytearray(source.randbytes(4 * features * block))
    values[3::4] = b"\x3f" * (features * block)
    values[2::4] = bytes(byte | 0x80 for byte in values[2::4])
    classes = bytes(value & 1 for value in source.randbytes(block))
    with open(folder / "x.npy", "wb") as x, open(folder / "y.npy", "wb") as y:
        x.write(header("<f4", (records, features)))
        y.write(header("|u1", (records,)))
        for first in range(0, records, block):
            count = min(block, records - first)
            x.write(values[: 4 * features * count])
            y.write(classes[:count])
        for file in (x, y):
            file.flush()
            os.fsync(file.fileno())


class Bench:
    """The watch, the number of rounds, whether times are those of the processors, and a folder for data and runs."""

    def __init__(self, watch, rounds, processor, folder):
        self.watch, self.number, self.processor, self.folder = watch, rounds, processor, folder

    def rounds(self, name, measure):
        """Medians of the figures of quiet rounds; none if there is no quiet round."""
        print(name, file=sys.stderr, flush=True)
        kept = self.watch.rounds(self.number, lambda _: self.watch.turn(measure))
        return {key: statistics.median(one[key] for one in kept) for key in kept[0]} if kept else None

    def train(self, name, data, batch, hidden, steps):
        """The time of a step, the time of the start, and the peak memory of a training run."""
        flags = ["--data", data, "--classes", 2, "--model", "mlp", "--hidden", hidden, "--batch-size", batch]
        # The plan is priced by the fastest accountant, so that its price takes no noticeable time.
        # A checkpoint would be due after a time and not after a number of steps, so there are none before the end.
        flags += ["--noise-multiplier", 1, "--accountant", "rdp", "--checkpoint-seconds", 100_000, "--json"]

        def once(number):
            out = self.folder / "run"
            _, seconds, mib = run([PROGRAM, "train", *flags, "--steps", number, "--out", out], self.processor)
            shutil.rmtree(out)
            return seconds, mib

        def measure():
            (short, _), (long, mib) = once(steps[0]), once(steps[1])
            step = max(1e-9, (long - short) / (steps[1] - steps[0]))
            return {"step_s": step, "start_s": max(1e-9, short - step * steps[0]), "mib": mib}

        return self.rounds(name, measure)


# Each of these returns, for each line of the picture, its points: pairs of the quantity and the figures.


def batch(bench, sizes):
    data = bench.folder / "batch"
    generate(data, 1 << 17, 64)
    for size in sizes:
        # As many records for every point, at least eight steps.
        steps = max(8, (1 << 19) // size)
        figures = bench.train(f"batch {size}", data, size, "256,256", (max(1, steps // 8), steps + steps // 8))
        yield "mlp, 82,946 parameters", size, figures
    shutil.rmtree(data)


def records(bench, sizes):
    for size in sizes:
        data = bench.folder / "records"
        generate(data, size, 4)
        figures = bench.train(f"{size} records", data, 256, "16", (10, 2010))
        if figures:
            figures["steps_s"] = 2000 * figures["step_s"]
        yield "mlp, 4 features", size, figures
        shutil.rmtree(data)


def parameters(bench, widths):
    data = bench.folder / "parameters"
    generate(data, 10_000, 16)
    for width in widths:
        count = 17 * width + width * (width + 1) + 2 * (width + 1)
        steps = max(4, min(2000, 20_000_000 // count))
        figures = bench.train(f"{count} parameters", data, 256, f"{width},{width}", (max(1, steps // 8), steps + steps // 8))
        yield "mlp", count, figures
    shutil.rmtree(data)


def length(bench, lengths):
    for model in ("lstm", "transformer"):
        for steps in lengths:

            def measure(model=model, steps=steps):
                output, seconds, _ = run([STEPS, model, "private", "1.0", "32", steps], bench.processor)
                answer = json.loads(output)
                # The example makes three more steps, of warm-up.
                step = seconds / (len(answer["ms"]) + 3) if bench.processor else statistics.median(answer["ms"]) / 1e3
                return {"step_s": step, "mib": answer["peak_mib"]}

            yield model, steps, bench.rounds(f"{model}, {steps} tokens", measure)


def plan(bench, numbers):
    for accountant in ("pld", "rdp"):
        for steps in numbers:
            flags = ["--noise-multiplier", 1, "--sample-rate", 0.004, "--delta", 1e-5, "--accountant", accountant, "--json"]

            def measure(steps=steps, flags=flags):
                times, peaks = [], []
                begun = time.monotonic()
                while time.monotonic() - begun < SHORTEST_TURN:
                    _, seconds, mib = run([PROGRAM, "epsilon", "--steps", steps, *flags], bench.processor)
                    times.append(seconds)
                    peaks.append(mib)
                return {"seconds": statistics.median(times), "mib": max(peaks)}

            yield accountant, steps, bench.rounds(f"{accountant}, {steps} steps", measure)


POWERS_OF_TEN = [10**power for power in range(9)]
# For each quantity: its function, its values, those with --large, the name on the axis, the columns (key, name, largest expected slope),
# and the key that the picture shows.
QUANTITIES = {
    "batch": (batch, [256, 1024, 4096, 16384, 65536], [], "batch size (records)", [("step_s", "step (s)", 1.0), ("start_s", "start (s)", None), ("mib", "peak (MiB)", 0.0)], "step_s"),
    "records": (
        records,
        POWERS_OF_TEN[4:8],
        [10**8],
        "records in the data set",
        [("steps_s", "2,000 steps (s)", 0.0), ("start_s", "start (s)", 1.0), ("mib", "peak (MiB)", 1.0)],
        "steps_s",
    ),
    # The widths of two hidden layers that give about 10^4, 10^5, ... parameters.
    "parameters": (parameters, [92, 307, 991, 3153], [9990], "parameters", [("step_s", "step (s)", 1.0), ("start_s", "start (s)", 1.0), ("mib", "peak (MiB)", 1.0)], "step_s"),
    # The attention of a transformer grows with the square of the length.
    "length": (length, [16, 32, 64, 128, 256, 512, 1024], [], "sequence length (tokens)", [("step_s", "step (s)", {"lstm": 1.0, "transformer": 2.0}), ("mib", "peak (MiB)", {"lstm": 1.0, "transformer": 2.0})], "step_s"),
    # The distribution of a sum of T losses is as wide as the square root of T, up to a drift.
    "plan": (plan, POWERS_OF_TEN[1:7], [], "steps of the plan", [("seconds", "time (s)", {"pld": 1.0, "rdp": 0.0}), ("mib", "peak (MiB)", {"pld": 1.0, "rdp": 0.0})], "seconds"),
}


def slope(points):
    """The slope of the least-squares line through the logarithms of the last points; none if there are fewer than two."""
    last = [(math.log(x), math.log(y)) for x, y in points[-FITTED:] if x > 0 and y > 0]
    if len(last) < 2:
        return None
    x0, y0 = (statistics.mean(column) for column in zip(*last))
    # Rounded so that no slope is printed as -0.00.
    return round(sum((x - x0) * (y - y0) for x, y in last) / sum((x - x0) ** 2 for x, _ in last), 2) + 0.0


def show(name, lines):
    """Prints the table of a quantity; returns its slopes."""
    *_, axis, columns, _ = QUANTITIES[name]
    print(f"\n| model or accountant | {axis} | " + " | ".join(title for _, title, _ in columns) + " |")
    print("| --- | ---: |" + " ---: |" * len(columns))
    slopes = {}
    for line, points in lines.items():
        for x, figures in points:
            print(f"| {line} | {x:,} | " + " | ".join(f"{figures[key]:.3g}" if figures[key] < 1000 else f"{figures[key]:.0f}" for key, *_ in columns) + " |")
        cells = []
        for key, _, expected in columns:
            value = slope([(x, figures[key]) for x, figures in points])
            expected = expected.get(line) if isinstance(expected, dict) else expected
            beyond = value is not None and expected is not None and value > expected + TOLERANCE
            cells.append("–" if value is None else f"{value:.2f}" + ("!" if beyond else ""))
            slopes[f"{line}: {key}"] = {"slope": value, "expected": expected}
        print(f"| **{line}: slope** | | " + " | ".join(cells) + " |", flush=True)
    return slopes


# The picture: a row for each quantity, with time on the left and memory on the right.

WIDTH, ROW, LEFT, PANEL, HEIGHT, GAP = 900, 250, 75, 330, 150, 105
COLOURS = ["#1f5fa8", "#c8641e"]


def decades(values):
    low, high = min(values), max(values)
    low, high = math.floor(math.log10(low) + 0.02), math.ceil(math.log10(high) - 0.02)
    return low, max(high, low + 1)


def power(exponent, unit=""):
    plain = {-3: "0.001", -2: "0.01", -1: "0.1", 0: "1", 1: "10", 2: "100", 3: "1,000", 4: "10,000"}
    if exponent in plain:
        return plain[exponent] + unit
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] if digit != "-" else "⁻" for digit in str(exponent))
    return f"10{raised}{unit}"


def panel(left, top, title, axis, lines, key):
    """One panel with logarithmic axes: `lines` maps a name to its points."""
    drawn = {name: [(x, figures[key]) for x, figures in points] for name, points in lines.items()}
    (x0, x1), (y0, y1) = (decades([point[side] for points in drawn.values() for point in points]) for side in (0, 1))
    place_x = lambda x: left + PANEL * (math.log10(x) - x0) / (x1 - x0)
    place_y = lambda y: top + HEIGHT * (1 - (math.log10(y) - y0) / (y1 - y0))
    parts = [f'<text x="{left}" y="{top - 12}" font-weight="bold">{title}</text>']
    for exponent in range(x0, x1 + 1):
        x = place_x(10.0**exponent)
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + HEIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{top + HEIGHT + 17}" text-anchor="middle">{power(exponent)}</text>')
    for exponent in range(y0, y1 + 1):
        y = place_y(10.0**exponent)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 7}" y="{y + 4:.1f}" text-anchor="end">{power(exponent)}</text>')
    parts.append(f'<text x="{left + PANEL / 2:.1f}" y="{top + HEIGHT + 36}" text-anchor="middle" fill="#444">{axis}</text>')
    labels = []
    for (name, points), colour in zip(drawn.items(), COLOURS):
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        value = slope(points)
        # The label has the name only where there are several lines.
        text = (f"{name}, " if len(drawn) > 1 else "") + (f"slope {value:.2f}" if value is not None else "")
        labels.append((text, colour))
    for number, (text, colour) in enumerate(labels):
        parts.append(f'<text x="{left + PANEL}" y="{top - 12 - 15 * (len(labels) - 1 - number)}" text-anchor="end" fill="{colour}">{text}</text>')
    return parts


def picture(results):
    """An SVG image of all quantities."""
    height = ROW * len(results) + 25
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">']
    parts.append("<title>Time and peak memory of Sordino against batch size, records, parameters, sequence length and steps of a plan</title>")
    parts.append(f'<rect width="{WIDTH}" height="{height}" fill="white"/>')
    titles = {"steps_s": "time of 2,000 steps (s)", "step_s": "time of a step (s)", "seconds": "time of sordino epsilon (s)"}
    for row, (name, lines) in enumerate(results.items()):
        *_, axis, _, key = QUANTITIES[name]
        top = 45 + ROW * row
        parts += panel(LEFT, top, titles[key], axis, lines, key)
        parts += panel(LEFT + PANEL + GAP, top, "peak memory (MiB)", axis, lines, "mib")
    return "\n".join([*parts, "</svg>", ""])


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(QUANTITIES), help="which quantities, separated by commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of every point (default: %(default)s)")
    parser.add_argument("--large", action="store_true", help="also 10^8 records and 10^8 parameters")
    parser.add_argument("--small", action="store_true", help="the first points only")
    parser.add_argument("--processor-time", action="store_true", help="measure the time of all processors instead of the clock: slopes are then also meaningful on a busy machine")
    parser.add_argument("--no-build", action="store_true", help="use the programs in target/release as they are")
    parser.add_argument("--folder", type=Path, help="folder for temporary data and runs (default: the folder of temporary files)")
    parser.add_argument("--svg", type=Path, help="where the picture is written (default: docs/scaling.svg if all quantities are measured in full)")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="draw and print what an earlier run wrote with --json")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    quiet.add_options(parser)
    chosen = parser.parse_args()
    chosen.only = chosen.only.split(",")
    if unknown := [name for name in chosen.only if name not in QUANTITIES]:
        parser.error(f"no such quantity: {', '.join(unknown)}; there are {', '.join(QUANTITIES)}")
    if chosen.rounds < 1:
        parser.error("there must be at least one round")
    return chosen


def measure(chosen, watch):
    """The points of every line, quantity by quantity."""
    if not chosen.no_build:
        for target in (["-p", "sordino"], ["-p", "sordino-nn", "--example", "engine_steps"]):
            subprocess.run(["cargo", "build", "--release", "--quiet", *target], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        bench = Bench(watch, chosen.rounds, chosen.processor_time, Path(folder))
        for name in chosen.only:
            function, values, large, *_ = QUANTITIES[name]
            values = values[:3] if chosen.small else values + large * chosen.large
            lines = {}
            for line, value, figures in function(bench, values):
                if figures is None:
                    break  # The machine is busy.
                lines.setdefault(line, []).append((value, figures))
            if lines:
                yield name, lines
            if watch.failed:
                return


def main():
    chosen = options()
    # A terminated script ends its child and removes its data.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    watch = quiet.Watch(chosen)
    earlier = json.loads(chosen.from_json.read_text()) if chosen.from_json else None
    results, slopes = {}, {}
    for name, lines in earlier["results"].items() if earlier else measure(chosen, watch):
        results[name], slopes[name] = lines, show(name, lines)
    print(f"\nA slope is that of the last {FITTED} points of each line, in logarithms. One beyond the expected slope by more than {TOLERANCE} ends in !")
    if not earlier:
        print("\n" + ("Times are those of all processors together. " if chosen.processor_time else "") + watch.report())
    complete = set(results) == set(QUANTITIES) and not chosen.small and not watch.failed
    if svg := chosen.svg or (ROOT / "docs/scaling.svg" if complete else None):
        svg.write_text(picture(results))
    if chosen.json:
        chosen.json.write_text(json.dumps({"quiet": watch.figures(), "results": results, "slopes": slopes}) + "\n")
    return watch.exit_code()


if __name__ == "__main__":
    sys.exit(main())
