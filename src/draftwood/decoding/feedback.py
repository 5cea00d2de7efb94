"""What a pass gave: scores that may be broken, feedback for the drafters, the step's record, the trace.

A NaN in a pass over several rows may have come from another row: a row that is masked out is multiplied by zero,
and zero times infinity, or times NaN, is NaN. So where a pass holds a draft or another text, a broken row is no
reason to end a text: the root is scored again, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftwood.contracts import Feedback, Floats, Ints, Noise, Plan, Sampling, Scores, Verdict
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.prompt_scores import hidden_layers
from draftwood.step import MODEL, Step
from draftwood.tree import TokenTree


class BrokenRowError(Exception):
    """A row of a shared pass has a NaN, or no finite score; never leaves a request."""


class CheckedScores:
    """Scores of a pass over several rows; `argmax` and `raw` raise `BrokenRowError` for a broken row.

    Fulfils `draftwood.contracts.Scores`.
    """

    def __init__(self, scores: Scores) -> None:
        self._scores = scores
        self.numpy, self.top_k, self.hidden = scores.numpy, scores.top_k, scores.hidden

    def argmax(self, row: int) -> int:
        best = self._scores.argmax(row)
        if best < 0:
            raise BrokenRowError
        return best

    def raw(self, row: int) -> Any:
        self.argmax(row)  # raise before a processor runs: it must run once per token
        return self._scores.raw(row)


def feedback(
    sources: Sequence[DraftSource],
    plan: Plan,
    verdict: Verdict,
    scores: Scores,
    *,
    context: int,
    sampling: Sampling,
    noise: Noise | None,
) -> list[Feedback]:
    """Return what each source is told; ``context`` is the number of committed tokens before the pass."""
    if not sources:
        return []
    tree, needs = plan.tree.locked(), [source.needs_now for source in sources]
    most = max([need.top_k for need in needs])
    top_k = scores.top_k(most) if most else None
    known = [-1] * (1 + len(tree))
    if top_k is not None and any([need.choice for need in needs]):
        known = _raw_choice(tree.positions(context), *top_k, sampling, noise).tolist()
    for node, token in zip((-1, *verdict.path), verdict.emitted, strict=False):  # the last node may be the end
        known[1 + node] = token
    choice = np.array(known, dtype=np.int32)
    for array in (*(top_k or ()), *plan.node_map, choice):
        array.flags.writeable = False
    layers = hidden_layers(needs) if any([need.hidden for need in needs]) else ()
    hidden = {layer: scores.hidden(layer) for layer in layers}
    found = []
    for i, (source, need, rows) in enumerate(zip(sources, needs, plan.node_map, strict=True)):
        own = None if top_k is None or not need.top_k else (top_k[0][:, : need.top_k], top_k[1][:, : need.top_k])
        shown = {layer: hidden[layer] for layer in need.hidden}
        lesson = Feedback(tree, source.proposal, rows, verdict.path, verdict.emitted, choice, own, shown, i)
        found.append(lesson)
    return found


def _raw_choice(where: Ints, ids: Ints, probabilities: Floats, sampling: Sampling, noise: Noise | None) -> Ints:
    """What the target would take off the path too, judged by the raw top-k and the noise alone.

    ``where`` int32[rows] are the positions of what follows each row; a row without a probability has no choice.
    """
    best = ids[:, 0]
    if noise is not None:
        with np.errstate(divide="ignore"):
            scores = np.log(probabilities) / sampling.temperature
        for row, position in enumerate(where.tolist()):
            scores[row] += noise.gumbel(position, ids[row])
        best = ids[np.arange(len(ids)), scores.argmax(axis=1)]
    return np.where(probabilities[:, 0] > 0, best, np.int32(-1))


def record(step: Step, tree: TokenTree, verdict: Verdict) -> None:
    """Write what was scored, accepted and emitted into the step's record."""
    path, emitted = verdict.path, verdict.emitted
    step.emitted, step.finish = emitted, verdict.finish
    step.sources = (MODEL,) * len(emitted)
    if len(tree):
        step.lookahead_scored = tree.n_lookahead
        step.drafted, step.accepted, step.depth = len(tree) - tree.n_lookahead, len(path), tree.longest
        proposed = tree.source.tolist() if path else []
        step.sources = tuple([proposed[node] for node in path]) + step.sources[len(path) :]


def trace(tree: TokenTree, verdict: Verdict) -> dict[str, Any]:
    """Return the scored tree for `Step.trace`."""
    found = {
        name: getattr(tree, name).tolist() for name in ("tokens", "parents", "source", "evidence", "lookahead")
    }
    return {**found, "belief": [round(b, 4) for b in tree.belief.tolist()], "path": list(verdict.path)}
