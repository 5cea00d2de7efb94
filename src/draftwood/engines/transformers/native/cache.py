"""A model's own cache, whatever its form: cutting and copying it. transformers' own `crop` is never
called: it refuses windows and silently leaves recurrent states advanced (issue 49036 there). Rows of attention are
cut here; all else that a pass may change counts as state, which is copied before a pass and put back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, cache_utils
from transformers.cache_utils import DynamicCache

from draftwood.engines.transformers.families import CARRIERS, cache_name, forward_parameters
from draftwood.errors import UnsupportedModelError

_KEYS_AND_VALUES = {"keys": -2, "values": -2}
_ROWS: dict[type, dict[str, int]] = {
    getattr(cache_utils, "DummyLayer", cache_utils.DynamicLayer): {},  # transformers 5.20 has none
    cache_utils.DynamicLayer: _KEYS_AND_VALUES,
    cache_utils.DynamicIndexedLayer: _KEYS_AND_VALUES | {"indexer_keys": 1, "indexer_position_ids": -1},
    cache_utils.LinearAttentionLayer: {},
    cache_utils.LinearAttentionAndFullAttentionLayer: _KEYS_AND_VALUES,
}
"""Per layer class the tensors with one row per token, and the axis of the rows. These classes never write into
such a tensor but make a longer one, so copies may share it. Layers of other classes are copied whole."""


@dataclass(frozen=True)
class Keeping:
    """How a model caches the text, found by trying: see `keeping`."""

    carrier: str  # the argument, and attribute of the output, that holds the cache
    fresh: Callable[[], Any] | None  # makes an empty cache; None where the model must make its own
    places: tuple[tuple[nn.Module, str], ...]  # modules that keep states in themselves, and the attributes
    stateful: bool  # whether some of it cannot be cut back row by row


@dataclass
class NativeCache:
    """The cache of one text, after ``rows`` tokens."""

    kept: Keeping
    held: Any = None
    inside: list[Any] = field(default_factory=list)
    rows: int = 0

    @classmethod
    def empty(cls, kept: Keeping) -> NativeCache:
        return cls(kept, kept.fresh() if kept.fresh else None, [None] * len(kept.places))

    @property
    def nbytes(self) -> int | None:
        """Bytes of the layers' tensors and of states in modules; None for caches without layers."""
        if self.held is not None and not hasattr(self.held, "layers"):
            return None
        layers = [] if self.held is None else self.held.layers
        values = [value for layer in layers for value in vars(layer).values()] + self.inside
        return sum(value.nbytes for value in values if isinstance(value, Tensor))

    def run(self, model: Any, inputs: dict[str, Any], rows: int) -> Any:
        """Run the model over ``rows`` more tokens; returns its output."""
        for (module, name), value in zip(self.kept.places, self.inside, strict=True):
            setattr(module, name, value)
        carried = {} if self.held is None else {self.kept.carrier: self.held}
        out = model(**inputs, **carried)
        self.held = getattr(out, self.kept.carrier, self.held)  # RecurrentGemma fills it but does not return it
        self.inside = [getattr(module, name) for module, name in self.kept.places]
        self.rows += rows
        return out

    def copied(self) -> NativeCache:
        """Return an independent copy; both share the attention rows that they have in common."""
        return NativeCache(self.kept, _copied(self.held), [_copied(v) for v in self.inside], self.rows)

    def cut(self, rows: int) -> None:
        """Keep the first rows; for caches without states."""
        # Layers differ in length where a pass was interrupted.
        for layer in () if self.held is None else self.held.layers:
            for name, axis in _ROWS[type(layer)].items():
                tensor = getattr(layer, name)
                if tensor is not None and tensor.numel():
                    setattr(layer, name, tensor.narrow(axis, 0, min(rows, tensor.shape[axis])))
        self.rows = rows


@torch.inference_mode()
def keeping(model: Any, inputs: dict[str, Any]) -> Keeping:
    """Find out how a model caches the text, in one pass over ``inputs``, a few tokens. The model must be a shadow,
    since states in its modules change. Raises `UnsupportedModelError` if there is no cache."""
    before = _inside(model)
    out = model(**inputs)
    places = tuple(
        (module, name)
        for key, (module, name, value) in _inside(model).items()
        if value is not before.get(key, (module, name, None))[2]
    )
    names = (cache_name(forward_parameters(model)), *CARRIERS)
    carrier = next((name for name in names if getattr(out, name, None) is not None), names[0])
    returned = getattr(out, carrier, None)
    if returned is None and not places:
        raise UnsupportedModelError(f"{type(model).__name__} keeps no cache of the text: use model.generate")
    plain = returned is None or type(returned) is DynamicCache
    fresh = partial(_fresh, model.config) if plain else None
    stateful = bool(places) or fresh is None or any(map(_is_stateful, fresh().layers))
    return Keeping(carrier, fresh, places, stateful)


def _inside(model: nn.Module) -> dict[tuple[int, str], tuple[nn.Module, str, Any]]:
    """Attributes of modules that are unregistered tensors, or None."""
    return {
        (id(module), name): (module, name, value)
        for module in model.modules()
        for name, value in module.__dict__.items()
        if value is None or isinstance(value, Tensor)
    }


def _fresh(config: Any) -> DynamicCache:
    cache = DynamicCache(config=config)
    cache.layers = [_unwindowed(layer) for layer in cache.layers]
    return cache


def _unwindowed(layer: Any) -> Any:
    """Return a layer without a window in place of a windowed one: the model's own mask cuts the window."""
    if type(layer) is cache_utils.DynamicSlidingWindowLayer:
        return cache_utils.DynamicLayer()
    if type(layer) is cache_utils.LinearAttentionAndSlidingWindowAttentionLayer:
        return cache_utils.LinearAttentionAndFullAttentionLayer(number_of_states=layer.number_of_states)
    return layer


def _is_stateful(layer: Any) -> bool:
    return type(layer) not in _ROWS or isinstance(layer, cache_utils.LinearAttentionCacheLayerMixin)


def _copied(thing: Any) -> Any:
    """Copy a structure of containers, cache objects and tensors; parts that no pass changes are shared."""
    if isinstance(thing, Tensor):
        return thing.clone()
    if isinstance(thing, list | tuple):
        return type(thing)([_copied(part) for part in thing])
    if isinstance(thing, dict):
        return type(thing)({key: _copied(part) for key, part in thing.items()})
    if isinstance(thing, type | nn.Module | PreTrainedConfig) or not hasattr(thing, "__dict__") or callable(thing):
        return thing
    twin = copy.copy(thing)
    shared = _ROWS.get(type(thing), {})
    for name, part in thing.__dict__.items():
        twin.__dict__[name] = part if name in shared else _copied(part)
    return twin
