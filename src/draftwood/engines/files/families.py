"""The families of models that this engine runs: one table, and what a file says of its model's shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.turns import Scaling, frequencies, table
from draftwood.errors import ModelError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Family:
    """What the models of one architecture of GGUF have in common."""

    # Which numbers of a head rotate as a pair, in the file's order: neighbours, or i and i + half.
    pairs: Literal["neighbours", "halves"] = "halves"
    gate: Literal["silu", "gelu"] = "silu"
    head_norm: Literal["", "head", "row"] = ""  # of queries and keys: of each head, of the whole row, or none
    norms: Literal["before", "after", "both"] = "before"  # where norms of a block stand
    root_embedding: bool = False  # whether embeddings are multiplied by the root of the width
    every: int = 1  # n: each n-th layer sees the whole text, the others a window; 0: all have one
    # What llama.cpp takes for numbers that a file leaves out, unless for all alike; None and 0: it refuses them.
    missing: Mapping[str, float | None] = field(default_factory=dict)
    local: bool = False  # whether layers with a window have rotary frequencies of their own, never scaled
    still: int = 0  # n: each n-th layer has no rotary positions; 0: all have them


FAMILIES = {
    "llama": Family(pairs="neighbours"),  # mistral and mixtral too
    "qwen2": Family(),
    "qwen3": Family(head_norm="head"),
    "qwen3moe": Family(head_norm="head", missing={"expert_feed_forward_length": 0}),
    "gemma": Family(gate="gelu", root_embedding=True),
    "gemma2": Family(
        gate="gelu", root_embedding=True, norms="both", every=2,
        missing={
            "attention.sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3": Family(
        gate="gelu", root_embedding=True, norms="both", head_norm="head", every=6, local=True,
        missing={"rope.freq_base_swa": 10000.0},
    ),
    "phi3": Family(every=0),
    "smollm3": Family(pairs="neighbours", still=4),
    "granite": Family(pairs="neighbours", missing={"logit_scale": None}),
    "olmo2": Family(head_norm="row", norms="after", every=4, local=True),  # olmo3 too, which has windows
}  # fmt: skip
"""By ``general.architecture`` of a file."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes and constants of a model, ``windows`` and ``turning`` per layer."""

    family: Family
    width: int
    inner: int  # of the gated unit (gated MLP), or of one expert's
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    max_positions: int
    epsilon: float
    windows: tuple[int, ...]  # 0: the layer sees the whole text
    turning: tuple[bool, ...]  # whether the layer has rotary positions
    rotary: int  # numbers of a head that are rotated, the first ones
    base: float
    query_scale: float
    local_base: float = 0.0  # of layers with a window; 0: that of the others
    scaling: Scaling = Scaling()  # noqa: RUF009 - it is frozen
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    score_scale: float = 1.0
    attention_cap: float = 0.0
    score_cap: float = 0.0
    experts: int = 0  # 0: it is no mixture
    used: int = 0  # experts of a token

    @property
    def layers(self) -> int:
        return len(self.windows)

    @property
    def is_long(self) -> bool:
        """Whether texts may be longer than those of the first training, so that LongRoPE's long factors are taken.

        The file decides, not the length of a text: its cached keys would be wrong when it has grown too long.
        """
        return self.max_positions > self.scaling.original > 0


def rotary_table(shape: Shape, factors: Any, local: bool, positions: int) -> NDArray[np.float32]:
    """Return cosines and sines of positions, as `table`; ``local``: of layers with a base of their own."""
    if local and not shape.local_base:
        return np.zeros(0, dtype=np.float32)
    wide = None if factors is None or local else factors.astype(np.float64)
    base, scaling = (shape.local_base, Scaling()) if local else (shape.base, shape.scaling)
    angles, size = frequencies(shape.rotary, base, scaling, wide)
    return table(angles, size, positions)


MOST_LAYERS, MOST_WIDTH = 1024, 1 << 20
"""No model has more; metadata that say so are damaged."""


class _Keys:
    """Numbers of a file's metadata under its architecture's name."""

    def __init__(self, metadata: Mapping[str, Any], kind: str, missing: Mapping[str, Any]) -> None:
        self._metadata, self._kind, self._missing = metadata, kind, missing

    def get(self, name: str, default: Any = None) -> Any:
        return self._metadata.get(f"{self._kind}.{name}", self._missing.get(name, default))

    def _wrong(self, name: str, found: Any) -> ModelError:
        return ModelError(f"the file says {self._kind}.{name} is {found!r:.40}: get the file again")

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

    def real(self, name: str, default: float | None = None, *, positive: bool = False) -> float:
        """Return a number that is finite and not negative; 0 stands for the default where it is ``positive``."""
        found = self.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not isfinite(found) or found < 0:
            raise self._wrong(name, found)
        return float(found or default or 0) if positive else float(found)

    def pattern(self, layers: int, every: int) -> list[bool]:
        """Return which layers have a window."""
        name = "attention.sliding_window_pattern"
        found = self.get(name, every)
        if isinstance(found, list) and len(found) >= layers and all(isinstance(one, bool) for one in found):
            return found[:layers]
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise self._wrong(name, found)
        return [not found or (layer + 1) % found != 0 for layer in range(layers)]

    def scaling(self) -> Scaling:
        factor = self.real("rope.scaling.factor", self.real("rope.scale_linear", 0.0)) or 1.0
        kind = self.get("rope.scaling.type", "linear")
        if kind not in ("none", "linear", "yarn", "longrope"):
            raise UnsupportedModelError(
                f"the CPU engine does not know positions that are scaled by {kind!r:.40}: take another engine"
            )
        size = self.real("rope.scaling.attn_factor", 1.0, positive=True)
        original = self.whole("rope.scaling.original_context_length", 0, 1 << 30, least=0)
        return Scaling(
            kind, factor, original or self.whole("context_length", most=1 << 30),
            size * self.real("rope.scaling.yarn_attn_factor", 1.0, positive=True),
            self.real("rope.scaling.yarn_beta_fast", 32.0, positive=True),
            self.real("rope.scaling.yarn_beta_slow", 1.0, positive=True),
        )  # fmt: skip


def shape_of(metadata: Mapping[str, Any], vocabulary: int) -> Shape:
    """Read a model's shape from a file's metadata; ``vocabulary`` is the number of its embeddings.

    Raises `UnsupportedModelError` for other architectures, `ModelError` for sizes that make no sense.
    """
    kind = metadata.get("general.architecture")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise UnsupportedModelError(f"the CPU engine runs no models of type {kind!s:.40}: take another engine")
    keys = _Keys(metadata, str(kind), family.missing)
    width, layers = keys.whole("embedding_length", most=MOST_WIDTH), keys.whole("block_count", most=MOST_LAYERS)
    heads, kv_heads, size = _heads(keys, width)
    windows = _windows(keys, family, layers)
    rotary = keys.whole("rope.dimension_count", size, size)
    if rotary % 2:
        raise ModelError(f"the file says rope.dimension_count is {rotary}, an odd number: get the file again")
    base = keys.real("rope.freq_base", 10000.0, positive=True)
    if base <= 1:
        raise ModelError(f"the file says rotary positions have the base {base}: get the file again")
    experts, used = _experts(keys)
    turns = keys.get("rope.scaling.finetuned", True) is not False or kind != "granite"
    return Shape(
        family=family, width=width, inner=_inner(keys, experts), heads=heads, kv_heads=kv_heads, head_size=size,
        vocabulary=vocabulary, max_positions=keys.whole("context_length", most=1 << 30),
        epsilon=keys.real("attention.layer_norm_rms_epsilon"), windows=windows,
        turning=tuple(turns and not (family.still and (i + 1) % family.still == 0) for i in range(layers)),
        rotary=rotary, base=base, scaling=keys.scaling(),
        local_base=_local_base(keys, family, base) if any(windows) else 0.0,
        query_scale=keys.real("attention.scale", 0.0) or _divisor(kind, layers, width, heads, size) ** -0.5,
        embedding_scale=width**0.5 if family.root_embedding else keys.real("embedding_scale", 1.0, positive=True),
        residual_scale=keys.real("residual_scale", 1.0, positive=True),
        score_scale=1 / keys.real("logit_scale", 1.0, positive=True),
        attention_cap=keys.real("attn_logit_softcapping", 0.0),
        score_cap=keys.real("final_logit_softcapping", 0.0),
        experts=experts, used=used,
    )  # fmt: skip


def _heads(keys: _Keys, width: int) -> tuple[int, int, int]:
    """Return the numbers of query heads and key heads, and the size of a head."""
    heads = keys.whole("attention.head_count", most=4096)
    kv_heads = keys.whole("attention.head_count_kv", heads, 4096)
    usual = max(1, width // heads)
    size, values = (keys.whole(f"attention.{name}_length", usual, 1024) for name in ("key", "value"))
    if heads % kv_heads:
        raise ModelError(f"the file says {heads} heads share {kv_heads} heads of keys: get the file again")
    if values != size:
        raise UnsupportedModelError(
            f"the CPU engine runs no keys of {size} beside values of {values} numbers: take another engine"
        )
    return heads, kv_heads, size


def _windows(keys: _Keys, family: Family, layers: int) -> tuple[int, ...]:
    window = keys.whole("attention.sliding_window", 0, 1 << 30, least=0)
    return tuple(window if here else 0 for here in keys.pattern(layers, family.every))


def _local_base(keys: _Keys, family: Family, base: float) -> float:
    """Return the rotary base of layers with a window; 0: that of the others."""
    if not family.local:
        return 0.0
    local = keys.real("rope.freq_base_swa", base, positive=True)
    if local <= 1:
        raise ModelError(f"the file says rotary positions have the base {local}: get the file again")
    return local


def _experts(keys: _Keys) -> tuple[int, int]:
    """Return how many experts there are and how many a token uses; zeros where there are none."""
    experts = keys.whole("expert_count", 0, 1 << 12, least=0)
    if not experts:
        return 0, 0
    others = ("expert_shared_count", "expert_group_count", "expert_weights_scale", "expert_gating_func")
    neutral = (0, 1, 1.0, 1)  # none, one, no scale, softmax
    for name, value in zip(others, neutral, strict=True):
        if keys.get(name, value) not in (0, value):
            raise UnsupportedModelError(
                f"the CPU engine does not run mixtures with {name} {keys.get(name)!r:.20}: take another engine"
            )
    return experts, keys.whole("expert_used_count", most=min(experts, 64))


def _inner(keys: _Keys, experts: int) -> int:
    own = experts and keys.get("expert_feed_forward_length") is not None
    return keys.whole("expert_feed_forward_length" if own else "feed_forward_length", most=1 << 20)


def _divisor(kind: Any, layers: int, width: int, heads: int, size: int) -> int:
    """Return by whose root scores of attention are divided: a head's size, but in 27B models of two families."""
    is_large = kind in ("gemma2", "gemma3") and (layers, width) in ((46, 4608), (62, 5376))
    return width // heads if is_large else size
