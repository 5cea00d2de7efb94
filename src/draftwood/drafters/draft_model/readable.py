"""A text that a model with fewer tokens than its target may not be able to read."""

from __future__ import annotations

from typing import Any

import numpy as np

from draftwood.drafters.base import TextSession


class ReadableText(TextSession):
    """A session that knows whether its model has all tokens of the text. Each token is looked at once."""

    _readable = 0  # length of the beginning of the text that the model can read, as far as it was looked at

    def can_read(self, target: Any) -> bool:
        """Return whether every token of the text lies in the vocabulary of this model (a `Target`)."""
        beyond = np.flatnonzero(self.text[self._readable :] >= target.capabilities.vocab_size)
        self._readable = self._readable + int(beyond[0]) if len(beyond) else self._length
        return self._readable == self._length

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._readable = min(self._readable, self._length)

    def close(self) -> None:
        super().close()
        self._readable = 0
