#!/usr/bin/env python3
"""Runs crafted records through Opacus and through Sordino, in one run on one machine.

    bench/peers.py [--sizes 14,17] [--physical 256,1024] [--json FILE]

Prints a table in Markdown with one number in each cell: norms that cancel, the divisor of a batch, sums over many records with the
first one left out, a gradient that is not a number, an empty batch. Opacus runs as its PrivacyEngine sets it up (Poisson sampling, mean
loss, clipping norm 1 unless the table says otherwise), with per-sample gradients ("hooks", its default) and with ghost clipping; the noise is set to 0 where a sum
is measured. Logical batches are split as its BatchMemoryManager splits them. Sordino runs the example crafted_records.

Makes its own virtual environment in ~/.cache/sordino-bench/torch. SORDINO_BENCH_VENV names another one, with torch and opacus in
it; nothing is installed then. SORDINO_CRAFTED_RECORDS names another executable in place of the example; nothing is built then.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGES = ["torch==2.9.1", "opacus==1.6.0", "numpy"]
MODES = ["hooks", "ghost"]
# Records of two positions, x and x + 500 v: WIDTH dimensions, TRIALS records for each length of x, GAP between the positions.
WIDTH, TRIALS, GAP = 64, 32, 500.0
LENGTHS = [1e4, 1e6]
EXPECTED = 32
BATCHES = [0, 16, 64]
# The bound is a little larger than the norm of the records, so that rounding in the clipping is not measured.
BOUND = 1.0001
# Enough parameters to measure a standard deviation to half a per cent.
WIDE = 20_000


# The peers: this part runs inside the virtual environment.


class Opacus:
    """A model of one linear layer without bias, as PrivacyEngine.make_private sets it up."""

    def __init__(self, mode, width, noise, positions=False, bound=1.0):
        import torch
        from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
        from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(width, 1, bias=False)
                torch.nn.init.zeros_(self.linear.weight)

            def forward(self, x):
                y = self.linear(x)
                return y[:, 0, 0] - y[:, 1, 0] if positions else y[:, 0]

        class Output(torch.nn.Module):
            """The loss is the output itself, so the gradient of an output is 1."""

            reduction = "mean"

            def forward(self, output, _):
                return output if self.reduction == "none" else output.mean()

        self.torch, self.mode = torch, mode
        settings = {"noise_multiplier": noise, "max_grad_norm": bound, "expected_batch_size": EXPECTED}
        if mode == "ghost":
            self.model = GradSampleModuleFastGradientClipping(Model(), max_grad_norm=bound, use_ghost_clipping=True)
            optimizer, loss = DPOptimizerFastGradientClipping, lambda: DPLossFastGradientClipping(self.model, self.optimizer, Output())
        else:
            self.model = GradSampleModule(Model())
            optimizer, loss = DPOptimizer, Output
        self.optimizer = optimizer(torch.optim.SGD(self.model.parameters(), lr=1.0), **settings)
        self.loss = loss()

    def update(self, x, physical=None):
        """What one step adds to the weights, and the norms that it computed; the learning rate is 1."""
        import math

        torch, weight = self.torch, self.model._module.linear.weight
        before = weight.detach().clone()
        parts = [x] if physical is None else torch.tensor_split(x, math.ceil(len(x) / physical))
        for number, part in enumerate(parts):
            self.optimizer.signal_skip_step(do_skip=number + 1 < len(parts))
            self.optimizer.zero_grad()
            self.loss(self.model(part), torch.zeros(len(part))).backward()
            norms = self.model.per_sample_gradient_norms if self.mode == "ghost" else self.grad_norms()
            self.optimizer.step()
        self.optimizer.zero_grad()
        return (before - weight.detach()).flatten(), norms

    def grad_norms(self):
        sample = self.model._module.linear.weight.grad_sample
        return sample.flatten(1).norm(2, dim=-1)


def measure(case, mode, arguments):
    import numpy
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(1)
    read = lambda path, *shape: torch.from_numpy(numpy.fromfile(path, dtype="<f4").reshape(shape).copy())
    if case == "norms":
        records = read(arguments[0], -1, 2, WIDTH)
        rows = []
        for record in records:
            update, norms = Opacus(mode, WIDTH, 0.0, positions=True).update(record[None])
            rows.append({"norm": norms[0].item(), "added": (update * EXPECTED).double().norm().item()})
        return rows
    if case == "sum":
        path, physical = arguments
        x = read(path, -1, 1)
        total = lambda x: (Opacus(mode, 1, 0.0, bound=BOUND).update(x, int(physical))[0] * EXPECTED).item()
        return {"with": total(x), "without": total(x[1:])}
    if case == "finite":
        update, _ = Opacus(mode, WIDTH, 0.0).update(read(arguments[0], -1, WIDTH))
        return {"finite": int(update.isfinite().sum())}
    if case == "batches":
        rows = []
        for size in map(int, arguments):
            x = torch.zeros(size, WIDE)
            x[:, 0] = 1.0
            row = {"size": size}
            row["noise"] = (Opacus(mode, WIDE, 1.0).update(x)[0][1:] * EXPECTED).std().item()
            if size:
                row["divisor"] = size / Opacus(mode, WIDE, 0.0).update(x)[0][0].item()
            rows.append(row)
        return rows
    raise SystemExit(f"no case is called {case}")


# The comparison: this part needs only Python.


def bits(values):
    """Values as little-endian f32."""
    import array

    data = array.array("f", values)
    if sys.byteorder == "big":
        data.byteswap()
    return data.tobytes()


def cancelling(length):
    """Records of two positions whose difference has norm 500, from a separate generator so that they are always the same."""
    import random

    generator, values = random.Random(11), []

    def direction():
        vector = [generator.gauss(0, 1) for _ in range(WIDTH)]
        norm = sum(a * a for a in vector) ** 0.5
        return [a / norm for a in vector]

    for _ in range(TRIALS):
        x, v = direction(), direction()
        values += [length * a for a in x] + [length * a + GAP * b for a, b in zip(x, v)]
    return values


def difference_norms(data):
    """The exact norms of the differences of positions, as the records have them in f32."""
    import array

    values = array.array("f", data)
    rows = [values[i : i + 2 * WIDTH] for i in range(0, len(values), 2 * WIDTH)]
    return [sum((a - b) ** 2 for a, b in zip(row[:WIDTH], row[WIDTH:])) ** 0.5 for row in rows]


def long_sum(count):
    """In each group of 256 records, 128 are 1, one is 1/8, and the rest are -1.01 * 2^-18."""
    return ([1.0] * 128 + [0.125] + [-1.01 * 2.0**-18] * 127) * (count // 256)


class Peers:
    def __init__(self, python, ours, folder):
        self.python, self.ours, self.folder = python, ours, folder

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def opacus(self, case, mode, *arguments):
        """A measurement, or the name of the exception that ended it."""
        print(f"{case} {' '.join(map(str, arguments[-1:]))}: Opacus, {mode}", file=sys.stderr, flush=True)
        command = [self.python, "-W", "ignore", str(HERE / "peers.py"), "--worker", case, mode, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        return {"failure": done.stderr.strip().splitlines()[-1].split(":")[0]}

    def sordino(self, *arguments):
        print(f"{arguments[0]}: Sordino", file=sys.stderr, flush=True)
        done = subprocess.run([self.ours, *map(str, arguments)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def both(self, case, *arguments):
        return [self.opacus(case, mode, *arguments) for mode in MODES]


def number(value):
    return "–" if value is None else value if isinstance(value, str) else f"{value:.6g}"


def pick(answer, function):
    return f"fails ({answer['failure']})" if isinstance(answer, dict) and "failure" in answer else function(answer)


def norm_rows(peers):
    for length in LENGTHS:
        data = bits(cancelling(length))
        path = peers.file(f"norms-{length:.0e}", data)
        exact = difference_norms(data)
        answers = peers.both("norms", path) + [peers.sordino("norms", path, TRIALS, WIDTH)]
        least = lambda rows: min(row["norm"] for row in rows)
        most = lambda rows: max(row["added"] for row in rows)
        place = f"\\|x\\| = {length:.0e}"
        yield [f"two positions, {place}: least norm reported of {TRIALS} records", min(exact), *(pick(a, least) for a in answers)]
        yield ["the same: the most that a record adds to a sum bounded by 1", 1, *(pick(a, most) for a in answers)]


def batch_rows(peers):
    answers = peers.both("batches", *BATCHES) + [peers.sordino("batches", *BATCHES)]
    for place, size in enumerate(BATCHES):
        name = "an empty batch" if size == 0 else f"a batch of {size}"
        yield [f"{name}: standard deviation of the noise on the sum", 1, *(pick(a, lambda a: a[place]["noise"]) for a in answers)]
        if size:
            divisors = [pick(a, lambda a: a[place].get("divisor")) for a in answers]
            yield [f"{name}: what the sum is divided by ({EXPECTED} expected)", EXPECTED, *divisors]


def sum_rows(peers, sizes, physical):
    for size in sizes:
        path = peers.file(f"sum-{size}", bits(long_sum(2**size)))
        ours = peers.sordino("sum", path, 2**size, BOUND)
        for limit in physical:
            answers = peers.both("sum", path, limit) + [ours]
            moved = lambda answer: abs(answer["with"] - answer["without"])
            yield [f"2^{size} records, {limit} at a time: the sum without the first one moves by (bound {BOUND})", 1, *(pick(a, moved) for a in answers)]


def finite_rows(peers):
    values = [[1.0 if i == record else 0.0 for i in range(WIDTH)] for record in range(8)]
    for name, bad in [("NaN", float("nan")), ("infinity", float("inf"))]:
        crafted = [row[:] for row in values]
        crafted[3][0] = bad
        path = peers.file(f"finite-{name}", bits(sum(crafted, [])))
        answers = peers.both("finite", path) + [peers.sordino("finite", path, 8, WIDTH)]
        counts = [pick(a, lambda a: a["finite"]) for a in answers]
        yield [f"one of 8 records has {name} in it: finite parameters of {WIDTH} after the step", WIDTH, *counts]


def prepare():
    """The Python executable for Opacus, and the executable of the example crafted_records."""
    venv = os.environ.get("SORDINO_BENCH_VENV")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(venv) if venv else cache / "sordino-bench" / "torch"
    python = str(folder / "bin" / "python")
    if not venv and not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
        (folder / "complete").touch()
    if not Path(python).exists():
        raise SystemExit(f"there is no {python}")
    ours = os.environ.get("SORDINO_CRAFTED_RECORDS")
    if not ours:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino-train", "--example", "crafted_records"], cwd=ROOT, check=True)
        ours = str(ROOT / "target/release/examples/crafted_records")
    return python, ours


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="14,17", help="powers of two: how many records are summed (default: %(default)s)")
    parser.add_argument("--physical", default="256,1024", help="how many records Opacus takes at a time (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the table to FILE as JSON too")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    chosen = options()
    if chosen.worker:
        case, mode, *arguments = chosen.worker
        return print(json.dumps(measure(case, mode, arguments)))
    sizes, physical = ([int(word) for word in words.split(",")] for words in (chosen.sizes, chosen.physical))
    python, ours = prepare()
    versions = "import torch, opacus; print('PyTorch', torch.__version__, 'and Opacus', opacus.__version__)"
    print(subprocess.run([python, "-W", "ignore", "-c", versions], capture_output=True, text=True, check=True).stdout)
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(python, ours, Path(folder))
        rows = [*norm_rows(peers), *batch_rows(peers), *sum_rows(peers, sizes, physical), *finite_rows(peers)]
    heads = ["crafted records, clipping norm 1", "in exact arithmetic", "Opacus, hooks", "Opacus, ghost", "Sordino"]
    print("| " + " | ".join(heads) + " |\n| --- |" + " ---: |" * (len(heads) - 1))
    for row in rows:
        print("| " + " | ".join([row[0], *map(number, row[1:])]) + " |")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps([dict(zip(heads, row)) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
