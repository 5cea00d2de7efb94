"""Which experts a row of a mixture takes, and its shares of them.

By softmax over the chosen (mixtral, qwen3moe): the experts with the best scores are chosen; a share is
exp(score - best score), divided by the sum of these. All others first make chances p of the scores, by softmax
over all experts or by sigmoid. The best by ``p + bias`` are chosen, and a share is p, or p divided by the sum of
the chosen p, times a number of the model. Of equal experts the lower number is chosen first.

Experts may lie in groups, of which the best are kept before experts are chosen: DeepSeek-V3, 2024 (arXiv
2412.19437), which has the bias, too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from draftwood.engines.cpu.blocks.scores import best_of
from draftwood.engines.cpu.blocks.slots import slots_of
from draftwood.engines.cpu.code.records import ADDRESS, NUMBER, REAL, ROWS, KernelModule, Per, PieceCode
from draftwood.engines.cpu.code.rounding import exponential, one_exponential, sigmoid
from draftwood.engines.cpu.code.values import I64, LANES, LOWEST, Place, Value
from draftwood.engines.cpu.program import Buffer, Program, Vector
from draftwood.engines.files.formats import padded


def _take_best(piece: PieceCode, scores: Place) -> tuple[Value, Value]:
    """Return the best expert of these scores, and its score, and take it out."""
    _, best, _ = best_of(piece.code, scores, piece.code.whole(0), piece.phase.experts)
    expert = best.signed().most(0)  # the first where all are NaN
    score = scores.f32[expert]
    scores.f32[expert] = piece.code.real(LOWEST)
    return expert, score


def _chosen(piece: PieceCode) -> None:
    """Write a row's experts and their shares: exp(score - best score), divided by the sum of these."""
    code, phase = piece.code, piece.phase
    with piece.rows() as row:
        scores, first = phase.x[row], row * phase.used
        chosen, shares = phase.chosen + first * 8, phase.shares + first * 4
        with code.count(0, phase.used) as rank:
            chosen.i64[rank], shares.f32[rank] = _take_best(piece, scores)
        highest, total = shares.f32[0], code.variable(code.real(0.0))
        with code.count(0, phase.used) as rank:
            shares.f32[rank] = one_exponential(shares.f32[rank] - highest)
            total.now = total.now + shares.f32[rank]
        with code.count(0, phase.used) as rank:
            shares.f32[rank] = shares.f32[rank] / total.now


def _softmax(piece: PieceCode, scores: Place) -> None:
    """Write exp(score - best score) of all experts, divided by their sum, which is added in order."""
    code, experts = piece.code, piece.phase.experts
    highest, _, _ = best_of(code, scores, code.whole(0), experts)
    with code.count(0, experts, LANES) as i:
        scores.f32x16[i] = exponential(scores.f32x16[i] - highest.splat())
    total = code.variable(code.real(0.0))
    with code.count(0, experts) as i:
        total.now = total.now + scores.f32[i]
    with code.count(0, experts, LANES) as i:
        scores.f32x16[i] = scores.f32x16[i] / total.now.splat()


def _sigmoid(piece: PieceCode, scores: Place) -> None:
    with piece.code.count(0, piece.phase.experts, LANES) as i:
        scores.f32x16[i] = sigmoid(scores.f32x16[i])


def _keep_groups(piece: PieceCode, row: Value, ranked: Place) -> None:
    """Write -infinity to the experts of all but the best groups; a group counts as the sum of its two best."""
    code, phase, counts = piece.code, piece.phase, piece.phase.group_scores[row].f32
    size = phase.experts // phase.expert_groups
    with code.count(0, phase.expert_groups) as group:
        best, second = code.variable(code.real(LOWEST)), code.variable(code.real(LOWEST))
        with code.count(0, size) as i:
            value = ranked.f32[group * size + i].most(LOWEST)  # what is NaN is left out
            second.now = value.least(best.now).most(second.now)
            best.now = value.most(best.now)
        counts[group] = best.now + second.now
    with code.count(0, phase.expert_groups) as group:
        better = code.variable(code.whole(0))
        with code.count(0, phase.expert_groups) as other:
            wins = (counts[other] > counts[group]) | (counts[other].equals(counts[group]) & (other < group))
            better.now = better.now + wins.unsigned(I64)
        with code.when(better.now >= phase.kept_groups), code.count(0, size) as i:
            ranked.f32[group * size + i] = code.real(LOWEST)


def _chosen_by(write_chances: Callable[[PieceCode, Place], None]) -> Callable[[PieceCode], None]:
    def write(piece: PieceCode) -> None:
        """Write a row's experts and their shares, p or ``p / (total + least)``, times ``scale``.

        total is the sum of the chosen p, the best first.
        """
        code, phase = piece.code, piece.phase
        with piece.rows() as row:
            chances, ranked, first = phase.x[row], phase.ranked[row], row * phase.used
            chosen, shares = phase.chosen + first * 8, phase.shares + first * 4
            write_chances(piece, chances)
            with code.count(0, phase.experts, LANES) as i:
                ranked.f32x16[i] = chances.f32x16[i] + phase.bias.f32x16[i]
            with code.when(phase.kept_groups < phase.expert_groups):
                _keep_groups(piece, row, ranked)
            total = code.variable(code.real(0.0))
            with code.count(0, phase.used) as rank:
                expert, _ = _take_best(piece, ranked)
                chosen.i64[rank] = expert
                shares.f32[rank] = chances.f32[expert]
                total.now = total.now + chances.f32[expert]
            divisor = phase.normalised.differs(0).where(total.now + phase.least, 1.0)
            with code.count(0, phase.used) as rank:
                shares.f32[rank] = shares.f32[rank] / divisor * phase.scale

    return write


MODULE = KernelModule("shares")
_SLOTS = {"chosen": ADDRESS, "shares": ADDRESS, "used": NUMBER, "experts": NUMBER}
_CHOSEN = MODULE.kernel("experts_chosen", Per.ROWS, _chosen, x=ROWS, **_SLOTS)
"""``chosen`` int64[slots]: the experts of rows with the scores x; ``shares`` float32[slots]: their weights."""
_CHOSEN_BY = {
    name: MODULE.kernel(
        f"experts_chosen_by_{name}", Per.ROWS, _chosen_by(chances), x=ROWS, ranked=ROWS, bias=ADDRESS,
        group_scores=ROWS, expert_groups=NUMBER, kept_groups=NUMBER, normalised=NUMBER, least=REAL, scale=REAL,
        **_SLOTS,
    )
    for name, chances in {"softmax": _softmax, "sigmoid": _sigmoid}.items()
}  # fmt: skip
"""The same by chances; ``ranked`` is room for rows like x, ``group_scores`` for a number of each group, ``bias``
float32[experts]."""


def add_choice(program: Program, scores: Buffer, bias: Vector | None) -> None:
    """Add the phase that chooses the experts of rows with these scores, which it overwrites."""
    shape, shares, slots = program.shape, program.shape.shares, slots_of(program)
    if bias is None and shares.gating == "softmax" and shares.normalised and shares.scale == 1:
        program.add(_CHOSEN, row=shape.width, x=scores, **slots.of(_CHOSEN))
        return
    kernel = _CHOSEN_BY[shares.gating]
    program.add(
        kernel, row=shape.width, x=scores, ranked=program.shared("ranked experts", shape.experts),
        bias=np.zeros(padded(shape.experts), dtype=np.float32) if bias is None else bias,
        group_scores=program.shared("scores of groups", shares.groups), expert_groups=shares.groups,
        kept_groups=shares.kept_groups, normalised=shares.normalised, least=shares.least, scale=shares.scale,
        **slots.of(kernel),
    )  # fmt: skip
