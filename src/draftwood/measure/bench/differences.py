"""Finds texts that differ from plain decoding's: where each does, and whether rounding can explain it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from draftwood.contracts import Sampling, Target
from draftwood.decoding.sequence import common_prefix
from draftwood.measure.bench.table import PLAIN
from draftwood.measure.records.records import Answer, Records, grouped_by
from draftwood.measure.ties import first_difference, limits


def differences(records: Records, target: Target | None, dtype: str) -> Iterator[dict[str, Any]]:
    """Yield a ``difference`` record for each text that differs from plain decoding's; of equal texts of an arm
    only the first, and none that ``records`` has. The margin comes from ``target``, whose ``dtype`` decides what a
    near-tie is; None for other weights or noise (llama.cpp, transformers' sampling), truncated or penalised
    sampling. A text of a lossy rule has no record: it is meant to differ, and `table` counts it as changed."""
    known = {record["answer"] for record in records.of_kind("difference")}
    by_prompt = grouped_by(records.answers, lambda a: (a.task, a.name))
    seen: set[tuple[str, str, str, tuple[int, ...]]] = set()
    for answer in records.answers:
        same, arms = by_prompt[answer.task, answer.name], PLAIN.get(answer.engine, ())
        # Plain decoding's answer to the same prompt; None for a sampled text of another engine.
        plain = (other for arm in arms for other in same if other.arm == arm)
        truth = next(filter(answer.repeats, plain), None)
        key = (answer.task, answer.name, answer.arm, tuple(answer.output_ids))
        if truth is None or answer.rule is not None or truth.output_ids == answer.output_ids or key in seen:
            continue
        seen.add(key)
        if answer.id not in known:
            yield _record(answer, truth, target if answer.engine != "llama.cpp" else None, dtype)


def _record(answer: Answer, truth: Answer, target: Target | None, dtype: str) -> dict[str, Any]:
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
    explained = limits(dtype, parted.best)
    return found | {
        "tokens": list(parted.tokens), "margin": parted.margin, "near_tie": parted.near_tie(dtype),
        "rounding": explained.score, "cause": explained.cause,
    }  # fmt: skip
