"""What a response tells of its steps, for clients that ask for it: the object ``draftwood``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from draftwood.serve.answer import Answer, Update
from draftwood.step import MODEL, Step

Decode = Callable[[Sequence[int]], str]


def told(update: Update, names: Sequence[str], decode: Decode) -> dict[str, Any]:
    """Return what a piece of a stream tells: its text by source, and the step that it comes from.

    Parameters
    ----------
    update
        What a pass has brought.
    names
        Names of the drafters, by index.
    decode
        From token ids to text.
    """
    pieces = [{"text": piece.text, "source": piece.source} for piece in update.pieces]
    step = None if update.step is None else _step(update.step, names, decode)
    return {"pieces": pieces, "tokens": update.tokens, "step": step}


def summary(answer: Answer) -> dict[str, Any]:
    """Return what a whole response tells of one choice: a record per step, as in our files, and rates."""
    rates, found = answer.generation.stats, answer.generation
    return {
        "index": answer.index,
        "sources": found.sources,
        "prefill_seconds": found.prefill_s,
        "passes": rates.passes,
        "tokens_per_pass": rates.mean_acceptance_length,
        "tokens_per_second": rates.tokens_per_second,
        "drafters": list(answer.names),
        "steps": [step.to_json() for step in found.steps],
    }


def _step(step: Step, names: Sequence[str], decode: Decode) -> dict[str, Any]:
    said = {"index": step.index, "drafted": step.drafted, "accepted": step.accepted}
    return {**said, "ms": round(step.seconds * 1e3, 3), "tree": _tree(step.trace, names, decode)}


def _tree(trace: dict[str, Any] | None, names: Sequence[str], decode: Decode) -> dict[str, Any] | None:
    """Return the scored tree: texts, parents (-1: the root), sources, and the indices of accepted nodes."""
    if not trace or not trace.get("tokens"):
        return None
    return {
        "texts": [decode([token]) for token in trace["tokens"]],
        "parents": list(trace["parents"]),
        "sources": ["model" if source == MODEL else names[source] for source in trace["source"]],
        "path": list(trace["path"]),
    }
