"""Scores of a pass as the rule and the drafters want them: each answer is computed when asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.errors import CapabilityError


class TorchScores:
    """Scores over logits [rows, vocab].

    On a CPU only the rows that are asked for are looked at; elsewhere the argmax of all rows comes in one copy.
    """

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits
        on_cpu = logits.device.type == "cpu" and logits.dtype == torch.float32
        self._best: list[int] | None = None
        self._rows = logits.numpy() if on_cpu else None

    def argmax(self, row: int) -> int:
        if self._rows is not None:
            return int(self._rows[row].argmax())
        if self._best is None:
            self._best = self._logits.argmax(-1).tolist()
        return self._best[row]

    def raw(self, row: int) -> Tensor:
        return self._logits[row].float()

    def last(self) -> TorchScores:
        """Return the scores of the last row alone."""
        return TorchScores(self._logits[-1:])

    def numpy(self, array: Any) -> NDArray[np.float32]:
        """Float32 on the host; shares memory with a float32 tensor on the CPU."""
        host: NDArray[np.float32] = array.detach().to("cpu", torch.float32).numpy()
        return host

    def top_k(self, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        with torch.inference_mode():
            logits = self._logits.float()
            best, ids = logits.topk(min(k, logits.shape[-1]), dim=-1)
            probabilities = torch.exp(best - logits.logsumexp(-1, keepdim=True))
        return ids.to("cpu", torch.int32).numpy(), probabilities.cpu().numpy()

    def hidden(self, layer: int) -> Any:
        raise CapabilityError(f"this target does not give hidden states (layer {layer} was asked for)")
