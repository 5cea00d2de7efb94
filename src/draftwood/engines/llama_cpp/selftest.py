"""How many tokens a pass may hold so that its rows are, bit by bit, those of passes over one token.

llama.cpp's products round differently for some widths and types of weights: Q4_0, Q4_1 and Q8_0 gave equal rows
at every width tried, F16 and F32 at none. So it is tried, once per file and machine.
"""

from __future__ import annotations

import hashlib

import numpy as np

from draftwood.contracts import Floats
from draftwood.engines.llama_cpp.context import RECURRENT, Context, Row, Settings
from draftwood.engines.llama_cpp.filling import READ, filled, token_at
from draftwood.engines.llama_cpp.library import library
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.errors import DraftwoodError
from draftwood.models import findings
from draftwood.models.machine import machine

_WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24)


def exact_width(weights: Weights, settings: Settings, behind: int = 0) -> int:
    """Return the most tokens of an exact pass, 1 if there is none; remembered from one start to the next.

    What is remembered is not tried again: it is named after all that it depends on (`trial_key`). ``behind``: it
    is tried behind a text of so many tokens too, a multiple of `BLOCK`.
    """
    key = trial_key("width", weights, settings, _WIDTHS, behind)
    known = findings.remembered(key)
    if known is None:
        known = tried_width(weights, settings)
        if behind and known > 1:
            known = min(known, tried_width(weights, settings, behind))
        findings.remember(key, known)
    return known


def tried_width(weights: Weights, settings: Settings, behind: int = 0) -> int:
    """Compare passes of growing width with passes over one token."""
    most = _WIDTHS[-1]
    context = filled(weights, settings, behind, READ + most)
    rows = [Row(token_at(i, weights), i, (0,)) for i in range(READ + most)]
    if not behind:
        context.run(rows[:READ], 1)
    before, found = context.state(0), 1
    alone = [context.run([row])[0].copy() for row in rows[READ:]]
    for width in _WIDTHS:
        context.remove(0)
        context.restore(0, before)
        together = context.run(rows[READ : READ + width])
        if not np.array_equal(together, alone[:width]):
            break
        found = width
    context.close()
    return found


def refuse_unusable(weights: Weights, settings: Settings) -> None:
    """Raise `ModelError` where the library makes no cache of these settings."""
    Context(weights, settings, 1, 1).close()


def rolls_back(weights: Weights, settings: Settings) -> bool:
    """Whether tokens of a pass can be taken back though layers keep a state; remembered between starts."""
    key = trial_key("rollback", weights, settings)
    known = findings.remembered(key)
    if known is None:
        try:
            known = int(_tried_rollback(weights, settings))
        except DraftwoodError:  # the library refused what follows a cut
            known = 0
        findings.remember(key, known)
    return bool(known)


def _tried_rollback(weights: Weights, settings: Settings) -> bool:
    """Cut a pass to each length: what follows must be nearest to what follows plain text of that length."""
    context = Context(weights, settings, 2 * READ, 2)
    if context.rollback < settings.rollback:
        return False
    width = 1 + settings.rollback
    rows = [Row(token_at(i, weights), i, (0,)) for i in range(READ + width)]
    context.run(rows[:READ], 1)
    before = context.state(0)

    def after(tokens: int, together: int) -> Floats:
        """Score some token behind so many; with ``together``, by a pass over so many that is cut."""
        context.remove(0)
        context.restore(0, before)
        end = READ + tokens
        if together:
            context.run(rows[READ : READ + together])
            if not context.cut(0, end):
                return np.full((1, weights.vocab_size), np.inf, dtype=np.float32)
        for row in rows[READ:end] if not together else ():
            context.run([row])
        return context.run([Row(0, end, (0,))]).copy()

    lengths = range(1, width)
    plain = np.concatenate([after(length, 0) for length in lengths])
    gaps = [np.abs(plain - after(length, width)).max(axis=1) for length in lengths]
    context.close()
    return all(np.isfinite(gap[i]) and gap.argmin() == i for i, gap in enumerate(gaps))


def restores(weights: Weights, settings: Settings) -> bool:
    """Whether drafts can be tried behind a snapshot of what layers keep; remembered between starts."""
    key = trial_key("snapshot", weights, settings)
    known = findings.remembered(key)
    if known is None:
        try:
            known = int(_tried_snapshot(weights, settings))
        except DraftwoodError:  # the library refused
            known = 0
        findings.remember(key, known)
    return bool(known)


def _tried_snapshot(weights: Weights, settings: Settings) -> bool:
    """Compare a wide pass, and what follows it or a snapshot of before it, with passes over one token."""
    context = Context(weights, settings, 2 * READ, 2)
    width = READ // 2
    text = [Row(token_at(i, weights), i, (0,)) for i in range(READ)]
    rows = [Row(token_at(i, weights), i, (0,)) for i in range(READ, READ + width + 1)]

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


def trial_key(kind: str, weights: Weights, *settings: object) -> str:
    """Name all that the result of a trial depends on; the file by its size and time of change."""
    facts = (
        kind,
        weights.stamp,
        str(weights.path.resolve()),
        library().release,
        weights.gpu_layers,
        settings,
        machine(),
    )
    return "llama.cpp " + hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
