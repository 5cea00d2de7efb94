"""What a pass of llama.cpp over n tokens costs, for one GGUF file, in our two settings.

    python benchmarks/llama_passes.py MODEL.gguf -o benchmarks/results/llama-passes-Q4_0.jsonl

Milliseconds of a pass over n tokens behind a context, all n with scores, as `Context.run` calls it: ``exact``
(rows are bit by bit those of one-token passes, where the weights allow it) and ``fast`` (llama.cpp's own). In
every round each setting and n has its turn, in a new order; before the timed pass one of the same n runs untimed,
since the library rebuilds its graph where n changes. The fastest tells what the machine can do, the median how
quiet it was. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from places import bare

from draftwood.engines.llama_cpp.context import PASS, Context, Row, Settings, exact_settings
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.models.machine import cores

SETTINGS = {"exact": exact_settings, "fast": Settings}
TEXT = 0  # the only sequence


def filled(weights: Weights, settings: Settings, tokens: list[int], room: int) -> Context:
    """Return a context that holds these tokens, with room for more."""
    context = Context(weights, settings, len(tokens) + room, 1)
    for start in range(0, len(tokens), PASS):
        part = tokens[start : start + PASS]
        compute(context, part, start)
    return context


def compute(context: Context, tokens: list[int], start: int) -> float:
    """Run one pass at these positions; returns its milliseconds."""
    rows = [Row(token, start + i, [TEXT]) for i, token in enumerate(tokens)]
    began = perf_counter()
    context.run(rows)
    return 1e3 * (perf_counter() - began)


def timed(context: Context, tokens: list[int], start: int) -> float:
    """Run a pass twice; returns the milliseconds of the second. The text is then as before."""
    for _ in range(2):
        milliseconds = compute(context, tokens, start)
        context.remove(TEXT, start)
    return milliseconds


def measured(weights: Weights, length: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row per setting and width, behind a text of this length."""
    widest = max(args.widths)
    tokens = np.random.default_rng(length).integers(0, weights.vocab_size, length + widest).tolist()
    contexts = {
        name: filled(weights, make(args.threads), tokens[:length], widest + 1) for name, make in SETTINGS.items()
    }
    turns = [(name, n) for name in contexts for n in args.widths]
    found: dict[tuple[str, int], list[float]] = {turn: [] for turn in turns}
    for number in range(args.rounds):
        for name, n in random.Random(f"{length} {number}").sample(turns, len(turns)):
            found[name, n].append(timed(contexts[name], tokens[length : length + n], length))
    for context in contexts.values():
        context.close()
    for (name, n), times in found.items():
        yield {
            "row": "pass", "context": length, "settings": name, "n": n, "rounds": len(times),
            "fastest_ms": round(min(times), 3), "median_ms": round(statistics.median(times), 3),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024, 2048])
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8, 12, 16])
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    weights = Weights(args.model, gpu_layers=0)
    origin = provenance(model=args.model.name, dtype=weights.number_format, threads=args.threads)
    lines = [{"row": "header", "verb": "llama_passes", "provenance": bare(origin)}]
    for length in args.contexts:
        for line in measured(weights, length, args):
            lines.append(line)
            print(f"{length:6} tokens, {line['settings']:5}, n = {line['n']:3}: {line['fastest_ms']:8.2f} ms")
    write_whole(args.output, lines)


if __name__ == "__main__":
    main()
