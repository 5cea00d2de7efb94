"""Hidden states of texts, read by the target once and kept on disk in bfloat16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from draftwood.contracts import Watch
from draftwood.errors import ModelError
from draftwood.files.paths import whole_file
from draftwood.training.target import TrainingTarget
from draftwood.training.texts import Text

_SHARD = 128 << 20  # bytes of a file, of which four are in memory at once
_ROUNDING = 0.05  # most by which bfloat16, or inputs of products in 8 bits, change a probability
_BEST = 1024  # tokens that are compared: they hold nearly all of the probability
_NOTHING = np.empty(0, dtype=np.int64)


class Passage(NamedTuple):
    """Some consecutive tokens of one text."""

    ids: Tensor  # int64[n]
    states: Tensor  # of all layers that the head reads, side by side, bfloat16[n, layers * width]
    last: Tensor  # what the target scores tokens by, after the final norm, bfloat16[n, width]


def _shown(target: Any, ids: Sequence[int], layers: Sequence[int]) -> tuple[dict[int, Tensor], Any]:
    """Read a text by a target that shows hidden states; returns those of these layers, and the last scores."""
    seen: list[Any] = []
    watch = Watch(lambda *_: None, _NOTHING, tuple(layers), lambda _, states: seen.append(states))
    ((session, scores),) = target.open([ids], watch=[watch])
    session.close()
    return {layer: torch.cat([torch.as_tensor(some[layer]) for some in seen]) for layer in layers}, scores


def read_states(target: Any, text: Text, layers: Sequence[int]) -> Passage:
    """Return the states of a text."""
    end = max(target.capabilities.hidden)
    shown, _ = _shown(target, text.ids, sorted({*layers, end}))
    found = {layer: states.to("cpu", torch.bfloat16) for layer, states in shown.items()}
    return Passage(torch.tensor(text.ids), torch.cat([found[layer] for layer in layers], -1), found[end])


def scores_by_rows(target: TrainingTarget) -> bool:
    """Whether a target's scores are the product of its last states and its table's rows."""
    shown, scores = _shown(target.target, [1, 2, 3], (target.layers,))
    told = torch.tensor(scores.raw(0).tolist())
    told, best = told.topk(min(len(told), _BEST))
    rows = target.scoring_rows(best.to(target.device))
    made = (rows @ shown[target.layers][-1].to(rows.dtype)).float().cpu()
    return bool((made.softmax(-1) - told.softmax(-1)).abs().max() < _ROUNDING)


class StateFiles:
    """States and ids of texts in files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._kept: list[Passage] = []
        self._bytes = 0

    @property
    def texts(self) -> int:
        """Texts in whole files."""
        return sum(int(name.stem.split("-")[2]) for name in self.files())

    def files(self) -> list[Path]:
        """Return the files, in the order in which they were written."""
        return sorted(self._folder.glob("states-*.safetensors"))

    def add(self, window: Passage) -> None:
        """Take in a text; a file is written when there is enough for one."""
        self._kept.append(window)
        self._bytes += window.states.nbytes + window.last.nbytes
        if self._bytes >= _SHARD:
            self.flush()

    def flush(self) -> None:
        """Write what was taken in, completely or not at all."""
        if not self._kept:
            return
        number = len(self.files())
        path = self._folder / f"states-{number:05d}-{len(self._kept)}.safetensors"
        lengths = torch.tensor([len(one.ids) for one in self._kept])
        joined = {name: torch.cat([getattr(one, name) for one in self._kept]) for name in Passage._fields}
        with whole_file(path, error=ModelError) as beside:
            beside.write_bytes(save({**joined, "lengths": lengths}))
        self._kept, self._bytes = [], 0

    def remove(self) -> None:
        """Remove the files, the last first: what Ctrl-C leaves is the first texts."""
        for file in reversed(self.files()):
            file.unlink()

    @staticmethod
    def windows(path: Path) -> Iterator[Passage]:
        """Yield the texts of a file."""
        try:
            with safe_open(path, framework="pt") as file:
                lengths = file.get_tensor("lengths").tolist()
                parts = [file.get_tensor(name).split(lengths) for name in Passage._fields]
        except SafetensorError as error:
            raise ModelError(f"{path} is damaged: remove {path.parent}, and the same command goes on") from error
        for window in zip(*parts, strict=True):
            yield Passage(*window)
