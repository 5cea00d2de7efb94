"""A profile: the seconds of each case per round, the figures made of them, and its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from draftwood.files.lines import write_whole
from draftwood.local.crowding import Others
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import Row, header

UNSTEADY = 1.5
"""Equal passes whose third quartile is so many times the first were disturbed; 1.02 to 1.2 on idle machines."""


class PassCase(NamedTuple):
    """A pass that every round times."""

    context: int  # tokens in the cache
    n: int  # tokens of the pass, a chain, the root included


@dataclass(slots=True)
class Profile:
    """What was measured: lists of seconds, one entry per finished round or repetition."""

    passes: dict[PassCase, list[float]] = field(default_factory=dict)
    prefill: dict[int, list[float]] = field(default_factory=dict)  # prompt length -> reading it
    others: Others = field(default_factory=Others)  # what other programs took since it was begun

    @property
    def rounds(self) -> int:
        return min(map(len, self.passes.values()), default=0)

    @property
    def contexts(self) -> list[int]:
        """Context lengths with a finished round."""
        return sorted({case.context for case in self.passes})

    def line(self, context: int) -> dict[int, list[float]]:
        """Return n -> seconds of the chains at a context length, n ascending."""
        return dict(sorted((case.n, seconds) for case, seconds in self.passes.items() if case.context == context))

    def doubt(self, threads: int) -> str:
        """Say why passes with so many threads may have been slowed down; empty where nothing speaks for it.

        Other programs left fewer cores than threads, or half of the repetitions vary by more than `UNSTEADY`.
        """
        if busy := self.others.busy(threads):
            return busy
        found = [spread(seconds) for seconds in self.passes.values()]
        unsteady = median(one["q3_s"] / one["q1_s"] for one in found) > UNSTEADY
        return "equal passes took unequal times" if unsteady else ""

    def rows(self) -> Iterator[Row]:
        """Yield the records of its file, without the header."""
        for case, seconds in sorted(self.passes.items()):
            yield {"row": "pass", "context": case.context, "n": case.n, **spread(seconds)}
        for tokens, seconds in sorted(self.prefill.items()):
            yield {"row": "prefill", "tokens": tokens, **spread(seconds)}


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, quartiles and number of the measurements, under the names of the file."""
    q1, middle, q3 = quantiles(seconds, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 3
    return {"median_s": middle, "q1_s": q1, "q3_s": q3, "rounds": len(seconds)}


def write_profile(path: Path, measured: Profile, settings: Row, doubt: str = "") -> None:
    """Write a profile completely or not at all, for `draftwood.api.learned.read_profile`; raises `RecordError` if
    it cannot be written. ``settings`` say what was measured: model, dtype, threads, device; ``doubt`` is that of
    `Profile`."""
    write_whole(path, [header("profile", settings, provenance(doubt=doubt or None)), *measured.rows()])
