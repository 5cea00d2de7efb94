"""A key for all that the result of a model's trial depends on, the same in every process."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch

from draftwood.engines.transformers.seen import traits
from draftwood.models.machine import machine

_LIBRARIES = ("draftwood", "torch", "transformers", "peft", "accelerate", "numpy")


def trial_key(model: Any, *, packed: bool) -> str | None:
    """Return the key of a model's trial, or None where the model holds code of unknown effect. It covers the
    model's `traits`, packing, versions of the libraries, code of this engine, processor, instruction set, device
    and threads, but not the values of weights: the brief trial at each start finds a way that fails with some."""
    known = traits(model)
    if known is None:
        return None
    device = model.get_input_embeddings().weight.device.type
    versions = [(name, getattr(sys.modules.get(name), "__version__", None)) for name in _LIBRARIES]
    runs = (machine(device), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
    facts = (known.hex(), packed, _engine(), sys.version, versions, runs)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@cache
def _engine() -> str:
    """Return a digest of this engine's own source files."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
