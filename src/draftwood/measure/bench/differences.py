"""Texts that are not plain's: where each parts, and whether the model was undecided there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftwood.contracts import Sampling, Target
from draftwood.decoding.sequence import common_prefix
from draftwood.measure.bench.table import PLAIN
from draftwood.measure.records.records import Answer, Records
from draftwood.measure.ties import first_difference


def differences(rows: Records, target: Target | None, dtype: str) -> Iterator[dict[str, Any]]:
    """Yield a ``difference`` row for each text that differs from plain's, of equal ones of an arm the first.

    Parameters
    ----------
    rows
        What was measured; differences that it holds already are left out.
    target
        Asked for the margin, which is None for other weights or noise (llama.cpp, sampling in transformers) and
        for settings that it cannot redo (truncated support, penalties).
    dtype
        Number format of the target, which decides what a near-tie is.
    """
    known = {row["answer"] for row in rows.of_kind("difference")}
    by_prompt: dict[tuple[str, str], list[Answer]] = {}
    for answer in rows.answers:
        by_prompt.setdefault((answer.task, answer.name), []).append(answer)
    seen: set[tuple[str, str, str, tuple[int, ...]]] = set()
    for answer in rows.answers:
        truth = _truth(by_prompt[answer.task, answer.name], answer)
        key = (answer.task, answer.name, answer.arm, tuple(answer.output_ids))
        if truth is None or truth.output_ids == answer.output_ids or key in seen:
            continue
        seen.add(key)
        if answer.id not in known:
            yield _row(answer, truth, target if answer.engine != "llama.cpp" else None, dtype)


def _truth(same: list[Answer], answer: Answer) -> Answer | None:
    """Return plain's answer to the same prompt; a sampled text of another engine has none here."""
    for arm in PLAIN.get(answer.engine, ()):
        for other in same:
            if other.arm == arm and answer.comparable(other):
                return other
    return None


def _row(answer: Answer, truth: Answer, target: Target | None, dtype: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "row": "difference",
        "answer": answer.id,
        "against": truth.id,
        "index": common_prefix(answer.output_ids, truth.output_ids),
    }
    comparable = not answer.sampled or answer.engine == "draftwood"
    if target is None or not comparable or set(answer.sampling) - {"temperature"}:
        return found | {"margin": None, "near_tie": None}
    sampling = Sampling(**answer.sampling, seed=answer.seed or 0)
    parted = first_difference(target, answer.prompt_ids, truth.output_ids, answer.output_ids, sampling)
    if parted is None:
        return found
    return found | {
        "tokens": list(parted.tokens), "margin": parted.margin, "near_tie": parted.near_tie(dtype),
    }  # fmt: skip
