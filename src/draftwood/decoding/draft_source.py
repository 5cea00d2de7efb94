"""A drafter within one request: guarded, timed and credited alike, whoever wrote it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import (
    Ask,
    Declaration,
    Drafter,
    DraftSession,
    Feedback,
    Floats,
    Ints,
    Needs,
    Noise,
    SavedReading,
)
from draftwood.contracts.declaring import NOTHING, declared
from draftwood.errors import IntegrityError
from draftwood.step import SourceStep
from draftwood.tree import NO_CLAIM, TokenTree

log = logging.getLogger("draftwood")

_MOST_UNTOLD = 64  # lessons that wait for a drafter which is not asked
_EMPTY = TokenTree.empty()
_NO_NEEDS = Needs()
_NO_NODES: Ints = np.empty(0, dtype=np.int32)
_NO_NODES.flags.writeable = False


class DraftSource:
    """One drafter's session. Whatever it raises, or proposes against the contract, disables it for the request.

    Attributes
    ----------
    number
        Its index in the set.
    seats
        Of the set, what each drafter declares while it has a session, else None.
    declared, needs
        What the drafter says of itself, and what of it it asks for.
    session
        None once the drafter was disabled.
    proposal
        What it proposed in this step.
    resting
        Whether it learns nothing of this step but its tokens, whatever it needs.
    is_off
        Whether the request does not want it: it is never opened.
    ends
        Tokens that end the text.
    step
        Its record of this step.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.number = drafter, 0
        self.declared = NOTHING
        self.seats: list[Declaration | None] = [None]
        self.session: DraftSession | None = None
        self._by_tokens = False  # whether its session learns nothing but the committed tokens
        self.proposal, self.resting, self.is_off = _EMPTY, False, False
        self.ends = frozenset[int]()
        self.step = SourceStep()
        self.batches = drafter.batches  # until `Drafter.draft_many` has failed
        self._own: NDArray[np.bool_] | None = None  # which of its nodes it vouches for; None: all
        self._untold: list[int | Feedback] = []  # what it has not learnt yet: tokens of plain steps, lessons
        self._guarded("what it declares", self._declare)
        self.needs = self.declared.needs

    @property
    def needs_now(self) -> Needs:
        """What it is given of this step: nothing while it rests."""
        return _NO_NEEDS if self.resting else self.needs

    def _declare(self) -> None:
        self.declared = declared(self.drafter)

    def take_seat(self, number: int, seats: list[Declaration | None]) -> None:
        """Be the one with this number in a set."""
        self.number, self.seats = number, seats
        self._hold(self.session)

    def _hold(self, session: DraftSession | None) -> None:
        self.session = session
        self.seats[self.number] = None if session is None else self.declared

    def open(self, ids: Sequence[int], noise: Noise | None, target_session: Any = None) -> None:
        """Start (again) from the committed text, which ``target_session`` is in the target's cache."""
        self.close()
        if self.declared is NOTHING or self.is_off:
            return
        started = perf_counter()

        def start() -> None:
            session = self.drafter.open(ids, noise)
            self._hold(session)
            self._by_tokens = session.tokens_only
            if self.needs.target_session:
                session.follow(target_session)

        self._guarded("open()", start)
        self.step.open_s = perf_counter() - started

    def save(self) -> SavedReading | None:
        """Return what the drafter has learnt of the text beyond its tokens; None if that is nothing."""
        self.catch_up()
        session, found = self.session, list[SavedReading | None]()
        if session is not None:
            self._guarded("save()", lambda: found.append(session.save()))
        return found[-1] if found else None

    def resume(self, saved: SavedReading, length: int) -> None:
        """Hand what `save` gave of a text with the same first tokens to a session that was just opened."""
        session = self.session
        if session is not None:
            self._guarded("resume()", lambda: session.resume(saved, length))

    def draft(self, ask: Ask, vocab_size: int, base_tree: TokenTree | None = None) -> TokenTree:
        """Return what the drafter proposes, checked; nothing if it is not asked, disabled or at fault.

        ``base_tree`` is what the other drafters propose, for a drafter that extends it.
        """
        if not self.is_asked(ask):
            return self.proposal
        started = perf_counter()
        self.catch_up()
        session = self.session
        if session is None:
            return self.proposal
        try:
            if self.needs.prices:
                session.prices, session.ends = ask.prices, self.ends
            if base_tree is None:
                tree = session.draft(ask.nodes, ask.lookahead_nodes, ask.accept_rates)
            else:
                tree = session.branch(base_tree, ask.nodes, ask.lookahead_nodes, ask.accept_rates)
            self._take(tree, vocab_size, NO_CLAIM if base_tree is not None else 0)
        except Exception as error:
            self._disable("draft()", error)
        self._record_draft(ask, perf_counter() - started)
        return self.proposal

    def is_asked(self, ask: Ask) -> bool:
        """Begin the step; whether there is somebody to ask for something."""
        self.proposal, self.resting = _EMPTY, ask.resting
        return self.session is not None and ask.nodes + ask.lookahead_nodes > 0

    def receive(self, tree: TokenTree, ask: Ask, vocab_size: int, seconds: float, least: int = 0) -> TokenTree:
        """Take, as its proposal, a tree from a call for many sessions, of which its share was so many seconds.

        Its evidence classes begin at ``least``.
        Returns what `draft` would return.
        """
        try:
            self._take(tree, vocab_size, least)
        except Exception as error:
            self._disable("draft_many()", error)
        self._record_draft(ask, seconds)
        return self.proposal

    def _take(self, tree: TokenTree, vocab_size: int, least: int) -> None:
        """Check a tree whose evidence classes begin at ``least``, and make it the proposal."""
        tree.check_integrity(vocab_size)
        tree = tree.locked()  # what it keeps of its own it may go on writing into
        self._own = None
        if len(tree):
            self._check_evidence(tree, least)
            self.step.match_length = 0 if self.session is None else int(self.session.match_length)
        self.proposal = tree

    def _record_draft(self, ask: Ask, seconds: float) -> None:
        step, tree = self.step, self.proposal
        step.draft_s, step.calls, step.asked = seconds, 1, ask.nodes
        if self.needs.prices:
            step.stages = self.session.stages if self.session is not None else ()
        through = 0 if self._own is None else len(self._own) - int(np.count_nonzero(self._own))
        step.proposed = len(tree) - tree.n_lookahead - through

    def _check_evidence(self, tree: TokenTree, least: int) -> None:
        evidence, classes = tree.evidence.tolist(), len(self.declared.prior)
        if min(evidence) < least or max(evidence) >= classes:
            raise IntegrityError(f"evidence classes must lie in [0, {classes}), the length of the prior")
        self._own = None if min(evidence) >= 0 else tree.evidence != NO_CLAIM

    @property
    def can_wait(self) -> bool:
        """Whether this step, without a draft, teaches it no more than its tokens, which `learn_later` takes."""
        if self.step.calls:
            return False
        needs = self.needs
        return self.resting or not (needs.top_k or needs.hidden or needs.choice)

    def learn_later(self, lessons: Iterable[int | Feedback]) -> None:
        """Keep lessons of steps without a scored draft, or only their tokens, until it is asked again.

        Several at once take a fraction of the time: each pass empties the processor's caches.
        """
        if self.session is not None:
            self._untold += lessons
            if len(self._untold) >= _MOST_UNTOLD:
                self.catch_up()

    def catch_up(self) -> None:
        """Pass on the lessons that wait; called before whatever else the session is told or asked."""
        lessons, session = self._untold, self.session
        if not lessons or session is None:
            return
        self._untold = []
        if self._by_tokens:
            tokens = [t for one in lessons for t in (one.emitted if isinstance(one, Feedback) else (one,))]
            self._guarded("learn()", lambda: session.extend(tokens))
            return

        def learn() -> None:
            for lesson in lessons:
                session.learn(lesson if isinstance(lesson, Feedback) else _plain_step(lesson, self.number))

        self._guarded("learn()", learn)

    def learn(self, lesson: Feedback) -> None:
        """Pass on what the pass taught, now or before the next draft, and count the credit."""
        if self.session is None:
            return
        started = perf_counter()
        if self._by_tokens or not (len(lesson.tree) or self.needs_now.hidden):
            self.learn_later((lesson,))
        else:
            self.catch_up()
            if (session := self.session) is None:
                return
            self._guarded("learn()", lambda: session.learn(lesson))
        self.step.learn_s = perf_counter() - started
        if len(self.proposal):
            self._credit(lesson)

    def _credit(self, lesson: Feedback) -> None:
        # Equal siblings of its own count once; its probe earns nothing where somebody else's draft was it.
        rows = lesson.node_map if self._own is None else lesson.node_map[self._own]
        step, scored = self.step, set(rows.tolist())
        scored.discard(-1)
        drafts = scored
        if lesson.proposal.n_lookahead:
            drafts = set(lesson.node_map[~lesson.proposal.lookahead].tolist()) & scored
            step.lookahead_nodes = len(scored - drafts)
        step.kept, step.accepted = len(drafts), len(drafts.intersection(lesson.path))

    def observe(self, first: int, ids: Ints, probabilities: Floats) -> None:
        """Pass on what the target showed of text that it read, to a drafter that asked for it."""
        session = self.session
        if session is not None and self.needs.prompt:
            self.catch_up()
            started, k = perf_counter(), self.needs.top_k  # others may have asked for more
            self._guarded("observe()", lambda: session.observe(first, ids[:, :k], probabilities[:, :k]))
            self.step.open_s += perf_counter() - started

    def observe_hidden(self, first: int, states: Mapping[int, Any]) -> None:
        """Pass on hidden states of text that the target read, to a drafter that asked for them."""
        session = self.session
        if session is not None and (layers := self.needs.hidden):
            self.catch_up()
            started, own = perf_counter(), {layer: states[layer] for layer in layers}
            self._guarded("observe_hidden()", lambda: session.observe_hidden(first, own))
            self.step.open_s += perf_counter() - started

    def extend(self, ids: Sequence[int]) -> None:
        """Pass on text that was read and not written."""
        self.catch_up()
        session = self.session
        if session is not None:
            self._guarded("extend()", lambda: session.extend(ids))

    def begin_answer(self, ids: Sequence[int]) -> None:
        """Pass on the first token of an answer."""
        self.catch_up()
        session = self.session
        if session is not None:
            self._guarded("begin_answer()", lambda: session.begin_answer(ids))

    def truncate(self, length: int) -> None:
        """Pass on that the committed text was cut."""
        self.catch_up()
        session = self.session
        if session is not None:
            self._guarded("truncate()", lambda: session.truncate(length))

    def close(self) -> None:
        """Close the session, if there is one; some keep the answer then, so it learns the rest of it."""
        self.catch_up()
        session = self.session
        self._hold(None)
        if session is not None:
            self._guarded("close()", lambda: session.close())

    def _guarded(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._disable(what, error)

    def _disable(self, what: str, error: Exception) -> None:
        log.warning(
            "drafter %r failed in %s and is off for this request: %s: %s",
            self.declared.name or type(self.drafter).__name__,
            what,
            type(error).__name__,
            error,
            exc_info=log.isEnabledFor(logging.DEBUG),
        )
        self.step.failed = True
        session = self.session
        self._hold(None)
        if session is not None:
            with suppress(Exception):  # what it raises now was reported already
                session.close()


def _plain_step(token: int, source: int) -> Feedback:
    """Return the lesson of a step in which nobody was asked."""
    choice = np.array([token], dtype=np.int32)
    choice.flags.writeable = False
    return Feedback(_EMPTY, _EMPTY, _NO_NODES, (), (token,), choice, source=source)
