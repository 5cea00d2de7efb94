"""Time, memory and disk of a corpus: sorting, opening, looking up, drafting.

    python benchmarks/corpus.py [-o rows.jsonl] [--tokens 1000000 10000000 100000000] [--folder /tmp]

The text is made of pieces of the standard library's modules, words and signs as tokens, 65 tokens long on average,
in documents of 5,000. The context that is looked up follows other pieces, four tokens at a time. Times are wall
clock, one thread; the pages that are touched are in memory from the second round on, which is the one that counts.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.corpora.suffix_array import suffix_array, used_ids
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.corpus.file import BORDER, Documents, Part, write_corpus
from draftwood.drafters.corpus.kernel import grow  # noqa: F401 - compiled before anything is timed

DOCUMENT = 5000
PIECE = 60
STEP = 4
FOLLOWED = 8000


def code() -> NDArray[np.int32]:
    ids: dict[str, int] = {}
    text: list[int] = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        words = re.findall(r" ?\w+|\s+|[^\w\s]", file.read_text(encoding="utf-8", errors="replace"))
        text += (ids.setdefault(word, len(ids)) for word in words)
    return np.array(text, dtype=np.int32)


def pieces(source: NDArray[np.int32], tokens: int, seed: int) -> NDArray[np.int32]:
    rng, text, end = np.random.default_rng(seed), np.empty(tokens, dtype=np.int32), 0
    while end < tokens:
        size = int(min(tokens - end, rng.geometric(1 / PIECE) + 5))
        start = rng.integers(0, len(source) - size)
        text[end : end + size] = source[start : start + size]
        end += size
    return text


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    found = run()
    return found, time.perf_counter() - start


def build(path: Path, source: NDArray[np.int32], tokens: int) -> dict[str, Any]:
    text = pieces(source, tokens, 0)
    text[DOCUMENT - 1 :: DOCUMENT] = BORDER
    text[-1] = BORDER
    borders = np.flatnonzero(text == BORDER)
    before, used = peak(), used_ids(text)
    suffixes, seconds = timed(lambda: suffix_array(text, used))
    row: dict[str, Any] = {"tokens": tokens, "sort_s": round(seconds, 2)}
    row["sort_bytes_per_token"] = round((peak() - before) / tokens, 1)  # too low where more was held before
    table = Documents.listed([str(i) for i in range(len(borders))], [0, *(borders[:-1] + 1).tolist()])
    sizes = [(len(text), len(suffixes))]
    row["write_s"] = round(timed(lambda: write_corpus(path, [Part(text, suffixes)], sizes, table, {}))[1], 2)
    row["file_bytes_per_token"] = round(path.stat().st_size / tokens, 2)
    return row


def lookups(path: Path, text: NDArray[np.int32]) -> dict[str, Any]:
    """Return median and 95th percentile, in microseconds."""
    corpus, seconds = timed(lambda: Corpus.open(path))
    drafter = CorpusDrafter(corpora=(corpus,))
    row: dict[str, Any] = {"open_ms": round(1e3 * seconds, 2)}
    for name in ("match", "next_counts", "draft_16", "draft_64"):
        for _ in range(2):
            session, times = drafter.open(text[:1], None), []
            nodes = int(name[6:] or 0) if name.startswith("draft_") else 0
            for at in range(1, len(text) - STEP, STEP):
                context = text[max(at - 32, 0) : at]
                if nodes:
                    times.append(timed(lambda: session.draft(nodes, 0, drafter.prior))[1])  # noqa: B023
                elif name == "match":
                    times.append(timed(lambda: corpus.match(context))[1])  # noqa: B023
                else:
                    times.append(timed(lambda: corpus.next_counts(context[-2:], 16))[1])  # noqa: B023
                session.extend(text[at : at + STEP])
        row[f"{name}_us"] = [round(1e6 * float(np.percentile(times, q)), 1) for q in (50, 95)]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, help="append records to this file")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--folder", type=Path, help="where the files are made, and removed; 8 bytes per token")
    given = parser.parse_args()
    source = code()
    for tokens in given.tokens:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            path = Path(folder) / "bench.dwc"
            row = build(path, source, tokens)
            row |= lookups(path, pieces(source, FOLLOWED, 1))
        print(json.dumps(row), flush=True)
        if given.output:
            with given.output.open("a") as rows:
                rows.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
