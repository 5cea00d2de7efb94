"""The passes of a model by its own forward and its own cache, each over one text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.contracts import Positions
from draftwood.engines.transformers.families import forward_parameters, one_pass, takes_rows
from draftwood.engines.transformers.native.cache import NativeCache, keeping
from draftwood.engines.transformers.pack import pack
from draftwood.engines.transformers.scores import TorchScores
from draftwood.engines.transformers.shadow import shadow


class NativePasses:
    """Runs a shadow of a model; parameters as in `NativeTarget`. ``kept`` tells how the model caches."""

    def __init__(self, model: Any, *, packed: bool) -> None:
        self._model = shadow(model, attention=None)
        self.packing = pack(self._model, packed=packed)
        self._takes, self._takes_rows = forward_parameters(model), takes_rows(model)
        self.device = model.get_input_embeddings().weight.device
        self.kept = keeping(self._model, self._inputs(np.zeros(2, dtype=np.int64), 0, 1))

    @one_pass
    def run(self, cache: NativeCache, ids: NDArray[np.int64], rows: int | Positions) -> TorchScores:
        """Run one pass over ``ids`` int64[n], which the cache then holds, and score the last ``rows`` of them, or
        those with these numbers."""
        logits: Tensor = cache.run(self._model, self._inputs(ids, cache.rows, rows), len(ids)).logits[0]
        if isinstance(rows, int):
            return TorchScores(logits[len(logits) - rows :])
        return TorchScores(logits if self._takes_rows else logits[torch.from_numpy(rows).to(logits.device)])

    def _inputs(self, ids: NDArray[np.int64], start: int, rows: int | Positions) -> dict[str, Any]:
        inputs: dict[str, Any] = {"input_ids": torch.from_numpy(ids)[None].to(self.device), "use_cache": True}
        if "position_ids" in self._takes:
            inputs["position_ids"] = torch.arange(start, start + len(ids), device=self.device)[None]
        if "logits_to_keep" in self._takes:
            chosen = None if isinstance(rows, int) else torch.from_numpy(rows).to(self.device)
            inputs["logits_to_keep"] = rows if chosen is None else chosen if self._takes_rows else len(ids)
        return inputs
