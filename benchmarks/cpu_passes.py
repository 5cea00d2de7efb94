"""Passes of our own engine, beside a llama.cpp library's: milliseconds by tokens, in turns, and of reading a prompt.

    python benchmarks/cpu_passes.py MODEL.gguf [--llama FOLDER] [--threads 2] [--context 300] [--rounds 20]

``--llama`` names a folder with libllama.so and its builds, as the wheel muthuishere-modelnexus 0.2.1 has one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from llama_library import LlamaLibrary

from draftwood.engines.cpu.target import CpuTarget
from draftwood.models.machine import processor
from draftwood.tree import TokenTree

WIDTHS = (1, 2, 4, 8, 16, 32)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("model", type=Path)
    options.add_argument("--llama", type=Path)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--context", type=int, default=300)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--prompt", type=int, default=1000)
    given = options.parse_args()
    target = CpuTarget(given.model, threads=given.threads)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, target.capabilities.vocab_size, given.prompt + given.context + 64).tolist()
    other = LlamaLibrary(given.llama, given.model, threads=given.threads) if given.llama else None
    ((session, _),) = target.open([ids[: given.context]])
    if other is not None:
        other.run(ids[: given.context], scored=False)
    taken: dict[tuple[str, int], list[float]] = {}
    for _ in range(given.rounds):
        for width in WIDTHS:
            tree = TokenTree.build(ids[-width:-1]) if width > 1 else TokenTree.empty()
            before = perf_counter()
            target.score([(session, ids[0], tree)])
            taken.setdefault(("cpu", width), []).append(perf_counter() - before)
            if other is not None:
                before = perf_counter()
                other.run(ids[-width:], scored=True)
                taken.setdefault(("llama.cpp", width), []).append(perf_counter() - before)
                other.cut(given.context)
    for _ in range(3 if given.prompt else 0):
        before = perf_counter()
        ((read, _),) = target.open([ids[: given.prompt]])
        taken.setdefault(("cpu", -given.prompt), []).append(perf_counter() - before)
        read.close()
        if other is not None:
            other.cut(0)
            before = perf_counter()
            other.run(ids[: given.prompt], scored=False)
            taken.setdefault(("llama.cpp", -given.prompt), []).append(perf_counter() - before)
    say = {"processor": processor(), "instructions": target.model.instructions.name, "threads": given.threads}
    print(json.dumps(say | {"model": given.model.name, "bytes of weights": target.weight_bytes}))
    for (arm, width), seconds in taken.items():
        one = median(taken[arm, 1])
        row = {"arm": arm, "tokens": abs(width), "reads": width < 0, "ms": round(1e3 * median(seconds), 2)}
        print(json.dumps(row | {"least": round(1e3 * min(seconds), 2), "of one": round(median(seconds) / one, 2)}))


if __name__ == "__main__":
    main()
