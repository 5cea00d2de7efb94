"""Seconds to compile every kernel: an empty cache, then a filled one; per module and per drafter opened.

    python benchmarks/drafting_compile.py

A process imports every module of `draftwood.index` that compiles, then opens every shipped drafter once and has it
draft. Processor seconds stand beside wall clock, which counts what else the machine does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import draftwood.index

CHILD = """
import importlib, json, sys, time
found = {"modules": {}, "drafters": {}}
def timed(run):
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return [time.perf_counter() - wall, time.process_time() - cpu]
def one(name):
    (drafter,) = load(name)
    session = drafter.open([1, 2, 3, 1, 2], None)
    session.extend([3, 1])
    session.draft(8, 0, drafter.prior)
    session.close()
wall, cpu = time.perf_counter(), time.process_time()
from draftwood.drafters.load import DRAFTERS, load
found["numba"] = timed(lambda: importlib.import_module("numba"))
for module in sys.argv[1:]:
    found["modules"][module] = timed(lambda: importlib.import_module("draftwood.index." + module))
for name in [name for name, make in DRAFTERS.items() if not hasattr(make, 'with_models')]:
    found["drafters"][name] = timed(lambda: one(name))
found["all"] = [time.perf_counter() - wall, time.process_time() - cpu]
print(json.dumps(found))
"""


def modules() -> list[str]:
    """Names of the modules that compile when they are imported."""
    folder = Path(draftwood.index.__path__[0])
    kernels = [path for path in sorted(folder.rglob("*.py")) if "@compiled(" in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(folder).with_suffix("").parts) for path in kernels]


def measure() -> dict[str, Any]:
    """Return ``cold`` and ``warm``: [wall, processor] seconds of numba, each module, each drafter, and all."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}

        def child() -> dict[str, Any]:
            command = [sys.executable, "-c", CHILD, *modules()]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            result: dict[str, Any] = json.loads(done.stdout)
            return result

        return {"cold": child(), "warm": child()}


def show(found: dict[str, Any]) -> None:
    print("seconds, wall clock (processor)           cold          warm")
    for title, part in (("import of numba", "numba"), ("everything, drafters opened", "all")):
        print(f"{title:<36}", *(_cell(found[state][part]) for state in ("cold", "warm")))
    for part in ("modules", "drafters"):
        for name in found["cold"][part]:
            print(f"  {part[:-1] + ' ' + name:<34}", *(_cell(found[state][part][name]) for state in found))


def _cell(seconds: list[float]) -> str:
    return f"{seconds[0]:6.2f} ({seconds[1]:5.2f})"


if __name__ == "__main__":
    show(measure())
