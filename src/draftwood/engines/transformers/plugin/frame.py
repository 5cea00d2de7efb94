"""What ``model.generate`` was given and does not hand on to a callable."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor
from transformers import GenerationMixin


class KeptBack(NamedTuple):
    """What ``model.generate`` does not hand on to a callable; None where nothing was given. The first three are
    looked up in its call, the others are given to the callable when it is made."""

    streamer: Any = None
    synced_gpus: bool | None = None
    assistant_model: Any = None
    stop_strings: str | Sequence[str] | None = None
    tokenizer: Any = None
    seed: int | None = None


def kept_back(input_ids: Tensor) -> KeptBack:
    """Look up what the call of ``model.generate`` that calls us with these ids does not hand on: arguments that
    its own sampling method knows, such as the streamer. They are only in generate's own frame, known by its code
    and its very tensor of ids; where a callable is called by hand there is none."""
    code = getattr(GenerationMixin.generate, "__wrapped__", GenerationMixin.generate).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    known = {} if frame is None else frame.f_locals
    if known.get("input_ids") is not input_ids:
        return KeptBack()
    return KeptBack(*(known.get(name) for name in ("streamer", "synced_gpus", "assistant_model")))
