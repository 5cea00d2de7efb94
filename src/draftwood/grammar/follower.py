"""Follows a grammar through an answer and back again, as branches of a tree are tried."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import UsageError
from draftwood.grammar.grammar import Grammar, library
from draftwood.grammar.vocabulary import Vocabulary


class Follower:
    """What may come at any place of one answer, in any order of asking; a place near the last one is cheap.

    Parameters
    ----------
    grammar
        What the answer must look like.
    vocabulary
        The model's tokens.

    Raises
    ------
    UsageError
        For a grammar that cannot be held.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        self._vocabulary, self._compiled = vocabulary, grammar.compiled()
        self._path: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self._matcher, self._path = library().LLMatcher(self._vocabulary.tokens, self._compiled), []
        if self._matcher.is_error():
            raise UsageError(f"this grammar cannot be held ({self._matcher.get_error():.200}): simplify it")

    def allowed(self, answer: Sequence[int]) -> NDArray[np.intp]:
        """Return the ids of all tokens that may come behind an answer that follows the grammar, ascending.

        Raises `UsageError` for an answer that does not follow it.
        """
        if not self._go_to(answer):
            raise UsageError(
                "the text has left its grammar: another processor has allowed what the grammar forbids"
            )
        if self._matcher.is_stopped():
            return np.array(sorted(self._vocabulary.ends))
        mask = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return np.flatnonzero(np.unpackbits(mask, count=self._vocabulary.size, bitorder="little"))

    def forced(self, answer: Sequence[int], most: int) -> list[int]:
        """Return tokens, at most so many, that spell the only text which can come next; none if there are several.

        The same text may have other spellings, so the model may still choose other tokens.
        """
        if most < 1 or not self._go_to(answer) or self._matcher.is_stopped():
            return []
        found: list[int] = self._matcher.compute_ff_tokens()
        return found[:most]

    def fitting(self, answer: Sequence[int], branches: Sequence[Sequence[int]]) -> list[int]:
        """Return of each branch how many of its tokens, from the first on, may come behind an answer."""
        if not self._go_to(answer) or self._matcher.is_stopped():
            return [0] * len(branches)
        return [int(self._matcher.validate_tokens(list(branch))) for branch in branches]

    def _go_to(self, answer: Sequence[int]) -> bool:
        """Follow to this place; False where the grammar does not allow it."""
        path, common = self._path, 0
        for ours, theirs in zip(path, answer, strict=False):
            if ours != theirs:
                break
            common += 1
        if common < len(path):
            if not self._matcher.rollback(len(path) - common):
                self._begin()
                common = 0
            del self._path[common:]
        for token in answer[common:]:
            if self._matcher.is_stopped() or not self._matcher.consume_token(int(token)):
                if self._matcher.is_error():
                    self._begin()
                return False
            self._path.append(int(token))
        return True
