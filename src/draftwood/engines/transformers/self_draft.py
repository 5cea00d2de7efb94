"""Drafting by a part of the target, on the target's own cache.

Sources: Elhoushi and others, "LayerSkip", arXiv 2404.16710 (the first layers); Zhang and others, "Draft & Verify",
arXiv 2309.08168 (any subset of them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from draftwood.contracts import Watch
from draftwood.engines.per_model import once
from draftwood.engines.self_draft import read_layers
from draftwood.engines.transformers.lean import LeanDecoder
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError


def early_exit(target: Any, layers: str = "") -> TransformersTarget:
    """Return what runs only these layers of a target, on the target's sessions, for `GrowingTarget.grow`.

    ``layers`` is a number (the first so many) or ranges, as in ``0-9.20-29``; empty: the first half. It has no
    weights of its own. The layers' keys and values of the committed text are those that the whole model has left.

    Raises
    ------
    CapabilityError
        For targets whose passes draftwood does not run itself, layer by layer.
    UsageError
        For layers that the model does not have.
    """
    decoder = decoder_of(target)
    chosen = read_layers(layers, decoder.n_layers)
    return once(target, chosen, decoder, lambda: target.with_decoder(decoder.subset(chosen)))


def decoder_of(target: Any) -> LeanDecoder:
    """Return what runs a target layer by layer; raises `CapabilityError` where nothing does."""
    if not isinstance(target, TransformersTarget) or (decoder := target.decoder) is None:
        raise CapabilityError(
            "early-exit needs a model of transformers whose layers draftwood runs itself (Llama-like ones): use "
            "another drafter"
        )
    return decoder


@torch.inference_mode()
def right_by_depth(target: TransformersTarget, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
    """Return how many tokens of a model's answer its first 1, 2, ... layers (but not all) would have said.

    Raises as `decoder_of`.
    """
    decoder, parts = decoder_of(target), list[Mapping[int, torch.Tensor]]()
    depths = tuple(range(1, decoder.n_layers))
    watch = Watch(lambda *_: None, np.empty(0, dtype=np.int64), depths, lambda _, states: parts.append(states))
    ((session, _),) = target.open([[*prompt, *answer[:-1]]], watch=[watch])
    session.close()
    wanted, found = torch.tensor(answer, device=target.device), []
    for depth in depths:
        states = torch.cat([part[depth] for part in parts])[len(prompt) - 1 :]
        found.append(int((decoder.logits(states).argmax(-1) == wanted).sum()))
    return found
