"""Speed and memory of the drafter ngram-cache, on the texts of `index.py`.

    python benchmarks/ngram_cache.py [--tokens 1000 10000 128000 1000000]

Times are wall clock, one thread, no model running beside. ``read`` opens a session on the text (best of three);
``follow`` then has it read five tokens, ``draft`` draft eight, medians over places all over the text (one draft
per place, so that nothing is in the processor's cache but what stays there by itself). Memory counts spare room.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

import numpy as np
from index import TEXTS
from numpy.typing import NDArray

from draftwood.drafters.llama_cpp.ngram_cache import NgramCacheDrafter

DRAFT, STEP, PLACES = 8, 5, 500


def row(kind: str, ids: NDArray[np.int32]) -> dict[str, Any]:
    drafter, opened = NgramCacheDrafter(n_draft=DRAFT), []
    for _ in range(3):
        start = time.perf_counter()
        session: Any = drafter.open(ids, None)
        opened.append(time.perf_counter() - start)
    held = session._levels.context.nbytes  # before what follows adds to it
    follow, draft, drafted = [], [], []
    for place in np.random.default_rng(0).integers(0, len(ids) - STEP, PLACES).tolist():
        new = tuple(ids[place : place + STEP].tolist())
        start = time.perf_counter()
        session.extend(new)
        read = time.perf_counter()
        tree = session.draft(DRAFT, 0, drafter.prior)
        draft.append(time.perf_counter() - read)
        follow.append(read - start)
        drafted.append(len(tree))
    return {
        "text": kind,
        "tokens": len(ids),
        "read_ns_per_token": min(opened) / len(ids) * 1e9,
        "follow_us": median(follow) * 1e6,
        "draft_us": median(draft) * 1e6,
        "draft_us_p99": sorted(draft)[PLACES * 99 // 100] * 1e6,
        "drafted": sum(drafted) / PLACES,
        "bytes_per_token": held / len(ids),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1000, 10_000, 128_000, 1_000_000])
    sizes = parser.parse_args().tokens
    NgramCacheDrafter().open([1, 2], None)  # compiles
    for text in TEXTS:
        for size in sizes:
            ids = text(size)
            if len(ids) == size:  # the standard library ends before a million
                print(json.dumps(row(text.__name__, ids)), flush=True)


if __name__ == "__main__":
    main()
