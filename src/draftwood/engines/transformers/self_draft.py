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

from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.cpu.weights import hub_names
from draftwood.engines.files import gguf_file
from draftwood.engines.files.hub_model import HubModel
from draftwood.engines.per_model import once
from draftwood.engines.self_draft import read_layers
from draftwood.errors import CapabilityError

_KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def early_exit(target: Any, layers: str) -> Any:
    """Return what runs only these layers of a `TransformersTarget` with a ``decoder``, on the target's sessions.

    The layers' keys and values of the committed text are those that the whole model has left.
    """
    chosen = read_layers(layers, target.n_layers)

    def made() -> Any:
        twin = copy.copy(target)  # on the same cache, under the same lock
        twin.decoder = target.decoder.subset(chosen)
        return twin

    return once(target, chosen, target.decoder, made)


def in_few_bits(model: Any, state: Any) -> CpuTarget:
    """Return a target of a model's weights in 4 bits, made anew where ``state`` is not what it was.

    Raises `CapabilityError` where the model is not on a CPU in floats, `UnsupportedModelError` where it is of no
    family of the CPU engine.
    """
    threads = torch.get_num_threads()
    return once(model, "int4", state, lambda: CpuTarget(in_memory(model), threads=threads, becomes="int4"))


def in_memory(model: Any) -> HubModel:
    """Return a model's weights as the CPU engine reads them from files."""
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
