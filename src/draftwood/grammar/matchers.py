"""llguidance's matchers: one per grammar and vocabulary is built, and each text gets a copy."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any

from draftwood.grammar.grammar import Grammar, library, reason, refused
from draftwood.grammar.vocabulary import Vocabulary


class Template:
    """A matcher at the beginning of a grammar; any thread may copy it.

    Parameters
    ----------
    matcher
        llguidance's; belongs to this object from now on.
    """

    def __init__(self, matcher: Any) -> None:
        self._matcher, self._lock = matcher, Lock()

    def copy(self) -> Any:
        """Return a matcher of one's own, in well under a millisecond."""
        with self._lock:
            return self._matcher.deep_copy()


def template(grammar: Grammar, vocabulary: Vocabulary) -> Template:
    """Return the template of a grammar: built, which may take seconds, where it is not among the latest few.

    Raises `UsageError` for a grammar that cannot be held.
    """
    return _built(grammar, vocabulary.tokens)


@lru_cache(32)
def _built(grammar: Grammar, tokens: Any) -> Template:
    compiled, package = grammar.compiled(), library()
    limits = package.LLParserLimits(verbose_errors=False)  # else errors hold the text that was written
    matcher = package.LLMatcher(tokens, compiled, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # shows what building does not
    if matcher.is_error():
        raise refused(grammar, reason(matcher.get_error()))
    return Template(matcher)
