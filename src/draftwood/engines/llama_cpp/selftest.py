"""What is tried on each machine: which passes are exact, what can be taken back, how long passes take.

Each trial runs once per file and machine. llama.cpp's products round differently for some widths and types of
weights: Q4_0, Q4_1 and Q8_0 gave equal rows at every width tried, F16 and F32 at none. Times of passes rise in
steps of their own on each processor, and a planner that does not know them finds them out while it decodes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from time import perf_counter

import numpy as np

from draftwood.contracts import Floats
from draftwood.engines.llama_cpp.context import RECURRENT, Context, Row, Settings
from draftwood.engines.llama_cpp.library import library
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.errors import DraftwoodError
from draftwood.models import findings
from draftwood.models.machine import machine

READ = 16  # tokens that are read; what follows in the cache are copies of them, at the same positions
BLOCK = 128


def filled(weights: Weights, settings: Settings, length: int, room: int) -> Context:
    """Return a context whose sequence 0 sees ``length`` tokens, a multiple of `BLOCK`, with room for more.

    The next position is `READ`.
    """
    context = Context(weights, settings, length + room, 2)
    if length:
        block = _block(weights, settings)
        for _ in range(length // BLOCK):
            _add(context, block)
    return context


def _block(weights: Weights, settings: Settings) -> bytearray:
    """Return the state of `BLOCK` tokens."""
    context = Context(weights, settings, 2 * BLOCK, 2)
    rows = [Row(token_at(i, weights), i, (0,)) for i in range(READ)]
    context.run(rows, 1)
    for _ in range((BLOCK // READ).bit_length() - 1):
        _add(context, context.state(0))
    state = context.state(0)
    context.close()
    return state


def token_at(position: int, weights: Weights) -> int:
    """Return some token for a position."""
    return (7 + 13 * position) % weights.vocab_size


def _add(context: Context, state: bytearray) -> None:
    """Put a state behind what sequence 0 sees."""
    context.restore(1, state)
    context.copy(1, 0, 0)
    context.remove(1)


_WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24)


def exact_width(weights: Weights, settings: Settings, behind: int = 0) -> int:
    """Return the most tokens of an exact pass, 1 if there is none.

    ``behind``: it is tried after a text of so many tokens too, a multiple of `BLOCK`.
    """

    def tried() -> int:
        width = tried_width(weights, settings)
        return min(width, tried_width(weights, settings, behind)) if behind and width > 1 else width

    return _once(("width", _WIDTHS, behind), weights, settings, tried)


def _once(what: tuple[object, ...], weights: Weights, settings: Settings, tried: Callable[[], int]) -> int:
    """Return what a trial found, which is remembered from one start to the next."""
    key = trial_key(what, weights, settings)
    known = findings.remembered(key)
    if known is None:
        known = tried()
        findings.remember(key, known)
    return known


def _passes(what: str, weights: Weights, settings: Settings, tried: Callable[[Weights, Settings], bool]) -> bool:
    """Whether a trial was passed, now or at an earlier start; it is not where the library refuses."""

    def attempt() -> int:
        try:
            return int(tried(weights, settings))
        except DraftwoodError:
            return 0

    return bool(_once((what,), weights, settings, attempt))


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
    """Whether tokens of a pass can be taken back though layers keep a state."""
    return _passes("rollback", weights, settings, _tried_rollback)


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
    """Whether drafts can be tried after a snapshot of what layers keep."""
    return _passes("snapshot", weights, settings, _tried_snapshot)


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


def trial_key(what: tuple[object, ...], weights: Weights, settings: Settings) -> str:
    """Name all that the result of a trial depends on; the file by its size and time of change."""
    path = str(weights.path.resolve())
    facts = what, weights.stamp, path, library().release, weights.gpu_layers, settings, machine()
    return "llama.cpp " + hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


_TIMED = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_ROUNDS = 3
_LONG = 0.5  # seconds after which no other round begins, and a first one ends


def pass_times(weights: Weights, settings: Settings, widest: int) -> dict[int, float]:
    """Return the seconds of passes over 1 to ``widest`` tokens at most; remembered from one start to the next."""
    key = trial_key(("pass times", _TIMED, widest), weights, settings)
    known = findings.remembered_list(key)
    if not known:
        known = [max(1, round(1e6 * seconds)) for seconds in _measured(weights, settings, widest)]
        findings.remember(key, known)
    return {width: microseconds / 1e6 for width, microseconds in zip(_TIMED, known, strict=False)}


def _measured(weights: Weights, settings: Settings, widest: int) -> list[float]:
    """Return the shortest of some passes of each width, which other programs delayed least.

    A wide pass is charged with what it adds to the plain one behind it, too: the library plans its work anew
    whenever the width changes.
    """
    context = Context(weights, settings, READ + widest, 2)
    rows = [Row(token_at(i, weights), i, (0,)) for i in range(READ + widest)]
    context.run(rows[:READ], 1)

    def seconds(width: int) -> float:
        before = perf_counter()
        context.run(rows[READ : READ + width])
        taken = perf_counter() - before
        context.remove(0, READ)
        return taken

    plain = behind = math.inf  # of passes over one token: after another such pass, and after a wide one
    wide, started = [math.inf] * len(_TIMED), perf_counter()
    for turn in range(_ROUNDS):
        for i, width in enumerate(_TIMED[1:]):
            late = perf_counter() - started > _LONG
            if width > widest or (late and (turn or i)):
                break
            wide[i] = min(wide[i], seconds(width))
            behind = min(behind, seconds(1))
            plain = min(plain, seconds(1))
    context.close()
    return [plain, *(taken + max(0.0, behind - plain) for taken in wide if taken < math.inf)]
