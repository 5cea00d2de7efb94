"""How many tokens a pass may hold so that its rows are, bit by bit, those of passes over one token.

llama.cpp's products round differently for some widths and types of weights: Q4_0, Q4_1 and Q8_0 gave equal rows
at every width tried, F16 and F32 at none. So it is tried, once per file and machine.
"""

from __future__ import annotations

import hashlib

import numpy as np

from draftwood.engines.llama_cpp.context import Context, Row, Settings
from draftwood.engines.llama_cpp.library import GOOD
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.models import trials
from draftwood.models.machine import machine

_WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24)
_PROMPT = 16  # tokens before the pass


def exact_width(weights: Weights, settings: Settings) -> int:
    """Return the most tokens of an exact pass, 1 if there is none; remembered from one start to the next."""
    key = trial_key(weights, settings, _WIDTHS)
    known = trials.remembered(key)
    if known is None:
        known = tried_width(weights, settings)
        trials.remember(key, known)
    return known


def tried_width(weights: Weights, settings: Settings) -> int:
    """Compare passes of growing width with passes over one token; 1 where these cannot be undone."""
    if weights.is_recurrent:
        return 1
    context = Context(weights, settings, _PROMPT + _WIDTHS[-1], 2)
    ids = [(7 + 13 * i) % weights.vocab_size for i in range(_PROMPT + _WIDTHS[-1])]
    rows = [Row(token, i, (0,)) for i, token in enumerate(ids)]
    context.run(rows[:_PROMPT], np.eye(1, _PROMPT, _PROMPT - 1, dtype=np.int8)[0])
    one, found = np.ones(1, dtype=np.int8), 1
    alone = [context.run([row], one)[0].copy() for row in rows[_PROMPT:]]
    for width in _WIDTHS:
        context.remove(0, _PROMPT)
        together = context.run(rows[_PROMPT : _PROMPT + width], np.ones(width, dtype=np.int8))
        if not np.array_equal(together, alone[:width]):
            break
        found = width
    context.close()
    return found


def trial_key(weights: Weights, *settings: object) -> str:
    """Name all that the result of a trial depends on; the file by its size and time of change."""
    stat = weights.path.stat()
    facts = (
        stat.st_size,
        stat.st_mtime_ns,
        str(weights.path.resolve()),
        GOOD[-1],
        weights.gpu_layers,
        settings,
        machine(),
    )
    return "llama.cpp " + hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
