"""A second view of a transformers model: the same weights, our own configuration.

transformers reads the attention implementation from the configuration at every call. Changing the user's
configuration, even for the time of a pass, would disturb whoever else runs the model; a shadow shares every
parameter and buffer but owns its module objects and configuration, so nothing of the user's model is touched.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from draftwood.engines.transformers.attention import ATTENTION


def shadow(model: Any) -> nn.Module:
    """Return a view of ``model`` that shares its weights, runs in eval mode and attends through `attention`."""
    config = copy.deepcopy(model.config)
    config._attn_implementation = ATTENTION
    config.use_cache = True
    config.output_attentions = config.output_hidden_states = False
    return _view(model, config, {})


def _view(module: nn.Module, config: Any, seen: dict[int, nn.Module]) -> nn.Module:
    if id(module) in seen:
        return seen[id(module)]
    # nn.Module has no __copy__; its state is its __dict__ (parameters are shared, the dictionaries are not)
    twin = object.__new__(type(module))
    seen[id(module)] = twin
    state = dict(module.__dict__)
    for name, value in state.items():
        if isinstance(value, dict):
            state[name] = type(value)(value)
    state["training"] = False
    if "config" in state:
        state["config"] = config
    state["_modules"] = {name: child and _view(child, config, seen) for name, child in module._modules.items()}
    twin.__dict__.update(state)
    return twin
