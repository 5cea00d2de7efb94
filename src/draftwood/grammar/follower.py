"""Follows a grammar through an answer and back again, as branches of a tree are tried."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import UsageError
from draftwood.grammar.grammar import Grammar, library, reason, refused
from draftwood.grammar.vocabulary import Vocabulary, Words, holds, members, words_of
from draftwood.tree import TokenTree

_REFUSED = "satisfy the grammar"
"""In llguidance's error where a token is the cause; any other error is one of its limits."""


class Template:
    """One of llguidance's matchers at the beginning of a grammar; any thread may copy it.

    Copies share the states that the library's lexer has made, and the limit on them: once one copy has met the
    limit, all others meet it at every place. So texts share no template, nor do a text's rule and its drafts.
    Building one takes milliseconds, for large grammars up to seconds; `UsageError` for one that cannot be used.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        compiled, package = grammar.compiled(), library()
        limits = package.LLParserLimits(verbose_errors=False)  # else errors hold the text that was written
        self._matcher = package.LLMatcher(vocabulary.tokens, compiled, log_level=0, limits=limits)
        if not self._matcher.is_error():
            self._matcher.compute_bitmask()  # shows what building does not
        if self._matcher.is_error():
            raise refused(grammar, reason(self._matcher.get_error()))
        self._lock = Lock()

    def copy(self) -> Any:
        """Return a matcher of one's own, in well under a millisecond."""
        with self._lock:
            return self._matcher.deep_copy()


class Follower:
    """Tells what may come at any place of one answer. Asking is cheap near the place that was asked about last.

    Raises `UsageError` for a grammar that cannot be used.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        self._grammar, self._vocabulary = grammar, vocabulary
        self._template = Template(grammar, vocabulary)
        self._ends = words_of(vocabulary.ends, vocabulary.size)
        self._begin()

    def twin(self) -> Self:
        """Return a follower of the same grammar at its beginning; both share the library's limits."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._begin()
        return twin

    def _begin(self) -> None:
        self._matcher, self._path = self._template.copy(), list[int]()

    def mask(self, answer: Sequence[int]) -> Words:
        """Return the set of all tokens that may come after an answer that follows the grammar.

        Raises `UsageError` for an answer that does not follow it, and where the grammar becomes too complex.
        """
        if not self._go_to(answer):
            raise UsageError(
                "the text has left its grammar: another processor has allowed what the grammar forbids"
            )
        return self._mask()

    def allowed(self, answer: Sequence[int]) -> NDArray[np.intp]:
        """Return the same as ids, int[n], ascending."""
        return members(self.mask(answer), self._vocabulary.size)

    def is_complete(self, answer: Sequence[int]) -> bool:
        """Whether nothing but the end may come after an answer."""
        if not self._go_to(answer):
            return False
        return self._is_complete() or (self._matcher.is_accepting() and self._has_only_ends(self._masked()))

    def forced(self, answer: Sequence[int], most: int) -> list[int]:
        """Return the next tokens, at most so many, of which each is the only one that may come.

        They spell the text that the grammar leaves as the tokenizer does, as far as what follows cannot change it;
        after a complete text comes the end token, if the model has a single one.
        """
        if most < 1 or not self._go_to(answer):
            return []
        found: list[int] = [] if self._is_complete() else self._matcher.compute_ff_tokens()[:most]
        has_room = len(found) < most and len(self._vocabulary.ends) == 1
        if has_room and all(self._go_on(token) for token in found) and self._is_complete():
            found = [*found, *self._vocabulary.ends]
        return found

    def likely(self, answer: Sequence[int], most: int) -> list[int]:
        """Return the likeliest spelling, at most so many tokens, of text that is forced where its tokens are not.

        The text that follows decides which tokens spell it, as with a quote and the letter after it.
        """
        if most < 1 or not self._go_to(answer) or self._is_complete():
            return []
        text: bytes = self._matcher.compute_ff_bytes()
        spelled: list[int] = self._vocabulary.tokens.tokenize_bytes(text)[:most] if text else []
        return spelled[: self._matcher.validate_tokens(spelled)] if spelled else []

    def fitting(self, answer: Sequence[int], tree: TokenTree) -> NDArray[np.intp]:
        """Return the nodes of a tree after an answer that the masks on their way allow, ascending.

        They are closed under parents. Lookahead nodes stay, unless they hang below a forbidden node.
        """
        children: dict[int, list[tuple[int, int]]] = {}
        rows = zip(tree.tokens.tolist(), tree.parents.tolist(), tree.lookahead.tolist(), strict=True)
        looking = []  # lookahead nodes and their parents
        for node, (token, parent, is_lookahead) in enumerate(rows):
            if is_lookahead:
                looking.append((node, parent))
            else:
                children.setdefault(parent, []).append((node, token))
        kept = set[int]()
        stack = [(-1, 0, len(answer))] if -1 in children and self._go_to(answer) else []
        while stack:
            node, token, length = stack.pop()
            if node >= 0:
                self._back_to(length - 1)
                self._go_on(token)
            here = children[node]
            for (child, its), may_come in zip(here, self._allow([its for _, its in here]), strict=True):
                if may_come:
                    kept.add(child)
                    if child in children and its not in self._vocabulary.ends:
                        stack.append((child, its, length + 1))
        for node, parent in looking:
            if parent < 0 or parent in kept:
                kept.add(node)
        return np.array(sorted(kept), dtype=np.intp)

    def _allow(self, tokens: Sequence[int]) -> list[bool]:
        """Return for each token whether it may come here; the mask is computed only where text is forced."""
        matcher, ends = self._matcher, self._vocabulary.ends
        if self._is_complete():
            return [token in ends for token in tokens]
        if matcher.compute_ff_bytes():  # then the spelling counts, too
            mask = self._mask()
            return [holds(mask, token) for token in tokens]
        return [
            bool(matcher.is_accepting() if token in ends else matcher.validate_tokens([token])) for token in tokens
        ]

    def _is_complete(self) -> bool:
        if not self._matcher.is_stopped():
            return False
        if self._matcher.is_error():
            raise self._too_complex()
        return True

    def _mask(self) -> Words:
        mask = self._ends if self._is_complete() else self._masked()
        if not self._vocabulary.ends and self._has_only_ends(mask):
            raise UsageError("the grammar leaves no token here, and this model has none that ends a text")
        return mask

    def _masked(self) -> Words:
        mask: bytes = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise self._too_complex()
        return np.frombuffer(mask, dtype=np.uint32)

    def _has_only_ends(self, mask: Words) -> bool:
        tokens, ends = members(mask, self._vocabulary.size), self._vocabulary.ends
        return len(tokens) <= len(ends) and ends.issuperset(tokens.tolist())

    def _too_complex(self) -> UsageError:
        said = reason(self._matcher.get_error())
        self._template = Template(self._grammar, self._vocabulary)
        self._begin()
        return UsageError(f"the grammar gets too complex at this place of the text ({said}): simplify it")

    def _go_to(self, answer: Sequence[int]) -> bool:
        """Follow to this place; False where the grammar does not allow it."""
        path, common = self._path, len(self._path)
        if answer[:common] != path:
            pairs = zip(path, answer, strict=False)
            common = next((n for n, (ours, theirs) in enumerate(pairs) if ours != theirs), len(answer))
        self._back_to(common)
        return all(self._go_on(token) for token in answer[len(self._path) :])

    def _go_on(self, token: int) -> bool:
        """Follow by one token; False, and back at the beginning, where the grammar does not allow it."""
        if self._matcher.is_stopped() or not self._matcher.consume_token(int(token)):
            if self._matcher.is_error():
                if _REFUSED not in self._matcher.get_error():
                    raise self._too_complex()
                self._begin()
            return False
        self._path.append(int(token))
        return True

    def _back_to(self, length: int) -> None:
        """Go back until so many tokens are left."""
        if length == len(self._path):
            return
        path = self._path[:length]
        if self._matcher.rollback(len(self._path) - length):
            self._path = path
        else:
            self._begin()
            for token in path:
                self._go_on(token)
