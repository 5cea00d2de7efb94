"""llguidance's matchers: one is built per use of a grammar, and followers of this use get copies."""

from __future__ import annotations

from threading import Lock
from typing import Any

from draftwood.grammar.grammar import Grammar, library, reason, refused
from draftwood.grammar.vocabulary import Vocabulary


class Template:
    """A matcher at the beginning of a grammar; any thread may copy it.

    Copies share what the library learns of the grammar's words, and its limit of that: once one of them has met
    the limit, all others meet it at every place. So texts share no template, nor do a text's rule and its drafts.

    Parameters
    ----------
    grammar, vocabulary
        Building takes milliseconds, for large grammars up to seconds.

    Raises
    ------
    UsageError
        For a grammar that cannot be held.
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
