"""How long passes over a few tokens take here: without it a planner would have to find out while it decodes.

Times rise in steps of their own on each processor and type of weights (a pass over four tokens may take hardly
longer than one over three), so they are measured, once per file and machine.
"""

from __future__ import annotations

import math
from time import perf_counter

from draftwood.engines.llama_cpp.context import Context, Row, Settings
from draftwood.engines.llama_cpp.filling import READ, token_at
from draftwood.engines.llama_cpp.selftest import trial_key
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.models import findings

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_ROUNDS = 3
_LONG = 0.5  # seconds after which no other round begins, and a first one ends


def pass_times(weights: Weights, settings: Settings, widest: int) -> dict[int, float]:
    """Return the seconds of passes over 1 to ``widest`` tokens at most; remembered from one start to the next."""
    key = trial_key("pass times", weights, settings, _WIDTHS, widest)
    known = findings.remembered_list(key)
    if not known:
        known = [max(1, round(1e6 * seconds)) for seconds in _measured(weights, settings, widest)]
        findings.remember(key, known)
    return {width: microseconds / 1e6 for width, microseconds in zip(_WIDTHS, known, strict=False)}


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
    wide, started = [math.inf] * len(_WIDTHS), perf_counter()
    for turn in range(_ROUNDS):
        for i, width in enumerate(_WIDTHS[1:]):
            late = perf_counter() - started > _LONG
            if width > widest or (late and (turn or i)):
                break
            wide[i] = min(wide[i], seconds(width))
            behind = min(behind, seconds(1))
            plain = min(plain, seconds(1))
    context.close()
    return [plain, *(taken + max(0.0, behind - plain) for taken in wide if taken < math.inf)]
