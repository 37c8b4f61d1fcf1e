#!/usr/bin/env python3
"""Accounting, side by side with dp-accounting, prv-accountant and Opacus, in one run on one machine.

    bench/accounting.py [--quick]

Makes its own virtual environment in bench/.venv, builds the release binary, and prints a table in Markdown. Sordino is
timed as a user runs it, as a process that reads its plan from a file; the others inside of a warm interpreter.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = HERE / ".venv"
PACKAGES = ["dp-accounting==0.6.0", "prv-accountant==0.2.0"]
# Opacus' accountants need numpy and scipy only; without its dependencies the download stays small.
PACKAGES_ALONE = ["opacus==1.6.0"]
MINUTE = 60.0
RATE = 250 / 60000
DELTA = 1 / 600000


def enter_venv():
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(pip + PACKAGES, check=True)
        subprocess.run(pip + ["--no-deps"] + PACKAGES_ALONE, check=True)
    if Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(str(python), [str(python), __file__, *sys.argv[1:]])


def opacus_analysis():
    """Opacus' Renyi formulas, loaded without the package around them, which would ask for torch."""
    import importlib.util

    for folder in sys.path:
        path = Path(folder) / "opacus" / "accountants" / "analysis" / "rdp.py"
        if path.exists():
            spec = importlib.util.spec_from_file_location("opacus_rdp", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise SystemExit("opacus is not installed in " + str(VENV))


def sordino(*arguments, repeats=5):
    """The median time of a command in seconds, and its answer."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        done = subprocess.run([str(ROOT / "target/release/sordino"), *arguments, "--json"], capture_output=True, text=True)
        times.append(time.perf_counter() - start)
        if done.returncode:
            raise SystemExit(done.stderr)
    return statistics.median(times), json.loads(done.stdout)


def timed(function):
    start = time.perf_counter()
    answer = function()
    return time.perf_counter() - start, answer


def dynamic_multipliers(steps):
    """A dynamic schedule with rho_mu = 4: every multiplier differs."""
    return [1 / (0.35 * 4 ** (t / steps)) for t in range(1, steps + 1)]


def plan_file(folder, multipliers):
    path = Path(folder) / f"plan-{len(multipliers)}.json"
    entries = [{"noise_multiplier": z, "sample_rate": RATE, "steps": 1} for z in multipliers]
    path.write_text(json.dumps(entries))
    return str(path)


def dp_accounting_prefix(multipliers, limit):
    """The largest prefix, by doubling, that dp-accounting composes within the limit: (steps, seconds, epsilon)."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def compose(prefix):
        accountant = PLDAccountant()
        for z in prefix:
            accountant.compose(dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(z)))
        return accountant.get_epsilon(DELTA)

    best, steps = None, 25
    while steps <= len(multipliers):
        seconds, epsilon = timed(lambda: compose(multipliers[:steps]))
        if seconds > limit:
            break
        best = (steps, seconds, epsilon)
        # The next doubling would take more than twice as long.
        if 2 * seconds > limit:
            break
        steps *= 2
    return best


def million_steps(table):
    z, rate, steps, delta = 1.0, 1e-3, 1_000_000, 1e-5
    ours, answer = sordino("epsilon", "--noise-multiplier", str(z), "--sample-rate", str(rate), "--steps", str(steps), "--delta", str(delta))
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from prv_accountant.dpsgd import DPSGDAccountant

    def theirs():
        accountant = PLDAccountant()
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z)), steps)
        return accountant.get_epsilon(delta)

    def prv():
        accountant = DPSGDAccountant(noise_multiplier=z, sampling_probability=rate, eps_error=0.01, delta_error=delta / 1000, max_steps=steps)
        return accountant.compute_epsilon(num_steps=steps, delta=delta)[2]

    opacus = opacus_analysis()
    orders = [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))

    def renyi():
        return opacus.get_privacy_spent(orders=orders, rdp=opacus.compute_rdp(q=rate, noise_multiplier=z, steps=steps, orders=orders), delta=delta)[0]

    what = "1,000,000 identical steps"
    bracket = f"[{answer['epsilon_lower']:.4f}, {answer['epsilon']:.4f}]"
    table.append((what, "Sordino pld", ours, 1.0, bracket))
    for name, function in [("dp-accounting PLD", theirs), ("prv-accountant", prv), ("Opacus RDP", renyi)]:
        seconds, epsilon = timed(function)
        table.append((what, name, seconds, seconds / ours, f"{epsilon:.4f}"))
    seconds, answer = sordino("epsilon", "--noise-multiplier", str(z), "--sample-rate", str(rate), "--steps", str(steps), "--delta", str(delta), "--accountant", "rdp")
    table.append((what, "Sordino rdp", seconds, seconds / ours, f"{answer['epsilon']:.4f}"))


def calibration(table):
    epsilon, delta, rate, steps = 2.0, 1e-5, 0.01, 5000
    ours, answer = sordino("noise", "--epsilon", str(epsilon), "--delta", str(delta), "--sample-rate", str(rate), "--steps", str(steps))
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from prv_accountant.dpsgd import find_noise_multiplier

    def theirs():
        event = lambda z: dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z)), steps)
        bracket = dp_accounting.ExplicitBracketInterval(0.3, 30.0)
        return dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, epsilon, delta, bracket_interval=bracket, tol=1e-3)

    def prv():
        return find_noise_multiplier(sampling_probability=rate, num_steps=steps, target_epsilon=epsilon, target_delta=delta, eps_error=0.002 * epsilon)

    what = "noise multiplier to 0.1 %"
    table.append((what, "Sordino pld", ours, 1.0, f"z = {answer['noise_multiplier']:.4f}, epsilon {answer['epsilon']:.4f}"))
    for name, function in [("dp-accounting PLD", theirs), ("prv-accountant", prv)]:
        seconds, z = timed(function)
        table.append((what, name, seconds, seconds / ours, f"z = {z:.4f}"))


def many_multipliers(table, folder, limit):
    multipliers = dynamic_multipliers(5000)
    ours, answer = sordino("epsilon", "--plan", plan_file(folder, multipliers), "--delta", repr(DELTA))
    bracket = f"[{answer['epsilon_lower']:.4f}, {answer['epsilon']:.4f}]"
    table.append(("5,000 different multipliers", "Sordino pld", ours, 1.0, bracket))
    steps, theirs, epsilon = dp_accounting_prefix(multipliers, limit)
    what = f"the first {steps:,} of them"
    prefix, answer = sordino("epsilon", "--plan", plan_file(folder, multipliers[:steps]), "--delta", repr(DELTA))
    bracket = f"[{answer['epsilon_lower']:.6f}, {answer['epsilon']:.6f}]"
    table.append((what, "Sordino pld", prefix, 1.0, bracket))
    table.append((what, "dp-accounting PLD", theirs, theirs / prefix, f"{epsilon:.6f}"))


def main():
    enter_venv()
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    table = []
    with tempfile.TemporaryDirectory() as folder:
        many_multipliers(table, folder, 10.0 if "--quick" in sys.argv else MINUTE)
    million_steps(table)
    calibration(table)
    print("| task | accountant | seconds | times Sordino's | answer |")
    print("| --- | --- | ---: | ---: | --- |")
    for what, name, seconds, ratio, answer in table:
        print(f"| {what} | {name} | {seconds:.3f} | {ratio:.3g} | {answer} |")


if __name__ == "__main__":
    main()
