"""What the models of a cascade did for one draft, counted while it is written."""

from __future__ import annotations

from draftwood.step import RunningStep, StageStep, stages_of


class StageCounts:
    """Counts of one model and, by name, of the models that draft for it."""

    def __init__(self, name: str) -> None:
        self._own = StageStep(name)
        self._inner: tuple[StageStep, ...] = ()

    def add(self, seconds: float, step: RunningStep | None) -> None:
        """Count a pass of the model and everything around it; ``step`` is None where it only read text."""
        drafted, accepted = (0, 0) if step is None else (step.drafted, step.accepted)
        self._own += StageStep(self._own.name, 1, drafted, accepted, seconds)
        if step is not None:
            self._inner = stages_of((self._inner, *[source.stages for source in step.by_source]))

    def finished(self) -> tuple[StageStep, ...]:
        """Return the records, the model's own first; none where it was not needed."""
        return (self._own, *self._inner) if self._own.passes else ()
