"""One training: what is asked for, and the steps that every kind of it takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.nn import Module

from draftwood.training.gather import Gatherer, OnProgress
from draftwood.training.loss import Loss, Teacher
from draftwood.training.train import Progress, Schedule, Training


@dataclass(frozen=True, slots=True)
class Plan:
    """How something is trained for a model.

    Attributes
    ----------
    text_seconds, train_seconds
        For writing text, and for training.
    vocabulary
        Tokens that a head can say; a sibling is judged by these.
    layers
        A head: whose states it reads. A sibling: the layers that it is made of. Empty: the usual ones.
    steps
        Tokens in a row that a head is trained to foretell.
    rate, seed
        Highest learning rate; seed of texts and of their order.
    files
        Further texts to train on.
    written
        Texts that an earlier run has written, instead of new ones.
    """

    text_seconds: float = 1800.0
    train_seconds: float = 1800.0
    vocabulary: int = 8192
    layers: tuple[int, ...] = ()
    steps: int = 4
    rate: float = 1e-3
    seed: int = 0
    files: tuple[Path, ...] = ()
    written: Path | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """What was trained, the tokens that it was judged by (ascending), and its figures."""

    module: Any
    ids: list[int]
    progress: Progress


class Job(ABC):
    """Trains one module in a folder of its own.

    Making the object writes nothing, and raises `CapabilityError`, `ModelError` or `UsageError` for a model, texts
    or layers of which nothing can be made.

    Parameters
    ----------
    model, tokenizer
        Of the target, a model of transformers.
    folder
        Where text, states and checkpoints lie; the caller removes it.
    plan
        How it is made.
    """

    command: ClassVar[str]

    def __init__(self, model: Any, tokenizer: Any, folder: Path, plan: Plan) -> None:
        self.model, self.plan, self._folder = model, plan, folder
        self._gatherer = Gatherer(
            model, tokenizer, folder, self.command, seconds=plan.text_seconds, vocabulary=plan.vocabulary,
            seed=plan.seed, files=plan.files, written=plan.written,
        )  # fmt: skip
        self.target = self._gatherer.target
        self.layers = self.chosen_layers()

    @abstractmethod
    def chosen_layers(self) -> tuple[int, ...]:
        """Return the layers of the plan, or the usual ones; raises `UsageError` for impossible ones."""

    @property
    def read_layers(self) -> tuple[int, ...]:
        """The layers whose states are read."""
        return self.layers

    @abstractmethod
    def begin(self, teacher: Teacher) -> tuple[Module, Loss, int]:
        """Return a module to train, its loss, and the steps that it is unrolled for."""

    def run(self, on_progress: OnProgress) -> Made | None:
        """Do all that is left to do; None where it was stopped.

        Raises `ModelError` where the disk is full or the loss is no number: what was written before is kept.
        """
        gathered = self._gatherer.gather(self.read_layers, on_progress)
        if gathered is None:
            return None
        torch.manual_seed(self.plan.seed)
        module, loss, steps = self.begin(gathered.teacher)
        schedule = Schedule(self.plan.train_seconds, steps, self.plan.rate, seed=self.plan.seed)
        checkpoint = self._folder / "checkpoint.pt"
        training = Training(module, loss, gathered.files, gathered.held_out, schedule, checkpoint)
        stopped = False

        def told(progress: Progress) -> bool:
            nonlocal stopped
            stopped = not on_progress(str(progress), progress.seconds / schedule.seconds)
            return not stopped

        progress = training.run(told)
        return None if stopped else Made(module, gathered.ids, progress)
