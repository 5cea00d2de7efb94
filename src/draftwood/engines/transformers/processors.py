"""Transformers' logits processors as processors of our rule: one row, one prefix, one copy per request."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.contracts import Processor
from draftwood.errors import UsageError

TorchProcessor = Callable[[Tensor, Tensor], Tensor]


def adapt(processors: Sequence[TorchProcessor], device: torch.device) -> list[Processor]:
    """Copy transformers' processors for one request and give them our signature.

    Parameters
    ----------
    processors
        Called as ``processor(input_ids int64[1, length], scores float32[1, vocab])``.
    device
        Where the scores live.

    Raises
    ------
    UsageError
        For a processor that runs a model of its own, which we cannot take back.
    """
    for processor in processors:
        if any(isinstance(v, torch.nn.Module) for v in getattr(processor, "__dict__", {}).values()):
            raise UsageError(
                f"{type(processor).__name__} runs a model of its own, which drafting cannot follow: leave it out"
            )
    return [_adapted(copy.deepcopy(processor), device) for processor in processors]


def _adapted(processor: TorchProcessor, device: torch.device) -> Processor:
    def process(prefix: NDArray[np.int64], row: Any) -> Any:
        ids = torch.from_numpy(prefix)[None].to(device)
        return processor(ids, row[None])[0]

    process.__name__ = type(processor).__name__  # what an error names
    return process
