"""Transformers' logits processors as processors of our rule, one copy of them per request."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.contracts import Processor
from draftwood.errors import DraftwoodError, UsageError

TorchProcessor = Callable[[Tensor, Tensor], Tensor]
_PER_ROW = ("encoder_input_ids", "generated_ngrams", "prompt_ignore_length")
"""Attributes of transformers' own processors that have an entry per row or per prompt."""
Ids = Callable[[NDArray[np.int64]], Tensor]  # the committed text as a processor is to see it, int64[1, length]


def adapt(
    processors: Sequence[TorchProcessor], device: torch.device, *, ids: Ids | None = None, copied: bool = True
) -> list[Processor]:
    """Give transformers' processors, which take int64[1, length] and float32[1, vocab] on ``device``, our
    signature. They see ``ids`` of the text, for instance with padding in front; by default the committed text.
    With ``copied`` False the caller's own objects are called. Raises `UsageError` for one that runs a model of its
    own, whose cache we cannot roll back, or that cannot be copied."""
    for processor in processors:
        if any(isinstance(v, torch.nn.Module) for v in getattr(processor, "__dict__", {}).values()):
            raise UsageError(
                f"{type(processor).__name__} runs a model of its own, which drafting cannot follow: leave it out"
            )
    seen = ids or (lambda prefix: torch.from_numpy(prefix)[None].to(device))
    return [_adapted(own_copy(p) if copied else p, device, seen) for p in processors]


def adapt_numpy(processor: TorchProcessor) -> Processor:
    """Give one of transformers' processors our signature for a target that has its scores in NumPy arrays."""
    (adapted,) = adapt([processor], torch.device("cpu"))

    def process(prefix: NDArray[np.int64], row: NDArray[np.float32]) -> NDArray[np.float32]:
        return adapted(prefix, torch.from_numpy(row)).numpy()

    process.__name__ = type(processor).__name__  # what an error names
    return process


def own_copy(part: Any) -> Any:
    """Copy a processor or criterion with its state; raises `UsageError` where that is impossible."""
    try:
        return copy.deepcopy(part)
    except Exception as error:
        raise UsageError(
            f"{type(part).__name__} cannot be copied ({error}), as each text needs: generate one prompt at a time"
        ) from error


def for_row(processor: TorchProcessor, row: int, rows: int) -> TorchProcessor:
    """Copy a processor of a batch for one row of ``rows``: its attributes per row or prompt are cut to this one,
    and user functions get the number of the row. Rows of one prompt follow each other."""
    own = own_copy(processor)
    state = getattr(own, "__dict__", {})
    allowed = state.get("_prefix_allowed_tokens_fn")
    if allowed is not None:
        own._prefix_allowed_tokens_fn = lambda _, ids: allowed(row, ids)
    for name in _PER_ROW:
        known = state.get(name)
        if isinstance(known, list | Tensor) and len(known):
            index = row * len(known) // rows
            setattr(own, name, known[index : index + 1])
    if "generated_ngrams" in state:
        own.batch_size = 1
    return own


def _adapted(processor: TorchProcessor, device: torch.device, ids: Ids) -> Processor:
    name = type(processor).__name__

    def process(prefix: NDArray[np.int64], row: Any) -> Any:
        given = row[None].to(device)
        own = processor(ids(prefix), given)
        if own.shape != given.shape:
            shapes = f"{list(own.shape)} for scores of shape {list(given.shape)}"
            raise DraftwoodError(f"the logits processor {name} returned shape {shapes}; it must keep the shape")
        return own[0]

    process.__name__ = name  # what an error names
    return process
