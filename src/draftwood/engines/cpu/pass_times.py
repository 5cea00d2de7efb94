"""How long passes over a few tokens take here, so that a planner need not find out while it decodes."""

from __future__ import annotations

import math
from collections import Counter
from hashlib import sha256
from time import perf_counter, thread_time

import numpy as np

from draftwood.engines.cpu.model import CpuModel
from draftwood.engines.cpu.pages import Pages
from draftwood.engines.cpu.passes import Rows
from draftwood.models import findings
from draftwood.models.machine import machine

_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_CONTEXT = 256  # tokens before the pass: as of a short prompt
_ROUNDS = 4
_OWN = 0.7  # part of the time in which this thread had its core, for what was measured to be remembered
_LONG = 0.5  # seconds after which no other round begins, and a first one ends


def pass_times(model: CpuModel) -> dict[int, float]:
    """Return the seconds of passes, by their tokens; measured once per shape, machine and number of threads."""
    matrices = model.weights.matrices
    kinds = sorted(Counter((name, one.kind) for layer in matrices for name, one in layer.items()).items())
    facts = repr((model.weights.shape, kinds, model.weights.embedding.kind, model.weights.output.kind))
    how = f"{machine()}|{model.instructions.name}|{model.threads}"
    key = f"pass times of cpu|{how}|{sha256(facts.encode()).hexdigest()[:16]}"
    known = findings.remembered_list(key)
    if not known:
        begun, used = perf_counter(), thread_time()
        known = [max(1, round(1e6 * seconds)) for seconds in _measured(model)]
        if thread_time() - used > _OWN * (perf_counter() - begun):  # else another program had the core: try again
            findings.remember(key, known)
    return {width: microseconds / 1e6 for width, microseconds in zip(_WIDTHS, known, strict=False)}


def _measured(model: CpuModel) -> list[float]:
    """Return the shortest of some passes of each width, which other programs delayed least."""
    pages = Pages(model.page_bytes)
    pages.make_ready(0, _CONTEXT + _WIDTHS[-1])
    pages.clear()
    best, started = [math.inf] * len(_WIDTHS), perf_counter()
    for turn in range(_ROUNDS):
        for i, width in enumerate(_WIDTHS):
            if perf_counter() - started > _LONG and (turn or i > 1):
                break
            tokens = np.arange(width, dtype=np.int32) % model.weights.shape.vocabulary
            before = perf_counter()
            model.run([Rows(pages, _CONTEXT, tokens)])
            best[i] = min(best[i], perf_counter() - before)
    return [seconds for seconds in best if seconds < math.inf]
