"""Speed and memory of the suffix automaton.

    python benchmarks/index.py [-o rows.jsonl] [--tokens 1000 10000 100000 1000000]

Times are the best of several repetitions, wall clock, one thread, no model running beside. ``index`` reads the
text in one call, ``follow`` the last 2,000 tokens five at a time as decoding does, ``draft`` is
`SuffixSession.draft` of 16 tokens as the loop calls it, tree included. Memory counts spare room.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.suffix.automaton import SuffixAutomaton
from draftwood.drafters.suffix.drafter import SuffixDrafter, SuffixSession

VOCABULARY = 49_152
PERIOD = 37
DRAFT = 16
STEP = 5
FOLLOWED = 2000


def random(tokens: int) -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(0, VOCABULARY, tokens, dtype=np.int32)


def zipf(tokens: int) -> NDArray[np.int32]:
    """Independent words, as frequent as English ones (Zipf-Mandelbrot, shift 2.7)."""
    weights = 1 / (np.arange(VOCABULARY) + 2.7)
    drawn = np.random.default_rng(0).choice(VOCABULARY, tokens, p=weights / weights.sum())
    return drawn.astype(np.int32)


def periodic(tokens: int) -> NDArray[np.int32]:
    return (np.arange(tokens) % PERIOD).astype(np.int32)


def code(tokens: int) -> NDArray[np.int32]:
    """Words, spaces and signs of the standard library's modules in order of their names."""
    ids: dict[str, int] = {}
    text: list[int] = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        words = re.findall(r"\w+|\s+|[^\w\s]", file.read_text(encoding="utf-8", errors="replace"))
        text += (ids.setdefault(word, len(ids)) for word in words)
    return np.array(text, dtype=np.int32)[:tokens]


TEXTS = (random, zipf, periodic, code)


def best_seconds(run: Callable[[], Any], budget: float = 1.0) -> float:
    """Shortest time of at least three runs, more while they fit the budget."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < budget:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def per_call(run: Callable[[], Any]) -> float:
    def many() -> None:
        for _ in range(1000):
            run()

    return best_seconds(many, 0.3) / 1000


def follow_seconds(ids: NDArray[np.int32]) -> float:
    """Seconds per token at the end of the text, read ``STEP`` at a time."""
    last = min(FOLLOWED, len(ids) // 2)
    steps = [tuple(ids[i : i + STEP].tolist()) for i in range(len(ids) - last, len(ids), STEP)]
    automaton = SuffixAutomaton(ids[:-last])
    start = time.perf_counter()
    for step in steps:
        automaton.append(step)
    return (time.perf_counter() - start) / last


def row(kind: str, ids: NDArray[np.int32]) -> dict[str, Any]:
    automaton = SuffixAutomaton(ids)
    drafter = SuffixDrafter(length=DRAFT)
    session = SuffixSession(drafter, automaton.copy())
    if session.draft(DRAFT, 0, drafter.prior).tokens.size < DRAFT:
        session.extend([int(ids[0])])  # the last token was new; now the first has come twice
    accept_rates = drafter.prior
    return {
        "text": kind,
        "tokens": len(ids),
        "index_ns_per_token": best_seconds(lambda: SuffixAutomaton(ids)) / len(ids) * 1e9,
        "follow_ns_per_token": min(follow_seconds(ids) for _ in range(3)) * 1e9,
        "draft_us": per_call(lambda: session.draft(DRAFT, 0, accept_rates)) * 1e6,
        "bytes_per_token": automaton.nbytes / len(ids),
    }


def compile_seconds() -> dict[str, float]:
    """Seconds of the first ``open()`` in a fresh process, numba's import included: empty cache, then filled."""
    code = (
        "import time; from draftwood.drafters.suffix.drafter import SuffixDrafter as S; t = time.perf_counter();"
        "S().open([1, 2, 1], None); print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}

        def first_open() -> float:
            done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
            return float(done.stdout)

        return {"cold_open_s": first_open(), "warm_open_s": first_open()}


def rows(sizes: list[int]) -> Iterator[dict[str, Any]]:
    conditions = {
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    yield {"text": "compile", **compile_seconds(), **conditions}
    for make in TEXTS:
        for tokens in sizes:
            yield {**row(make.__name__, make(tokens)), **conditions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, help="also write the records to this file, one JSON object per line"
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    arguments = parser.parse_args()
    columns = {
        "index_ns_per_token": "index ns/token",
        "follow_ns_per_token": "follow ns/token",
        "draft_us": "draft us",
        "bytes_per_token": "bytes/token",
    }
    kept = []
    for measured in rows(arguments.tokens):
        kept.append(measured)
        if measured["text"] == "compile":
            print("first open: {cold_open_s:.2f} s cold, {warm_open_s:.2f} s from the cache".format(**measured))
            print(f"{'text':>9} {'tokens':>9}", *(f"{title:>15}" for title in columns.values()))
            continue
        cells = (f"{measured[key]:15.1f}" if key in measured else f"{'-':>15}" for key in columns)
        print(f"{measured['text']:>9} {measured['tokens']:>9,}", *cells, flush=True)
    if arguments.output:
        arguments.output.write_text("".join(json.dumps(r) + "\n" for r in kept))


if __name__ == "__main__":
    main()
