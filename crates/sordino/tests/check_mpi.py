#!/usr/bin/env python3
"""Runs `sordino train` under mpirun: agreement with one process, refusals, killed and hanging ranks, resuming.

    check_mpi.py BINARY [--without-mpi BINARY] [--kills 3]

BINARY has the feature `mpi`. Needs Open MPI and nothing beyond Python's standard library.
"""

import argparse
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVIRONMENT = dict(
    os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", RAYON_NUM_THREADS="1", RUST_BACKTRACE="0",
    # Ranks that wait give their core to others: there are more ranks than cores here.
    OMPI_MCA_mpi_yield_when_idle="1",
)
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]


def run(command, expected=0, seconds=120, **environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds, env={**ENVIRONMENT, **environment})
    assert done.returncode == expected, (command, done.returncode, done.stdout, done.stderr)
    return done


def weights(path):
    """The numbers of a safetensors file, by name."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    header.pop("__metadata__", None)
    return {name: struct.unpack(f"<{(e - b) // 4}f", body[b:e]) for name, entry in header.items() for b, e in [entry["data_offsets"]]}


def same_model_on_any_number_of_ranks(binary):
    settings = ["train", "--seed", 3, "--steps", 40, "--max-grad-norm", 1, "--json"]
    run([binary, *settings, "--out", "alone"])
    alone = weights(Path("alone/model.safetensors"))
    for ranks in (2, 3):
        done = run([*MPIRUN, "-n", ranks, binary, *settings, "--out", f"on{ranks}"])
        assert json.loads(done.stdout)["steps"] == 40, done.stdout
        several = weights(Path(f"on{ranks}/model.safetensors"))
        for name, values in alone.items():
            scale = max(map(abs, values))
            apart = max(abs(a - b) for a, b in zip(values, several[name]))
            assert apart <= 1e-3 * scale, (ranks, name, apart, scale)


def a_private_run_has_one_ledger_and_prints_once(binary):
    done = run([*MPIRUN, "-n", 2, binary, "train", "--steps", 30])
    assert done.stdout.count("-differential privacy") == 1 and "PROVED" in done.stdout, done.stdout
    assert sorted(path.name for path in Path("runs").iterdir()) == ["1"]
    shown = json.loads(run([binary, "show", "runs/1", "--json"]).stdout)
    assert shown["private"] and shown["finished"] and shown["steps"] == 30 and shown["epsilon"] <= 1.0, shown
    # Units, a fixed batch size, and an algorithm with memory.
    for flags in (["--sampling", "fixed-size"], ["--algorithm", "dice"], ["--algorithm", "dc-sgd-p"]):
        run([*MPIRUN, "-n", 3, binary, "train", "--steps", 10, *flags])


def different_ranks_are_refused_by_number(binary):
    def refused(first, second, message):
        done = subprocess.run(
            [*map(str, [*MPIRUN, "-n", 1, binary, "train", "--out", "no", *first, ":", "-n", 1, binary, "train", "--out", "no", *second])],
            capture_output=True, text=True, timeout=60, env=ENVIRONMENT,
        )
        assert done.returncode == 2 and message in done.stderr, (done.returncode, done.stderr)
        assert not Path("no").exists()

    refused(["--steps", 5], ["--steps", 6], "rank 1 has different settings from rank 0")
    for name, label in (("a", 0), ("b", 1)):
        Path(name).mkdir()
        Path(name, "t.csv").write_text("x,y\n" + "".join(f"{i},{(i + label) % 2}\n" for i in range(100)))
    settings = ["--target", "y", "--classes", 2, "--steps", 5, "--delta", "1e-3", "--data"]
    refused([*settings, "a/t.csv"], [*settings, "b/t.csv"], "rank 1 has different records from rank 0")
    # The same file at another path is accepted.
    Path("b/t.csv").write_text(Path("a/t.csv").read_text())
    run([*MPIRUN, "-n", 1, binary, "train", "--out", "yes", *settings, "a/t.csv", ":", "-n", 1, binary, "train", "--out", "yes", *settings, "b/t.csv"])


def processes(parent):
    """The ranks that this mpirun started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True).stdout
    return [int(pid) for pid in listed.split()]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def started(binary, ranks, *arguments, **environment):
    """A run that has taken some steps, and its ranks."""
    command = [*map(str, [*MPIRUN, "-n", ranks, binary, "train", *arguments])]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **environment})
    return job


def ledger_lines(folder):
    path = Path(folder) / "ledger"
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_for(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.02)


def killed_ranks_stop_all_and_the_run_is_resumed(binary, kills):
    """Each kill hits a random rank at a random moment. Every resumed run has another number of ranks."""
    draw = random.Random(5)
    arguments, slowest = ["--steps", 2_000_000, "--out", "killed", "--accountant", "rdp"], 0.0
    charged = 0
    for kill in range(kills):
        ranks = draw.choice([2, 3, 4])
        before = ledger_lines("killed")
        job = started(binary, ranks, *(arguments if kill == 0 else ["--resume", "killed"]))
        wait_for(lambda: ledger_lines("killed") > before + 2)
        time.sleep(draw.uniform(0.0, 0.5))
        victims = processes(job.pid)
        assert len(victims) == ranks, victims
        begun = time.monotonic()
        os.kill(draw.choice(victims), signal.SIGKILL)
        _, errors = job.communicate(timeout=30)
        # mpirun may end a moment before the ranks that it has told to end.
        wait_for(lambda: not any(map(is_running, victims)), seconds=10)
        slowest = max(slowest, time.monotonic() - begun)
        assert job.returncode != 0 and "signal 9" in errors, errors
        shown = json.loads(run([binary, "show", "killed", "--json"]).stdout)
        assert shown["steps"] > charged and shown["private"] and not shown["finished"], shown
        charged = shown["steps"]
    print(f"{kills} kills: all ranks ended within {slowest:.1f} s")


def a_hanging_rank_ends_the_others(binary):
    job = started(binary, 2, "--steps", 2_000_000, "--out", "hangs", "--accountant", "rdp", SORDINO_MPI_TIMEOUT="2")
    wait_for(lambda: ledger_lines("hangs") > 2)
    ranks = processes(job.pid)
    os.kill(ranks[-1], signal.SIGSTOP)
    begun = time.monotonic()
    try:
        _, errors = job.communicate(timeout=30)
    finally:
        for pid in ranks:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert job.returncode != 0 and "has waited 2 seconds for the other ranks" in errors, errors
    print(f"a hanging rank: all ended after {time.monotonic() - begun:.1f} s, with a limit of 2 s")


def an_interrupted_run_is_resumed_with_another_number_of_ranks(binary):
    job = started(binary, 2, "--steps", 12000, "--batch-size", 2000, "--out", "stopped", "--accountant", "rdp")
    wait_for(lambda: ledger_lines("stopped") > 3)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert Path("stopped/checkpoint.safetensors").exists()
    done = run([*MPIRUN, "-n", 3, binary, "train", "--resume", "stopped", "--json"])
    answer = json.loads(done.stdout)
    assert answer["finished"] and answer["steps"] == 12000, answer


def other_commands_and_builds_refuse_several_processes(binary, without):
    for command in (["compare", "--quick"], ["tune"], ["audit"]):
        done = subprocess.run([str(binary), command[0]], capture_output=True, text=True, env={**ENVIRONMENT, "OMPI_COMM_WORLD_SIZE": "2"})
        assert done.returncode == 2 and ("works in one process" in done.stderr or "required" in done.stderr), (command, done.stderr)
    # Every process would be alone, as with the mpirun of one MPI library and a program for another.
    done = subprocess.run([str(binary), "train", "--out", "alone-by-mistake"], capture_output=True, text=True, env={**ENVIRONMENT, "PMI_SIZE": "2"})
    assert done.returncode == 2 and "2 processes were started, but MPI connects 1" in done.stderr, done.stderr
    assert not Path("alone-by-mistake").exists()
    if without:
        done = subprocess.run([str(without), "train"], capture_output=True, text=True, env={**ENVIRONMENT, "OMPI_COMM_WORLD_SIZE": "2"})
        assert done.returncode == 2 and "does not support MPI" in done.stderr and not Path("runs/9").exists(), done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--without-mpi", type=Path)
    parser.add_argument("--kills", type=int, default=3)
    arguments = parser.parse_args()
    binary = arguments.binary.resolve()
    without = arguments.without_mpi.resolve() if arguments.without_mpi else None
    checks = [
        lambda: same_model_on_any_number_of_ranks(binary),
        lambda: a_private_run_has_one_ledger_and_prints_once(binary),
        lambda: different_ranks_are_refused_by_number(binary),
        lambda: killed_ranks_stop_all_and_the_run_is_resumed(binary, arguments.kills),
        lambda: a_hanging_rank_ends_the_others(binary),
        lambda: an_interrupted_run_is_resumed_with_another_number_of_ranks(binary),
        lambda: other_commands_and_builds_refuse_several_processes(binary, without),
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for check in checks:
            check()
        os.chdir("/")
    print(f"{len(checks)} passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
