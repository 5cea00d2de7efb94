"""A drafter within one request: guarded, timed and credited alike, whoever wrote it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from draftwood.contracts import Ask, Drafter, DraftSession, Feedback, Floats, Ints, Noise
from draftwood.errors import IntegrityError
from draftwood.step import SourceStep
from draftwood.tree import TokenTree

log = logging.getLogger("draftwood")


class Source:
    """One drafter's session. Whatever it raises, or proposes against the contract, disables it for the request.

    Attributes
    ----------
    session
        None once the drafter was disabled.
    proposal
        What it proposed in this step.
    step
        Its record of this step.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.session: DraftSession | None = None
        self.proposal = TokenTree.empty()
        self.step = SourceStep()

    def open(self, ids: Sequence[int], noise: Noise | None) -> None:
        """Start (again) from the committed text."""
        self.close()
        started = perf_counter()

        def start() -> None:
            self.session = self.drafter.open(ids, noise)

        self._guarded("open", start)
        self.step.open_s = perf_counter() - started

    def draft(self, ask: Ask, vocab_size: int) -> TokenTree:
        """Return what the drafter proposes, checked; nothing if it is not asked, disabled or at fault."""
        self.proposal = TokenTree.empty()
        session = self.session
        if session is None or ask.nodes + ask.probes == 0:
            return self.proposal

        def propose() -> None:
            tree = session.draft(ask.nodes, ask.probes, ask.odds)
            tree.check_integrity(vocab_size)
            if len(tree):
                evidence, classes = tree.evidence.tolist(), len(self.drafter.prior)
                if min(evidence) < 0 or max(evidence) >= classes:
                    raise IntegrityError(f"evidence classes must lie in [0, {classes}), the length of the prior")
                self.step.match_length = int(session.match_length)
            self.proposal = tree

        started = perf_counter()
        self._guarded("draft", propose)
        self.step.draft_s = perf_counter() - started
        self.step.calls, self.step.asked = 1, ask.nodes
        if len(self.proposal):
            self.step.proposed = len(self.proposal) - self.proposal.n_probes
        return self.proposal

    def learn(self, lesson: Feedback) -> None:
        """Pass on what the pass taught, and count the credit."""
        session = self.session
        if session is None:
            return
        started = perf_counter()
        self._guarded("learn", lambda: session.learn(lesson))
        self.step.learn_s = perf_counter() - started
        if len(self.proposal):
            self._credit(lesson)

    def _credit(self, lesson: Feedback) -> None:
        # Equal siblings of its own count once; its probe earns nothing where somebody else's draft was it.
        scored = set(lesson.rows.tolist()) - {-1}
        drafts = scored
        if lesson.proposal.n_probes:
            drafts = set(lesson.rows[~lesson.proposal.probe].tolist()) - {-1}
        self.step.probes, self.step.kept = len(scored - drafts), len(drafts)
        self.step.accepted = len(drafts.intersection(lesson.path))

    def observe(self, first: int, ids: Ints, probabilities: Floats) -> None:
        """Pass on what the target showed of text that it read, to a drafter that asked for it."""
        session: Any = self.session
        if session is not None and self.drafter.needs.prompt:
            started = perf_counter()
            self._guarded("observe", lambda: session.observe(first, ids, probabilities))
            self.step.open_s += perf_counter() - started

    def extend(self, ids: Sequence[int]) -> None:
        """Pass on committed text that no feedback brought."""
        session = self.session
        if session is not None:
            self._guarded("extend", lambda: session.extend(ids))

    def truncate(self, length: int) -> None:
        """Pass on that the committed text was cut."""
        session = self.session
        if session is not None:
            self._guarded("truncate", lambda: session.truncate(length))

    def close(self) -> None:
        """Close the session, if there is one."""
        session, self.session = self.session, None
        if session is not None:
            self._guarded("close", lambda: session.close())

    def _guarded(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            log.warning(
                "drafter %r failed in %s() and is off for this request: %s: %s",
                self.drafter.name,
                what,
                type(error).__name__,
                error,
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
            self.step.failed = True
            session, self.session = self.session, None
            if session is not None:
                with suppress(Exception):  # what it raises now was reported already
                    session.close()
