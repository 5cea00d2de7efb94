"""Rates, computed from steps; docs/words.md defines them.

They count decode steps only: the first token, which comes from reading the prompt, belongs to no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftwood.step import Step


@dataclass(frozen=True, slots=True)
class Rates:
    """Counts and ratios over some steps; a ratio without a denominator is 0."""

    tokens: int  # emitted
    passes: int
    drafted: int  # draft nodes scored
    accepted: int  # draft nodes accepted
    mean_acceptance_length: float  # tokens / passes; 1.0 is plain decoding
    drafted_step_acceptance_length: float  # the same over steps with a draft
    acceptance_rate: float  # accepted / drafted
    accepted_per_cycle: float  # accepted / steps with a draft
    draft_coverage: float  # steps with a draft / passes
    three_accepted: float  # steps with at least three accepted draft nodes / steps with a draft
    acceptance_by_position: tuple[float, ...]  # drafts accepted up to each position / drafts that reached it
    tokens_per_second: float  # tokens / seconds, without reading the prompt
    seconds: dict[str, float]  # of the parts: plan, draft, score, verify, keep, learn

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Rates:
        """Compute the rates of these steps."""
        carried = [s for s in steps if s.drafted]
        tokens = sum(len(s.emitted) for s in steps)
        drafted, accepted = sum(s.drafted for s in steps), sum(s.accepted for s in steps)
        parts = ("plan", "draft", "score", "verify", "keep", "learn")
        seconds = {part: sum(getattr(s, f"{part}_s") for s in steps) for part in parts}
        return cls(
            tokens=tokens,
            passes=len(steps),
            drafted=drafted,
            accepted=accepted,
            mean_acceptance_length=_ratio(tokens, len(steps)),
            drafted_step_acceptance_length=_ratio(sum(len(s.emitted) for s in carried), len(carried)),
            acceptance_rate=_ratio(accepted, drafted),
            accepted_per_cycle=_ratio(accepted, len(carried)),
            draft_coverage=_ratio(len(carried), len(steps)),
            three_accepted=_ratio(sum(s.accepted >= 3 for s in carried), len(carried)),
            acceptance_by_position=_by_position(carried),
            tokens_per_second=_ratio(tokens, sum(seconds.values())),
            seconds=seconds,
        )


def _by_position(carried: Sequence[Step]) -> tuple[float, ...]:
    """Return the share of drafts accepted at each position, over the drafts whose deepest node reached it."""
    reached = range(1, 1 + max((s.depth for s in carried), default=0))
    return tuple(sum(s.accepted >= i for s in carried) / sum(s.depth >= i for s in carried) for i in reached)


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0
