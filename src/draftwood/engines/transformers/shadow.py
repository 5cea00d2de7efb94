"""A second view of a transformers model that shares every parameter and buffer but has module objects and
configurations of its own. transformers reads the attention implementation from the configuration at every call,
and changing the user's would disturb other threads that run the model."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from draftwood.engines.transformers.attention import ATTENTION


def shadow(model: Any, attention: str | None = ATTENTION) -> Any:
    """Return a view of ``model`` in eval mode that shares its weights; ``attention`` None keeps the model's
    own."""
    twin = _Viewer(attention).view(model)
    for module in twin.modules():
        if getattr(module, "layers_are_rescaled", None) is False:  # RWKV divides its weights when it first runs in
            module.config.rescale_every = 0  # type: ignore[union-attr]  # eval mode, and they are the user's too
    return twin


class _Viewer:
    """Copies module objects, each once; a configuration that is part of another stays so in the copies."""

    def __init__(self, attention: str | None) -> None:
        self._attention = attention
        self._twins: dict[int, nn.Module] = {}
        self._memo: dict[int, Any] = {}  # of deepcopy

    def view(self, module: nn.Module) -> nn.Module:
        if id(module) in self._twins:
            return self._twins[id(module)]
        # nn.Module has no __copy__; its state is its __dict__ (parameters are shared, the dictionaries are not)
        twin = object.__new__(type(module))
        self._twins[id(module)] = twin
        state = dict(module.__dict__)
        state.pop("generate", None)  # of a folder with its own: bound to the model, which could then never go
        hook = state.pop("_hf_hook", None)  # of accelerate: it has wrapped the forward of the module it is on
        if hook is not None and "_old_forward" in state:
            state["forward"] = state.pop("_old_forward")
        if "forward" in state:
            _rebind(state, module, twin)
        for name, value in state.items():
            if isinstance(value, dict):
                state[name] = type(value)(value)
        state["training"] = False
        if "config" in state:
            state["config"] = self._config(state["config"])
        children = module._modules.items()
        state["_modules"] = {name: None if child is None else self.view(child) for name, child in children}
        twin.__dict__.update(state)
        if hook is not None:
            _hang(hook, twin)
        return twin

    def _config(self, config: Any) -> Any:
        known = id(config) in self._memo
        ours = copy.deepcopy(config, self._memo)
        if not known:
            if self._attention is not None:
                ours._attn_implementation = self._attention
            ours.use_cache = True
            ours.output_attentions = ours.output_hidden_states = False
        return ours


def _rebind(state: dict[str, Any], module: nn.Module, twin: nn.Module) -> None:
    """Let the twin run the forward set on the module: bound to the twin, where it is a method of the module; of a
    compiled one, what was compiled. Any other function runs as it is: only a trial can tell whether that works."""
    forward = getattr(state["forward"], "_torchdynamo_orig_callable", state["forward"])
    if getattr(forward, "__self__", None) is not module:
        state["forward"] = forward
    elif forward.__func__ is type(module).forward:
        del state["forward"]
    else:
        state["forward"] = forward.__func__.__get__(twin)


def _hang(hook: Any, twin: nn.Module) -> None:
    """Add accelerate's hook, which moves inputs to a module's device, to the twin."""
    from accelerate.hooks import add_hook_to_module

    ours = copy.copy(hook)
    ours.init_hook = lambda module: module  # the weights are where they belong already
    add_hook_to_module(twin, ours)
