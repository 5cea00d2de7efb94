"""Speed, size and worth of the memory across requests.

    python benchmarks/memory.py [-o rows.jsonl] [--tokens 10000 100000 1000000]
    python benchmarks/memory.py --traces ANSWERS.jsonl... [--tokenizer MODEL] [--sizes 2000 1000000]

The first times a memory that holds so many tokens, wall clock, one thread, no model running beside: ``fill`` is
what an answer costs per token until the memory is full, ``insert`` when each drives others out (one size of fresh
text, rebuilds included), ``worst`` the longest that one answer of at most 400 tokens took then. ``draft`` is
`MemorySession.draft` of so many nodes as the loop calls it, tree included, at places drawn from what is remembered
(median and 95 of 100; shortest of five runs each), ``step`` the same after three new tokens. Bytes are the indices
with spare room, ``peak`` while one is rebuilt; ``object`` bytes are what Python needs beside them.

The second replays recorded answers, task by task and in their order, with a fixed budget: emitted tokens per pass
with the drafter ``ngram`` alone, and beside memories of several sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sysconfig
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Drafter
from draftwood.drafters.memory.drafter import MemoryDrafter, MemorySession
from draftwood.drafters.memory.memory import Memory
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.measure.records.timing import acceptance_length
from draftwood.measure.records.traces import grouped, read_traces
from draftwood.measure.simulate import simulate

VOCABULARY = 49_152
ANSWER = (20, 400)  # tokens of the answers, evenly drawn
PLACES = 300

Ints = NDArray[np.int32]


def zipf(tokens: int) -> Ints:
    """Independent words, as frequent as English ones (Zipf-Mandelbrot, shift 2.7)."""
    weights = 1 / (np.arange(VOCABULARY) + 2.7)
    return np.random.default_rng(0).choice(VOCABULARY, tokens, p=weights / weights.sum()).astype(np.int32)


def code(tokens: int) -> Ints:
    """Words, spaces and signs of the standard library's modules in order of their names."""
    ids: dict[str, int] = {}
    text: list[int] = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in file.parts:
            continue
        words = re.findall(r"\w+|\s+|[^\w\s]", file.read_text(encoding="utf-8", errors="replace"))
        text += (ids.setdefault(word, len(ids)) for word in words)
        if len(text) >= tokens:
            return np.array(text, dtype=np.int32)[:tokens]
    raise SystemExit(f"the standard library has {len(text):,} words, {tokens:,} are needed: give smaller --tokens")


def answers(text: Ints) -> list[Ints]:
    lengths = np.random.default_rng(1).integers(*ANSWER, size=2 * len(text) // ANSWER[0])
    ends = np.cumsum(lengths)
    return np.split(text, ends[ends < len(text)])


def timed_adding(memory: Memory, texts: list[Ints]) -> tuple[float, float, int]:
    """Nanoseconds per token, milliseconds of the slowest answer, largest bytes seen."""
    total, worst, peak = 0.0, 0.0, 0
    for text in texts:
        start = time.perf_counter()
        memory.add(text)
        seconds = time.perf_counter() - start
        total, worst, peak = total + seconds, max(worst, seconds), max(peak, memory.nbytes)
    return total / sum(map(len, texts)) * 1e9, worst * 1e3, peak


def draft_us(memory: Memory, nodes: int, new: int) -> list[float]:
    """Median and 95th percentile of drafting behind 40 tokens of an answer, ``new`` of them just read."""
    drafter, rng, times = MemoryDrafter(memory=memory), np.random.default_rng(2), []
    known = [saved.ids for saved in memory.answers() if len(saved.ids) > 60]
    accept_rates = drafter.prior
    for _ in range(PLACES):
        text = known[rng.integers(len(known))]
        at = int(rng.integers(40, len(text)))
        runs = []
        for _ in range(5):
            session = MemorySession(drafter, text[at - 40 : at - new])
            session.draft(nodes, 0, accept_rates)
            session.extend(text[at - new : at])
            start = time.perf_counter()
            session.draft(nodes, 0, accept_rates)
            runs.append(time.perf_counter() - start)
        times.append(min(runs) * 1e6)
    return [float(np.percentile(times, share)) for share in (50, 95)]


def file_figures(memory: Memory) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = memory.save(Path(folder) / "answers.dwm")
        saved = time.perf_counter()
        Memory.open(path, memory.size)
        return {
            "save_s": saved - start,
            "load_s": time.perf_counter() - saved,
            "file_bytes_per_token": path.stat().st_size / memory.held,
        }


def object_bytes(texts: list[Ints], tokens: int) -> int:
    """Bytes that Python holds for a full memory, the indices left out."""
    tracemalloc.start()
    memory = Memory(tokens)
    for text in texts:
        memory.add(text)
    held = tracemalloc.get_traced_memory()[0] - memory.nbytes
    tracemalloc.stop()
    return held


def row(kind: str, text: Ints, tokens: int) -> dict[str, Any]:
    texts = answers(text)
    half = int(np.searchsorted(np.cumsum([len(t) + 1 for t in texts]), tokens))
    Memory(1000).add(texts[0])  # compiled
    memory = Memory(tokens)
    fill, _, _ = timed_adding(memory, texts[:half])
    insert, worst, peak = timed_adding(memory, texts[half:])
    memory.check_integrity()
    return {
        "text": kind,
        "tokens": tokens,
        "answers": sum(memory.namespaces.values()),
        "fill_ns_per_token": fill,
        "insert_ns_per_token": insert,
        "worst_insert_ms": worst,
        "draft16_us": draft_us(memory, 16, 0),
        "draft64_us": draft_us(memory, 64, 0),
        "step16_us": draft_us(memory, 16, 3),
        "bytes": memory.nbytes,
        "peak_bytes": peak,
        "object_bytes": object_bytes(texts[:half], tokens),
        **file_figures(memory),
    }


def speed(sizes: list[int]) -> Iterator[dict[str, Any]]:
    conditions = {
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    for make in (zipf, code):
        for tokens in sizes:
            yield {**row(make.__name__, make(2 * tokens), tokens), **conditions}


def worth(paths: list[Path], tokenizer: str | None, sizes: list[int], nodes: int) -> Iterator[dict[str, Any]]:
    known = None
    if tokenizer is not None:
        from draftwood.models import load_tokenizer

        known = load_tokenizer(tokenizer)
    for task, members in grouped(trace for path in paths for trace in read_traces(path, known)):
        traces = list(members)
        found: dict[str, Any] = {"task": task, "answers": len(traces), "nodes": nodes}
        for size in (0, *sizes):
            drafters: list[Drafter] = [NgramDrafter()]
            if size:
                drafters.append(MemoryDrafter(tokens=size))
            replayed = list(simulate(traces, drafters, f"fixed:{nodes}"))
            found[f"memory_{size}" if size else "without"] = acceptance_length(replayed)
        yield found


def show(measured: dict[str, Any]) -> None:
    cells = []
    for key, value in measured.items():
        if isinstance(value, list):
            cells.append(f"{key} {value[0]:.0f} ({value[1]:.0f})")
        elif key not in ("python", "numba", "numpy", "machine", "cores"):
            cells.append(f"{key} {value:,.4g}" if isinstance(value, float) else f"{key} {value}")
    print(", ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, help="also write the records to this file, one JSON object per line"
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--traces", type=Path, nargs="+", help="recorded answers, as probe --trace writes")
    parser.add_argument("--tokenizer", help="of traces that are text")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000], help="of the memories")
    parser.add_argument("--nodes", type=int, default=16)
    given = parser.parse_args()
    rows = worth(given.traces, given.tokenizer, given.sizes, given.nodes) if given.traces else speed(given.tokens)
    kept = []
    for measured in rows:
        show(measured)
        kept.append(measured)
    if given.output:
        given.output.write_text("".join(json.dumps(r) + "\n" for r in kept))


if __name__ == "__main__":
    main()
