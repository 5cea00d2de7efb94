"""Files of what was trained for one model, as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from draftwood.engines.trained import check_file, fingerprint_of, fingerprint_rows, not_finite, unreadable


def read_tensors(path: Path, what: str, command: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the header and the tensors of a file of safetensors.

    Raises `ModelError` where it is missing or cut, which calls it a ``what`` and names the command that makes one.
    """
    check_file(path, what, command)
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise unreadable(path, what, error) from error


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise `ModelError` where tensors hold numbers that are not finite."""
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point()):
        raise not_finite(path)


def ids_of(tensors: Mapping[str, Tensor], vocab: int) -> Tensor:
    """Return the token of each place in a reduced vocabulary, int64[v]: place plus ``d2t``; without it, all."""
    if "d2t" in tensors:
        offsets = tensors["d2t"].to(torch.int64)
        return offsets + torch.arange(len(offsets))
    return torch.arange(vocab)


def reduced(ids: Sequence[int]) -> Tensor:
    """Return ``d2t`` of a vocabulary of these tokens, ascending: what is added to each place, int64[v]."""
    return torch.tensor(ids, dtype=torch.int64) - torch.arange(len(ids))


def embedding_fingerprint(embedding: Tensor) -> str:
    """Return the fingerprint of a model with this embedding [vocab, width], in whatever number format."""
    rows = torch.from_numpy(fingerprint_rows(len(embedding))).to(embedding.device)
    values = embedding.detach()[rows].to("cpu", torch.bfloat16).contiguous()
    return fingerprint_of(values.view(torch.int16).numpy())
