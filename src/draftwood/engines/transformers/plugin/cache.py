"""Copies rows of a given transformers cache into our arena, and rows of the arena back after the text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from draftwood.contracts import Target, TargetSession, Watch
from draftwood.engines.transformers.scores import TorchScores
from draftwood.engines.transformers.session import TransformersSession
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import PromptError, UsageError
from draftwood.tree import TokenTree

_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer, getattr(cache_utils, "DummyLayer", DynamicLayer))
"""Layers that we can read and fill; the last kind is one that uses another's rows."""


def is_exchangeable(cache: Any) -> bool:
    """Return whether rows can be read from this cache and written into it."""
    return (
        isinstance(cache, DynamicCache)
        and not getattr(cache, "offloading", False)
        and all(type(layer) in _LAYERS for layer in cache.layers)
    )


def held(cache: Any, prompt_length: int) -> int:
    """Return how many tokens of the prompt a given cache holds. Raises `UsageError` for a cache whose rows cannot
    be exchanged with ours, `PromptError` for one that leaves nothing of the prompt to read."""
    if not is_exchangeable(cache):
        kinds = sorted({type(layer).__name__ for layer in getattr(cache, "layers", [])})
        raise UsageError(
            f"the given cache is a {type(cache).__name__} ({', '.join(kinds) or 'no layers'}), whose rows "
            "draftwood cannot take over: give a DynamicCache, or none"
        )
    length = int(cache.get_seq_length())
    if length and length >= prompt_length:
        raise PromptError(
            f"past_key_values holds {length} tokens and the prompt has {prompt_length}: give the whole text, with "
            "at least one token that is not in the cache"
        )
    return length


class ContinuedTarget(Target):
    """A target whose sessions begin with the rows of a given cache, so that only the rest of a prompt is read. The
    cache holds the beginning of every prompt with ``padding`` tokens in front; it is only read."""

    def __init__(self, target: TransformersTarget, cache: DynamicCache, padding: Sequence[int]) -> None:
        self._target, self._cache, self._padding = target, cache, padding
        self.capabilities = target.capabilities

    def extend(self, texts: Sequence[tuple[Any, Sequence[int]]], watch: Sequence[Watch] | None = None) -> Any:
        return self._target.extend(texts, watch)

    def score(self, requests: Sequence[tuple[Any, int, TokenTree]]) -> Any:
        return self._target.score(requests)

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[TransformersSession, TorchScores]]:
        if all(buffer is None for buffer in self._target.arena.keys):  # a pass makes them, in the model's shapes
            for session, _ in self._target.open([prompts[0][:1]]):
                session.close()
        return self._target.open(prompts, reserve=reserve, watch=watch, begin=partial(self._adopt, prompts))

    def _adopt(self, prompts: Sequence[Sequence[int]], row: int, session: TransformersSession) -> None:
        """Copy a row of the cache into a fresh session, without its padding; `UsageError` if it does not fit the
        model."""
        length = max(0, int(self._cache.get_seq_length()) - self._padding[row])
        if length == 0:
            return
        self._target.arena.wrote(session.slot, length)
        with torch.inference_mode():
            for number, keys in enumerate(self._target.arena.keys):
                if keys is not None:  # else it shares the rows of another layer
                    self._adopt_layer(session, number, row, length)
        session.commit(prompts[row][:length])

    def _adopt_layer(self, session: TransformersSession, number: int, row: int, length: int) -> None:
        """Copy the last rows of a layer, all that the model still attends to, to the beginning of its buffers."""
        arena, layers = self._target.arena, self._cache.layers
        window, layer = arena.windows[number], layers[number] if number < len(layers) else None
        if layer is None or layer.keys is None or row >= len(layer.keys):
            raise UsageError(
                f"past_key_values has {len(layers)} layers and no row {row} in layer {number}: it does not fit "
                "the model and its prompts"
            )
        count = length if window is None else min(length, window - 1)
        if layer.keys.shape[-2] < count:
            raise UsageError(f"layer {number} of past_key_values has lost rows that the model still looks at")
        session.first[window] = length - count
        buffers: tuple[Any, Any] = arena.keys[number], arena.values[number]
        for buffer, rows in zip(buffers, (layer.keys, layer.values), strict=True):
            if (buffer.shape[1], buffer.shape[3]) != (rows.shape[1], rows.shape[3]):
                raise UsageError(
                    f"layer {number} of past_key_values has other shapes than the model's: leave it out"
                )
            buffer[session.slot, :, :count] = rows[row, :, rows.shape[-2] - count :].to(buffer.device)


def export(
    target: TransformersTarget, sessions: Sequence[TargetSession], padding: Sequence[int], cache: DynamicCache
) -> None:
    """Write what the sessions hold into a cache of transformers, with the padding in front of each row and zeros
    after shorter ones. After an error the cache is as it was."""
    texts = list(zip(sessions, padding, strict=True))
    total = max(pad + session.length for session, pad in texts)
    filled: list[tuple[Any, Tensor, Tensor]] = []
    for number, window in enumerate(target.arena.windows):
        keys, values = target.arena.keys[number], target.arena.values[number]
        if keys is None or values is None:
            continue
        while number >= len(cache.layers):  # of a cache made without a configuration
            cache.layers.append(DynamicLayer())
        layer: Any = cache.layers[number]
        width = getattr(layer, "sliding_window", None)
        rows = total if width is None else min(total, width - 1)
        both = (_gathered(texts, window, buffer, total - rows, rows) for buffer in (keys, values))
        filled.append((layer, *both))
    for layer, keys, values in filled:
        if not layer.is_initialized:
            layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = total


def _gathered(
    texts: Sequence[tuple[Any, int]], window: int | None, buffer: Tensor, start: int, rows: int
) -> Tensor:
    """Return ``rows`` rows of a layer from row ``start`` of the padded texts on, [texts, heads, rows, dim]."""
    found = buffer.new_zeros(len(texts), buffer.shape[1], rows, buffer.shape[-1])
    for index, (session, pad) in enumerate(texts):
        first = session.first[window]  # of the text, in the buffer's row 0
        begin, end = max(first, start - pad), session.length
        if begin < end:
            where = slice(begin + pad - start, end + pad - start)
            found[index, :, where] = buffer[session.slot, :, begin - first : end - first]
    return found
