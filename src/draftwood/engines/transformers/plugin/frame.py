"""What ``model.generate`` was given and does not hand on to a callable."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor
from transformers import GenerationMixin


class KeptBack(NamedTuple):
    """Arguments of ``model.generate`` that never reach a callable; None where nothing was given."""

    streamer: Any = None
    synced_gpus: bool | None = None
    assistant_model: Any = None


def kept_back(input_ids: Tensor) -> KeptBack:
    """Look up what the call of ``model.generate`` that calls us with these ids has kept to itself.

    transformers hands a callable only arguments that its own sampling method does not know, so a streamer would
    get the prompt, then nothing, and never its end: whoever reads a ``TextIteratorStreamer`` would wait for ever.
    There is no other way to them than generate's own frame. It is told by its code and by its very tensor of ids,
    and only read; without such a frame (a callable called by hand) there is nothing to look up.
    """
    code = getattr(GenerationMixin.generate, "__wrapped__", GenerationMixin.generate).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    if frame is None:
        return KeptBack()
    known = frame.f_locals
    if known.get("input_ids") is not input_ids:
        return KeptBack()
    return KeptBack(*(known.get(name) for name in KeptBack._fields))
