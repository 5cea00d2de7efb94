"""The same answer again and again for minutes, to see whether the machine keeps its pace (source document 2)."""

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
    """What minutes of one arm gave, an interrupt included.

    Attributes
    ----------
    arm
        Its label.
    windows
        Per answer: seconds since the start, tokens per second of decoding, degrees Celsius where told.
    """

    arm: str
    windows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> tuple[float, float] | None:
        """Mean of the first and of the last quarter of the time; None for fewer than four answers."""
        if len(self.windows) < 4:
            return None
        end = self.windows[-1]["at_s"]
        first = [w["tokens_per_second"] for w in self.windows if w["at_s"] <= end / 4] or [
            self.windows[0]["tokens_per_second"]
        ]
        last = [w["tokens_per_second"] for w in self.windows if w["at_s"] >= 3 * end / 4]
        return sum(first) / len(first), sum(last) / len(last)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready row of kind ``sustained``."""
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
    """Let arms answer one prompt in turns until ``seconds`` are over.

    In turns, so that what the machine does happens to all of them; one prompt, so that only the machine changes.

    Parameters
    ----------
    bench
        Runs the answers.
    arms, job
        Who answers what.
    seconds
        Of the whole.
    into
        Filled while time passes, one entry per arm.
    on_answer
        Told arm and seconds so far after each answer.
    """
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
