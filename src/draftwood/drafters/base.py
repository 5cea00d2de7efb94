"""What drafters share: a frozen drafter with harmless defaults, and a session that follows the committed text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import (
    Drafter,
    DraftSession,
    DraftTexts,
    Feedback,
    Floats,
    Needs,
    Noise,
    Share,
    Takes,
    TokenFile,
)
from draftwood.errors import UsageError
from draftwood.tree import TokenTree


class BaseDrafter(ABC):
    """A drafter that needs nothing from the target and has one evidence class. Subclass as a frozen dataclass.

    The fields of the dataclass are the options that users write after the name (``name:key=value``).
    """

    name: ClassVar[str]

    @property
    def needs(self) -> Needs:
        return Needs()

    @property
    def prior(self) -> Floats:
        return np.full(1, 0.5, dtype=np.float32)

    @property
    def takes(self) -> Takes:
        return NOTHING_TAKEN

    @property
    def files(self) -> Sequence[TokenFile]:
        return ()

    def with_user_texts(self, texts: DraftTexts) -> Drafter:  # noqa: ARG002
        return self

    def detached(self, share: Share) -> Drafter:  # noqa: ARG002
        return self

    def remember(self, ids: Sequence[int]) -> None:  # noqa: B027 - most drafters remember nothing
        pass

    @abstractmethod
    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession: ...


NOTHING_TAKEN = Takes()


def draft_tree(
    tokens: NDArray[np.int32],
    evidence: NDArray[np.int16],
    belief: Floats,
    parents: NDArray[np.int32] | None = None,
) -> TokenTree:
    """Return a tree of draft nodes; without ``parents`` it is a chain.

    The columns that all such trees share are made once per size, since this runs every step.
    """
    chain, source, nan, drafts = _shared(len(tokens))
    is_chain = parents is None or bool((parents == chain).all())
    up = chain if parents is None else parents
    return TokenTree(tokens, up, belief, source, evidence, nan, drafts, is_chain=is_chain)


@lru_cache(maxsize=256)
def _shared(n: int) -> tuple[NDArray[np.int32], NDArray[np.int16], Floats, NDArray[np.bool_]]:
    """Parents of a chain, source, the draft probability that nobody gave, not probes."""
    return (
        np.arange(-1, n - 1, dtype=np.int32),
        np.zeros(n, dtype=np.int16),
        np.full(n, np.nan, dtype=np.float32),
        np.zeros(n, dtype=np.bool_),
    )


class TextSession(ABC):
    """A session that holds the committed text and learns from tokens only.

    Subclasses write `draft`, and override `extend`, `truncate` and `fork` where they index the text.
    """

    def __init__(self, ids: Sequence[int] | NDArray[Any] = ()) -> None:
        self._buffer = np.empty(max(1024, 2 * len(ids)), dtype=np.int32)
        self._length = 0
        self.extend(ids)

    match_length = 0

    @property
    def text(self) -> NDArray[np.int32]:
        """The committed text, int32[length]; a view."""
        return self._buffer[: self._length]

    @abstractmethod
    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree: ...

    def learn(self, feedback: Feedback) -> None:
        self.extend(feedback.emitted)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        end = self._length + len(ids)
        if end > len(self._buffer):
            bigger = np.empty(2 * end, dtype=np.int32)
            bigger[: self._length] = self.text
            self._buffer = bigger
        new = self._buffer[self._length : end]
        new[:] = ids
        if len(new) and new.min() < 0:  # kernels mark ends of texts by negative numbers
            raise UsageError("token ids must not be negative")
        self._length = end

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        self.extend(ids)

    def truncate(self, length: int) -> None:
        self._length = min(length, self._length)

    def fork(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._buffer = self._buffer.copy()
        return twin

    def close(self) -> None:
        self._buffer, self._length = np.empty(0, dtype=np.int32), 0
