"""A streamer of transformers, fed as transformers feeds it: the prompt, then one token at a time, then the end."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any, Self

import torch
from torch import Tensor

from draftwood.errors import UsageError


class Feed:
    """Feeds one streamer, or none: ``ours`` was given to the callable and has seen nothing yet, ``theirs`` to
    ``model.generate``, which has put the prompt already."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        given = (theirs,) if ours is theirs else (theirs, ours)
        self._streamers = [streamer for streamer in given if streamer is not None]
        self._prompt_is_put = theirs is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Call the streamer's ``end``, however the block is left: a reader may wait for it."""
        for streamer in self._streamers:
            with nullcontext() if kind is None else suppress(Exception):  # the first error is the one to report
                streamer.end()

    def prompt(self, input_ids: Tensor) -> None:
        """Put the prompt, unless ``model.generate`` has."""
        if len(self._streamers) > 1:
            raise UsageError("two streamers were given, to generate() and to decode_with(): give one")
        if self._streamers and len(input_ids) > 1:
            raise UsageError(f"a streamer takes one text and the batch has {len(input_ids)}: leave streamer out")
        for streamer in [] if self._prompt_is_put else self._streamers:
            streamer.put(input_ids.cpu())

    def token(self, token: int) -> None:
        """Put one token."""
        for streamer in self._streamers:
            streamer.put(torch.tensor([token]))
