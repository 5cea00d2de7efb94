"""Any decoder-only model of transformers as a target: its own forward pass and its own cache, text by text.

For models that `TransformersTarget` cannot take: those whose layers keep more than keys and values (recurrent and
hybrid models), and those whose attention does not go through transformers' attention interface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.contracts import Capabilities, Watch
from draftwood.engines.transformers.families import (
    forward_parameters,
    layer_windows,
    max_positions,
    refuse_unsupported,
    text_config,
)
from draftwood.engines.transformers.native.cache import NativeCache, keeping
from draftwood.engines.transformers.native.session import NativeSession
from draftwood.engines.transformers.pack import Content, limit_widths, pack
from draftwood.engines.transformers.scores import TorchScores
from draftwood.engines.transformers.shadow import shadow
from draftwood.engines.transformers.widths import WIDTHS
from draftwood.errors import UnsupportedModelError
from draftwood.tree import TokenTree

_HIDDEN_WINDOWS = ("window_size", "attention_window", "attention_window_size", "local_attention")
"""Settings of windows that a model cuts inside its layers, by slots: there a tree's rows would see too little."""


class NativeTarget:
    """A decoder-only model that scores drafts by its own forward pass.

    The model itself is not touched: passes run on a shadow that shares its weights. What to try, best first:
    ``trees=True``, then neither, then ``step_by_step=True``; only a trial can tell which is right for a model (see
    `selftest`), since models differ in what they make of several tokens behind a state.

    Parameters
    ----------
    model
        A ``PreTrainedModel`` for causal language modelling.
    trees
        Score trees by a mask and positions; for models that keep keys and values only.
    step_by_step
        One token per pass, nothing is taken back, so no drafts: for models that read several tokens right only
        from an empty cache. Prompts are then read in one pass, whatever ``chunk`` says.
    chunk
        Most tokens of one text per pass: longer prompts are read in pieces.
    packed
        Run linear layers on packed weights where the machine can (see `pack`).
    kept
        Packed copies that were made before (see `Packing`).

    Raises
    ------
    UnsupportedModelError
        For models that keep no cache; with ``trees``, where a mask cannot say all that its layers do.
    """

    def __init__(
        self,
        model: Any,
        *,
        trees: bool = False,
        step_by_step: bool = False,
        chunk: int = 1024,
        packed: bool = True,
        kept: Mapping[Content, Tensor] = MappingProxyType({}),
    ) -> None:
        refuse_unsupported(model)
        self._model = shadow(model, attention=None)
        self.packing = pack(self._model, kept) if packed else None
        if self.packing is None:
            limit_widths(self._model)
        self._takes = forward_parameters(model)
        embedding = model.get_input_embeddings().weight
        self._device, self._dtype = embedding.device, embedding.dtype
        self.lock = RLock()
        config = text_config(model)
        self._windows = _windows(model, config) if trees else {}
        self.kept = keeping(self._model, self._inputs(np.zeros(2, dtype=np.int64), 0, None, 1))
        if trees and self.kept.stateful:
            raise UnsupportedModelError(
                f"{type(model).__name__} carries states, which cannot branch: score chains"
            )
        self.one_pass_prompts = step_by_step
        rollback: Literal["truncate", "snapshot", "none"] = "snapshot" if self.kept.stateful else "truncate"
        self.chunk = chunk
        self.capabilities = Capabilities(
            vocab_size=embedding.shape[0],
            max_positions=max_positions(config),
            trees=trees,
            rollback="none" if step_by_step else rollback,
            max_pass=1 if step_by_step else chunk,
            widths=WIDTHS if self.packing is not None else (),
        )

    @property
    def device(self) -> torch.device:
        """Where token ids go in."""
        return self._device

    def open(
        self, prompts: Sequence[Sequence[int]], *, reserve: int = 0, watch: Sequence[Watch] | None = None
    ) -> list[tuple[NativeSession, TorchScores]]:
        del reserve
        opened = []
        for number, prompt in enumerate(prompts):
            session = NativeSession(self)
            opened.append((session, session.extend(prompt, None if watch is None else watch[number])))
        return opened

    def score(self, requests: Sequence[tuple[NativeSession, int, TokenTree]]) -> list[TorchScores]:
        """One pass per request: these models' states cannot share one."""
        return [session.score(root, tree) for session, root, tree in requests]

    @torch.inference_mode()
    def run(
        self,
        cache: NativeCache,
        ids: NDArray[np.int64],
        rows: int,
        positions: NDArray[np.int64] | None = None,
        among: NDArray[np.bool_] | None = None,
    ) -> TorchScores:
        """One pass.

        Parameters
        ----------
        cache
            What went before; moves on.
        ids : int64[n]
            Tokens of the pass.
        rows
            How many of the last of them are scored.
        positions, among : int64[n], bool[n, n]
            Of a tree: position of each token in the text, and which tokens of the pass it sees.
        """
        inputs = self._inputs(ids, cache.rows, positions, rows)
        if among is not None and positions is not None:
            inputs["attention_mask"] = self._masks(cache.rows, positions, among)
        logits: Tensor = cache.run(self._model, inputs, len(ids)).logits[0]
        return TorchScores(logits[len(logits) - rows :])

    def _inputs(
        self, ids: NDArray[np.int64], start: int, positions: NDArray[np.int64] | None, rows: int
    ) -> dict[str, Any]:
        inputs: dict[str, Any] = {"input_ids": torch.from_numpy(ids)[None].to(self._device), "use_cache": True}
        if "position_ids" in self._takes:
            at = np.arange(start, start + len(ids)) if positions is None else positions
            inputs["position_ids"] = torch.from_numpy(at)[None].to(self._device)
        if "logits_to_keep" in self._takes:
            inputs["logits_to_keep"] = rows
        return inputs

    def _masks(self, start: int, positions: NDArray[np.int64], among: NDArray[np.bool_]) -> Any:
        """Additive masks [1, 1, n, start + n] per kind of layer; one alone where all layers are of one kind.

        Float, not bool: models that attend by their own code add it. Infinite, not the lowest number: what is
        masked may be larger than what is not.
        """
        sees = np.ones((len(among), start + len(among)), dtype=np.bool_)
        sees[:, start:] = among
        keys = np.concatenate((np.arange(start), positions))
        masks = {}
        for kind, window in self._windows.items():
            near = sees if window is None else sees & (positions[:, None] - keys[None, :] < window)
            mask = torch.zeros(near.shape, dtype=self._dtype)
            mask[torch.from_numpy(~near)] = -torch.inf
            masks[kind] = mask[None, None].to(self._device)
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
