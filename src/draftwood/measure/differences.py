"""Texts that are not plain's: where each parts, and whether the model was undecided there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftwood.contracts import Sampling, Target
from draftwood.measure.records import Answer, Rows
from draftwood.measure.table import PLAIN
from draftwood.measure.ties import first_difference
from draftwood.request import common_prefix


def differences(rows: Rows, target: Target | None, dtype: str) -> Iterator[dict[str, Any]]:
    """Yield a ``difference`` row for each text that differs from plain's, of equal ones of an arm the first.

    Parameters
    ----------
    rows
        What was measured; differences that it holds already are left out.
    target
        Asked for the margin, unless the engine's weights or noise are others than its own (llama.cpp, and sampling
        in transformers): then the margin is None.
    dtype
        Number format of the target, which decides what a near-tie is.
    """
    known = {row["answer"] for row in rows.of_kind("difference")}
    seen: set[tuple[str, str, str, tuple[int, ...]]] = set()
    for answer in rows.answers:
        truth = _truth(rows, answer)
        key = (answer.task, answer.name, answer.arm, tuple(answer.output_ids))
        if truth is None or truth.output_ids == answer.output_ids or key in seen:
            continue
        seen.add(key)
        if answer.id not in known:
            yield _row(answer, truth, target if answer.engine != "llama.cpp" else None, dtype)


def _truth(rows: Rows, answer: Answer) -> Answer | None:
    """Return plain's answer to the same prompt; a sampled text of another engine has none here."""
    same = [a for a in rows.answers if (a.task, a.name) == (answer.task, answer.name)]
    for arm in PLAIN.get(answer.engine, ()):
        for other in same:
            if other.arm == arm and (not answer.sampling or other.engine == answer.engine):
                return other
    return None


def _row(answer: Answer, truth: Answer, target: Target | None, dtype: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "row": "difference",
        "answer": answer.id,
        "against": truth.id,
        "index": common_prefix(answer.output_ids, truth.output_ids),
    }
    comparable = not answer.sampling or answer.engine == "draftwood"
    if target is None or not comparable:
        return found | {"margin": None, "near_tie": None}
    sampling = Sampling(**answer.sampling, seed=answer.seed or 0) if answer.sampling else None
    parted = first_difference(target, answer.prompt_ids, truth.output_ids, answer.output_ids, sampling)
    if parted is None:
        return found
    return found | {
        "tokens": list(parted.tokens), "margin": parted.margin, "near_tie": parted.near_tie(dtype),
    }  # fmt: skip
