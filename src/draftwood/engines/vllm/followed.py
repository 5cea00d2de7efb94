"""One request that vLLM writes: its text, where its answer begins, the sessions of its drafters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, Ints
from draftwood.decoding.draft_source import DraftSource
from draftwood.drafters.ngram.chains import ChainText
from draftwood.tree import TokenTree

_EMPTY = TokenTree.empty()
_NO_NODES: Ints = np.empty(0, dtype=np.int32)
_NO_NODES.flags.writeable = False


class Followed:
    """A request.

    Attributes
    ----------
    text
        Its tokens, indexed.
    start
        How many of them are the prompt's.
    namespace
        Whose memory it reads and writes.
    others
        Drafters that are asked text by text.
    """

    def __init__(
        self, text: ChainText, start: int, namespace: str = "", others: Sequence[DraftSource] = ()
    ) -> None:
        self.text, self.start, self.namespace, self.others = text, start, namespace, tuple(others)
        self._opened = False
        self._remembered = 0  # tokens of the text when its answer was last remembered

    def tell_others(self, ids: NDArray[np.int32], told: int) -> None:
        """Tell the other drafters of all tokens from the ``told``-th on; ``ids`` is the whole text."""
        if not self.others:
            return
        if not self._opened or self.start > told:  # an answer begins
            prompt, answer = ids[told if self._opened else 0 : self.start].tolist(), ids[self.start :].tolist()
            for source in self.others:
                source.extend(prompt) if self._opened else source.open(prompt, None)
                source.begin_answer(answer)
            self._opened = True
            return
        new = tuple(ids[told:].tolist())
        choice = np.array(new[:1], dtype=np.int32)
        choice.flags.writeable = False
        for source in self.others:
            source.learn(Feedback(_EMPTY, _EMPTY, _NO_NODES, (), new, choice))

    def unremembered(self) -> Ints | None:
        """Return the answer, if it has grown since it was last asked for; the caller remembers it."""
        length = len(self.text)
        if length <= max(self.start, self._remembered):
            return None
        self._remembered = length
        return self.text.ids[self.start :].copy()

    def close(self) -> None:
        """Close the other drafters' sessions."""
        for source in self.others:
            source.close()
