"""``python -m tests.fuzz --cases 2000 --seed 0``: tell many stories, each in order, and say which went wrong.

A crash or a story that never ends is a finding, too: stories run in child processes, at most 400 in each, and
every story has a time limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

PER_PROCESS = 400
PATIENCE = 300
"""Seconds for one story; the slowest take a few."""


def tell_here(seed: int, numbers: range) -> None:
    """Tell stories in this process, a line of JSON before and after each."""
    import faulthandler
    import logging
    import warnings

    import torch

    from draftwood.local import findings
    from tests.fuzz.story import tell

    torch.set_num_threads(1)  # models of this size are not faster with more
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as found:
        findings.folder = lambda: Path(found)  # each story has its own models: nobody needs what was found out
        for number in numbers:
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            print(json.dumps({"begun": number}), flush=True)
            print(json.dumps(tell(seed, number)), flush=True)
            faulthandler.cancel_dump_traceback_later()


def tell_in_children(seed: int, numbers: range) -> Iterator[dict[str, Any]]:
    """Run stories in child processes; after a crash, continue with the next story. Yields each result."""
    start = numbers.start
    while start < numbers.stop:
        begun = None
        stop = min(numbers.stop, start + PER_PROCESS)
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--seed", str(seed), "--here"]
        command += ["--from", str(start), "--cases", str(stop - start)]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
        ):
            assert child.stdout is not None
            for line in child.stdout:
                found = json.loads(line)
                if "begun" in found:
                    begun = found["begun"]
                else:
                    yield found
                    begun, start = None, found["number"] + 1
            child.wait()
            errors.seek(0)
            said = errors.read()
        if begun is not None or child.returncode:
            number = start if begun is None else begun
            yield {"number": number, "counts": {}, "error": f"ended with {child.returncode}:\n{said[-3000:]}"}
            start = number + 1


def main() -> int:
    """Read the arguments and run; 1 if anything went wrong."""
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    arguments.add_argument("--cases", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--from", type=int, default=0, dest="start", help="number of the first case")
    arguments.add_argument(
        "-o", "--output", type=Path, help="JSON lines file; a new run continues after its last case"
    )
    arguments.add_argument("--here", action="store_true", help="in this process, for a debugger")
    given = arguments.parse_args()
    start, stop = given.start, given.start + given.cases
    if given.here:
        tell_here(given.seed, range(start, stop))
        return 0
    if given.output is not None and given.output.exists():
        start = max([start, *(number + 1 for number in done_before(given.output, given.seed))])
    return run(given.seed, range(start, stop), given.output)


def done_before(output: Path, seed: int) -> Iterator[int]:
    """Numbers of the cases of this seed in a file; a line that was cut off is left out."""
    for line in output.read_text().splitlines():
        with suppress(ValueError, KeyError, TypeError):
            found = json.loads(line)
            if found["seed"] == seed:
                yield found["number"]


def run(seed: int, numbers: range, output: Path | None) -> int:
    """Tell the stories; 1 if anything went wrong."""
    counts: Counter[str] = Counter()
    done, wrong, begun = 0, 0, time.monotonic()
    try:
        for found in tell_in_children(seed, numbers):
            done += 1
            counts.update(found["counts"])
            if output is not None:
                with output.open("a") as file:
                    file.write(json.dumps({"seed": seed, **found}) + "\n")
            if found["error"]:
                wrong += 1
                print(f"\ncase {found['number']}: {found['error']}", *found.get("story", ()), sep="\n  ")
                print(f"repeat it: make fuzz N=1 SEED={seed} FROM={found['number']}", flush=True)
            if done % 100 == 0:
                each = (time.monotonic() - begun) / done
                print(f"{done} of {len(numbers)} cases, {wrong} wrong, {each:.2f} s each", flush=True)
    except KeyboardInterrupt:
        print("stopped", end=", ")
    print(f"{done} cases from {numbers.start} on, seed {seed}: {wrong} wrong. {dict(counts)}")
    return 1 if wrong else 130 if done < len(numbers) else 0


if __name__ == "__main__":
    sys.exit(main())
