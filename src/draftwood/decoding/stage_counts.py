"""What the models of a cascade did for one draft, counted while it is written."""

from __future__ import annotations

from draftwood.step import RunningStep, StageStep


class StageCounts:
    """Counts of one model and, by name, of the models that draft for it."""

    def __init__(self, name: str) -> None:
        self._own = StageStep(name)
        self._inner: dict[str, StageStep] = {}

    def add(self, seconds: float, step: RunningStep | None) -> None:
        """Count a pass of the model and everything around it; ``step`` is None where it only read text."""
        drafted, accepted = (0, 0) if step is None else (step.drafted, step.accepted)
        self._own = _sum(self._own, StageStep(self._own.name, 1, drafted, accepted, seconds))
        for source in () if step is None else step.by_source:
            for stage in source.stages:
                self._inner[stage.name] = _sum(self._inner.get(stage.name, StageStep(stage.name)), stage)

    def finished(self) -> tuple[StageStep, ...]:
        """Return the records, the model's own first; none where it was not needed."""
        return (self._own, *self._inner.values()) if self._own.passes else ()


def _sum(one: StageStep, other: StageStep) -> StageStep:
    return StageStep(
        one.name, one.passes + other.passes, one.proposed + other.proposed, one.accepted + other.accepted,
        one.seconds + other.seconds,
    )  # fmt: skip
