"""The passes of a model by its own forward and its own cache, each over one text: a chain or a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.contracts import Positions
from draftwood.engines.transformers.families import forward_parameters, layer_windows, takes_rows, text_config
from draftwood.engines.transformers.native.cache import NativeCache, keeping
from draftwood.engines.transformers.pack import Content, pack
from draftwood.engines.transformers.scores import TorchScores
from draftwood.engines.transformers.shadow import shadow
from draftwood.errors import UnsupportedModelError

_HIDDEN_WINDOWS = ("window_size", "attention_window", "attention_window_size", "local_attention")
"""Settings of windows that a model cuts inside its layers, by slots: there a tree's rows would see too little."""


class NativePasses:
    """Runs a shadow of a model; parameters as in `NativeTarget`. ``kept`` tells how the model caches."""

    def __init__(self, model: Any, *, trees: bool, packed: bool, kept: Mapping[Content, Tensor]) -> None:
        self._model = shadow(model, attention=None)
        self.packing = pack(self._model, kept, packed=packed)
        self._takes, self._takes_rows = forward_parameters(model), takes_rows(model)
        embedding = model.get_input_embeddings().weight
        self.device, self._dtype = embedding.device, embedding.dtype
        self._windows = _windows(model, text_config(model)) if trees else {}
        self.kept = keeping(self._model, self._inputs(np.zeros(2, dtype=np.int64), 0, None, 1))

    @torch.inference_mode()
    def run(
        self, cache: NativeCache, ids: NDArray[np.int64], rows: int | Positions,
        positions: NDArray[np.int64] | None = None, among: NDArray[np.bool_] | None = None,
    ) -> TorchScores:  # fmt: skip
        """Run one pass over ``ids`` int64[n], which the cache then holds, and score the last ``rows`` of them, or
        those with these numbers. Of a tree, ``positions`` int64[n] are places in the text and ``among`` bool[n, n]
        says what each token sees."""
        inputs = self._inputs(ids, cache.rows, positions, rows)
        if among is not None and positions is not None:
            inputs["attention_mask"] = self._masks(cache.rows, positions, among)
        logits: Tensor = cache.run(self._model, inputs, len(ids)).logits[0]
        if isinstance(rows, int):
            return TorchScores(logits[len(logits) - rows :])
        return TorchScores(logits if self._takes_rows else logits[torch.from_numpy(rows).to(logits.device)])

    def _inputs(
        self, ids: NDArray[np.int64], start: int, positions: NDArray[np.int64] | None, rows: int | Positions
    ) -> dict[str, Any]:
        inputs: dict[str, Any] = {"input_ids": torch.from_numpy(ids)[None].to(self.device), "use_cache": True}
        if "position_ids" in self._takes:
            at = np.arange(start, start + len(ids)) if positions is None else positions
            inputs["position_ids"] = torch.from_numpy(at)[None].to(self.device)
        if "logits_to_keep" in self._takes:
            chosen = None if isinstance(rows, int) else torch.from_numpy(rows).to(self.device)
            inputs["logits_to_keep"] = rows if chosen is None else chosen if self._takes_rows else len(ids)
        return inputs

    def _masks(self, start: int, positions: NDArray[np.int64], among: NDArray[np.bool_]) -> Any:
        """Additive masks [1, 1, n, start + n] per kind of layer; one alone where all are of one kind. Float, as
        models that attend by their own code add it; infinite, as what is masked may be larger than what is not."""
        sees = np.ones((len(among), start + len(among)), dtype=np.bool_)
        sees[:, start:] = among
        keys = np.concatenate((np.arange(start), positions))
        masks = {}
        for kind, window in self._windows.items():
            near = sees if window is None else sees & (positions[:, None] - keys[None, :] < window)
            mask = torch.zeros(near.shape, dtype=self._dtype)
            mask[torch.from_numpy(~near)] = -torch.inf
            masks[kind] = mask[None, None].to(self.device)
        return masks if len(masks) > 1 else next(iter(masks.values()))


def _windows(model: Any, config: Any) -> dict[str, int | None]:
    """Return the window of each kind of layer, for masks of trees."""
    name = type(model).__name__
    if "flash" in (config._attn_implementation or ""):
        raise UnsupportedModelError("flash attention takes no mask of a tree: load with sdpa, or score chains")
    windows = layer_windows(config)
    if windows is None or any(getattr(config, setting, None) for setting in _HIDDEN_WINDOWS):
        raise UnsupportedModelError(f"{name} has layers whose view no mask of ours describes: score chains")
    kinds = getattr(config, "layer_types", None) or [str(window) for window in windows]
    found = dict(zip(kinds, windows, strict=False))
    if any(found[kind] != window for kind, window in zip(kinds, windows, strict=False)):
        raise UnsupportedModelError(f"{name} has layers of one kind with different windows: score chains")
    return found
