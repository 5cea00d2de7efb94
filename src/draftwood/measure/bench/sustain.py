"""Repeats one answer for minutes to see whether the machine keeps its pace (source document 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from draftwood.measure.bench.arms import Arm
from draftwood.measure.bench.run import Bench
from draftwood.measure.prompt_files import Job


@dataclass(slots=True)
class Sustained:
    """The pace of one arm over time."""

    arm: str  # its label
    # Per answer: at_s (seconds since the start), tokens_per_second of decoding, celsius where known.
    windows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> tuple[float, float] | None:
        """Mean of the first and of the last quarter of the time; None for fewer than four answers."""
        if len(self.windows) < 4:
            return None
        end = self.windows[-1]["at_s"]
        first = [w for w in self.windows if w["at_s"] <= end / 4] or self.windows[:1]
        last = [w for w in self.windows if w["at_s"] >= 3 * end / 4]
        before, after = (sum(w["tokens_per_second"] for w in part) / len(part) for part in (first, last))
        return before, after

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready record of kind ``sustained``."""
        pace = self.tokens_per_second
        return {
            "row": "sustained",
            "drafter": self.arm,
            "first_quarter": pace[0] if pace else None,
            "last_quarter": pace[1] if pace else None,
            "kept": pace[1] / pace[0] if pace and pace[0] else None,
            "windows": self.windows,
        }


def sustain(
    bench: Bench, arms: Sequence[Arm], job: Job, seconds: float, into: list[Sustained],
    on_answer: Callable[[str, float], None] = lambda _arm, _elapsed: None,
) -> None:  # fmt: skip
    """Let the arms answer one prompt by turns, so that the machine's changes affect all alike, until ``seconds``
    have passed. ``into`` gets an entry per arm and grows with time; ``on_answer`` is called with the arm's label
    and the seconds so far."""
    into += [Sustained(arm.label) for arm in arms]
    for arm in arms:
        bench.warm(arm, job)
    started = perf_counter()
    while perf_counter() - started < seconds:
        for arm, found in zip(arms, into, strict=True):
            arm.begin_round()
            answer = bench.answer(arm, job, 1)
            elapsed = perf_counter() - started
            if answer.decode_s:
                pace = (len(answer.output_ids) - 1) / answer.decode_s
                window = {"at_s": round(elapsed, 3), "tokens_per_second": pace, "celsius": answer.celsius}
                found.windows.append({name: value for name, value in window.items() if value is not None})
            on_answer(arm.label, elapsed)
