"""What is tried on each machine, once per file: which passes are exact, what can be taken back, what passes cost.

llama.cpp's products round differently for some widths and types of weights: Q4_0, Q4_1 and Q8_0 gave equal rows at
every width tried, F16 and F32 at none. Times of passes rise in steps of their own on each processor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from time import perf_counter

import numpy as np

from draftwood.contracts import Floats
from draftwood.engines.llama_cpp.context import RECURRENT, Context, ContextSettings, PassRow
from draftwood.engines.llama_cpp.library import library
from draftwood.engines.llama_cpp.weights import LlamaWeights
from draftwood.engines.pass_times import kept_times, shortest
from draftwood.errors import DraftwoodError
from draftwood.local import findings
from draftwood.local.machine import machine

Facts = tuple[object, ...]
READ = 16  # tokens that are read before
_WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24)


def _rows(weights: LlamaWeights, count: int) -> list[PassRow]:
    """Return some tokens, of a text from its beginning."""
    return [PassRow((7 + 13 * i) % weights.vocab_size, i, (0,)) for i in range(count)]


def _once(what: Facts, weights: LlamaWeights, settings: ContextSettings, trial: Callable[[], int]) -> int:
    """Return what a trial found, which is remembered from one start to the next."""
    key = trial_key(what, weights, settings)
    known = findings.remembered(key)
    if known is None:
        known = trial()
        findings.remember(key, known)
    return known


def trial_key(what: Facts, weights: LlamaWeights, settings: ContextSettings) -> str:
    """Name all that the result of a trial depends on; the file by its size and time of change."""
    path = str(weights.path.resolve())
    facts = what, weights.stamp, path, library().release, weights.gpu_layers, settings, machine()
    return "llama.cpp " + hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def exact_width(weights: LlamaWeights, settings: ContextSettings) -> int:
    """Return the most tokens of an exact pass, 1 if there is none."""
    return _once(("width", _WIDTHS), weights, settings, lambda: tried_width(weights, settings))


def tried_width(weights: LlamaWeights, settings: ContextSettings) -> int:
    """Compare passes of growing width with passes over one token."""
    most = _WIDTHS[-1]
    context, rows = Context(weights, settings, READ + most, 2), _rows(weights, READ + most)
    context.run(rows[:READ], 1)
    before, found = context.state(0), 1
    alone = [context.run([row])[0].copy() for row in rows[READ:]]
    for width in _WIDTHS:
        context.remove(0)
        context.restore(0, before)
        if not np.array_equal(context.run(rows[READ : READ + width]), alone[:width]):
            break
        found = width
    context.close()
    return found


def restores(weights: LlamaWeights, settings: ContextSettings) -> bool:
    """Whether drafts can be tried after a snapshot of what layers keep; not where the library refuses."""

    def attempt() -> int:
        try:
            return int(_tried_snapshot(weights, settings))
        except DraftwoodError:
            return 0

    return bool(_once(("snapshot",), weights, settings, attempt))


def _tried_snapshot(weights: LlamaWeights, settings: ContextSettings) -> bool:
    """Compare a wide pass, and what follows it or a snapshot of before it, with passes over one token."""
    context, width = Context(weights, settings, 2 * READ, 2), READ // 2
    rows = _rows(weights, READ + width + 1)
    text, rows = rows[:READ], rows[READ:]

    def read() -> None:
        context.clear()
        context.run(text, 1)

    def alone(place: int) -> Floats:
        return context.run([rows[place]])[0].copy()

    read()
    plain = np.stack([alone(place) for place in range(width + 1)])
    read()
    snapshot = context.state(0, RECURRENT)
    together = context.run(rows[:width]).copy()
    found = list(zip(range(width + 1), [*together, alone(width)], strict=True))
    for waiting in (0, 1, width - 1):
        context.go_back(0, snapshot, READ)
        if waiting:
            context.run(rows[:waiting], 1)
        found.append((waiting, alone(waiting)))
    context.close()
    return all(_is_nearest(scores, plain, place) for place, scores in found)


def _is_nearest(scores: Floats, rows: Floats, place: int) -> bool:
    """Whether scores are at most half as far from the row at a place as from any other."""
    gaps = np.abs(rows - scores).max(axis=1)
    return bool(np.isfinite(gaps).all() and 2 * gaps[place] <= np.delete(gaps, place).min())


_TIMED = (1, 2, 3, 4, 5, 6, 8, 12, 16)


def pass_times(weights: LlamaWeights, settings: ContextSettings, widest: int) -> dict[int, float]:
    """Return the seconds of passes over 1 to ``widest`` tokens at most; remembered from one start to the next."""
    key = trial_key(("pass times", _TIMED, widest), weights, settings)
    return kept_times(key, _TIMED, lambda: (_measured(weights, settings, widest), True))


def _measured(weights: LlamaWeights, settings: ContextSettings, widest: int) -> list[float]:
    """Return the seconds of passes of each width.

    A wide pass is charged with what it adds to the plain one after it, too: the library plans its work anew
    whenever the width changes.
    """
    context, rows = Context(weights, settings, READ + widest, 2), _rows(weights, READ + widest)
    context.run(rows[:READ], 1)

    def seconds(width: int) -> float:
        before = perf_counter()
        context.run(rows[READ : READ + width])
        taken = perf_counter() - before
        context.remove(0, READ)
        return taken

    after_wide: list[float] = []  # of passes over one token, after a wide one and after another such pass
    after_plain: list[float] = []

    def wide_and_plain(width: int) -> float:
        taken = seconds(width)
        after_wide.append(seconds(1))
        after_plain.append(seconds(1))
        return taken

    wide = shortest([width for width in _TIMED[1:] if width <= widest], wide_and_plain, least=1)
    context.close()
    plain = min(after_plain)
    return [plain, *(taken + max(0.0, min(after_wide) - plain) for taken in wide)]
