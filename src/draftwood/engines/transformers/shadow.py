"""Shadows: second views of models of transformers, which targets run.

A shadow shares every parameter and buffer but has module objects and configurations of its own. transformers reads
the attention implementation from the configuration at every call, and changing the user's would disturb other
threads that run the model.
"""

from __future__ import annotations

import copy
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from draftwood.contracts import Target
from draftwood.engines.transformers.attention import ATTENTION
from draftwood.engines.transformers.pack import Packing, digest
from draftwood.errors import CapabilityError


class ModelTarget(Target):
    """A target that runs a shadow of a model of transformers. It does not keep the model itself in memory.

    ``packing`` has the packed copies that passes read; None: they read the model's own weights. ``owns_weights``:
    they read linear layers from copies only.
    """

    engine = "transformers"
    head_pays = True
    packing: Packing | None = None
    owns_weights = False

    def __init__(self, model: Any) -> None:
        self._of = ref(model)

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of the model's weights, and of the copies that stand for released ones; None where it is gone."""
        if (model := self._of()) is None:
            return None
        every = [*model.parameters(), *model.buffers()]
        copies = self.packing.copies if self.packing is not None and is_released(model) else []
        copied = sum(one.numel() * one.element_size() for one in copies)
        return copied + sum({one.data_ptr(): one.nbytes for one in every}.values())

    def contents(self) -> Any:
        """Return digests of the weights that passes share with the model; None where it is gone.

        On a CPU every byte is read; elsewhere torch's count of writes and the sum of the bytes.
        """
        if (model := self._of()) is None:
            return None
        tensors, packing = (*model.parameters(), *model.buffers()), self.packing
        return tuple(_content(tensor) for tensor in tensors if packing is None or not packing.holds(tensor))

    def quantized_self(self) -> Target:
        """Return a target of the model's weights, made anew when they have changed (packed ones were compared when
        the call began). `CapabilityError` where they were released, or the model is gone; raises as `in_few_bits`.
        """
        from draftwood.engines.transformers.self_draft import in_few_bits

        if (model := self._of()) is None:
            raise CapabilityError("quantized-self needs the model itself: use generate or bench")
        if is_released(model):
            raise CapabilityError("quantized-self needs the weights, which were released: load the model again")
        state = self.packing.digests() if self.packing is not None else [], self.contents()
        return in_few_bits(model, state)


def is_released(model: Any) -> bool:
    """Whether weights of a model, or of the model that it is a copy of, were freed (`draftwood.prepare`)."""
    return any(not weight.numel() for weight in model.parameters())


def _content(tensor: Tensor) -> int:
    tensor = tensor.detach()
    try:
        if tensor.device.type == "cpu":
            return digest(tensor)
        return hash((tensor._version, int(tensor.contiguous().view(torch.uint8).sum())))
    except (RuntimeError, TypeError, ValueError):  # of a class of its own, without readable bytes
        return tensor._version


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
