"""Beliefs: how often a drafter's tokens are accepted, per evidence class, learnt while decoding.

A drafter gives each candidate token an evidence class, which says why it was proposed. Each class starts from the
drafter's prior and learns its own acceptance rate, since raw frequencies promise three to nine times too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from draftwood.contracts import Declaration, Drafter, Feedback, Floats
from draftwood.drafters.declaring import declared
from draftwood.tree import NO_CLAIM

WEIGHT = 30.0
"""A class's prior counts as this many labels."""

KEEP = 0.998
"""Weight of a label after each later one of its class: a class remembers some five hundred."""

RATE, FADE = 0.03, 0.98
"""The drift is shared by all classes of a drafter: every label moves it, and it fades within some fifty steps."""

WRONG, LIGHT = 4.0, 2.0
"""Where labels are so many standard deviations below the priors, the priors count as only so many labels."""

_RECENT = 0.95  # of what came before, per pass
_LIMIT = 3.0  # of the drift: accept rates change at most twentyfold


class Beliefs:
    """Acceptance rates per source, evidence class, and whether the request is greedy."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, bool], Rates] = {}
        self._kept: dict[tuple[str, bool], Mapping[str, Any]] = {}

    def rates(self, drafter: Drafter | Declaration, *, greedy: bool) -> Rates:
        """Return what is known of this drafter; drafters with the same options share it."""
        known = declared(drafter)
        key = (known.label, greedy)
        if key not in self._rates:
            self._rates[key] = Rates(known.prior, self._kept.pop(key, None))
        return self._rates[key]

    def to_json(self) -> list[dict[str, Any]]:
        """Return JSON-ready rates, an entry per source and way of choosing of which something is known."""
        learnt = [
            {"drafter": name, "greedy": greedy, **rates.to_json()}
            for (name, greedy), rates in self._rates.items()
            if rates.totals.any()
        ]
        return learnt + [dict(entry) for entry in self._kept.values()]

    def take(self, kept: Sequence[Mapping[str, Any]]) -> None:
        """Begin with rates that `to_json` gave, where nothing was learnt yet."""
        for entry in kept:
            key = (entry["drafter"], entry["greedy"])
            if key not in self._rates:
                self._kept[key] = entry

    def accept_rates(self, drafter: Drafter | Declaration, *, greedy: bool) -> Floats:
        """Return the acceptance rate now believed per evidence class, float32[n_evidence]."""
        return self.rates(drafter, greedy=greedy).accept_rates

    def learn(self, drafter: Drafter | Declaration, lessons: Sequence[Feedback], *, greedy: bool) -> None:
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

    The accept rate of a class is ``sigmoid(logit(rate) + drift)``. The rate is the class's own: its prior and
    its labels. The drift is one number for all classes, so that a class that was never seen leans on the others:
    some twenty labels move it, and it follows a change of the text.

    Parameters
    ----------
    prior : float32[n_evidence]
        Rates to begin with.
    kept
        What `to_json` gave of rates to go on with; left alone if these have other classes.

    Attributes
    ----------
    hits, totals : float64[n_evidence]
        Labels that were right, and all labels, older ones counting less.
    drift : float
        In logits.
    weight : float
        Labels that a class's prior counts as.
    """

    def __init__(self, prior: Floats, kept: Mapping[str, Any] | None = None) -> None:
        clipped = np.clip(prior.astype(np.float64), 1e-4, 1 - 1e-4)
        self._priors: list[float] = clipped.tolist()
        self.hits = np.zeros(len(prior))
        self.totals = np.zeros(len(prior))
        self.drift = 0.0
        self.weight = WEIGHT
        self._lately = [0.0, 0.0, 0.0]  # labels that priors promise to be right, that were, and the variance
        self._logits = np.log(clipped / (1 - clipped))
        self._accept_rates: Floats | None = None
        if kept is not None and kept["classes"] == len(prior) and kept["labels"]:
            self.weight = kept["weight"]
            for which, hits, totals in kept["labels"]:
                self.hits[which], self.totals[which] = hits, totals
            self._update([which for which, _, _ in kept["labels"]], kept["drift"])

    @property
    def accept_rates(self) -> Floats:
        """What is believed now, float32[n_evidence], read-only."""
        if self._accept_rates is None:
            self._accept_rates = (1 / (1 + np.exp(-self.drift - self._logits))).astype(np.float32)
            self._accept_rates.flags.writeable = False  # drafters are handed this very array
        return self._accept_rates

    def learn(self, classes: list[int], right: list[bool]) -> None:
        """Take in the labels of one pass: the evidence class of each node, and whether it was right."""
        accept_rates, surprise = self.accept_rates, 0.0
        for which, hit in zip(classes, right, strict=True):
            surprise += hit - float(accept_rates[which])
            self.hits[which] = KEEP * self.hits[which] + hit
            self.totals[which] = KEEP * self.totals[which] + 1
        touched: Iterable[int] = set(classes)
        if self.weight == WEIGHT and self._is_wrong(classes, sum(right)):
            self.weight, touched = LIGHT, np.flatnonzero(self.totals).tolist()
        self._update(touched, FADE * (self.drift + RATE * surprise))

    def _is_wrong(self, classes: list[int], right: int) -> bool:
        """Whether less than a third came lately of what the priors promise, and that is no chance."""
        priors = [self._priors[which] for which in classes]
        promised = sum(priors)
        variance = promised - sum(p * p for p in priors)
        self._lately = [_RECENT * a + b for a, b in zip(self._lately, (promised, right, variance), strict=True)]
        promised, came, variance = self._lately
        return 3 * came < promised and promised - came > WRONG * math.sqrt(variance)

    def _update(self, touched: Iterable[int], drift: float) -> None:
        """Rates of classes that have new labels; a loop, since few have, and a pass empties every cache."""
        for which in touched:
            weight = self.weight + float(self.totals[which])
            rate = (self.weight * self._priors[which] + float(self.hits[which])) / weight
            self._logits[which] = math.log(rate / (1 - rate))
        self.drift = min(_LIMIT, max(-_LIMIT, drift))
        self._accept_rates = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; labels are [class, hits, totals] of each class that had one."""
        seen = np.flatnonzero(self.totals).tolist()
        labels = [[k, float(self.hits[k]), float(self.totals[k])] for k in seen]
        return {"classes": len(self.totals), "weight": self.weight, "drift": self.drift, "labels": labels}


def labels(lesson: Feedback) -> tuple[list[int], list[bool]]:
    """Return the evidence class of each proposed draft node whose parent was accepted, and whether it was right.

    Nodes that were not scored count too: the target's choice at their parent tells. One that others proposed too
    is a label of the source whose belief it carries: the largest of several is too large on average, unless each
    learns from the nodes where it is the largest.
    """
    proposal = lesson.proposal
    if not len(proposal):
        return [], []
    speaker = lesson.tree.source.tolist()
    accepted, choice = set(lesson.path), lesson.choice.tolist()
    rows, lookahead = lesson.node_map.tolist(), proposal.lookahead.tolist() if proposal.n_lookahead else None
    classes, right = [], []
    reached = {-1: choice[0]}  # proposed node -> what the target takes behind it
    flat = zip(proposal.parents.tolist(), proposal.tokens.tolist(), proposal.evidence.tolist(), strict=True)
    for node, (parent, token, evidence) in enumerate(flat):
        taken = reached.get(parent, -1)
        if taken < 0 or (lookahead is not None and lookahead[node]):
            continue
        row = rows[node]
        scored = 0 <= row < len(speaker)
        if evidence != NO_CLAIM and (not scored or speaker[row] == lesson.source):
            classes.append(evidence)
            right.append(token == taken)
        if row in accepted:
            reached[node] = choice[1 + row]
    return classes, right
