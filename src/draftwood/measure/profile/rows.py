"""A profile: the seconds of each case per round, the figures made of them, and its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.planning.cost_curve import CostCurve


class PassCase(NamedTuple):
    """A pass that every round times."""

    context: int  # tokens in the cache
    n: int  # tokens of the pass, the root included
    shape: str = "chain"  # or "tree"


@dataclass(slots=True)
class Profile:
    """What was measured: lists of seconds, one entry per finished round or repetition."""

    passes: dict[PassCase, list[float]] = field(default_factory=dict)
    prefill: dict[int, list[float]] = field(default_factory=dict)  # prompt length -> reading it

    @property
    def rounds(self) -> int:
        """Finished rounds."""
        return min(map(len, self.passes.values()), default=0)

    @property
    def contexts(self) -> list[int]:
        """Context lengths with a finished round."""
        return sorted({case.context for case in self.passes})

    def line(self, context: int) -> dict[int, list[float]]:
        """Return n -> seconds of the chains at a context length, n ascending."""
        found = {c.n: seconds for c, seconds in self.passes.items() if (c.context, c.shape) == (context, "chain")}
        return dict(sorted(found.items()))

    def curve(self) -> CostCurve:
        """Return the medians as a curve; raises `UsageError` before a round is finished."""
        return CostCurve({c: {n: median(s) for n, s in self.line(c).items()} for c in self.contexts})

    def tree_ratios(self) -> dict[tuple[int, int], float]:
        """(context, n) -> seconds of a bushy tree / those of a chain as wide, the median over rounds."""
        found = {}
        for case, seconds in sorted(self.passes.items()):
            chain = self.passes.get(case._replace(shape="chain"), [])
            if case.shape == "tree" and chain:
                found[case.context, case.n] = median(a / b for a, b in zip(seconds, chain, strict=True))
        return found

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the records of its file, without the header."""
        ratios = self.tree_ratios()
        for case, seconds in sorted(self.passes.items()):
            kind, where = "pass" if case.shape == "chain" else "tree", (case.context, case.n)
            ratio = {"to_chain": ratios[where]} if kind == "tree" and where in ratios else {}
            yield {"row": kind, "context": case.context, "n": case.n, **spread(seconds), **ratio}
        for tokens, seconds in sorted(self.prefill.items()):
            yield {"row": "prefill", "tokens": tokens, **spread(seconds)}


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, quartiles and number of the measurements, under the names of the file."""
    q1, middle, q3 = quantiles(seconds, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 3
    return {"median_s": middle, "q1_s": q1, "q3_s": q3, "rounds": len(seconds)}


def write_profile(path: Path, measured: Profile, settings: Mapping[str, Any]) -> None:
    """Write a profile completely or not at all, for `CostCurve.load`; raises `RecordError` if it cannot be
    written. ``settings`` say what was measured: model, dtype, threads, device."""
    write_whole(path, [header("profile", settings, provenance()), *measured.rows()])
