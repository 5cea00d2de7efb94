"""Usual names of methods that this version does not have: asking for one is answered with what is missing."""

from __future__ import annotations

from collections.abc import Iterable

from draftwood.errors import UnknownNameError, UsageError

NOT_YET = "draftwood 0.1.0 has no draft models and no early exit yet, no llama.cpp or vLLM engine, and no server"
"""The sentence of README."""

_DRAFT_MODELS = (
    "assistant", "cascade", "draft", "draft-model", "eagle", "eagle2", "eagle3", "hydra", "medusa", "mtp",
    "quantised-self", "quantized-self",
)  # fmt: skip
_EARLY_EXIT = ("early-exit", "kangaroo", "layer-skip", "layerskip", "self-speculative", "swift")

PLANNED = frozenset((*_DRAFT_MODELS, *_EARLY_EXIT))
"""In lower case, with hyphens; whoever asks may write them otherwise."""


def unknown(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a drafter's name that nobody knows: that it is not here yet, or the nearest name."""
    if name.lower().replace("_", "-") in PLANNED:
        return UsageError(f"drafter {name!r} is not here: {NOT_YET}")
    return UnknownNameError("drafter", name, known)
