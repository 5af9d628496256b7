"""How attacks are told: a line of JSON for each, and exit code 1 if one broke through.

An attack is a function that returns how often it tried and how often it broke through;
its name says what it does.
"""

import json
import sys
import time


def run(*attacks):
    """Run attacks one after another; the exit code is 1 if any broke through."""
    broken = 0
    for attack in attacks:
        start = time.perf_counter()
        trials, breaks = attack()
        line = {
            "attack": attack.__name__.replace("_", " "),
            "trials": trials,
            "breaks": int(breaks),
            "seconds": round(time.perf_counter() - start, 1),
        }
        print(json.dumps(line), flush=True)
        broken += int(breaks)
    sys.exit(1 if broken else 0)
