"""A drafter within one request: guarded, timed and credited, our own or a plug-in's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
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
from draftwood.tree import NO_CLAIM, TokenTree, ascending

log = logging.getLogger("draftwood")

_EMPTY = TokenTree.empty()
_NO_NEEDS = Needs()


class DraftSource:
    """One drafter's session. Whatever it raises, or proposes against the contract, disables it for the request.

    Tokens of steps that teach it nothing else wait in a list, which `DraftSession.learn` gets as one lesson
    before the session is told or asked anything else.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.number = drafter, 0  # its index in the set
        self.declared = NOTHING  # what it says of itself
        self.session: DraftSession | None = None  # None once the drafter was disabled
        self.proposal = _EMPTY  # of this step
        self.resting = False  # whether it is shown only the tokens of this step, though it needs scores or states
        self.is_off = False  # whether the request does not want it: it is never opened
        self.ends = frozenset[int]()  # tokens that end the text
        self.step = SourceStep()  # its record of this step
        # Whether it is asked together with its sessions of other texts: until `Drafter.draft_many` has failed.
        self.batches = drafter.batches
        self._own: NDArray[np.bool_] | None = None  # which of its nodes it vouches for; None: all
        self._untold: list[int] = []
        try:
            self.declared = declared(drafter)
        except Exception as error:
            self._disable("what it declares", error)
        self.needs = self.declared.needs

    @property
    def needs_now(self) -> Needs:
        """What it is given of this step: nothing while it rests."""
        return _NO_NEEDS if self.resting else self.needs

    @property
    def seat(self) -> Declaration | None:
        """What a planner sees of it: what it declares, None where it has no session."""
        return None if self.session is None else self.declared

    def open(self, ids: Sequence[int], noise: Noise | None, target_session: Any = None) -> None:
        """Start (again) from the committed text; ``target_session`` is that text in the target's cache."""
        self.close()
        if self.declared is NOTHING or self.is_off:
            return
        started = perf_counter()
        try:
            self.session = self.drafter.open(ids, noise)
            if self.needs.target_session:
                self.session.follow(target_session)
        except Exception as error:
            self._disable("open()", error)
        self.step.open_s = perf_counter() - started

    def tell(self, what: str, call: Callable[[DraftSession], Any]) -> Any:
        """Call the session, unless it is disabled, once it knows all tokens; whatever it raises disables it."""
        self.catch_up()
        if self.session is not None:
            try:
                return call(self.session)
            except Exception as error:
                self._disable(what, error)
        return None

    def catch_up(self) -> None:
        """Pass on the tokens that wait."""
        if not self._untold:
            return
        tokens, self._untold = tuple(self._untold), []
        if self.session is not None:
            choice = np.array(tokens[:1], dtype=np.int32)
            choice.flags.writeable = False
            lesson = Feedback(_EMPTY, _EMPTY, ascending(0), (), tokens, choice, source=self.number)
            self.tell("learn()", lambda session: session.learn(lesson))

    def draft(self, ask: Ask, vocab_size: int, base_tree: TokenTree | None = None) -> TokenTree:
        """Return what the drafter, which `is_asked`, proposes, checked; nothing if it is disabled or at fault.

        ``base_tree`` is what the other drafters propose, for a drafter that extends it.
        """
        started, asked = perf_counter(), (ask.nodes, ask.lookahead_nodes, ask.accept_rates)
        self.catch_up()
        self.prepare(ask)
        if base_tree is None:
            self.tell("draft()", lambda session: self._take(session, session.draft(*asked), vocab_size, 0))
        else:
            self.tell(
                "draft()",
                lambda session: self._take(session, session.branch(base_tree, *asked), vocab_size, NO_CLAIM),
            )
        self._record_draft(ask, perf_counter() - started)
        return self.proposal

    def is_asked(self, ask: Ask) -> bool:
        """Begin the step; whether the drafter is asked for anything."""
        self.proposal, self._own, self.resting = _EMPTY, None, ask.resting
        return self.session is not None and ask.nodes + ask.lookahead_nodes > 0

    def prepare(self, ask: Ask) -> None:
        """Set what the session needs to know before a draft."""
        if self.session is not None and self.needs.prices:
            self.session.prices, self.session.ends = ask.prices, self.ends

    def receive(self, tree: TokenTree, ask: Ask, vocab_size: int, seconds: float, least: int = 0) -> TokenTree:
        """Take a tree from a call for many sessions as its proposal; its share of the call was so many seconds.

        The tree's evidence classes begin at ``least``. Returns what `draft` would return.
        """
        self.tell("draft_many()", lambda session: self._take(session, tree, vocab_size, least))
        self._record_draft(ask, seconds)
        return self.proposal

    def _take(self, session: DraftSession, tree: TokenTree, vocab_size: int, least: int) -> None:
        """Make a tree the proposal; raises where its tokens, its shape or its evidence classes, which begin at
        ``least``, are not as the contract says.
        """
        (tree.check_tokens if tree.is_grown else tree.check_integrity)(vocab_size)
        if len(tree):
            self.step.match_length = int(session.match_length)
        if len(tree) and (least or not tree.is_grown):
            evidence, classes = tree.evidence.tolist(), len(self.declared.prior)
            if min(evidence) < least or max(evidence) >= classes:
                raise IntegrityError(f"evidence classes must lie in [0, {classes}), the length of the prior")
            self._own = None if min(evidence) >= 0 else tree.evidence != NO_CLAIM
        self.proposal = tree.locked()  # what it keeps of its own it may go on writing into

    def _record_draft(self, ask: Ask, seconds: float) -> None:
        step, tree = self.step, self.proposal
        step.draft_s, step.calls, step.asked = seconds, 1, ask.nodes
        if self.needs.prices:
            step.stages = self.session.stages if self.session is not None else ()
        through = 0 if self._own is None else len(self._own) - int(np.count_nonzero(self._own))
        step.proposed = len(tree) - tree.n_lookahead - through

    @property
    def can_wait(self) -> bool:
        """Whether this step, without a draft, teaches it no more than its tokens, which `learn_later` takes."""
        needs = self.needs_now
        return not (self.step.calls or needs.top_k or needs.hidden or needs.choice)

    def learn_later(self, tokens: Sequence[int]) -> None:
        """Keep the tokens of a step in which no drafter was asked, until the session is used again."""
        if self.session is not None:
            self._untold += tokens

    def learn(self, lesson: Feedback) -> None:
        """Pass on what the pass taught, and count the credit."""
        if self.session is None:
            return
        started = perf_counter()
        self.tell("learn()", lambda session: session.learn(lesson))
        self.step.learn_s = perf_counter() - started
        if len(self.proposal):
            self._credit(lesson)

    def _credit(self, lesson: Feedback) -> None:
        # Two nodes of this drafter that became one of the tree count once. A node that this drafter proposed for
        # lookahead only is not counted as accepted, even if another drafter proposed it as a draft and was right.
        rows = lesson.node_map if self._own is None else lesson.node_map[self._own]
        step, scored = self.step, set(rows.tolist()) - {-1}
        drafts = scored
        if lesson.proposal.n_lookahead:
            drafts = set(lesson.node_map[~lesson.proposal.lookahead].tolist()) & scored
            step.lookahead_nodes = len(scored - drafts)
        step.kept, step.accepted = len(drafts), len(drafts.intersection(lesson.path))

    def observe(self, first: int, ids: Ints, probabilities: Floats) -> None:
        """Pass on what the target showed of text that it read, to a drafter that asked for it."""
        if self.needs.prompt:
            started, k = perf_counter(), self.needs.top_k  # others may have asked for more
            self.tell("observe()", lambda session: session.observe(first, ids[:, :k], probabilities[:, :k]))
            self.step.open_s += perf_counter() - started

    def observe_hidden(self, first: int, states: Mapping[int, Any]) -> None:
        """Pass on hidden states of text that the target read, to a drafter that asked for them."""
        if layers := self.needs.hidden:
            started, own = perf_counter(), {layer: states[layer] for layer in layers}
            self.tell("observe_hidden()", lambda session: session.observe_hidden(first, own))
            self.step.open_s += perf_counter() - started

    def resume(self, saved: SavedReading, length: int) -> None:
        """Hand what a session had saved of a text with the same first tokens to one that was just opened."""
        self.tell("resume()", lambda session: session.resume(saved, length))

    def extend(self, ids: Sequence[int]) -> None:
        """Pass on text that was read and not written."""
        self.tell("extend()", lambda session: session.extend(ids))

    def begin_answer(self, ids: Sequence[int]) -> None:
        """Pass on the first token of an answer."""
        self.tell("begin_answer()", lambda session: session.begin_answer(ids))

    def truncate(self, length: int) -> None:
        """Pass on that the committed text was cut."""
        self.tell("truncate()", lambda session: session.truncate(length))

    def close(self) -> None:
        """Close the session, if there is one; some keep the answer then, so it learns the rest of it."""
        self.catch_up()
        session, self.session = self.session, None
        if session is not None:
            try:
                session.close()
            except Exception as error:
                self._disable("close()", error)

    def _disable(self, what: str, error: Exception) -> None:
        log.warning(
            "drafter %r failed in %s and is off for this request: %s: %s",
            self.declared.name or type(self.drafter).__name__, what, type(error).__name__, error,
            exc_info=log.isEnabledFor(logging.DEBUG),
        )  # fmt: skip
        self.step.failed = True
        session, self.session = self.session, None
        if session is not None:
            with suppress(Exception):  # what it raises now was reported already
                session.close()
