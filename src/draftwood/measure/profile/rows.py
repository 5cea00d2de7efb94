"""What a profile holds: seconds of each case per round, and the rows of a file made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, NamedTuple

from draftwood.planning.cost_curve import CostCurve


class Case(NamedTuple):
    """One thing that every round times: a pass over ``n`` tokens, as a chain or as a tree."""

    context: int
    n: int
    shape: str = "chain"


@dataclass(slots=True)
class Profile:
    """What was measured; seconds throughout, one entry per round.

    Attributes
    ----------
    passes
        Of each case, rounds that were finished only.
    prefill
        Prompt length -> seconds of reading it.
    sampling
        Kind -> seconds of choosing one token from its scores.
    memory
        Bytes per second that this machine reads, with the threads in use; None where not measured.
    pass_bytes
        Bytes of weights that one pass reads; None where the target does not tell.
    """

    passes: dict[Case, list[float]] = field(default_factory=dict)
    prefill: dict[int, list[float]] = field(default_factory=dict)
    sampling: dict[str, list[float]] = field(default_factory=dict)
    memory: float | None = None
    pass_bytes: int | None = None

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

    @property
    def memory_share(self) -> float | None:
        """Which share of the memory speed a pass over one token reaches; None where something is unknown."""
        if not self.contexts or not self.memory or not self.pass_bytes:
            return None
        line = self.line(self.contexts[0])
        return self.pass_bytes / median(line[1]) / self.memory if 1 in line else None

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
        """Yield the rows of a file, its header excepted."""
        ratios = self.tree_ratios()
        for case, seconds in sorted(self.passes.items()):
            if case.shape == "chain":
                yield {"row": "pass", "context": case.context, "n": case.n, **spread(seconds)}
            else:
                ratio = {"to_chain": ratios[case.context, case.n]} if (case.context, case.n) in ratios else {}
                yield {"row": "tree", "context": case.context, "n": case.n, **spread(seconds), **ratio}
        for tokens, seconds in sorted(self.prefill.items()):
            yield {"row": "prefill", "tokens": tokens, **spread(seconds)}
        for kind, seconds in self.sampling.items():
            yield {"row": "sampling", "kind": kind, **spread(seconds)}
        if self.memory is not None:
            known = {"bytes_per_second": self.memory, "pass_bytes": self.pass_bytes, "share": self.memory_share}
            yield {"row": "memory", **known}


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, quartiles and number of the measurements, as a row writes them."""
    q1, middle, q3 = quantiles(seconds, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 3
    return {"median_s": middle, "q1_s": q1, "q3_s": q3, "rounds": len(seconds)}
