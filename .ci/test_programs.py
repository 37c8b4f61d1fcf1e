"""Prints the test programs of crates/nn with these names, from cargo's messages."""

import json
import sys

wanted, found = sys.argv[1:], set()
for line in sys.stdin:
    message = json.loads(line)
    program, target = message.get("executable"), message.get("target", {})
    if program and "/crates/nn/" in target["src_path"] and target["name"] in wanted and message["profile"]["test"]:
        found.add(target["name"])
        print(program)
if found != set(wanted):
    sys.exit(f"cargo built no test programs named {sorted(set(wanted) - found)}")
