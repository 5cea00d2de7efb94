"""A model's sizes and constants, as its file says them, and the cosines and sines of its rotary positions.

These are computed without the C library, so that they have the same bits anywhere. RoPE: Su et al., 2021 (arXiv
2104.09864); YaRN: Peng et al., 2023 (arXiv 2309.00071).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.families import FAMILIES, GATINGS, Family
from draftwood.engines.files.formats import TILE, padded
from draftwood.errors import ModelError, UnsupportedModelError

MOST_LAYERS, MOST_WIDTH = 1024, 1 << 20
_MOST_INNER = 1 << 20
_LARGEST = 1e30  # of numbers that are computed with as float32
"""No model has more; metadata that say so are damaged."""
DELTA_SIZE = 128
"""Numbers of a head's queries, keys and values in delta nets."""
MOST_KEYS = 256
"""Numbers of a key in Mamba-2."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How rotary positions are scaled, for texts longer than those that a model was first trained on."""

    kind: str = "none"  # linear divides every frequency by the factor, yarn the slow ones; others none
    factor: float = 1.0
    original: int = 0  # tokens of the texts of that first training; yarn needs them
    size: float = 1.0  # what cosines and sines are multiplied by
    fast: float = 32.0  # frequencies of more turns than this within ``original`` stay
    slow: float = 1.0  # those of fewer turns are divided
    rounds: bool = True  # whether the bounds between are rounded to whole pairs, the range growing


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """The sizes in which layers of one model may differ."""

    heads: int
    kv_heads: int  # 0: the layer has no attention
    head_size: int
    rotary: int  # numbers of a head that are rotated, the first ones
    inner: int  # of the gated unit (gated MLP); 0: the layer has none
    source: int  # the layer whose keys and values it reads: itself, or an earlier one

    @property
    def head_room(self) -> int:
        """Numbers that a head of values takes in a cell: its size, rounded up to whole tiles."""
        return padded(self.head_size, TILE)

    @property
    def cell_bytes(self) -> int:
        """Bytes of the keys and values of one token, in float16."""
        return self.kv_heads * (self.head_size + self.head_room) * 2


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of latent attention; a head of keys and queries has ``still + turning`` numbers."""

    query_rank: int = 0  # of what queries are made of; 0: of x itself
    rank: int = 0  # of what keys and values are made of
    still: int = 0
    turning: int = 0
    value: int = 0  # numbers of a head of values
    epsilon: float = 1e-6  # of the norms within: what models were trained with, whatever the file's other one


@dataclass(frozen=True, slots=True)
class States:
    """The sizes of the states of a layer of delta nets or Mamba-2; without ``heads`` no layer has states."""

    groups: int = 0  # heads of keys and queries, each of which several heads of values share
    heads: int = 0  # of values
    keys: int = 0  # numbers of a head's key
    values: int = 0  # numbers of a head's value

    @property
    def inner(self) -> int:
        """Numbers of all heads' values."""
        return self.heads * self.values

    @property
    def convolved(self) -> int:
        """Numbers of all queries, keys and values."""
        return 2 * self.groups * self.keys + self.inner


@dataclass(frozen=True, slots=True)
class Shares:
    """How a token's experts are chosen, and their shares come about: see `draftwood.engines.cpu.blocks.shares`."""

    gating: str = "softmax"  # or sigmoid
    normalised: bool = True  # whether shares of the chosen are divided by their sum plus ``least``
    least: float = 0.0
    scale: float = 1.0  # what shares are multiplied by
    groups: int = 1  # of experts; those of the ``kept_groups`` best may be chosen
    kept_groups: int = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes and constants of a model, ``sizes``, ``windows`` and ``turning`` per layer."""

    family: Family
    blocks: tuple[tuple[str, ...], ...]  # names of those of each layer: see `Family`
    sizes: tuple[LayerSizes, ...]
    width: int
    vocabulary: int
    max_positions: int
    epsilon: float
    windows: tuple[int, ...]  # 0: the layer sees the whole text
    turning: tuple[bool, ...]  # whether the layer has rotary positions
    base: float
    query_scale: float
    growth: float = 0.0  # of queries, see `query_growth`; 0: they do not grow
    growth_length: int = 0
    local_base: float = 0.0  # of layers with a window; 0: that of the others
    scaling: Scaling = Scaling()
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    score_scale: float = 1.0
    attention_cap: float = 0.0
    score_cap: float = 0.0
    suppressed: tuple[int, ...] = ()  # tokens that are never chosen: their scores are -infinity
    experts: int = 0  # 0: it is no mixture
    used: int = 0  # experts of a token
    expert_inner: int = 0  # of one expert's gated unit
    shares: Shares = Shares()
    has_shared: bool = False  # whether each mixture has an expert that every token takes
    next_layers: int = 0  # blocks for further tokens (MTP), after the layers
    latent: Latent = Latent()
    convolution: int = 0  # tokens that convolutions read; 0: no layer has one
    states: States = States()
    layer_input: int = 0  # numbers of a token's own input of each layer; 0: layers have none

    @property
    def layers(self) -> int:
        return len(self.windows)

    @property
    def attention(self) -> LayerSizes:
        """The sizes of the first layer of attention."""
        return next(one for one in self.sizes if one.kv_heads)

    @property
    def widest_inner(self) -> int:
        """The inner size of the widest gated unit, also of experts."""
        return max(self.expert_inner, *(one.inner for one in self.sizes))

    def is_local(self, layer: int) -> bool:
        """Whether a layer has the rotary frequencies of layers with a window."""
        return bool(self.windows[layer] and self.local_base)

    def rotary(self, *, local: bool) -> int:
        """Return how many numbers of a head are rotated in local layers, or in the others."""
        every = (one.rotary for layer, one in enumerate(self.sizes) if self.is_local(layer) == local)
        return next(every, self.sizes[0].rotary)

    @property
    def convolved(self) -> int:
        """Numbers of a token that convolutions read."""
        return self.states.convolved or self.width

    @property
    def is_long(self) -> bool:
        """Whether texts may be longer than those of the first training, so that LongRoPE's long factors are taken.

        The file decides, not the length of a text: its cached keys would be wrong when it has grown too long.
        """
        return self.max_positions > self.scaling.original > 0


class _Keys:
    """Numbers of a file's metadata under its architecture's name."""

    def __init__(self, metadata: Mapping[str, Any], family: Family) -> None:
        self._metadata, self.family = metadata, family

    def get(self, name: str, default: Any = None) -> Any:
        return self._metadata.get(f"{self.family.architecture}.{name}", self.family.missing.get(name, default))

    def _wrong(self, name: str, found: Any) -> ModelError:
        return ModelError(f"the file says {self.family.architecture}.{name} is {found!r:.40}: get the file again")

    def whole(self, name: str, default: int | None = None, most: int = 1 << 24, least: int = 1) -> int:
        """Return a whole number, or that of a list of equal ones; `ModelError` for one missing or out of range."""
        found = self.get(name, default)
        if isinstance(found, list) and found and isinstance(found[0], int):
            if any(one != found[0] for one in found):
                raise UnsupportedModelError(
                    f"the CPU engine does not run models whose layers differ in {name}: take another engine"
                )
            found = found[0]
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self._wrong(name, found)
        return found

    def each(
        self, name: str, layers: int, default: Sequence[int] | None = None, most: int = 1 << 24, least: int = 1
    ) -> Sequence[int]:
        """Return a whole number of each layer, which files say once or in a list; raises as `whole`."""
        found = self.get(name, default)
        if not isinstance(found, list | tuple):
            return [self.whole(name, None, most, least)] * layers
        some = found[:layers]
        if len(some) < layers or not all(type(one) is int and least <= one <= most for one in some):
            raise self._wrong(name, found)
        if not any(some):
            raise self._wrong(name, 0)
        return some

    def real(self, name: str, default: float | None = None, *, positive: bool = False) -> float:
        """Return a float32 number from 0 on; 0 stands for the default where it is ``positive``."""
        found = self.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _LARGEST:
            raise self._wrong(name, found)
        if not positive:
            return float(found)
        if 0 < found < 1 / _LARGEST:
            raise self._wrong(name, found)
        return float(found or default or 0)

    def truth(self, name: str, *, default: bool) -> bool:
        found = self.get(name, default)
        if not isinstance(found, bool):
            raise self._wrong(name, found)
        return found

    def base(self, name: str, default: float) -> float:
        """Return a base of rotary positions."""
        found = self.real(name, default, positive=True)
        if found <= 1:
            raise ModelError(f"the file says rotary positions have the base {found}: get the file again")
        return found

    def lacking(self, name: str, layers: int) -> list[bool]:
        """Return which layers have 0 of a number."""
        found = self.get(name)
        if not isinstance(found, list):
            return [False] * layers
        if len(found) != layers:
            raise self._wrong(name, found)
        return [one == 0 for one in found]

    def recurrent(self, layers: int) -> list[bool]:
        """Return which layers have a delta net in place of attention."""
        name = "attention.recurrent_layers"
        found = self.get(name)
        if found is None:
            every = self.whole("full_attention_interval", 4)
            return [(layer + 1) % every != 0 for layer in range(layers)]
        if not isinstance(found, list) or len(found) < layers or not all(one in (0, 1) for one in found):
            raise self._wrong(name, found)
        return [bool(one) for one in found[:layers]]

    def pattern(self, layers: int) -> list[bool]:
        """Return which layers have a window."""
        name = "attention.sliding_window_pattern"
        found = self.get(name, self.family.every)
        if isinstance(found, list) and len(found) >= layers and all(isinstance(one, bool) for one in found):
            return found[:layers]
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise self._wrong(name, found)
        return [not found or (layer + 1) % found != 0 for layer in range(layers)]

    def turning(self, windows: Sequence[int]) -> list[bool]:
        """Return which layers have rotary positions; ``windows`` are those of all layers."""
        name, still, layers = "attention.rope_pattern", self.family.still, len(windows)
        found = self.get(name)
        if found is None and self.family.still_without_window and any(windows):
            return [window > 0 for window in windows]
        if found is None:
            return [not still or (layer + 1) % still != 0 for layer in range(layers)]
        if not isinstance(found, list) or len(found) < layers or not all(isinstance(one, bool) for one in found):
            raise self._wrong(name, found)
        return found[:layers]

    def scaling(self) -> Scaling:
        factor = self.real("rope.scaling.factor", self.real("rope.scale_linear", 0.0)) or 1.0
        kind = self.get("rope.scaling.type", "linear")
        if kind not in ("none", "linear", "yarn", "longrope"):
            raise UnsupportedModelError(
                f"the CPU engine does not know positions that are scaled by {kind!r:.40}: take another engine"
            )
        share = self.get("rope.scaling.yarn_ext_factor", 1)
        if kind == "yarn" and share not in (1, -1):  # -1 stands for the usual, 1
            raise UnsupportedModelError(
                f"the CPU engine runs no yarn with yarn_ext_factor {share!r:.40}: take another engine"
            )
        size = self.real("rope.scaling.attn_factor", 1.0, positive=True)
        if "latent_attention" in self.family.mixers and kind == "yarn":
            if self.real("rope.scaling.yarn_log_multiplier", 0.0):  # scores grow instead: see `_query_scale`
                size /= _yarn_growth(factor)
        elif self.family.yarn_multiplier and kind == "yarn":
            size /= _yarn_growth(factor, self.real("rope.scaling.yarn_log_multiplier", 0.0))
        original = self.whole("rope.scaling.original_context_length", 0, 1 << 30, least=0)
        return Scaling(
            kind, factor, original or self.whole("context_length", most=1 << 30),
            size * self.real("rope.scaling.yarn_attn_factor", 1.0, positive=True),
            self.real("rope.scaling.yarn_beta_fast", 32.0, positive=True),
            self.real("rope.scaling.yarn_beta_slow", 1.0, positive=True),
            self.truth("rope.scaling.yarn_truncate", default=True),
        )  # fmt: skip


def shape_of(metadata: Mapping[str, Any], vocabulary: int) -> Shape:
    """Read a model's shape from a file's metadata; ``vocabulary`` is the number of its embeddings.

    Raises `UnsupportedModelError` for other architectures, `ModelError` for sizes that make no sense.
    """
    kind = metadata.get("general.architecture")
    family = FAMILIES.get(str(kind))
    if family is None:
        raise UnsupportedModelError(f"the CPU engine runs no models of type {kind!s:.40}: take another engine")
    keys = _Keys(metadata, family)
    width, every = keys.whole("embedding_length", most=MOST_WIDTH), keys.whole("block_count", most=MOST_LAYERS)
    next_layers = keys.whole("nextn_predict_layers", 0, every - 1, 0)
    layers = every - next_layers
    blocks = _blocks(keys, layers)
    window = keys.whole("attention.sliding_window", 0, 1 << 30, least=0)
    windows = tuple(window if here else 0 for here in keys.pattern(layers))
    latent = _latent(keys) if "latent_attention" in family.mixers else Latent()
    sizes = _sizes(keys, width, blocks, windows, latent)
    base = keys.base("rope.freq_base", 10000.0)
    turns = keys.get("rope.scaling.finetuned", True) is not False or kind not in ("granite", "granitehybrid")
    has = {block for every in blocks for block in every}
    scaling = keys.scaling()
    return Shape(
        family=family, blocks=blocks, sizes=sizes, width=width,
        vocabulary=vocabulary, max_positions=keys.whole("context_length", most=1 << 30),
        epsilon=keys.real("attention.layer_norm_rms_epsilon"), windows=windows,
        turning=tuple(turns and here for here in keys.turning(windows)),
        base=base, scaling=scaling,
        local_base=keys.base("rope.freq_base_swa", base) if family.local and any(windows) else 0.0,
        query_scale=keys.real("attention.scale", 0.0) or _query_scale(keys, scaling, width, sizes, latent),
        embedding_scale=width**0.5 if family.root_embedding else keys.real("embedding_scale", 1.0, positive=True),
        residual_scale=keys.real("residual_scale", 1.0, positive=True),
        score_scale=1 / keys.real("logit_scale", 1.0, positive=True),
        growth=keys.real("attention.temperature_scale", 0.0),
        growth_length=keys.whole("attention.temperature_length", 0, 1 << 30, least=0) or scaling.original,
        attention_cap=keys.real("attn_logit_softcapping", 0.0),
        score_cap=keys.real("final_logit_softcapping", 0.0), suppressed=_suppressed(metadata, vocabulary),
        layer_input=keys.whole("embedding_length_per_layer_input", None, 4096, 0) if "layer_input" in has else 0,
        next_layers=next_layers, latent=latent, **_recurrent(keys, has),
        **(_experts(keys) if has & {"experts", "dense_and_experts"} else {}),
    )  # fmt: skip


def _suppressed(metadata: Mapping[str, Any], vocabulary: int) -> tuple[int, ...]:
    found = metadata.get("tokenizer.ggml.suppress_tokens") or []
    if not isinstance(found, list) or not all(type(one) is int and 0 <= one < vocabulary for one in found):
        raise ModelError(f"the file says tokens {found!r:.40} are never chosen: get the file again")
    return tuple(found)


def _sizes(
    keys: _Keys, width: int, blocks: Sequence[tuple[str, ...]], windows: Sequence[int], latent: Latent
) -> tuple[LayerSizes, ...]:
    """Return the sizes of each layer; layers that read another one's keys have as many heads of these."""
    layers, sources = len(blocks), _sources(keys, windows)
    heads = keys.each("attention.head_count", layers, most=4096)
    kv_heads = keys.each(
        "attention.head_count_kv", layers, heads, 4096, least=int(keys.family.mixers == ("attention",))
    )
    kv_heads = [kv_heads[source] for source in sources]
    has_unit = ["experts" not in names for names in blocks]
    inner = keys.each("feed_forward_length", layers, most=_MOST_INNER) if any(has_unit) else [0] * layers
    if latent.rank:  # all heads share one of keys, also in older files, which say otherwise
        kv_heads, usual = [1] * layers, (latent.turning + latent.rank, latent.turning)
    else:
        usual = _head_size(keys, "", max(1, width // heads[0]))
    of_windows = _head_size(keys, "_swa", *usual) if keys.family.local else usual
    for queries, shared in zip(heads, kv_heads, strict=True):
        if shared and queries % shared:
            raise ModelError(f"the file says {queries} heads share {shared} heads of keys: get the file again")
    kv_heads = [
        heads * (mixer == keys.family.mixers[0]) for heads, (mixer, *_) in zip(kv_heads, blocks, strict=True)
    ]
    if not any(kv_heads):
        raise UnsupportedModelError("the CPU engine runs no models without attention: take another engine")
    return tuple(
        LayerSizes(
            heads[layer], kv_heads[layer], *(of_windows if windows[layer] else usual),
            inner[layer] * has_unit[layer], sources[layer],
        )
        for layer in range(layers)
    )  # fmt: skip


def _sources(keys: _Keys, windows: Sequence[int]) -> list[int]:
    """Return whose keys and values each layer reads: the last layers those of an earlier one of their kind."""
    layers = len(windows)
    first = layers - keys.whole("attention.shared_kv_layers", 0, layers, least=0)
    found = []
    for layer, window in enumerate(windows):
        alike = [one for one in range(min(layer + 1, first)) if windows[one] == window]
        if not alike:
            raise ModelError(f"the file says layer {layer} reads the keys of none before it: get the file again")
        found.append(alike[-1])
    return found


def _head_size(keys: _Keys, kind: str, usual: int, usually_turned: int = 1024) -> tuple[int, int]:
    """Return the size of a head, and how many of its numbers are rotated; ``kind`` ends the names of the keys."""
    size, values = (keys.whole(f"attention.{name}_length{kind}", usual, 1024) for name in ("key", "value"))
    if values != size:
        raise UnsupportedModelError(
            f"the CPU engine runs no keys of {size} beside values of {values} numbers: take another engine"
        )
    rotary = keys.whole(f"rope.dimension_count{kind}", min(size, usually_turned), size)
    if rotary % 2:
        raise ModelError(
            f"the file says rope.dimension_count{kind} is {rotary}, an odd number: get the file again"
        )
    return size, rotary


def _latent(keys: _Keys) -> Latent:
    """Return the sizes of latent attention; older files have those of heads under the usual names."""
    size, value = (
        keys.whole(f"attention.{name}_length_mla", keys.get(f"attention.{name}_length"), 1024)
        for name in ("key", "value")
    )
    turning, rank = keys.whole("rope.dimension_count", most=size), keys.whole("attention.kv_lora_rank", most=1024)
    if size == turning or any(one % 16 for one in (turning, rank, size - turning, value)):
        raise UnsupportedModelError(
            f"the CPU engine runs no latent attention with {size - turning}, {turning}, {rank} and {value} "
            "numbers, but with multiples of 16: take another engine"
        )
    return Latent(keys.whole("attention.q_lora_rank", 0, 1 << 20, least=0), rank, size - turning, turning, value)


def _blocks(keys: _Keys, layers: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of the blocks of each layer; `UnsupportedModelError` for those of other families."""
    family = keys.family
    dense = layers if not keys.get("expert_count") else keys.whole("leading_dense_block_count", 0, layers, 0)
    mixture = next((unit for unit in family.units if unit != "gated_unit"), "experts")
    found = tuple(
        (mixer, "gated_unit" if layer < dense else mixture, *family.ends)
        for layer, mixer in enumerate(_mixers(keys, layers))
    )
    if others := {names[1] for names in found} - set(family.units):
        raise UnsupportedModelError(
            f"the CPU engine runs no {family.architecture} with {others.pop()}: take another engine"
        )
    return found


def _mixers(keys: _Keys, layers: int) -> list[str]:
    """Return the name of the first block of each layer."""
    (*_, other) = keys.family.mixers
    if other in ("short_convolution", "mamba"):
        without = keys.lacking("attention.head_count_kv", layers)
    elif other == "delta_net":
        without = keys.recurrent(layers)
    else:
        without = [False] * layers
    return [other if here else keys.family.mixers[0] for here in without]


def _recurrent(keys: _Keys, has: set[str]) -> dict[str, Any]:
    """Return what `Shape` says of short convolutions and of states."""
    if "short_convolution" in has:
        return {"convolution": _only(keys, "shortconv.l_cache", 3)}
    if not has & {"delta_net", "mamba"}:
        return {}
    groups, heads = (keys.whole(f"ssm.{name}", most=1024) for name in ("group_count", "time_step_rank"))
    if "mamba" in has:
        size, values = _mamba_sizes(keys, heads)
    else:
        size = values = _only(keys, "ssm.state_size", DELTA_SIZE)
        _only(keys, "ssm.inner_size", heads * DELTA_SIZE)
    if heads % groups:
        raise ModelError(f"the file says {heads} states share {groups} heads of keys: get the file again")
    states = States(groups, heads, size, values)
    return {"convolution": _only(keys, "ssm.conv_kernel", 4), "states": states}


def _mamba_sizes(keys: _Keys, heads: int) -> tuple[int, int]:
    """Return the numbers of a key and of a head's value in Mamba-2."""
    size, inner = keys.whole("ssm.state_size"), keys.whole("ssm.inner_size", most=_MOST_INNER)
    values = inner // heads
    if size % 16 or size > MOST_KEYS or values % 16 or inner % 32 or values * heads != inner:
        raise UnsupportedModelError(
            f"the CPU engine runs states of up to {MOST_KEYS} keys, and values in multiples of 16, not of {size} "
            f"keys and {heads} heads of {inner} values: take another engine"
        )
    return size, values


def _only(keys: _Keys, name: str, known: int) -> int:
    """Return a number of recurrent layers, which kernels know by one value."""
    found = keys.whole(name)
    if found != known:
        raise UnsupportedModelError(
            f"the CPU engine runs no models with {name} {found}, but with {known}: take another engine"
        )
    return found


def _experts(keys: _Keys) -> dict[str, Any]:
    """Return what `Shape` says of experts."""
    experts = keys.whole("expert_count", most=1 << 12)
    own = keys.get("expert_feed_forward_length") is not None
    # Files give the width of shared experts, too, not always the right one: the tensors have it.
    shared = [keys.whole(f"expert_shared_{name}", 0, least=0) for name in ("count", "feed_forward_length")]
    used = keys.whole("expert_used_count", most=min(experts, 64))
    if keys.get("interleave_moe_layer_step", 1) not in (0, 1):
        raise UnsupportedModelError(
            "the CPU engine runs no mixtures with gated units between them: take another engine"
        )
    return {
        "experts": experts, "used": used,
        "expert_inner": keys.whole(f"{'expert_' if own else ''}feed_forward_length", most=_MOST_INNER),
        "shares": _shares(keys, experts, used), "has_shared": any(shared),
    }  # fmt: skip


def _shares(keys: _Keys, experts: int, used: int) -> Shares:
    # Files that do not say it, of a family in which models differ: as llama.cpp takes it, by the number of layers.
    usual = 2 if keys.get("block_count") in (47, 48) else 1
    said, family = keys.get("expert_gating_func", GATINGS.get(keys.family.gating, usual)), keys.family
    gating = next((name for name, number in GATINGS.items() if number == said), "")
    if family.gating not in (gating, "said") or not gating:
        raise UnsupportedModelError(
            f"the CPU engine does not run mixtures with expert_gating_func {said!r:.20}: take another engine"
        )
    groups = keys.whole("expert_group_count", 0, experts, least=0) or 1
    kept = keys.whole("expert_group_used_count", 0, groups, least=0) or groups
    if kept < groups and (
        gating != "sigmoid" or experts % groups or experts < 2 * groups or kept * experts < used * groups
    ):
        raise UnsupportedModelError(
            f"the CPU engine runs no {experts} experts in {groups} groups with {gating}: take another engine"
        )
    return Shares(
        gating, keys.truth("expert_weights_norm", default=family.normalised), family.share_least,
        keys.real("expert_weights_scale", 1.0, positive=True), groups, kept,
    )  # fmt: skip


def _query_scale(keys: _Keys, scaling: Scaling, width: int, sizes: Sequence[LayerSizes], latent: Latent) -> float:
    if not latent.rank:
        return float(_divisor(keys.family.architecture, width, sizes) ** -0.5)
    share = keys.real("rope.scaling.yarn_log_multiplier", 0.0)
    growth = _yarn_growth(scaling.factor, 10 * share) if scaling.kind == "yarn" else 1.0  # the file has a tenth
    return float((latent.still + latent.turning) ** -0.5 * growth**2)


def _divisor(kind: Any, width: int, sizes: Sequence[LayerSizes]) -> int:
    """Return by whose root scores of attention are divided: a head's size, but in 27B models of two families."""
    is_large = kind in ("gemma2", "gemma3") and (len(sizes), width) in ((46, 4608), (62, 5376))
    return width // sizes[0].heads if is_large else sizes[0].head_size


# --- rotary positions -------------------------------------------------------------------------------------------

Doubles = NDArray[np.float64]
# pi / 2 in three parts; the first two have 33 bits, so that small multiples of them are exact.
_QUARTER = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)


def rotary_table(shape: Shape, factors: Any, local: bool, positions: int) -> NDArray[np.float32]:
    """Return float32[positions, 2, pairs]: cosines and sines of position times frequency.

    ``factors`` divide single frequencies, None where the file has none. ``local`` is of layers with a base of
    their own, for which nothing is scaled; without such layers the table is empty.
    """
    if local and not shape.local_base:
        return np.zeros(0, dtype=np.float32)
    base, scaling = (shape.local_base, Scaling()) if local else (shape.base, shape.scaling)
    angles, size = _frequencies(shape.rotary(local=local), base, scaling, None if local else factors)
    cosines, sines = _circle(np.arange(positions, dtype=np.float64)[:, None] * angles)
    return np.stack((cosines * size, sines * size), axis=1).astype(np.float32)


def query_growth(shape: Shape, positions: int) -> NDArray[np.float32]:
    """Return what queries are multiplied by at each position: 1 + growth * ln(1 + position // length).

    From ``growth_length`` on, so that attention stays sharp in long texts. Empty where they do not grow.
    """
    if not shape.growth:
        return np.zeros(0, dtype=np.float32)
    steps = -(-positions // shape.growth_length)
    every = [1 + shape.growth * _log(1 + step) for step in range(steps)]
    return np.repeat(np.array(every, dtype=np.float32), shape.growth_length)[:positions]


def _frequencies(rotary: int, base: float, scaling: Scaling, factors: Any) -> tuple[Doubles, float]:
    """Return the angle per position of each pair, float64[rotary // 2], and what cosines are multiplied by."""
    exact = Context(prec=30)
    plain = [float(exact.power(Decimal(base), Decimal(-2 * i) / Decimal(rotary))) for i in range(rotary // 2)]
    found = np.array(plain) if factors is None else np.array(plain) / factors
    if scaling.factor == 1 or scaling.kind not in ("linear", "yarn"):
        return found, scaling.size
    if scaling.kind == "linear":
        return found / scaling.factor, scaling.size
    return _yarn(found, rotary, base, scaling), scaling.size * _yarn_growth(scaling.factor)


def _yarn_growth(factor: float, share: float = 1.0) -> float:
    return 1 + 0.1 * share * max(0.0, _log(factor))


def _yarn(plain: Doubles, rotary: int, base: float, scaling: Scaling) -> Doubles:
    """Divide slow frequencies by the factor, fast ones not, and those between by linear interpolation."""

    def place(turns: float) -> float:
        return rotary * _log(scaling.original / (turns * 2 * math.pi)) / (2 * _log(base))

    low, high = place(scaling.fast), place(scaling.slow)
    if scaling.rounds:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0, low), min(rotary - 1, high)
    ramp = np.clip((np.arange(rotary // 2) - low) / max(0.001, high - low), 0, 1)
    return plain / scaling.factor * ramp + plain * (1 - ramp)


def _log(value: float) -> float:
    return float(Context(prec=30).ln(Decimal(value)))


def _circle(angles: Doubles) -> tuple[Doubles, Doubles]:
    """Return cosine and sine by basic arithmetic alone: angles modulo pi / 2, then their Taylor series."""
    quarters = np.rint(angles * (2 / math.pi))
    rest = angles - quarters * _QUARTER[0] - quarters * _QUARTER[1] - quarters * _QUARTER[2]
    square = rest * rest
    sine, cosine = np.ones_like(rest), np.ones_like(rest)
    for n in range(16, 0, -2):
        sine = 1 - sine * square / (n * (n + 1))
        cosine = 1 - cosine * square / (n * (n - 1))
    sine *= rest
    which = quarters.astype(np.int64) & 3
    cosines = np.choose(which, (cosine, -sine, -cosine, sine))
    return cosines, np.choose(which, (sine, cosine, -sine, -cosine))
