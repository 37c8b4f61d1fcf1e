#!/usr/bin/env python3
"""Ends Sordino's commands at 1,000 random moments: python3 bench/kills.py [KILLS]

Runs crates/sordino/tests/kill with that many kills. As root, it also mounts a small file system in memory, which the runs fill. It prints the
table in docs/testing.md. Every check is in the tests; a row is printed only for a test that passed.
"""

import datetime
import os
import re
import subprocess
import sys
import tempfile


def main():
    kills = sys.argv[1] if len(sys.argv) > 1 else "1000"
    environment = dict(os.environ, SORDINO_KILLS=kills)
    with tempfile.TemporaryDirectory() as disk:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], stderr=subprocess.DEVNULL)
        if mounted.returncode == 0:
            environment["SORDINO_SMALL_DISK"] = disk
        try:
            command = ["cargo", "test", "-p", "sordino", "--test", "kill", "--", "--nocapture", "--test-threads", "1"]
            tested = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        finally:
            if mounted.returncode == 0:
                subprocess.run(["umount", disk], check=True)
    rows = [part for line in re.findall(r"^.*killed: ([^;\n]*)", tested.stdout, re.M) for part in line.split(", ")]
    rows = [row.rsplit(" ", 1) for row in rows]
    print("| command | ended |\n| --- | ---: |")
    for name, count in rows:
        print(f"| `{name}` | {count} |")
    print(f"| all | {sum(int(count) for _, count in rows)} |")
    result = re.findall(r"^test result: .*$", tested.stdout, re.M)
    print(f"\n{datetime.date.today()}; {result[0] if result else tested.stdout[-2000:]}")
    sys.exit(tested.returncode)


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    main()
