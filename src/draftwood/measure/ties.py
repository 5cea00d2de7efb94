"""Where two texts first differ, and whether rounding can explain it: wide and narrow passes round differently, so
two exact decodings can differ at a near-tie, where the two best decision scores (logit, or logit / temperature
plus noise) are closer than the rounding. Anything else is a bug."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from draftwood.contracts import Sampling, Target
from draftwood.decoding.sequence import common_prefix
from draftwood.engines.rounding import Rounding, rounding_of
from draftwood.measure.bench.table import PLAIN
from draftwood.measure.records.records import Answer, Records, Row, grouped_by
from draftwood.verify.noise import KeyedNoise

# Of a number format: its epsilon; the units in the last place by which wide and narrow passes were seen to differ:
# in float32 because of the order of summation (6e-5 at scores around 20, see LOG.md), in the short formats because
# scores are rounded; and the largest divergence.
_FLOAT32 = (2.0**-23, 64, 1e-6)
_SEEN = {"float32": _FLOAT32, "float16": (2.0**-10, 2, 1e-3), "bfloat16": (2.0**-7, 2, 1e-2)}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two texts differ."""

    index: int  # of the new token; if one text is a prefix of the other, the length of the shorter
    tokens: tuple[int | None, int | None]  # what the two texts have there, None past an end
    margin: float  # best minus second best decision score of a fresh pass of the target
    best: float = 0.0  # the best decision score


def limits(dtype: str, score: float = 0.0) -> Rounding:
    """What rounding can do in this number format to a row whose best score is given: as the engine declares it,
    else as was seen of torch; an unknown format counts as float32."""
    if declared := rounding_of(dtype):
        return declared
    epsilon, units, divergence = _SEEN.get(dtype, _FLOAT32)
    unit = epsilon * 2.0 ** math.floor(math.log2(max(abs(score), 2.0**-10)))
    return Rounding(unit * units, divergence if dtype in _SEEN else 0.0, "rounding")


def first_difference(
    target: Target, prompt: Sequence[int], a: Sequence[int], b: Sequence[int], sampling: Sampling | None = None
) -> Difference | None:
    """Return the first place where ``a`` and ``b``, both written after ``prompt``, differ; None if equal."""
    index = common_prefix(a, b)
    if index == len(a) == len(b):
        return None
    text = [*prompt, *a[:index]]
    ((session, scores),) = target.open([text])
    try:
        row = scores.numpy(scores.raw(0)).astype(np.float64)
    finally:
        session.close()
    if sampling is not None and not sampling.greedy:
        row = row / sampling.temperature + KeyedNoise(sampling.seed, 0).gumbel(len(text), np.arange(len(row)))
    second, best = np.partition(row, -2)[-2:]
    pair = (a[index] if index < len(a) else None, b[index] if index < len(b) else None)
    return Difference(index, pair, float(best - second), float(best))


def differences(records: Records, target: Target | None, dtype: str) -> Iterator[Row]:
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


def _record(answer: Answer, truth: Answer, target: Target | None, dtype: str) -> Row:
    index = common_prefix(answer.output_ids, truth.output_ids)
    found: Row = {"row": "difference", "answer": answer.id, "against": truth.id, "index": index}
    comparable = not answer.sampled or answer.engine == "draftwood"
    if target is None or not comparable or set(answer.sampling) - {"temperature"}:
        return found | {"margin": None, "near_tie": None}
    sampling = Sampling(**answer.sampling, seed=answer.seed or 0)
    parted = first_difference(target, answer.prompt_ids, truth.output_ids, answer.output_ids, sampling)
    if parted is None:
        return found
    explained = limits(dtype, parted.best)
    return found | {
        "tokens": list(parted.tokens), "margin": parted.margin, "near_tie": parted.margin <= explained.score,
        "rounding": explained.score, "cause": explained.cause,
    }  # fmt: skip
