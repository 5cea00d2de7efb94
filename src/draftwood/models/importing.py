"""How torch and transformers are imported and load a model: quietly, and with threads that suit a busy machine.

OpenMP lets threads spin while they wait for each other, and if one has lost its core, a pass takes a hundred times
as long. Threads that sleep avoid this.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from draftwood.models.machine import cores

_LOG = logging.getLogger("draftwood")
_SAMPLE_S = 0.1
_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Environment variables that OpenMP reads once, when torch is imported."""

_waiting = {"passive": os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"}


def is_crowded(threads: int) -> bool:
    """Return whether programs of our priority leave fewer than ``threads`` cores idle; takes a tenth of a
    second.
    """
    import psutil

    # Not psutil's percentages: they divide by a second at least, however little time has passed.
    before = psutil.cpu_times()._asdict()
    time.sleep(_SAMPLE_S)
    spent = {name: after - before[name] for name, after in psutil.cpu_times()._asdict().items()}
    total = sum(seconds for name, seconds in spent.items() if not name.startswith("guest"))  # "user" has these too
    free = ["idle", "iowait"]
    if hasattr(os, "nice") and os.nice(0) <= 0:
        free.append("nice")
    idle = sum(spent.get(name, 0.0) for name in free) / total if total > 0 else 1.0
    every: int = psutil.cpu_count() or 1
    return bool(every * idle < min(threads, every) - 0.5)


@contextmanager
def importing_torch(threads: int | None = None) -> Iterator[None]:
    """Let torch's threads sleep while they wait, if this block imports torch and the machine is busy."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    many = threads or (int(asked) if asked.isdigit() else cores())
    settled = "torch" in sys.modules or many == 1 or any(name in os.environ for name in _SETTINGS)
    if settled or not is_crowded(many):
        yield
        return
    _LOG.warning(
        "other programs keep the processor busy: torch's threads sleep while they wait for each other, which is "
        "quicker now (OMP_WAIT_POLICY=active keeps them spinning)"
    )
    os.environ["OMP_WAIT_POLICY"] = "passive"
    _waiting["passive"] = True
    try:
        yield
    finally:
        os.environ.pop("OMP_WAIT_POLICY", None)  # child processes decide for themselves


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Turn off transformers' progress bars and log lines below errors, and restore both at the end."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not look for unreachable cycles: importing makes a million objects that stay, and takes a fifth longer
    if all of them are looked at again and again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
