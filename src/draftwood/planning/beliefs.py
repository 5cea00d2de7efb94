"""Beliefs: how often a drafter's tokens are accepted, by evidence class, learnt while decoding.

Each class starts from the drafter's prior: what drafters claim themselves is three to nine times too high. A
*label* is one proposed token together with whether it was right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from draftwood.contracts import Declaration, Feedback, Floats
from draftwood.planning import KEEP_LATELY, KEEP_LONG
from draftwood.tree import NO_CLAIM

WEIGHT = 30.0  # a class's prior counts as much as this many labels
RATE, FADE = 0.03, 0.98  # how far one label moves the drift, and what is left of the drift after each pass
WRONG, LIGHT = 4.0, 2.0
"""If the labels are ``WRONG`` standard deviations below the priors, a prior counts as ``LIGHT`` labels only."""

_LIMIT = 3.0  # of the drift, in logits: the drift changes the odds of acceptance at most twentyfold


class Beliefs:
    """Acceptance rates by drafter, by evidence class, and by whether the request is greedy."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, bool], AcceptRates] = {}

    def rates(self, drafter: Declaration, *, greedy: bool) -> AcceptRates:
        """Return the rates of this drafter; drafters of the same name and options share them."""
        key = (drafter.label, greedy)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.first(drafter, greedy=greedy)
        return found

    def first(self, drafter: Declaration, *, greedy: bool) -> AcceptRates:  # noqa: ARG002 - for subclasses
        """Return the rates of a drafter that was not asked before."""
        return AcceptRates(drafter.prior)

    def accept_rates(self, drafter: Declaration, *, greedy: bool) -> Floats:
        """Return the acceptance rate now believed for each evidence class, float32[n_evidence]."""
        return self.rates(drafter, greedy=greedy).accept_rates

    def learn(self, drafter: Declaration, lessons: Sequence[Feedback], *, greedy: bool) -> None:
        """Learn from the feedback of one pass which of the drafter's nodes were right."""
        classes: list[int] = []
        right: list[bool] = []
        for lesson in lessons:
            some, truth = labels(lesson)
            classes += some
            right += truth
        if classes:
            self.rates(drafter, greedy=greedy).learn(classes, right)


class AcceptRates:
    """Acceptance rates of one drafter, ``sigmoid(logit(rate) + drift)`` for each evidence class.

    The rate comes from the class's ``prior`` (float32[n_evidence]) and its own labels. The drift is one number
    shared by all classes: about twenty labels move it, so rates follow a change of the text.
    """

    def __init__(self, prior: Floats) -> None:
        # Lists, since a step's few labels are counted one by one.
        clipped = np.clip(prior.astype(np.float64), 1e-4, 1 - 1e-4)
        self.priors: list[float] = clipped.tolist()
        self.hits, self.totals = [0.0] * len(prior), [0.0] * len(prior)  # labels that were right, and all
        self.passes = 0  # that gave labels
        self.drift = 0.0  # in logits
        self.weight = WEIGHT  # of a prior, in labels
        self._lately = 0.0, 0.0, 0.0  # right labels by the priors, right labels, variance of the former
        self._odds: list[float] = (clipped / (1 - clipped)).tolist()  # by the labels, without the drift
        self._odds_array = np.array(self._odds)
        self._accept_rates: Floats | None = None

    def resume(self, weight: float, counts: list[list[float]]) -> None:
        """Begin with labels of an earlier process: of some classes their index, right labels, and all labels."""
        self.weight = weight
        for which, hits, total in counts:
            self.hits[int(which)], self.totals[int(which)] = hits, total
        self._settle([int(which) for which, _, _ in counts])

    @property
    def accept_rates(self) -> Floats:
        """The rates believed now, float32[n_evidence], read-only."""
        if self._accept_rates is None:
            odds = self._odds_array
            self._accept_rates = (odds / (odds + math.exp(-self.drift))).astype(np.float32)
            self._accept_rates.flags.writeable = False  # drafters are handed this very array
        return self._accept_rates

    def learn(self, classes: list[int], right: list[bool]) -> None:
        """Learn the labels of one pass: the evidence class of each node, and whether it was right."""
        self.passes += 1
        hits, totals, odds, surprise, fade = self.hits, self.totals, self._odds, 0.0, math.exp(-self.drift)
        for which, hit in zip(classes, right, strict=True):
            surprise += hit - odds[which] / (odds[which] + fade)
            hits[which] = KEEP_LONG * hits[which] + hit
            totals[which] = KEEP_LONG * totals[which] + 1
        touched: Iterable[int] = set(classes)
        if self.weight == WEIGHT and self._is_wrong(classes, sum(right)):
            self.weight, touched = LIGHT, [which for which, total in enumerate(totals) if total]
        self._settle(touched)
        self.drift = min(_LIMIT, max(-_LIMIT, FADE * (self.drift + RATE * surprise)))

    def _settle(self, classes: Iterable[int]) -> None:
        """Compute the rates of classes anew from their labels."""
        for which in classes:  # a loop, not arrays: few classes have new labels
            weight = self.weight + self.totals[which]
            rate = (self.weight * self.priors[which] + self.hits[which]) / weight
            self._odds[which] = self._odds_array[which] = rate / (1 - rate)
        self._accept_rates = None

    def _is_wrong(self, classes: list[int], right: int) -> bool:
        """Whether recent labels were right less than a third as often as the priors say, beyond chance."""
        promised, came, variance = self._lately
        promised, came, variance = KEEP_LATELY * promised, KEEP_LATELY * came + right, KEEP_LATELY * variance
        for which in classes:
            prior = self.priors[which]
            promised += prior
            variance += prior - prior * prior
        self._lately = promised, came, variance
        return 3 * came < promised and promised - came > WRONG * math.sqrt(variance)


def labels(lesson: Feedback) -> tuple[list[int], list[bool]]:
    """Return the evidence class of each draft node whose parent was accepted, scored or not, and whether it was
    right.

    A node that several drafters propose teaches only the one that believed most in it, whose belief it carries:
    the largest of several estimates is on average too large.
    """
    proposal, path = lesson.proposal, lesson.path
    if not len(proposal):
        return [], []
    speaker, choice, rows = lesson.tree.source.tolist(), lesson.choice.tolist(), lesson.node_map.tolist()
    lookahead = set(np.flatnonzero(proposal.lookahead).tolist()) if proposal.n_lookahead else ()
    # Accepted nodes of the proposal, and what the target chose after each; -1 is the root.
    reached = {node: choice[1 + row] for node, row in enumerate(rows) if row in path and node not in lookahead}
    reached[-1] = choice[0]
    tokens, evidence = proposal.tokens.tolist(), proposal.evidence.tolist()
    classes, right = [], []
    for node, above in [(node, above) for node, above in enumerate(proposal.parents.tolist()) if above in reached]:
        taken, row = reached[above], rows[node]
        if taken < 0 or node in lookahead or evidence[node] == NO_CLAIM:
            continue
        if not 0 <= row < len(speaker) or speaker[row] == lesson.source:
            classes.append(evidence[node])
            right.append(tokens[node] == taken)
    return classes, right
