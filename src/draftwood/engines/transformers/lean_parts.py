"""Reads the parts of a Llama-like model from its modules, and gives up at the first thing that we do not know."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.modules.module as hooks
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from draftwood.engines.transformers.families import layer_windows
from draftwood.engines.transformers.pack import is_plain
from draftwood.errors import UnsupportedModelError

Norm = tuple[Tensor, float]  # weight and epsilon of a root mean square norm

_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj"}
_HEAD_NORMS = {"q_norm", "k_norm"}
_FEED_FORWARD = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_DECODER = {"embed_tokens", "layers", "norm", "rotary_emb"}
_SCALES = {"scaling", "attention_dropout", "variance_epsilon", "eps", "attention_scaling"}
"""Number attributes that we use or that only training uses; another one that is not 1 may scale something."""
_SETTINGS = ("final_logit_softcapping", "attn_logit_softcapping", "clip_qkv", "logit_scale", "logits_scaling")
"""Settings that a ``forward`` may read from the configuration; what this list lacks, the self-test finds."""
_KNOWN = ("transformers.", "torch.")  # packages whose classes we imitate


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer; ``rotates`` is False where it has no rotary positions."""

    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    o: nn.Linear
    gate: nn.Linear
    up: nn.Linear
    down: nn.Linear
    act: Callable[[Tensor], Tensor]
    first_norm: Norm
    second_norm: Norm
    head_norms: tuple[Norm, Norm] | None
    rotates: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """A decoder with its head; heads and key-value heads have ``dim`` numbers each in every layer."""

    embedding: Tensor
    rotary: nn.Module
    layers: list[Layer]
    norm: Norm
    head: nn.Linear
    heads: int
    kv_heads: int
    dim: int
    scaling: float

    def linears(self) -> list[nn.Linear]:
        """All linear layers, the head last."""
        names = ("q", "k", "v", "o", "gate", "up", "down")
        return [*(getattr(layer, name) for layer in self.layers for name in names), self.head]


def read_parts(model: Any) -> Parts | None:
    """Return the parts of ``model``, or None where it is not Llama-like in every respect that modules show."""
    try:
        with torch.inference_mode():
            return _read(model)
    except UnsupportedModelError:
        return None


def _read(model: Any) -> Parts:
    _children(model, {"model", "lm_head"})
    decoder, config = model.model, model.config
    _children(decoder, _DECODER)
    _need(type(decoder.layers) is nn.ModuleList and len(decoder.layers) > 0)
    _untouched(model.modules())
    _need(not any(getattr(config, name, None) not in (None, 1, 1.0, False) for name in _SETTINGS))
    embedding, head = decoder.embed_tokens, model.lm_head
    _need(type(embedding) is nn.Embedding and embedding.max_norm is None and is_plain(embedding.weight))
    attention = decoder.layers[0].self_attn
    dim: Any = getattr(attention, "head_dim", None)
    _need(isinstance(dim, int) and dim % 2 == 0)
    kept = decoder.layers[: config.num_hidden_layers]  # as many as transformers itself would run
    windows = layer_windows(config) or [None] * len(kept)
    layers = [_layer(layer, dim, window) for layer, window in zip(kept, windows, strict=False)]
    scalings = {float(getattr(layer.self_attn, "scaling", dim**-0.5)) for layer in kept}
    shapes = {(layer.q.out_features // dim, layer.k.out_features // dim) for layer in layers}
    _need(len(scalings) == len(shapes) == 1)
    ((heads, kv_heads),) = shapes
    _rotary(decoder.rotary_emb, embedding.weight, dim)
    parts = Parts(
        embedding.weight, decoder.rotary_emb, layers, _norm(decoder.norm), _linear(head),
        heads, kv_heads, dim, scalings.pop(),
    )  # fmt: skip
    weights = [parts.embedding, parts.norm[0], *(linear.weight for linear in parts.linears())]
    weights += [norm[0] for layer in layers for norm in (layer.first_norm, layer.second_norm)]
    _need(len({(w.dtype, w.device) for w in weights}) == 1 and parts.embedding.dtype.is_floating_point)
    return parts


def _layer(layer: Any, dim: int, window: int | None) -> Layer:
    _children(layer, _LAYER)
    attention, mlp = layer.self_attn, layer.mlp
    _need(getattr(attention, "sliding_window", window) == window)
    normed = "q_norm" in attention._modules
    _children(attention, _PROJECTIONS | (_HEAD_NORMS if normed else set()))
    _children(mlp, _FEED_FORWARD)
    q, k, v = (_linear(getattr(attention, name)) for name in ("q_proj", "k_proj", "v_proj"))
    _need(q.out_features % k.out_features == 0 and k.out_features == v.out_features and k.out_features % dim == 0)
    _same_rotation(attention, dim)
    head_norms = (_norm(attention.q_norm), _norm(attention.k_norm)) if normed else None
    if head_norms is not None:
        (query, query_eps), (key, key_eps) = head_norms
        _need(query.shape == key.shape == (dim,) and query_eps == key_eps)
    return Layer(
        q, k, v, _linear(attention.o_proj),
        _linear(mlp.gate_proj), _linear(mlp.up_proj), _linear(mlp.down_proj), _activation(mlp.act_fn),
        _norm(layer.input_layernorm), _norm(layer.post_attention_layernorm), head_norms,
        bool(getattr(attention, "use_rope", True)),
    )  # fmt: skip


def _need(holds: bool) -> None:
    if not holds:
        raise UnsupportedModelError("a part is not as in Llama")


def _children(module: Any, names: set[str]) -> None:
    """Require exactly these child modules, no other weights, and no number that could be a multiplier."""
    _need(isinstance(module, nn.Module) and set(module._modules) == names)
    _need(not module._parameters and not module._buffers)
    numbers = {name: value for name, value in vars(module).items() if type(value) is float}
    _need(all(value == 1 or name in _SCALES for name, value in numbers.items()))


def _untouched(modules: Iterable[nn.Module]) -> None:
    """Require classes of transformers or torch with their own forward, and no hooks but transformers' recorders,
    which stay on a model that was once asked for its hidden states and do nothing in between."""
    _need(not global_hooks())
    for module in modules:
        _need(type(module).__module__.startswith(_KNOWN))
        _need(str(getattr(type(module).forward, "__module__", "")).startswith(_KNOWN))
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        _need(all(hook.__module__ == "transformers.utils.output_capturing" for hook in hooks))
        _need("forward" not in vars(module))


def _linear(module: Any) -> nn.Linear:
    _need(type(module) is nn.Linear and is_plain(module.weight))
    return module


def _norm(module: Any) -> Norm:
    """Weight and epsilon of a plain root mean square norm (Gemma's adds 1 to its weights)."""
    weight: Any = module._parameters.get("weight")
    eps: Any = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    _need(len(module._parameters) == 1 and not module._modules and not module._buffers)
    _need(is_plain(weight) and weight.dim() == 1 and isinstance(eps, float))
    x = torch.linspace(-2, 3, weight.numel(), dtype=weight.dtype, device=weight.device)[None]
    ours, theirs = rms_norm(x, weight.shape, weight, eps).float(), module(x).float()
    _need(ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=2e-2, atol=1e-3))
    return weight, eps


def _activation(module: Any) -> Callable[[Tensor], Tensor]:
    """The module itself, or torch's own function where it is known to be the same."""
    _need(not list(module.parameters()))
    return silu if type(module).__name__ in ("SiLU", "SiLUActivation") else module


def _rotary(module: Any, embedding: Tensor, dim: int) -> None:
    """Require cosines and sines that depend on positions only, over the whole width of a head."""
    _need(list(inspect.signature(module.forward).parameters) == ["x", "position_ids"])
    _need(getattr(module, "rope_type", "default") not in ("dynamic", "longrope"))  # change as the text grows
    positions = torch.tensor([[0, 5]], device=embedding.device)
    turned = module(embedding[None, :2], positions)
    _need(isinstance(turned, tuple) and [tuple(t.shape) for t in turned] == [(1, 2, dim)] * 2)


def global_hooks() -> list[Any]:
    """Hooks that torch calls for every module there is."""
    kinds = (hooks._global_forward_pre_hooks, hooks._global_forward_hooks)
    return [hook for kind in kinds for hook in kind.values()]


def _same_rotation(attention: nn.Module, dim: int) -> None:
    """Require the rotation that pairs a head's first half with its second; others pair neighbours."""
    rotate: Any = getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
    _need(rotate is not None)
    x, cos, sin = torch.linspace(-1, 3, 6 * dim, dtype=torch.float32, device="cpu").view(3, 1, 2, dim)
    sign = x.new_ones(dim)
    sign[: dim // 2] = -1
    ours = x * cos + x.roll(dim // 2, -1) * sign * sin
    _need(all(torch.allclose(theirs, ours, atol=1e-5) for theirs in rotate(x[None], x[None], cos, sin)))
