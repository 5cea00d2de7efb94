"""Trains a module on states that lie on disk; goes on where it was interrupted."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from draftwood.errors import ModelError
from draftwood.files.paths import whole_file
from draftwood.training.loss import Loss, Windows
from draftwood.training.states import Passage, StateFiles

_CHECK = 60.0  # seconds between two checkpoints, or a hundredth of the training if that is longer
_WARM = 100  # steps during which the learning rate rises


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how a module is trained."""

    seconds: float  # in all, interruptions not counted; the learning rate falls towards their end
    steps: int = 4  # unrolled steps of the head
    rate: float = 1e-3  # highest learning rate
    length: int = 256  # tokens of a window
    batch: int = 2  # windows of a batch
    every: int = 4  # one update in so many trains all steps, the others the first alone, in a third of the time
    seed: int = 0  # of the order of windows


@dataclass(slots=True)
class Progress:
    """Where a training stands."""

    seconds: float = 0.0  # of training so far
    updates: int = 0
    tokens: int = 0  # a token counts each time that it is trained on
    loss: float = math.nan  # cross-entropy of the first step, lately
    agreement: tuple[float, ...] = ()  # on held-out windows, as in `draftwood.training.loss.Result`
    # After each minute or more: seconds, updates, tokens, loss, and the agreement.
    history: list[tuple[float, ...]] = field(default_factory=list)

    @property
    def expected_tokens(self) -> float:
        """Tokens per pass with chains as long as the unrolled steps, if each agreement were independent."""
        return 1.0 + sum(accumulate(self.agreement, operator.mul))

    def __str__(self) -> str:
        said = f"training: loss {self.loss:.3f}"
        if self.agreement:
            said += f", agreement {' '.join(f'{100 * share:.0f}' for share in self.agreement)} %"
            said += f", {self.expected_tokens:.2f} tokens per pass"
        return said


class Training:
    """One module under training.

    ``held_out`` are windows to judge by; ``checkpoint``: where all is kept.
    """

    def __init__(
        self, module: Module, loss: Loss, held_out: Sequence[Passage], schedule: Schedule, checkpoint: Path
    ) -> None:
        self.module, self._loss, self._held_out = module, loss, held_out
        self.schedule, self._checkpoint = schedule, checkpoint
        self._device = next(module.parameters()).device
        self._optimizer = torch.optim.AdamW(module.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
        self.progress = Progress()
        self._restore()

    def until(self, number: int, sections: Sequence[Any]) -> float:
        """Return the seconds of training after which the section of this number, from 1, is over."""
        return self.schedule.seconds * number / len(sections)

    def end_within(self, seconds: float) -> None:
        """Shorten the schedule, if it would last longer than so many seconds from now."""
        most = min(self.schedule.seconds, self.progress.seconds + seconds)
        self.schedule = replace(self.schedule, seconds=most)

    def run(
        self, files: Sequence[Path], on_update: Callable[[Progress], bool], until: float = math.inf
    ) -> Progress:
        """Train on states in files until the training has lasted ``until`` seconds, or those of its schedule, or
        ``on_update`` returns False; then write a checkpoint.

        Raises `ModelError` where the loss is no number; the last checkpoint is kept.
        """
        started, before = monotonic(), self.progress.seconds
        saved, check = started, max(_CHECK, self.schedule.seconds / 100)
        for batch in self._batches(files):
            self._update(batch)
            now = monotonic()
            self.progress.seconds = before + now - started
            over = self.progress.seconds >= min(until, self.schedule.seconds)
            if over or now - saved > check:
                self.judge()
            if not over and now - saved > check:
                self.save()
                saved = now
            if not on_update(self.progress) or over:
                break
        self.save()
        return self.progress

    def _update(self, batch: Windows) -> None:
        share = min(1.0, self.progress.seconds / self.schedule.seconds)
        warm = min(1.0, (self.progress.updates + 1) / _WARM)
        for group in self._optimizer.param_groups:
            group["lr"] = self.schedule.rate * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))
        steps = 1 if self.progress.updates % self.schedule.every else self.schedule.steps
        with self._fast():
            result = self._loss(batch, steps)
        if not math.isfinite(float(result.loss.detach())):
            done = f"the loss is not a number after {self.progress.updates} updates"
            raise ModelError(f"{done}: the same command goes on from the last checkpoint")
        self._optimizer.zero_grad(set_to_none=True)
        result.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self._optimizer.step()
        known = self.progress.loss
        self.progress.loss = result.first if math.isnan(known) else 0.98 * known + 0.02 * result.first
        self.progress.updates += 1
        self.progress.tokens += result.tokens

    def judge(self) -> tuple[float, ...]:
        """Measure the agreement on held-out windows, and note it."""
        now = self.progress
        now.agreement = self.agreement()
        now.history.append((now.seconds, now.updates, now.tokens, now.loss, *now.agreement))
        return now.agreement

    @torch.no_grad()
    def agreement(self) -> tuple[float, ...]:
        """Return the agreement on held-out windows."""
        found, weight = torch.zeros((), dtype=torch.float64), 0
        for batch in _batched(iter(self._held_out), self.schedule.length, self.schedule.batch, self._device):
            with self._fast():
                result = self._loss(batch, self.schedule.steps)
            found = found + result.agreement.cpu() * result.tokens
            weight += result.tokens
        return tuple((found / weight).tolist()) if weight else ()

    def _fast(self) -> Any:
        return torch.autocast(self._device.type, torch.bfloat16)

    def _batches(self, every: Sequence[Path]) -> Iterator[Windows]:
        """Yield batches for ever, each epoch in another order; a run that goes on begins a new epoch."""
        chance = random.Random(f"{self.schedule.seed} {self.progress.updates}")
        while True:
            files = list(every)
            chance.shuffle(files)
            for several in (files[at : at + 4] for at in range(0, len(files), 4)):
                windows = [window for path in several for window in StateFiles.windows(path)]
                chance.shuffle(windows)
                yield from _batched(iter(windows), self.schedule.length, self.schedule.batch, self._device)

    def save(self) -> None:
        """Write the checkpoint, completely or not at all."""
        kept = {"module": self.module.state_dict(), "optimizer": self._optimizer.state_dict()}
        written = BytesIO()  # a full disk is an OSError where bytes are written, and not always in torch.save
        torch.save({**kept, "progress": asdict(self.progress)}, written)
        with whole_file(self._checkpoint, error=ModelError) as beside:
            beside.write_bytes(written.getbuffer())

    def _restore(self) -> None:
        if not self._checkpoint.exists():
            return
        try:
            kept = torch.load(self._checkpoint, map_location="cpu", weights_only=True)  # of a card, perhaps
        except Exception as error:  # whatever torch raises
            raise ModelError(f"{self._checkpoint} is damaged: remove it, and the same command goes on") from error
        self.module.load_state_dict(kept["module"])
        self._optimizer.load_state_dict(kept["optimizer"])
        self.progress = Progress(**kept["progress"])


def _batched(windows: Iterator[Passage], length: int, size: int, device: torch.device) -> Iterator[Windows]:
    """Put texts one after another and cut them into windows of equal length: few tokens are lost.

    Texts that are shorter than one window all together are one of their own length.
    """
    kept: list[Passage] = []
    some = False
    tokens, need = 0, length * size
    for window in windows:
        kept.append(window)
        tokens += len(window.ids)
        if tokens >= need:
            yield _batch(kept, length, size, device)
            kept, tokens, some = [], 0, True
    if tokens >= length:
        yield _batch(kept, length, tokens // length, device)
    elif tokens and not some:
        yield _batch(kept, tokens, 1, device)


def _batch(windows: Sequence[Passage], length: int, size: int, device: torch.device) -> Windows:
    def laid(name: str) -> Tensor:
        joined = torch.cat([getattr(window, name) for window in windows])[: length * size]
        return joined.view(size, length, *joined.shape[1:]).to(device)

    return Windows(laid("ids"), laid("states"), laid("last"))
