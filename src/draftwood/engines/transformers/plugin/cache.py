"""A given transformers cache as rows of our arena, and back: both ways through `SavedRows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import cache_utils
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from draftwood.contracts import Target, TargetSession, Watch
from draftwood.engines.committed import locked
from draftwood.engines.transformers.cache import SavedRows
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
            f"the given cache holds {length} tokens and the prompt has {prompt_length}: give the whole text, with "
            "at least one token that is not in the cache"
        )
    return length


class ContinuedTarget(Target):
    """A target whose sessions begin with the rows of a given cache, so that only the rest of a prompt is read. The
    cache holds the beginning of every prompt with ``padding`` tokens in front; it is only read."""

    def __init__(self, target: TransformersTarget, cache: DynamicCache, padding: Sequence[int]) -> None:
        self._target, self._cache, self._padding = target, cache, padding
        self.capabilities, self.lock = target.capabilities, target.lock

    def extend(self, texts: Sequence[tuple[Any, Sequence[int]]], watch: Sequence[Watch] | None = None) -> Any:
        return self._target.extend(texts, watch)

    def score(self, requests: Sequence[tuple[Any, int, TokenTree]]) -> Any:
        return self._target.score(requests)

    @locked
    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[TransformersSession, TorchScores]]:
        if not self._target.arena.tensors():  # a pass makes them, in the model's shapes
            for session, _ in self._target.open([prompts[0][:1]]):
                session.close()
        sessions: list[TransformersSession] = []
        try:
            for row, prompt in enumerate(prompts):
                saved = self._saved(row, prompt)
                length, room = len(saved.ids), reserve + len(prompt) - len(saved.ids)
                sessions.append(self._target.resume(saved, length, reserve=room))
            rest = [(session, ids[session.length :]) for session, ids in zip(sessions, prompts, strict=True)]
            return list(zip(sessions, self._target.extend(rest, watch), strict=True))
        except BaseException:
            for session in sessions:
                session.close()
            raise

    def _saved(self, row: int, prompt: Sequence[int]) -> SavedRows:
        """Return a row of the cache without its padding; `UsageError` if it does not fit the model. Rows that a
        layer with a window has dropped are zeros."""
        pad, layers, total = self._padding[row], self._cache.layers, int(self._cache.get_seq_length())
        found: list[tuple[Tensor, Tensor] | None] = []
        for number, buffers in enumerate(self._target.arena.layers):
            if buffers is None:  # it shares the rows of another layer
                found.append(None)
                continue
            layer: Any = layers[number] if number < len(layers) else None
            if layer is None or layer.keys is None or row >= len(layer.keys):
                raise UsageError(
                    f"the given cache has {len(layers)} layers and no row {row} in layer {number}: it does not "
                    "fit the model and its prompts"
                )
            _, heads, _, dim = buffers[0].shape
            if (heads, dim) != (layer.keys.shape[1], layer.keys.shape[3]):
                raise UsageError(
                    f"layer {number} of the given cache has other shapes than the model's: leave it out"
                )
            window, rows = self._target.arena.windows[number], layer.keys.shape[2]
            if rows < min(total, total if window is None else window - 1):
                raise UsageError(f"layer {number} of the given cache has lost rows that the model still looks at")
            both = (nn.functional.pad(one[row], (0, 0, total - rows, 0)) for one in (layer.keys, layer.values))
            keys, values = (one[:, pad:] for one in both)
            found.append((keys, values))
        return SavedRows(tuple(prompt[: max(0, total - pad)]), tuple(found))


def export(
    target: TransformersTarget, sessions: Sequence[TargetSession], padding: Sequence[int], cache: DynamicCache
) -> None:
    """Write what the sessions hold into a cache of transformers, with the padding in front of each row and zeros
    after shorter ones. After an error the cache is as it was."""
    saved: list[Any] = [target.save(session) for session in sessions]  # type: ignore[arg-type]
    total = max(pad + len(one.ids) for one, pad in zip(saved, padding, strict=True))
    filled: list[tuple[int, Tensor, Tensor]] = []
    for number in range(target.n_layers):
        rows = [one.layers[number] for one in saved]
        if None not in rows:
            keys, values = (_padded([row[i] for row in rows], padding, total) for i in (0, 1))
            filled.append((number, keys, values))
    for number, keys, values in filled:
        while number >= len(cache.layers):  # of a cache made without a configuration
            cache.layers.append(DynamicLayer())
        layer: Any = cache.layers[number]
        if not layer.is_initialized:
            layer.lazy_initialization(keys, values)
        width = getattr(layer, "sliding_window", None)
        kept = 0 if width is None else max(0, total - width + 1)
        layer.keys, layer.values = keys[:, :, kept:], values[:, :, kept:]
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = total


def _padded(rows: Sequence[Tensor], padding: Sequence[int], total: int) -> Tensor:
    """Put rows [heads, some, dim] together, [texts, heads, total, dim]."""
    found = rows[0].new_zeros(len(rows), rows[0].shape[0], total, rows[0].shape[2])
    for text, (row, pad) in enumerate(zip(rows, padding, strict=True)):
        found[text, :, pad : pad + row.shape[1]] = row
    return found
