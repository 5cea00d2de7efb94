"""How torch is imported and a model loaded: with threads that suit a busy machine.

OpenMP lets threads spin while they wait for each other, and if one has lost its core, a pass takes a hundred times
as long. Threads that sleep avoid this.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from draftwood.local.crowding import is_crowded
from draftwood.local.machine import cores

_LOG = logging.getLogger("draftwood")
_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Environment variables that OpenMP reads once, when torch is imported."""

_waiting = {"passive": os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"}


@contextmanager
def importing_torch(threads: int | None = None) -> Iterator[None]:
    """Let torch's threads sleep while they wait, if this block imports torch and the machine is busy."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    many = threads or (int(asked) if asked.isdigit() else cores())
    settled = "torch" in sys.modules or many == 1 or any(name in os.environ for name in _SETTINGS)
    if settled or not is_crowded(many):
        yield
        return
    _LOG.warning("the processor is busy, so torch's threads sleep while they wait")
    os.environ["OMP_WAIT_POLICY"] = "passive"
    _waiting["passive"] = True
    try:
        yield
    finally:
        os.environ.pop("OMP_WAIT_POLICY", None)  # child processes decide for themselves


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not look for unreachable cycles: importing makes a million objects that stay, and takes a fifth longer
    if all of them are looked at again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
