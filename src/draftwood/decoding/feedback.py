"""What a pass taught: feedback for the drafters, the step's record, the trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftwood.contracts import Feedback, Floats, Ints, Noise, Plan, Sampling, Scores, Verdict
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.prompt_scores import hidden_layers
from draftwood.step import MODEL, RunningStep
from draftwood.tree import TokenTree


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
    tree, needs = plan.tree, [source.needs_now for source in sources]
    if not len(tree) and not any(need.top_k or need.hidden or need.choice for need in needs):
        return _unscored(sources, plan, verdict)
    most = max(need.top_k for need in needs)
    top_k = scores.top_k(most) if most else None
    shown = tree.locked()
    for array in (*(top_k or ()), *plan.node_map):
        array.flags.writeable = False
    known = [-1] * (1 + len(tree))
    if top_k is not None and any(need.choice for need in needs):
        known = _raw_choice(tree.positions(context), *top_k, sampling, noise).tolist()
    for node, token in zip((-1, *verdict.path), verdict.emitted, strict=False):  # the last node may be the end
        known[1 + node] = token
    choice = np.array(known, dtype=np.int32)
    choice.flags.writeable = False
    hidden = {layer: scores.hidden(layer) for layer in hidden_layers(needs)}
    found = []
    for i, (source, need, rows) in enumerate(zip(sources, needs, plan.node_map, strict=True)):
        own = None if top_k is None or not need.top_k else (top_k[0][:, : need.top_k], top_k[1][:, : need.top_k])
        lesson = Feedback(shown, source.proposal, rows, verdict.path, verdict.emitted, choice, own, hidden, i)
        found.append(lesson)
    return found


def _unscored(sources: Sequence[DraftSource], plan: Plan, verdict: Verdict) -> list[Feedback]:
    """Do what `feedback` does where only the root was scored and nobody asks for more, as in half of all steps."""
    choice = np.array(verdict.emitted[:1], dtype=np.int32)
    for array in (choice, *plan.node_map):
        array.flags.writeable = False
    return [
        Feedback(plan.tree, source.proposal, rows, (), verdict.emitted, choice, None, {}, number)
        for number, (source, rows) in enumerate(zip(sources, plan.node_map, strict=True))
    ]


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


def record(step: RunningStep, tree: TokenTree, verdict: Verdict) -> None:
    """Write what was scored, accepted and emitted into the step's record."""
    step.emitted, step.finish = verdict.emitted, verdict.finish
    step.lookahead_scored = tree.n_lookahead
    step.drafted, step.accepted = len(tree) - step.lookahead_scored, len(verdict.path)
    step.depth = tree.longest
    if not verdict.path:
        step.sources = (MODEL,) * len(verdict.emitted)
        return
    sources = tree.source.tolist()
    credit = [sources[node] for node in verdict.path]
    step.sources = (*credit, *[MODEL] * (len(verdict.emitted) - len(credit)))


def trace(tree: TokenTree, verdict: Verdict) -> dict[str, Any]:
    """Return the scored tree for `Step.trace`."""
    found = {
        name: getattr(tree, name).tolist() for name in ("tokens", "parents", "source", "evidence", "lookahead")
    }
    return {**found, "belief": [round(b, 4) for b in tree.belief.tolist()], "path": list(verdict.path)}
