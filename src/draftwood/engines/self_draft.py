"""Which layers the drafter ``early-exit`` means, in every engine."""

from __future__ import annotations

import re

from draftwood.errors import UsageError


def read_layers(text: str, layers: int) -> tuple[int, ...]:
    """Return the indices that `early_exit` describes, ascending; raises `UsageError` for what cannot be read."""
    text = text.strip()
    if not text:
        return tuple(range(max(1, layers // 2)))
    if re.fullmatch(r"\d+", text):
        ranges = [(0, _number(text, layers) - 1)]
    elif re.fullmatch(r"\d+(-\d+)?(\.\d+(-\d+)?)*", text):
        parts = [part.partition("-") for part in text.split(".")]
        ranges = [(_number(low, layers), _number(high or low, layers)) for low, _, high in parts]
    else:
        raise UsageError(f"early-exit: layers must be a number or ranges like 0-9.20-29, not {text!r:.80}")
    inside = all(last < layers for _, last in ranges)  # so that no list is longer than the model
    chosen = sorted({i for first, last in ranges for i in range(first, last + 1)}) if inside else []
    if not chosen or len(chosen) == layers:
        raise UsageError(
            f"early-exit: layers={text:.80} is outside the model: it has {layers} layers, 0 to {layers - 1}, and "
            f"at most {layers - 1} of them can draft"
        )
    return tuple(chosen)


def _number(digits: str, layers: int) -> int:
    """Return a number, or one that is too large where it has more digits than a number of layers has."""
    return int(digits) if len(digits) < 10 else layers + 1
