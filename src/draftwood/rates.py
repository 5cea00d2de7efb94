"""Rates, derived from steps: the one place where the words of our tables are computed.

Definitions (Words, in docs/words.md) count decode steps only: the token that reading the prompt pays for
belongs to no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftwood.step import Step


@dataclass(frozen=True, slots=True)
class Rates:
    """What a sequence of steps amounts to.

    Attributes
    ----------
    tokens, passes
        Emitted tokens and target passes of all decode steps.
    drafted, accepted
        Draft nodes scored and accepted.
    mean_acceptance_length
        tokens / passes; 1.0 is plain decoding. 0.0 without a step.
    drafted_step_acceptance_length
        The same over steps that carried a draft.
    acceptance_rate
        accepted / drafted.
    accepted_per_cycle
        accepted / steps with a draft.
    draft_coverage
        Steps with a draft / passes.
    three_accepted
        Steps with at least three accepted draft nodes / steps with a draft.
    acceptance_by_position
        Per position from the first: drafts whose position was accepted / drafts that reached it.
    tokens_per_second
        tokens / seconds of the steps, reading the prompt excluded.
    seconds
        Of the steps, split: plan, draft, score, verify, keep, learn.
    """

    tokens: int
    passes: int
    drafted: int
    accepted: int
    mean_acceptance_length: float
    drafted_step_acceptance_length: float
    acceptance_rate: float
    accepted_per_cycle: float
    draft_coverage: float
    three_accepted: float
    acceptance_by_position: tuple[float, ...]
    tokens_per_second: float
    seconds: dict[str, float]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Rates:
        """Derive the rates of these steps; ratios without a denominator are 0."""
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
    """Walk down the positions while any draft reached them; a draft's branch is as long as its deepest node."""
    reached = range(1, 1 + max((s.depth for s in carried), default=0))
    return tuple(sum(s.accepted >= i for s in carried) / sum(s.depth >= i for s in carried) for i in reached)


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0
