"""What a training needs of a model, whatever engine runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from draftwood.contracts import Target
from draftwood.engines.cpu.head.weights import MATRICES
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.heads.weights import HeadShape
from draftwood.training.head_module import HeadModule

_NORMS = {"attn_norm": "midlayer.hidden_norm", "ffn_norm": "midlayer.post_attention_layernorm"}


class TrainingTarget(ABC):
    """A target, and what a training needs beside its passes. ``threads`` are those of its passes (None: torch's),
    ``layers`` counts the model's, ``device`` is where it computes."""

    target: Target
    threads: int | None = None
    device = torch.device("cpu")

    @property
    def layers(self) -> int:
        return max(self.target.capabilities.hidden)

    @property
    def vocabulary(self) -> int:
        """Rows of the model's embedding."""
        return self.target.capabilities.vocab_size

    @abstractmethod
    def embedded(self, ids: Tensor) -> Tensor:
        """Return the embeddings of tokens int64[...] as floats [..., width]."""

    @abstractmethod
    def scoring_rows(self, ids: Tensor) -> Tensor:
        """Return the rows by which tokens int64[n] are scored, floats [n, width]; `CapabilityError` for none."""

    @abstractmethod
    def head(self, layers: tuple[int, ...]) -> HeadModule:
        """Return a head that reads these layers and is as wide as one of them; its weights say nothing yet."""

    @abstractmethod
    def last_layer(self) -> dict[str, Tensor]:
        """Return weights of the model's last layer and norm by the names of a head's parameters, of queries, keys
        and values [outputs, width]; nothing where a head is no such layer."""


class CpuTrainingTarget(TrainingTarget):
    """A target of the CPU engine. Rows of tables are read from its file when they are asked for."""

    def __init__(self, target: CpuTarget) -> None:
        self.target, self.threads = target, target.model.threads
        self._weights = target.model.weights

    def embedded(self, ids: Tensor) -> Tensor:
        rows = self._weights.floats(self._weights.embedding, ids.flatten().numpy())
        return torch.from_numpy(rows).view(*ids.shape, -1)

    def scoring_rows(self, ids: Tensor) -> Tensor:
        return torch.from_numpy(self._weights.floats(self._weights.output, ids.numpy()))

    def head(self, layers: tuple[int, ...]) -> HeadModule:
        its = self._weights.shape
        one = its.attention
        sizes = its.width, layers, its.layers, its.vocabulary, one.head_size, its.epsilon, its.base
        return HeadModule(HeadShape(*sizes), one.heads, one.kv_heads, its.widest_inner)

    def last_layer(self) -> dict[str, Tensor]:
        weights, family = self._weights, self._weights.shape.family
        usual = weights.shape.blocks[-1] == ("attention", "gated_unit") and not family.gated
        if family.norms != "before" or family.gate != "silu" or not usual:
            return {}
        found = {own: weights.floats(weights.matrices[-1][its]) for its, own in MATRICES.items()}
        norms = {own: weights.vectors[-1][its] for its, own in _NORMS.items()} | {"norm": weights.last_norm}
        found |= {own: norm[: weights.shape.width] for own, norm in norms.items()}
        return {f"{own}.weight": torch.from_numpy(values) for own, values in found.items()}
