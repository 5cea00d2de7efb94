"""Trained heads for models of transformers: the CPU engine's head drafts for them, from states that are copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from draftwood.engines.cpu.code.kernels import kernels
from draftwood.engines.cpu.code.running import POOL
from draftwood.engines.cpu.head.target import CpuHead, CpuHeadText
from draftwood.engines.cpu.head.weights import PackedHead
from draftwood.engines.cpu.packing import Slabs, matrix_of, packing, plan
from draftwood.engines.files.gguf_file import Tensor as InMemory
from draftwood.engines.heads.fitting import check_fit, fingerprint_of, fingerprint_rows
from draftwood.engines.heads.text import GrownTree
from draftwood.engines.heads.weights import HeadWeights
from draftwood.errors import CapabilityError
from draftwood.local.machine import cores


class TransformersHead(CpuHead):
    """A head that takes states of transformers' models, tensors on any device, and drafts on the processor."""

    def read_and_grow(
        self, session: CpuHeadText, positions: Sequence[int], parts: Sequence[Sequence[Tensor]],  # type: ignore[override]
        tokens: Sequence[int], asked: Any,
    ) -> GrownTree:  # fmt: skip
        """As of `CpuHead`."""
        copied = [[states.to("cpu", torch.float32).numpy() for states in layers] for layers in parts]
        return super().read_and_grow(session, positions, copied, tokens, asked)


def fitted(target: Any, weights: HeadWeights, name: str = "this head") -> TransformersHead:
    """Return a head for a `TransformersTarget`; raises `CapabilityError` where it was made for another model."""
    embedding, rows = target.token_tables()
    vocabulary, width = embedding.shape
    layers = check_fit(name, weights, target, width)
    ids = weights.ids()
    if "lm_head.weight" not in weights.tensors:
        if rows is None:
            raise CapabilityError(
                f"{name} scores tokens by the model's own weights, which were released: keep them"
            )
        scoring = rows[torch.from_numpy(ids).to(rows.device)].to("cpu", torch.float32).numpy()
        weights = replace(weights, tensors={**weights.tensors, "lm_head.weight": scoring})
    functions = kernels()
    bits = embedding.to("cpu", torch.bfloat16).contiguous().view(torch.uint8).numpy()
    stored = InMemory("embedding", "BF16", tuple(embedding.shape), bits)
    tiles, parts = plan(stored, None, Slabs().zeros, "Q8_0")
    tables: Any = SimpleNamespace(embedding=matrix_of("Q8_0", tiles, vocabulary, width, functions))
    with packing(parts, min(8, cores()), lambda _size: None):
        head = PackedHead(weights, tables, functions)
    threads = min(POOL, torch.get_num_threads())
    return TransformersHead(head, functions, threads, ids.astype(np.int32), layers, target.capabilities)


def embedding_fingerprint(embedding: Tensor) -> str:
    """Return the fingerprint of a model with this embedding [vocab, width], in whatever number format."""
    rows = torch.from_numpy(fingerprint_rows(len(embedding))).to(embedding.device)
    values = embedding.detach()[rows].to("cpu", torch.bfloat16).contiguous()
    return fingerprint_of(values.view(torch.int16).numpy())
