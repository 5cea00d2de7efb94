"""Scores of a pass; what the rule and the drafters ask of them is computed when they ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.errors import CapabilityError

WATCHED = 256  # most tokens of a reading pass that is watched: the scores of each take up to a megabyte

_ROWS = 64  # rows whose best tokens are searched at a time, which bounds the memory for copies
_NARROW = 16
"""Rows up to which one thread of our kernel is faster than torch's calls: 0.35 against 0.6 ms for 5 rows of a
product just made, 0.6 against 0.7 for 9, 1.9 against 1.3 for 33 (vocabulary 49152, torch on two threads)."""
_BLOCK = 128
"""Tokens of a block. On [33, 49152], two threads: 0.15 ms by blocks, 0.61 ms by `torch.topk` of whole rows."""


class TorchScores:
    """Scores over logits [rows, vocab]; on a CPU only rows that are asked for are looked at."""

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits
        on_cpu = logits.device.type == "cpu" and logits.dtype == torch.float32
        self._best: list[int] | None = None
        self._rows = logits.numpy() if on_cpu else None

    def argmax(self, row: int) -> int:
        if self._rows is not None:
            scores = self._rows[row]
            first = int(scores.argmax())
            return first if scores[first] > -np.inf else -1  # the argmax of a row with a NaN is a NaN
        if self._best is None:
            best, ids = self._logits.max(-1)
            self._best = torch.where(best > -torch.inf, ids, -1).tolist()
        return self._best[row]

    def raw(self, row: int) -> Tensor:
        return self._logits[row].float()

    def last(self) -> TorchScores:
        """Return the scores of the last row, without keeping the others in memory."""
        return self if len(self._logits) == 1 else TorchScores(self._logits[-1:].clone())

    def numpy(self, array: Any) -> NDArray[np.float32]:
        """Float32 on the host; shares memory with a float32 tensor on the CPU."""
        host: NDArray[np.float32] = array.detach().to("cpu", torch.float32).numpy()
        return host

    def top_k(self, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        k = min(k, self._logits.shape[-1])
        if self._rows is not None and len(self._rows) <= _NARROW:
            from draftwood.engines.top_k_kernel import best_of_rows  # loads kernels, so not before it is used

            return best_of_rows(self._rows, k)
        with torch.inference_mode():
            parts = [_best(some.float(), k) for some in self._logits.split(_ROWS)]
            ids, probabilities = (torch.cat(part) for part in zip(*parts, strict=True))
        return ids.to("cpu", torch.int32).numpy(), probabilities.cpu().numpy()

    def hidden(self, layer: int) -> Any:
        raise CapabilityError(f"this target does not give hidden states (layer {layer} was asked for)")


def _best(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Ids int64[rows, k] and probabilities float32[rows, k] of each row's best tokens, as `Scores.top_k` says."""
    on_cpu = logits.device.type == "cpu"
    if on_cpu and logits.shape[1] // _BLOCK >= 4 * k:
        ids, lead = _by_blocks(logits, k)
    else:
        ids, lead = logits.topk(k, dim=-1).indices, logits.argmax(-1)
    # Of equal scores the lowest id comes first: swap it there where it is further back.
    ids = torch.where(ids == lead[:, None], ids[:, :1], ids)
    ids[:, 0] = lead
    if on_cpu:  # fused there: half the time of the sum of exponentials
        probabilities = torch.softmax(logits, -1).gather(1, ids)
    else:
        probabilities = torch.exp(logits.gather(1, ids) - logits.logsumexp(-1, keepdim=True))
    return ids, probabilities.nan_to_num(nan=0.0)


def _by_blocks(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Ids of the k best, and the lowest id of the best: the k best lie in the k blocks with the largest maxima."""
    rows, vocab = logits.shape
    blocks = vocab // _BLOCK
    head, tail = logits[:, : blocks * _BLOCK].unflatten(1, (blocks, _BLOCK)), logits[:, blocks * _BLOCK :]
    maxima = head.amax(-1)
    chosen = maxima.topk(k, dim=-1, sorted=False).indices
    some = head.gather(1, chosen[:, :, None].expand(-1, -1, _BLOCK)).flatten(1)
    place = torch.cat((some, tail), dim=1).topk(k, dim=-1).indices
    slot = place // _BLOCK
    ids = chosen.gather(1, slot.clamp(max=k - 1)) * _BLOCK + place % _BLOCK
    # Tokens behind the last whole block come after the chosen blocks.
    ids = torch.where(slot < k, ids, place + (blocks - k) * _BLOCK)
    first = maxima.argmax(-1)
    lead = first * _BLOCK + head[torch.arange(rows), first].argmax(-1)
    if tail.shape[1]:
        best, where = tail.max(-1)
        lead = torch.where(best > maxima.amax(-1), where + blocks * _BLOCK, lead)
    return ids, lead
