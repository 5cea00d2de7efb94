"""Drafting by a part of the target, or by its weights in few bits, on the target's own cache.

Sources: Elhoushi and others, "LayerSkip", arXiv 2404.16710 (the first layers); Zhang and others, "Draft & Verify",
arXiv 2309.08168 (any subset of them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from draftwood.engines.transformers.quantized_copies import quantized_target
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError, UsageError

_made: WeakKeyDictionary[Any, dict[Any, TransformersTarget]] = WeakKeyDictionary()
"""Per target, what drafts on its cache, by the layers that it runs or the bits of its weights."""
_MOST = 8  # of them per target; then the oldest is dropped
_lock = Lock()


def early_exit(target: Any, layers: str = "") -> TransformersTarget:
    """Return what runs only these layers of a target, on the target's sessions, for `GrowingTarget.grow`.

    ``layers`` is a number (the first so many) or ranges, as in ``0-9.20-29``; empty: the first half. It has no
    weights of its own. The layers' keys and values of the committed text are those that the whole model has left.

    Raises
    ------
    CapabilityError
        For targets whose passes draftwood does not run itself, layer by layer.
    UsageError
        For layers that the model does not have.
    """
    if not isinstance(target, TransformersTarget) or (decoder := target.decoder) is None:
        raise CapabilityError(
            "early-exit needs a model of transformers whose layers draftwood runs itself (Llama-like ones): use "
            "another drafter"
        )
    chosen = read_layers(layers, decoder.n_layers)
    return _once(target, chosen, lambda: target.with_decoder(decoder.subset(chosen)))


def quantized_self(target: Any, model: Any, bits: int) -> TransformersTarget:
    """Return what runs the model of a target on its own weights in so many bits, on the target's sessions.

    Made once per target, which is made anew when the model changes. Raises what `quantized_target` raises.
    """
    if not isinstance(target, TransformersTarget) or not target.capabilities.grows:
        raise CapabilityError(
            "quantized-self needs a model of transformers that runs on draftwood's own cache: use other drafters"
        )
    return _once(target, bits, lambda: target.running_as(quantized_target(model, bits, checked=True)))


def _once(target: TransformersTarget, key: Any, make: Callable[[], TransformersTarget]) -> TransformersTarget:
    with _lock:
        known = _made.setdefault(target, {})
        if key not in known:
            if len(known) >= _MOST:
                del known[next(iter(known))]
            known[key] = make()
        return known[key]


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
