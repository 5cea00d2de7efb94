"""What choosing one token costs: microseconds per emitted token, by vocabulary, setting and kind of scores.

``python benchmarks/noise.py [-o FILE]`` prints a table of medians with the 10th and 90th percentile;
``-o`` writes the rows as JSON. One thread. Plain and drafted decoding pay the same, once per emitted token.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.contracts import Floats, Sampling
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose, distribution

VOCABULARIES = (49_152, 262_144)
SETTINGS = {
    "greedy": Sampling(),
    "temperature 1.0": Sampling(1.0),
    "top_k 50": Sampling(1.0, top_k=50),
    "top_p 0.9": Sampling(1.0, top_p=0.9),
    "top_k 50, top_p 0.9, min_p 0.05": Sampling(1.0, top_k=50, top_p=0.9, min_p=0.05),
}
# Standard deviation of normal scores, and by how much five random tokens stand out.
KINDS = {"peaked, std 3 + 15": (3.0, 15.0), "peaked, std 6 + 15": (6.0, 15.0), "flat, std 1": (1.0, 0.0)}


def make_row(vocabulary: int, spread: float, lift: float, rng: np.random.Generator) -> Floats:
    row: Floats = (rng.normal(size=vocabulary) * spread).astype(np.float32)
    row[rng.integers(vocabulary, size=5)] += np.float32(lift)
    return row


def measure(rows: list[Floats], sampling: Sampling, repeats: int) -> dict[str, Any]:
    """Choose at ``repeats`` positions, each from the next of the rows."""
    noise, seconds = KeyedNoise(1), []
    for position in range(-3, repeats):  # three to warm up
        row = rows[position % len(rows)]
        start = time.perf_counter()
        choose(row, sampling, noise, position % 2**32)
        seconds.append(time.perf_counter() - start)
    low, median, high = np.percentile(np.array(seconds[3:]) * 1e6, [10, 50, 90]).round(1).tolist()
    support = int(np.median([(distribution(row, sampling) > 0).sum() for row in rows]))
    return {"median_us": median, "p10_us": low, "p90_us": high, "support": support}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("-o", "--output", type=Path, help="write the records as JSON to this file")
    parser.add_argument("--repeats", type=int, default=200, help="tokens chosen per line (default 200)")
    args = parser.parse_args()
    # Freeing one large block lets the allocator keep smaller ones, as in any process that holds a model.
    np.ones(31 << 17)
    rng, results = np.random.default_rng(0), []
    print(f"{'vocabulary':>10}  {'scores':<20}{'setting':<33}{'support':>8}{'median us':>11}  10 % .. 90 %")
    for vocabulary in VOCABULARIES:
        for kind, (spread, lift) in KINDS.items():
            rows = [make_row(vocabulary, spread, lift, rng) for _ in range(8)]
            for name, sampling in SETTINGS.items():
                result = measure(rows, sampling, args.repeats)
                results.append({"vocabulary": vocabulary, "scores": kind, "setting": name, **result})
                spread_us = f"{result['p10_us']:.0f} .. {result['p90_us']:.0f}"
                line = f"{vocabulary:>10}  {kind:<20}{name:<33}{result['support']:>8}{result['median_us']:>11.0f}"
                print(f"{line}  {spread_us}", flush=True)
    if args.output:
        machine = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
        args.output.write_text(json.dumps({**machine, "repeats": args.repeats, "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
