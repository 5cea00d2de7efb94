"""Trains a module in a folder, and says how it stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch.nn import Module

from draftwood.training.gather import Gathered
from draftwood.training.loss import Loss
from draftwood.training.plan import OnProgress
from draftwood.training.train import Progress, Schedule, Training


def train(
    module: Module, loss: Loss, gathered: Gathered, schedule: Schedule, folder: Path, on_progress: OnProgress,
    describe: Callable[[Progress], str],
) -> Progress | None:  # fmt: skip
    """Train until the time of the schedule is over; None where it was stopped. Checkpoints lie in the folder.

    ``describe`` says what the agreement means. Raises `ModelError` where the loss is no number.
    """
    training = Training(module, loss, gathered.files, gathered.held_out, schedule, folder / "checkpoint.pt")
    stopped = False

    def told(progress: Progress) -> bool:
        nonlocal stopped
        said = f"training: loss {progress.loss:.3f}"
        if progress.agreement:
            said += f", {describe(progress)}"
        stopped = not on_progress(said, progress.seconds / schedule.seconds)
        return not stopped

    progress = training.run(told)
    return None if stopped else progress


def percentages(progress: Progress) -> str:
    """Return the agreement as whole numbers."""
    return " ".join(f"{100 * share:.0f}" for share in progress.agreement) + " %"
