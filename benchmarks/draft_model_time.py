"""Our own time per pass of a draft model: the model takes no time, so all that is left is ours.

Usage: python benchmarks/draft_model_time.py [--rounds 200]

Drafts of 16 tokens, a chain of one pass per token, greedy and sampled, in microseconds per pass: median and 90 %
of rounds. Between two drafts a buffer larger than the processor's caches is read, as a pass of the target would.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from draftwood.contracts import Capabilities, Prices
from draftwood.drafters.draft_model.drafter import DraftModelDrafter, DraftTarget
from draftwood.verify.noise import KeyedNoise

VOCABULARY, LENGTH = 49152, 16


@dataclass
class Said:
    """Scores that are known already."""

    rows: int

    def top_k(self, k: int) -> tuple[Any, Any]:
        """Return the same tokens at every row, the first one nearly sure."""
        ids = np.tile(np.arange(k, dtype=np.int32) * 97 + 11, (self.rows, 1))
        chances = np.full((self.rows, k), 0.01 / k, np.float32)
        chances[:, 0] = 0.99
        return ids, chances


class Instant:
    """A target that takes no time."""

    capabilities = Capabilities(
        vocab_size=VOCABULARY, max_positions=1 << 20, trees=True, rollback="truncate", batch=True, grows=True
    )
    passes = 0

    def open(self, prompts: Any, **_: Any) -> Any:
        """Read a prompt."""
        session = SimpleNamespace(length=len(prompts[0]), close=lambda: None, truncate=lambda _: None)
        return [(session, Said(1))]

    def grow(self, requests: Any) -> Any:
        """Read nodes."""
        self.passes += 1
        return [Said(len(tokens)) for _, tokens, _ in requests]

    def settle(self, session: Any, path: Any) -> None:
        """Commit what the text has taken."""
        session.length += len(path)

    def extend(self, texts: Any, **_: Any) -> Any:
        """Read on."""
        for session, ids in texts:
            session.length += len(ids)
        return [Said(1) for _ in texts]


def measure(noise: Any, rounds: int) -> tuple[float, float]:
    """Return the median and the 90 % quantile of microseconds per pass."""
    target = Instant()
    drafter = DraftModelDrafter(target=DraftTarget(target, shares=False), length=LENGTH)
    session = drafter.open(list(range(50)), noise)
    cold, times = np.zeros(16 << 20, np.uint8), []
    for _ in range(rounds):
        cold.sum()
        before, started = target.passes, perf_counter()
        session.prices = Prices(1.0, 1.0)
        tree = session.draft(LENGTH, 0, drafter.prior)
        seconds = perf_counter() - started
        times.append(1e6 * seconds / max(1, target.passes - before))
        session.extend([int(tree.tokens[0])])
    return float(np.median(times[8:])), float(np.quantile(times[8:], 0.9))


def main() -> None:
    """Measure and print."""
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--rounds", type=int, default=200)
    rounds = read.parse_args().rounds
    for name, noise in (("greedy", None), ("sampled", KeyedNoise(1, 0, 0.8))):
        median, high = measure(noise, rounds)
        print(f"{name}: {median:.0f} microseconds per pass (90 %: {high:.0f})")


if __name__ == "__main__":
    main()
