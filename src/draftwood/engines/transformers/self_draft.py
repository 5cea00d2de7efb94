"""Drafting by a part of the target: by some of its layers, on its own cache, or by its weights in few bits.

Sources: Elhoushi and others, "LayerSkip", arXiv 2404.16710 (the first layers); Zhang and others, "Draft & Verify",
arXiv 2309.08168 (any subset of them).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftwood.engines.cpu.self_drafts import in_few_bits
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.cpu.weights import hub_names
from draftwood.engines.files import gguf_file
from draftwood.engines.files.hub_model import HubModel
from draftwood.engines.per_model import once
from draftwood.engines.self_draft import read_layers
from draftwood.engines.transformers.lean import LeanDecoder
from draftwood.engines.transformers.shared import OurTarget, contents, is_released
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError

_KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def early_exit(target: Any, layers: str = "") -> TransformersTarget:
    """Return what runs only these layers of a target, on the target's sessions, for `Target.grow`. ``layers`` is a
    number (the first so many) or ranges, as in ``0-9.20-29``; empty: the first half. The layers' keys and values
    of the committed text are those that the whole model has left. Raises as `decoder_of`, and `UsageError` for
    layers that the model does not have."""
    decoder = decoder_of(target)
    chosen = read_layers(layers, target.n_layers)

    def made() -> TransformersTarget:
        twin = copy.copy(target)  # on the same cache, under the same lock
        twin.decoder = decoder.subset(chosen)
        return twin

    return once(target, chosen, decoder, made)


def decoder_of(target: Any) -> LeanDecoder:
    """Return what runs a target layer by layer; raises `CapabilityError` where nothing does."""
    if not isinstance(target, TransformersTarget) or (decoder := target.decoder) is None:
        raise CapabilityError(
            "early-exit needs a model of transformers whose layers draftwood runs itself (Llama-like ones): use "
            "another drafter"
        )
    return decoder


def quantized_self(target: OurTarget, model: Any) -> CpuTarget:
    """Return a target of a model's weights in 4 bits, made anew when they have changed (packed weights were
    compared when the call began). Raises `CapabilityError` where the model is not on a CPU in floats or its own
    weights were released, `UnsupportedModelError` where it is of no family of the CPU engine."""
    if is_released(model):
        raise CapabilityError("quantized-self needs the weights, which were released: load the model again")
    state = target.packing.digests() if target.packing is not None else [], contents(model, target)
    return in_few_bits(model, state, lambda: _in_memory(model), torch.get_num_threads())


def _in_memory(model: Any) -> HubModel:
    name = Path(str(getattr(model.config, "_name_or_path", "") or type(model).__name__))
    tensors = {key: _tensor(key, value.detach()) for key, value in model.state_dict().items()}
    return HubModel(name, model.config.to_dict(), tensors, hub_names)


def _tensor(name: str, value: Tensor) -> gguf_file.Tensor:
    if value.device.type != "cpu" or value.dtype not in _KINDS:
        raise CapabilityError(
            "weights in few bits are for models in float32, float16 or bfloat16 on a CPU, and this model has "
            f"{str(value.dtype)[6:]} on {value.device.type}: use other drafters"
        )
    data = (value.contiguous() if value.dim() else value.reshape(1)).view(torch.uint8).numpy()
    return gguf_file.Tensor(name, _KINDS[value.dtype], tuple(value.shape), data)
