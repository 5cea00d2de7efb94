"""A streamer of transformers, fed as transformers feeds it: the prompt, then one token at a time, then the end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Self

import torch
from torch import Tensor

from draftwood.errors import UsageError


class Feed:
    """Feeds one streamer, or none: ``ours`` was given to the callable and has seen nothing yet, ``theirs`` to
    ``model.generate``, which has put the prompt already."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self._streamer = ours if theirs is None else theirs
        self._other = ours if ours is not self._streamer else None
        self._prompt_is_put = theirs is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Call the streamer's ``end``, however the block is left: a reader may wait for it."""
        if kind is None:
            if self._streamer is not None:
                self._streamer.end()
            return
        for streamer in (self._streamer, self._other):
            if streamer is not None:
                with suppress(Exception):  # the first error is the one to report
                    streamer.end()

    def prompt(self, input_ids: Tensor) -> None:
        """Put the prompt, unless ``model.generate`` has."""
        if self._other is not None:
            raise UsageError("two streamers were given, to generate() and to decode_with(): give one")
        if self._streamer is None:
            return
        if len(input_ids) > 1:
            raise UsageError(f"a streamer takes one text and the batch has {len(input_ids)}: leave streamer out")
        if not self._prompt_is_put:
            self._streamer.put(input_ids.cpu())

    def token(self, token: int) -> None:
        """Put one token."""
        if self._streamer is not None:
            self._streamer.put(torch.tensor([token]))
