"""Detects other processes that take processor time during a measurement. Imported by the other scripts in this folder.

The processor time of a turn that this script and its descendants did not use, including time that the hypervisor took (steal), is divided
by the time of all processors. A turn in which this share is above the limit is disturbed, and the round that contains it is discarded and
repeated. The kernel counts in ticks of 10 ms, so a turn should take at least half a second.

    parser = argparse.ArgumentParser()
    quiet.add_options(parser)
    watch = quiet.Watch(parser.parse_args())
    results = watch.rounds(5, lambda number: [watch.turn(contender) for contender in contenders])
    print(watch.report())
    sys.exit(watch.exit_code())
"""

import os
import sys
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


class Disturbed(Exception):
    """A turn in which other processes used more than the permitted share of the processors."""


def busy_seconds():
    """Processor time that all processes, interrupts and the hypervisor have used since the start of the machine."""
    user, nice, system, _idle, _wait, interrupts, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + interrupts + soft + steal) / TICK


def own_seconds():
    """Processor time of this process and of all its descendants, living or waited for."""
    parents, seconds = {}, {}
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                # The name, in parentheses, may contain anything; the fields after it are numbers, except for the state.
                fields = Path("/proc", folder, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # The process has ended.
            parents[int(folder)] = int(fields[1])
            seconds[int(folder)] = sum(map(int, fields[11:15])) / TICK
    own = {os.getpid()}
    while found := {process for process, parent in parents.items() if parent in own} - own:
        own |= found
    return sum(seconds.get(process, 0.0) for process in own)


class Meter:
    """The share of all processors that other processes have used since the meter was made."""

    def __init__(self):
        self.begun, self.busy, self.own = time.monotonic(), busy_seconds(), own_seconds()

    def others(self):
        busy, own = busy_seconds() - self.busy, own_seconds() - self.own
        return max(0.0, busy - own) / max(1e-9, (time.monotonic() - self.begun) * os.cpu_count())


class Watch:
    """Keeps quiet rounds, discards the others, and counts both."""

    def __init__(self, chosen):
        self.limit, self.repeats, self.patience = chosen.max_others, chosen.max_discarded, chosen.patience
        self.allow = chosen.allow_noise
        self.kept = self.discarded = 0
        self.largest, self.failed, self.shares = 0.0, False, []

    def turn(self, measure, *arguments):
        """What `measure` returns. Raises `Disturbed` if other processes used too much processor time during it."""
        meter = Meter()
        result = measure(*arguments)
        self.shares.append(meter.others())
        if self.shares[-1] > self.limit and not self.allow:
            raise Disturbed(f"other processes used {self.shares[-1]:.0%} of the processors")
        return result

    def rounds(self, number, play):
        """What `play(0)`, `play(1)`, ... return for the rounds that are kept. There are fewer rounds, or none, if the machine is too busy."""
        results, discarded = [], 0
        while len(results) < number:
            self.shares = []
            try:
                results.append(play(len(results)))
            except Disturbed as reason:
                discarded += 1
                self.discarded += 1
                print(f"round discarded: {reason}", file=sys.stderr, flush=True)
                if discarded > self.repeats or not self.wait():
                    break
            else:
                self.kept += 1
                self.largest = max([self.largest, *self.shares])
        self.failed |= not results
        return results

    def wait(self):
        """Waits for a quiet second. False if there is none within the patience."""
        begun = time.monotonic()
        while True:
            meter = Meter()
            time.sleep(1.0)
            if meter.others() <= self.limit:
                return True
            if time.monotonic() - begun > self.patience:
                return False

    def report(self):
        """A sentence about the rounds, for the output."""
        text = f"Rounds kept: {self.kept}; discarded: {self.discarded}; largest share of other processes in a turn of a kept round: {self.largest:.1%}"
        text += f" of {os.cpu_count()} processors (limit {self.limit:.0%}" + (", not enforced)." if self.allow else ").")
        if self.failed:
            text += " The machine was too busy: at least one measurement has no quiet round. Stop other processes, or give --allow-noise."
        return text

    def exit_code(self):
        return int(self.failed)

    def figures(self):
        """The counts for a JSON file."""
        return {"kept": self.kept, "discarded": self.discarded, "largest_share_of_others": self.largest, "limit": self.limit, "allow_noise": self.allow}


def add_options(parser):
    """Adds the options of a watch to a parser of arguments."""
    parser.add_argument("--max-others", type=float, default=0.03, metavar="SHARE", help="largest share of the processors for other processes in a turn (default: %(default)s)")
    parser.add_argument("--max-discarded", type=int, default=20, metavar="N", help="disturbed rounds of a measurement that are repeated (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=120.0, metavar="S", help="seconds to wait for a quiet machine after a disturbed round (default: %(default)s)")
    parser.add_argument("--allow-noise", action="store_true", help="keep disturbed rounds; their figures are not reliable")
