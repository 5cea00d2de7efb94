"""The weights of a model of transformers, as they are in memory now, in few bits on the CPU engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftwood.engines.cpu import gguf_file
from draftwood.engines.cpu.few_bits import in_few_bits
from draftwood.engines.cpu.hub_model import HubModel
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.transformers.shared import OurTarget, contents, is_released
from draftwood.errors import CapabilityError

_KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def quantized_self(target: OurTarget, model: Any, bits: int) -> CpuTarget:
    """Return a target of a model's weights in so many bits, made anew when they have changed.

    The check reads what is not packed, at memory speed; packed weights were compared when the call began.

    Raises
    ------
    CapabilityError
        The model is not on a CPU in floats, or its own weights were released.
    UnsupportedModelError
        It is of no family of the CPU engine.
    """
    if is_released(model):
        raise CapabilityError("quantized-self needs the weights, which were released: load the model again")
    state = target.packing.digests() if target.packing is not None else [], contents(model, target)
    return in_few_bits(model, bits, state, lambda: _in_memory(model), torch.get_num_threads())


def _in_memory(model: Any) -> HubModel:
    name = Path(str(getattr(model.config, "_name_or_path", "") or type(model).__name__))
    tensors = {key: _tensor(key, value.detach()) for key, value in model.state_dict().items()}
    return HubModel(name, model.config.to_dict(), tensors)


def _tensor(name: str, value: Tensor) -> gguf_file.Tensor:
    if value.device.type != "cpu" or value.dtype not in _KINDS:
        raise CapabilityError(
            "weights in few bits are for models in float32, float16 or bfloat16 on a CPU, and this model has "
            f"{str(value.dtype)[6:]} on {value.device.type}: use other drafters"
        )
    data = (
        value.contiguous().view(torch.uint8).numpy() if value.dim() else value.reshape(1).view(torch.uint8).numpy()
    )
    return gguf_file.Tensor(name, _KINDS[value.dtype], tuple(value.shape), data)
