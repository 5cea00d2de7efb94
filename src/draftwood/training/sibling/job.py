"""The whole of ``draftwood distil``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from draftwood.errors import UsageError
from draftwood.training.gather import Gatherer
from draftwood.training.loss import Batch, Result, Teacher, cross_entropy
from draftwood.training.plan import OnProgress, Plan
from draftwood.training.run import percentages, train
from draftwood.training.sibling.module import SiblingModule, layers_of, sibling_of
from draftwood.training.train import Progress, Schedule


@dataclass(frozen=True, slots=True)
class Sibling:
    """What `SiblingJob` made: a model of transformers in float32, and which layers of its target it began as."""

    model: Any
    layers: tuple[int, ...]
    progress: Progress


class SiblingJob:
    """Makes one sibling in a folder of its own; parameters and errors are those of `HeadJob`."""

    def __init__(self, model: Any, tokenizer: Any, folder: Path, plan: Plan) -> None:
        self._model, self._folder, self._plan = model, folder, plan
        self._gatherer = Gatherer(model, tokenizer, folder, plan, "distil")
        layers_of(model)
        n_layers = self._gatherer.target.n_layers
        self.layers = plan.layers or usual_layers(n_layers)
        wrong = not all(0 <= layer < n_layers for layer in self.layers)
        if wrong or list(self.layers) != sorted(set(self.layers)) or len(self.layers) >= n_layers:
            raise UsageError(
                f"--layers {list(self.layers)}: name fewer than {n_layers} layers of the model, 0 to "
                f"{n_layers - 1}, ascending"
            )

    def run(self, on_progress: OnProgress) -> Sibling | None:
        """Do all that is left to do; None where it was stopped. Raises as `HeadJob.run`."""
        gathered = self._gatherer.gather((), on_progress)
        if gathered is None:
            return None
        torch.manual_seed(self._plan.seed)
        module = SiblingModule(sibling_of(self._model, self.layers))
        schedule = Schedule(self._plan.train_seconds, 1, self._plan.rate, seed=self._plan.seed)

        def loss(batch: Batch, _: int) -> Result:
            return loss_of(module, gathered.teacher, batch)

        def described(progress: Progress) -> str:
            return f"agreement {percentages(progress)}"

        progress = train(module, loss, gathered, schedule, self._folder, on_progress, described)
        return None if progress is None else Sibling(module.model, self.layers, progress)


def usual_layers(n_layers: int) -> tuple[int, ...]:
    """Return the layers of which a sibling is made: the first, one in the middle, and the last.

    Raises `UsageError` for a model of so few layers that a sibling would be as slow.
    """
    if n_layers < 4:
        raise UsageError(f"the model has {n_layers} layers: a sibling of it would be as slow; use other drafters")
    return (0, n_layers // 2, n_layers - 1)


def loss_of(module: SiblingModule, teacher: Teacher, batch: Batch) -> Result:
    """Return the mean cross-entropy of a sibling's scores against the target's."""
    wanted = teacher.distribution(batch.last).flatten(0, 1)
    normed = module(batch.ids).flatten(0, 1).to(teacher.rows.dtype)
    entropy, found = cross_entropy(normed, teacher.rows, wanted)
    loss = entropy / len(normed)
    agreement = (found == wanted.argmax(-1)).double().mean()
    return Result(loss, float(loss.detach()), agreement[None].detach(), batch.ids.numel())
