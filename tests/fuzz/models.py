"""Tiny models of many types, and ways to change them between two calls."""

from __future__ import annotations

import types
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig

from tests.engines import tiny as families
from tests.engines.registered import WRITERS, tiny
from tests.engines.test_every_type import COMMON, DRAFTED, PLAIN, model_of

FAMILIES = tuple(families.FAMILIES)
USUAL = tuple(COMMON)
ALL = tuple(sorted({*DRAFTED, *PLAIN} - set(WRITERS)))  # those that read pictures have a token that marks them


def draw_model(rng: Random) -> tuple[str, Any]:
    """A name and a model with random weights: often a type that the lean way runs, sometimes any type."""
    seed, kind = rng.randrange(1000), rng.random()
    if kind < 0.55:
        name = rng.choice(FAMILIES)
        model = families.build(name, seed)
        model.generation_config = GenerationConfig()
    elif kind < 0.8:
        name = rng.choice(USUAL)
        model = model_of(name, seed) if name not in WRITERS else tiny("gemma3_text", seed)
    else:
        name = rng.choice(ALL)
        model = model_of(name, seed)
    return f"{name}, weights {seed}", model


# --- changes -------------------------------------------------------------------------------------------------


def _matrix(rng: Random, model: Any) -> nn.Parameter:
    return rng.choice([p for p in model.parameters() if p.ndim == 2 and p.numel() > 64])


def times(rng: Random, model: Any) -> None:
    """Multiply all weights of a matrix."""
    _matrix(rng, model).data.mul_(rng.choice([-1.0, 0.5, 1.5]))


def through_numpy(rng: Random, model: Any) -> None:
    """Write one row of a matrix through a numpy view, which no version counter sees."""
    matrix = _matrix(rng, model).detach().numpy()
    matrix[rng.randrange(len(matrix))] *= rng.choice([-2.0, 3.0])


def exchange(rng: Random, model: Any) -> None:
    """Put another parameter in the place of one."""
    layer = rng.choice([m for m in model.modules() if type(m) is nn.Linear])
    layer.weight = nn.Parameter(layer.weight.detach().flip(0).clone())


def norm(rng: Random, model: Any) -> None:
    """Scale some weights of a norm, or of whatever has one dimension."""
    vector = rng.choice([p for p in model.parameters() if p.ndim == 1])
    vector.data[: max(1, len(vector) // 2)] *= 2


def linear_forward(rng: Random, model: Any) -> None:
    """Patch the forward of one linear layer."""
    layer = rng.choice([m for m in model.modules() if type(m) is nn.Linear])
    own = layer.forward
    layer.forward = types.MethodType(lambda _self, x: own(x) * 0.7, layer)


def hook(rng: Random, model: Any) -> None:
    """Hang a hook on a linear layer."""
    layer = rng.choice([m for m in model.modules() if type(m) is nn.Linear])
    layer.register_forward_hook(lambda _module, _args, out: out * 1.3)


def unhook(rng: Random, model: Any) -> None:
    """Take all hooks off."""
    for module in model.modules():
        module._forward_hooks.clear()


def end_of_text(rng: Random, model: Any) -> None:
    """Change which tokens end a text."""
    model.generation_config.eos_token_id = rng.choice([None, 7, [3, 9, 27, 40]])


def adapter(rng: Random, model: Any) -> None:
    """Add an adapter, or switch, turn off or on those that are there (transformers' own interface to PEFT)."""
    from peft import LoraConfig

    held = list(getattr(model, "peft_config", {}))
    if len(held) < 2:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.randrange(1000))
            config = LoraConfig(
                r=4, target_modules="all-linear", init_lora_weights=False, lora_alpha=rng.choice([4, 9])
            )
            model.add_adapter(config, adapter_name=f"adapter{len(held)}")
        return
    what = rng.choice(["first", "second", "off", "on"])
    if what in ("off", "on"):
        model.disable_adapters() if what == "off" else model.enable_adapters()
    else:
        model.set_adapter(held[what == "second"])


CHANGES: tuple[Callable[[Random, Any], None], ...] = (
    times, through_numpy, exchange, norm, linear_forward, hook, unhook, end_of_text, adapter,
)  # fmt: skip
