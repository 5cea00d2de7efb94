"""What passes of a few widths cost here: measured in little time, and kept from one start to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter

from draftwood.local import findings

_ROUNDS = 3
_LONG = 0.5  # seconds after which measuring ends


def shortest(widths: Sequence[int], seconds: Callable[[int], float], *, least: int) -> list[float]:
    """Return the shortest time of some passes of each width, which other programs delayed least.

    ``seconds`` runs a pass of a width and returns what it took. On a slow machine the last widths are left out,
    but ``least`` of them are measured.
    """
    best, started = [math.inf] * len(widths), perf_counter()
    for turn in range(_ROUNDS):
        for i, width in enumerate(widths):
            if perf_counter() - started > _LONG and (turn or i >= least):
                break
            best[i] = min(best[i], seconds(width))
    return [taken for taken in best if taken < math.inf]


def kept_times(
    key: str, widths: Sequence[int], measure: Callable[[], tuple[list[float], bool]]
) -> dict[int, float]:
    """Return the seconds of passes by their width: those kept under ``key``, or what ``measure`` returns.

    It returns the seconds of the first of these ``widths``, and whether they are worth keeping.
    """
    known = findings.remembered_list(key)
    if not known:
        measured, is_sound = measure()
        known = [max(1, round(1e6 * seconds)) for seconds in measured]
        if is_sound:
            findings.remember(key, known)
    return {width: microseconds / 1e6 for width, microseconds in zip(widths, known, strict=False)}
