#!/usr/bin/env python3
"""Training steps, side by side with PyTorch and Opacus, in one run on one machine.

    bench/engine.py [--models mnist,lstm] [--rounds N] [--seconds S] [--no-opacus] [--allow-noise] [--json FILE]

Makes its own virtual environment in bench/.venv/torch, builds the example engine_steps, and prints two tables in
Markdown: the time of a step, and the peak memory of a private step. The contenders take turns and never run at the same
time; a time is the median over all steps of all rounds, a ratio is the median of the ratios within each round.

PyTorch's threads become up to ten times slower when another process takes a core. A round in which other processes used more
than 3 % of the processors during the turn of a contender is discarded and repeated (quiet.py). If a model has no quiet round, the
script prints what it has and ends with exit code 1, unless --allow-noise is given.

A step is the gradients of one batch, in f32 on two threads: forward, mean loss and backward for the plain steps, the sum
of the clipped gradients of all samples for the private ones. None adds noise or moves the parameters.

SORDINO_BENCH_VENV names another virtual environment, with torch and opacus in it, and SORDINO_ENGINE_STEPS another
executable in place of engine_steps; nothing is installed, or built, then.
"""

import argparse
import json
import os
import re
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import quiet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGES = ["torch==2.9.1", "opacus==1.6.0", "numpy"]
# The batch, and the ratio of our private step to PyTorch's plain one that we aim for.
MODELS = {
    "mnist": (256, 0.22),
    "resnet20": (128, 0.45),
    "lstm": (128, 0.40),
    "transformer": (32, 0.65),
    "mlp": (512, 0.68),
    "logistic": (256, None),
    "lenet5": (256, 0.40),
    "gru": (128, 0.28),
    "embedding_mlp": (256, None),
    "resnet18": (64, 0.55),
    # Two layers in the shape of BERT-base and of GPT-2, and adapters (LoRA) in the shape of MiniLM.
    "bert": (8, 0.9),
    "gpt2": (8, 0.9),
    "lora": (16, 0.9),
}
# Models that are not compared with Opacus: its modules for them would have to be written first.
WITHOUT_OPACUS = ("bert", "gpt2", "lora")
OWN_TARGET = 1.10
# The allocator keeps what is freed, in huge pages, instead of faulting it in again in every step.
TUNED = {
    "MALLOC_TOP_PAD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
OPACUS = ["opacus-ghost", "opacus-hooks", "opacus-functorch", "opacus-ew"]
# An Opacus mode this much slower than the fastest one in a round is not run again.
HOPELESS = 2.0
MEMORY = [(model, batch) for model in ("mnist", "mlp") for batch in (256, 1024, 8192)]
MEMORY += [("resnet18", 64), ("resnet18", 256), ("bert", 8), ("bert", 64)]
PATIENCE = 300.0


# The peers: this part runs inside the virtual environment.


def build(model, opacus):
    """A model, written with modules that Opacus knows where `opacus` is set."""
    import torch
    from torch import nn

    class Lambda(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.forward = function

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            norm = lambda: nn.GroupNorm(8, outputs)
            first = [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm(), nn.ReLU()]
            self.body = nn.Sequential(*first, nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), norm())
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm()) if stride > 1 else nn.Identity()

        def forward(self, x):
            return torch.relu(self.body(x) + self.shortcut(x))

    class Positions(nn.Module):
        def __init__(self, length, width):
            super().__init__()
            # Opacus requires a batch dimension in the input of every layer with parameters, so there it is an embedding.
            self.table = nn.Embedding(length, width) if opacus else nn.Parameter(torch.randn(length, width))

        def forward(self, x):
            return x + (self.table(torch.arange(x.shape[1]).repeat(len(x), 1)) if opacus else self.table)

    class Attention(nn.Module):
        """In the place of nn.MultiheadAttention; Opacus' own DPMultiheadAttention mixes up the heads with batch_first."""

        def __init__(self):
            super().__init__()
            self.inputs, self.output = nn.Linear(256, 768), nn.Linear(256, 256)

        def forward(self, x, *_, **__):
            q, k, v = self.inputs(x).view(len(x), 64, 3, 4, 64).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.output(y.transpose(1, 2).reshape(len(x), 64, 256)), None

    def encoder():
        layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, "gelu", batch_first=True)
        if opacus:
            layer.self_attn = Attention()
        return layer

    class Lora(nn.Module):
        """A frozen linear layer with a trained adapter of rank 8."""

        def __init__(self, inputs, outputs):
            super().__init__()
            self.frozen = nn.Linear(inputs, outputs).requires_grad_(False)
            self.a, self.b = nn.Linear(inputs, 8, bias=False), nn.Linear(8, outputs, bias=False)

        def forward(self, x):
            return self.frozen(x) + 2.0 * self.b(self.a(x))

    class LoraLayer(nn.Module):
        """An encoder layer in the shape of MiniLM, with adapters on queries and values."""

        def __init__(self):
            super().__init__()
            frozen = lambda layer: layer.requires_grad_(False)
            self.q, self.k, self.v = Lora(384, 384), frozen(nn.Linear(384, 384)), Lora(384, 384)
            self.o, self.up, self.down = (frozen(nn.Linear(*size)) for size in ((384, 384), (384, 1536), (1536, 384)))
            self.norm1, self.norm2 = frozen(nn.LayerNorm(384)), frozen(nn.LayerNorm(384))

        def forward(self, x):
            heads = lambda y: y.view(*x.shape[:2], 12, 32).transpose(1, 2)
            y = nn.functional.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)))
            x = self.norm1(x + self.o(y.transpose(1, 2).reshape(x.shape)))
            return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))

    class CausalLayer(nn.Module):
        """A layer in the shape of GPT-2."""

        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True, norm_first=True)
            self.mask = nn.Transformer.generate_square_subsequent_mask(128)

        def forward(self, x):
            return self.layer(x, src_mask=self.mask, is_causal=True)

    def recurrent(kind):
        if opacus:
            from opacus import layers

            kind = getattr(layers, "DP" + kind.__name__)
        return [nn.Embedding(1000, 64), kind(64, 128, batch_first=True), Lambda(lambda outputs: outputs[0][:, -1]), nn.Linear(128, 2)]

    def resnet18():
        sizes = [(64, 64, 1)] * 2 + [(64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        start = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(8, 64), nn.ReLU()]
        return start + [Block(*size) for size in sizes] + [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]

    def resnet():
        sizes = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
        start = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(8, 16), nn.ReLU()]
        return start + [Block(*size) for size in sizes] + [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]

    mean = Lambda(lambda x: x.mean(1))
    layers = {
        "mnist": lambda: [nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1)]
        + [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)]
        + [nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)],
        "resnet20": resnet,
        "lstm": lambda: recurrent(nn.LSTM),
        "gru": lambda: recurrent(nn.GRU),
        "transformer": lambda: [nn.Embedding(1000, 256), Positions(64, 256), encoder(), encoder(), mean, nn.Linear(256, 10)],
        "resnet18": resnet18,
        "bert": lambda: [nn.Embedding(1000, 768), Positions(128, 768)]
        + [nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True) for _ in range(2)]
        + [mean, nn.Linear(768, 10)],
        "gpt2": lambda: [nn.Embedding(1000, 768), Positions(128, 768), CausalLayer(), CausalLayer(), nn.LayerNorm(768)]
        + [mean, nn.Linear(768, 10)],
        "lora": lambda: [nn.Embedding(1000, 384).requires_grad_(False), Positions(128, 384).requires_grad_(False)]
        + [LoraLayer() for _ in range(6)]
        + [mean, nn.Linear(384, 10)],
        "mlp": lambda: [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)],
        "logistic": lambda: [nn.Linear(117, 1), nn.Flatten(0)],
        "lenet5": lambda: [nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2)]
        + [nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()]
        + [nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)],
        "embedding_mlp": lambda: [nn.Embedding(1000, 64), mean, nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2)],
    }
    return nn.Sequential(*layers[model]())


def data(model, batch):
    import torch

    shapes = {"mnist": (1, 28, 28), "lenet5": (1, 28, 28), "resnet20": (3, 32, 32), "resnet18": (3, 32, 32), "mlp": (784,), "logistic": (117,)}
    lengths = {"lstm": 32, "gru": 32, "transformer": 64, "embedding_mlp": 64, "bert": 128, "gpt2": 128, "lora": 128}
    classes = 2 if model in ("lstm", "gru", "embedding_mlp", "logistic") else 10
    x = torch.randint(1000, (batch, lengths[model])) if model in lengths else torch.randn(batch, *shapes[model])
    y = torch.randint(classes, (batch,))
    return x, y.float() if model == "logistic" else y


def peer(model, mode, batch):
    """A function that makes one step, one that drops its gradients, and the parameters."""
    import torch

    torch.manual_seed(0)
    module = build(model, mode.startswith("opacus"))
    x, y = data(model, batch)
    if mode == "forward":
        module.eval()

        def step():
            with torch.no_grad():
                module(x)

        return step, lambda: None, []
    loss = torch.nn.BCEWithLogitsLoss() if model == "logistic" else torch.nn.CrossEntropyLoss()
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    if mode == "plain":

        def step():
            optimizer.zero_grad()
            loss(module(x), y).backward()

        return step, optimizer.zero_grad, parameters

    from opacus.grad_sample import wrap_model
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    mode = mode.removeprefix("opacus-")
    ghost = mode == "ghost"
    module = wrap_model(module, grad_sample_mode=mode, **({"max_grad_norm": 1.0} if ghost else {}))
    kind = DPOptimizerFastGradientClipping if ghost else DPOptimizer
    private = kind(optimizer, noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=batch)
    if ghost:
        loss = DPLossFastGradientClipping(module, private, loss)

    def step():
        private.zero_grad(set_to_none=True)
        loss(module(x), y).backward()
        # For ghost clipping this does nothing: its backward leaves the clipped sum in the gradients.
        private.clip_and_accumulate()

    return step, lambda: private.zero_grad(set_to_none=True), parameters


def kibibytes(file, field):
    return int(re.search(field + r":\s+(\d+)", Path(file).read_text())[1])


def mebibytes(field):
    return kibibytes("/proc/self/status", field) / 1024


def limit_memory():
    """Too large a step raises, then, instead of waking the kernel's out-of-memory killer."""
    limit = 1024 * (kibibytes("/proc/self/status", "VmData") + kibibytes("/proc/meminfo", "MemAvailable") * 9 // 10)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def measure(step, seconds):
    """Times of steps in milliseconds, after up to three steps of warm-up."""
    start = time.perf_counter()
    for _ in range(3):
        step()
        if time.perf_counter() - start > seconds / 4:
            break
    times, start = [], time.perf_counter()
    while not times or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - before))
    return times


def worker(model, mode, seconds, batch):
    """Answers in JSON: once if given seconds, else whenever a line `go SECONDS` comes in."""

    def say(**fields):
        print(json.dumps({"model": model, "mode": mode, "batch": batch, **fields}), flush=True)

    try:
        import torch

        if mode.startswith("opacus"):
            import opacus  # noqa: F401
        torch.set_num_threads(int(os.environ.get("SORDINO_BENCH_THREADS", "2")))
        rest = mebibytes("VmRSS")
        limit_memory()
        step, drop, _ = peer(model, mode, batch)
        if not seconds:
            step()
            drop()
            say(ready=True)
        for seconds in [seconds] if seconds else (float(line.split()[1]) for line in sys.stdin):
            times = measure(step, seconds)
            # While it waits for the next round, it holds no gradients of all samples.
            drop()
            say(ms=times, rest_mib=rest, peak_mib=mebibytes("VmHWM"))
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}")


# The referee: this part needs only the standard library.


class Failure(Exception):
    def __init__(self, text):
        super().__init__((text.strip() or "no output").splitlines()[0][:200])


class Engine:
    """Our example, started anew for every round."""

    def __init__(self, command, *arguments):
        self.command, self.arguments = command, [str(argument) for argument in arguments]

    def go(self, seconds):
        model, mode, batch = self.arguments
        return self.run(self.command, model, mode, str(seconds), batch)

    @staticmethod
    def run(*command):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode:
                raise Failure(done.stderr or f"exit code {done.returncode}")
            return json.loads(done.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise Failure(str(error)) from error

    def close(self):
        pass


class Peer:
    """A worker that stays alive between the rounds, since importing torch takes seconds."""

    def __init__(self, python, model, mode, batch, environment=None):
        self.errors = tempfile.TemporaryFile("w+")
        command = [python, __file__, "--worker", model, mode, "0", str(batch)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, text=True, **pipes)

    def answer(self):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise Failure(f"no answer within {PATIENCE:.0f} seconds")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.errors.seek(0)
            # The last line of a traceback is the one that says what went wrong.
            raise Failure((self.errors.read().splitlines() or [f"the worker died with code {code}"])[-1])
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(answer["error"])
        return answer

    def go(self, seconds):
        try:
            self.process.stdin.write(f"go {seconds}\n")
            self.process.stdin.flush()
        except OSError:
            pass  # The worker has died; the answer states why.
        return self.answer()

    def close(self):
        self.process.kill()
        self.process.wait()


def compare(engine, python, model, rounds, seconds, opacus, watch):
    """The step times of every contender, per quiet round, and the reasons of those that fail."""
    batch = MODELS[model][0]
    contenders = {
        "private": Engine(engine, model, "private", batch),
        "torch": Peer(python, model, "plain", batch),
        "tuned": Peer(python, model, "plain", batch, TUNED),
        "plain": Engine(engine, model, "plain", batch),
        **{mode: Peer(python, model, mode, batch) for mode in opacus},
    }
    result = {"model": model, "batch": batch, "ms": {name: [] for name in contenders}, "failures": {}, "peak_mib": {}}

    def attempt(name, function, *arguments):
        try:
            return function(*arguments)
        except Failure as failure:
            result["failures"][name] = f"{model}, {name}: {failure}"
            contenders.pop(name).close()

    def play(turn):
        """One round: the answer of every contender."""
        names, answers = list(contenders), {}
        print(f"{model}: round {turn + 1} of {rounds}: {', '.join(names)}", file=sys.stderr, flush=True)
        # Every round starts with a different program, so that the order varies.
        shift = turn % max(1, len(names))
        for name in names[shift:] + names[:shift]:
            if answer := watch.turn(attempt, name, contenders[name].go, seconds):
                answers[name] = answer
        latest = {name: statistics.median(answers[name]["ms"]) for name in answers if name in OPACUS}
        for name in latest:
            if latest[name] > HOPELESS * min(latest.values()):
                contenders.pop(name).close()
        return answers

    try:
        for name, contender in list(contenders.items()):
            if isinstance(contender, Peer):
                attempt(name, contender.answer)
        for answers in watch.rounds(rounds, play):
            for name, answer in answers.items():
                result["ms"][name].append(answer["ms"])
                result["peak_mib"][name] = answer["peak_mib"]
                result["gflop"] = answer.get("gflop", result.get("gflop"))
    finally:
        for contender in contenders.values():
            contender.close()
    return result


def summarize(result, ceiling):
    """Adds medians, ratios and rates to the raw times."""
    times = {name: rounds for name, rounds in result["ms"].items() if rounds and name not in result["failures"]}
    result["median_ms"] = median = {name: statistics.median(sum(rounds, [])) for name, rounds in times.items()}
    by_round = {name: [statistics.median(one) for one in rounds] for name, rounds in times.items()}
    others = [name for name in ("torch", "tuned", "plain") if name in times and "private" in times]
    result["ratios"] = {name: [a / b for a, b in zip(by_round["private"], by_round[name])] for name in others}
    result["opacus_best"] = min((name for name in OPACUS if name in median), key=median.get, default=None)
    if "private" in median and result.get("gflop"):
        result["gflops"] = result["gflop"] / (median["private"] / 1e3)
        if ceiling:
            result["of_ceiling"] = result["gflops"] / ceiling["gflops_two_cores"]


def note(notes, text):
    if text not in notes:
        notes.append(text)
    return f" [{notes.index(text) + 1}]"


def step_row(result, notes):
    target = MODELS[result["model"]][1]
    median, failures, best = result["median_ms"], result["failures"], result["opacus_best"]

    def cell(name):
        if name in failures:
            return "fails" + note(notes, failures[name])
        return f"{median[name]:.3g}" if name in median else "–"

    def ratio(other, limit):
        if other not in result["ratios"]:
            return "–"
        value = statistics.median(result["ratios"][other])
        return f"{value:.2f}" + ("!" if limit and value > limit else "")

    broken = [name for name in OPACUS if name in failures]
    opacus = f"{median[best]:.3g} ({best.removeprefix('opacus-')})" if best else "fails" if broken else "–"
    opacus += "".join(note(notes, failures[name]) for name in broken)
    times = [cell("torch"), cell("tuned"), opacus, cell("plain"), cell("private")]
    ratios = [ratio("torch", target), ratio("tuned", None), ratio("plain", OWN_TARGET), f"{target:.2f}" if target else "–"]
    rate = f"{result['gflops']:.3g}" if "gflops" in result else "–"
    return [f"{result['model']} / {result['batch']}", *times, *ratios, rate, f"{result['of_ceiling']:.0%}" if "of_ceiling" in result else "–"]


def memory(engine, python, opacus, notes):
    """Peak memory of our private step and of Opacus' per-sample gradients: rows of the table, and raw figures."""
    rows, raw = [], []
    for model, batch in MEMORY:
        print(f"memory: {model} at batch {batch}", file=sys.stderr, flush=True)
        contenders = {"private": Engine(engine, model, "private", batch)}
        if opacus and model not in WITHOUT_OPACUS:
            contenders["opacus-hooks"] = Peer(python, model, "opacus-hooks", batch)
        cells, peaks, rest = {}, {}, "–"
        for name, contender in contenders.items():
            try:
                if name != "private":
                    contender.answer()
                answer = contender.go(0.1)
                peaks[name] = answer["peak_mib"]
                cells[name] = f"{answer['peak_mib']:.0f}"
                rest = f"{answer['rest_mib']:.0f}" if name != "private" else rest
            except Failure as failure:
                cells[name] = "fails" + note(notes, f"{model} at batch {batch}, {name}: {failure}")
            contender.close()
        ratio = f"{peaks['opacus-hooks'] / peaks['private']:.1f}" if len(peaks) == 2 else "–"
        rows.append([f"{model} / {batch}", cells["private"], cells.get("opacus-hooks", "–"), rest, ratio])
        raw.append({"model": model, "batch": batch, **peaks})
    return rows, raw


def table(heads, rows):
    print("\n| " + " | ".join(heads) + " |\n| --- |" + " ---: |" * (len(heads) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def prepare():
    """The Python of the peers and the executable of ours."""
    venv = os.environ.get("SORDINO_BENCH_VENV")
    # Inside bench/.venv, but apart from what bench/accounting.py installs there.
    folder = Path(venv) if venv else HERE / ".venv" / "torch"
    python = str(folder / "bin" / "python")
    if not venv and not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
        (folder / "complete").touch()
    if not Path(python).exists():
        raise SystemExit(f"there is no {python}")
    engine = os.environ.get("SORDINO_ENGINE_STEPS")
    if not engine:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "sordino-nn", "--example", "engine_steps"], cwd=ROOT, check=True)
        engine = str(ROOT / "target/release/examples/engine_steps")
    return python, engine


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="which models, separated by commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which every contender runs once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a contender runs in a round (default: %(default)s)")
    parser.add_argument("--no-opacus", action="store_true", help="leave Opacus out")
    parser.add_argument("--no-memory", action="store_true", help="leave the table of peak memory out")
    parser.add_argument("--json", metavar="FILE", help="write every step time, ratio and failure to FILE")
    quiet.add_options(parser)
    parser.add_argument("--worker", nargs=4, metavar=("MODEL", "MODE", "SECONDS", "BATCH"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.models = chosen.models.split(",")
    if unknown := [model for model in chosen.models if model not in MODELS]:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("there must be at least one round, longer than 0 seconds")
    return chosen


def main():
    chosen = options()
    if chosen.worker:
        model, mode, seconds, batch = chosen.worker
        return worker(model, mode, float(seconds), int(batch))
    python, engine = prepare()
    opacus = [] if chosen.no_opacus else OPACUS
    notes, ceiling, results, raw, watch = [], None, [], None, quiet.Watch(chosen)
    try:
        for ceiling in watch.rounds(1, lambda _: watch.turn(Engine.run, engine, "gemm-ceiling")):
            print(f"Matrix products reach {ceiling['gflops_per_core']:.1f} GFLOP/s on one core, {ceiling['gflops_two_cores']:.1f} on two.")
    except Failure as failure:
        print(f"The ceiling of matrix products fails: {failure}")
    for model in chosen.models:
        if watch.failed:
            break
        result = compare(engine, python, model, chosen.rounds, chosen.seconds, [] if model in WITHOUT_OPACUS else opacus, watch)
        if any(result["ms"].values()) or result["failures"]:
            summarize(result, ceiling)
            results.append(result)
    heads = ["model / batch", "PyTorch plain ms", "tuned ms", "Opacus best ms", "ours plain ms", "ours private ms"]
    heads += ["private / PyTorch", "private / tuned PyTorch", "private / own plain", "target", "GFLOP/s", "of the ceiling"]
    table(heads, [step_row(result, notes) for result in results])
    print(f"\nThe target is that of private / PyTorch; for private / own plain it is {OWN_TARGET}. A ratio beyond its target ends in !")
    print("\n" + watch.report())
    if not chosen.no_memory and not watch.failed:
        rows, raw = memory(engine, python, opacus, notes)
        table(["model / batch", "ours private, peak MiB", "Opacus hooks, peak MiB", "of these before the first step", "Opacus / ours"], rows)
    for number, text in enumerate(notes, 1):
        print(f"\n[{number}] {text}")
    if chosen.json:
        setting = {"processors": os.cpu_count(), "rounds": chosen.rounds, "seconds": chosen.seconds, "packages": PACKAGES, "quiet": watch.figures()}
        Path(chosen.json).write_text(json.dumps({**setting, "ceiling": ceiling, "steps": results, "memory_mib": raw}) + "\n")
    return watch.exit_code()


if __name__ == "__main__":
    sys.exit(main())
