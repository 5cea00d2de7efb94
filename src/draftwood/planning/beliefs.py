"""Beliefs: how often what a source proposes for a given reason is right, learnt while decoding.

Every candidate token carries an evidence class, and each class learns its own acceptance rate from a prior. Raw
frequencies of a back-off model promise three to nine times what comes; rates learnt per reason hold.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Drafter, Feedback, Floats

WEIGHT = 30.0
"""A class's prior counts as this many labels."""

KEEP = 0.998
"""What a label is worth after the next one of its class: a class remembers some five hundred."""

RATE, FADE = 0.03, 0.98
"""The drift of a source is in all its classes: every label moves it, and some fifty steps forget it."""

_LIMIT = 3.0  # of the drift: odds change at most twentyfold


class Beliefs:
    """Acceptance rates per source, evidence class, and whether the request is greedy."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, bool], Rates] = {}
        self._names: dict[int, tuple[weakref.ref[Drafter], str]] = {}

    def rates(self, drafter: Drafter, *, greedy: bool) -> Rates:
        """Return what is known of this drafter; drafters with the same options share it."""
        key = (self._name(drafter), greedy)
        if key not in self._rates:
            self._rates[key] = Rates(drafter.prior)
        return self._rates[key]

    def _name(self, drafter: Drafter) -> str:
        """Name and options, put together once per drafter; one that is bound to a long text is not kept alive."""
        names, key = self._names, id(drafter)
        known = names.get(key)
        if known is not None and known[0]() is drafter:
            return known[1]
        name = f"{drafter.name} {drafter!r}"
        with suppress(TypeError):  # it takes no weak references
            names[key] = weakref.ref(drafter, lambda _: names.pop(key, None)), name
        return name

    def odds(self, drafter: Drafter, *, greedy: bool) -> Floats:
        """Return the acceptance rate now believed per evidence class, float32[n_evidence]."""
        return self.rates(drafter, greedy=greedy).odds

    def learn(self, drafter: Drafter, lessons: Sequence[Feedback], *, greedy: bool) -> None:
        """Take in which of a drafter's nodes were right in one pass, as far as the pass has told."""
        classes: list[int] = []
        right: list[bool] = []
        for lesson in lessons:
            some, truth = labels(lesson)
            classes += some
            right += truth
        if classes:
            self.rates(drafter, greedy=greedy).learn(classes, right)


class Rates:
    """The rates of one source.

    The odds of a class are ``sigmoid(logit(rate) + drift)``. The rate is the class's own: its prior and its
    labels. The drift is one number for all classes, so that a class that was never seen leans on the others: some
    twenty labels move it, and it follows a change of the text.

    Parameters
    ----------
    prior : float32[n_evidence]
        Rates to begin with.

    Attributes
    ----------
    hits, totals : float64[n_evidence]
        Labels that were right, and all labels, older ones counting less.
    drift : float
        In logits.
    """

    def __init__(self, prior: Floats) -> None:
        self._prior = np.clip(prior.astype(np.float64), 1e-4, 1 - 1e-4)
        self.hits = np.zeros(len(prior))
        self.totals = np.zeros(len(prior))
        self.drift = 0.0
        self._logits = _logit(self._prior)
        self._odds: Floats | None = None

    @property
    def odds(self) -> Floats:
        """What is believed now, float32[n_evidence]; not to be written to."""
        if self._odds is None:
            self._odds = (1 / (1 + np.exp(-self.drift - self._logits))).astype(np.float32)
        return self._odds

    def learn(self, classes: list[int], right: list[bool]) -> None:
        """Take in the labels of one pass: the evidence class of each node, and whether it was right."""
        odds, surprise = self.odds, 0.0
        for which, hit in zip(classes, right, strict=True):
            surprise += hit - float(odds[which])
            self.hits[which] = KEEP * self.hits[which] + hit
            self.totals[which] = KEEP * self.totals[which] + 1
        touched = np.array(classes)
        rate = (WEIGHT * self._prior[touched] + self.hits[touched]) / (WEIGHT + self.totals[touched])
        self._logits[touched] = _logit(rate)
        self.drift = min(_LIMIT, max(-_LIMIT, FADE * (self.drift + RATE * surprise)))
        self._odds = None


def labels(lesson: Feedback) -> tuple[list[int], list[bool]]:
    """Return the evidence class of each proposed draft node whose parent was accepted, and whether it was right.

    Nodes that were not scored count too: the target's choice at their parent tells.
    """
    proposal = lesson.proposal
    if not len(proposal):
        return [], []
    accepted, choice = set(lesson.path), lesson.choice.tolist()
    rows, probe = lesson.rows.tolist(), proposal.probe.tolist() if proposal.n_probes else None
    classes, right = [], []
    reached = {-1: choice[0]}  # proposed node -> what the target takes behind it
    flat = zip(proposal.parents.tolist(), proposal.tokens.tolist(), proposal.evidence.tolist(), strict=True)
    for node, (parent, token, evidence) in enumerate(flat):
        taken = reached.get(parent, -1)
        if taken < 0 or (probe is not None and probe[node]):
            continue
        classes.append(evidence)
        right.append(token == taken)
        if rows[node] in accepted:
            reached[node] = choice[1 + rows[node]]
    return classes, right


def _logit(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.log(rate / (1 - rate))
    return found
