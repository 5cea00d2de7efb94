"""The families of models that this engine runs: one table, and what a file says of its model's shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from draftwood.errors import ModelError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Family:
    """What the models of one architecture of GGUF have in common.

    Attributes
    ----------
    pairs
        Which numbers of a head turn together in the file: ``neighbours``, or ``halves`` (i and i + half).
    gate
        The activation of the gated unit.
    head_norm
        Norms of queries and keys: of each ``head``, of the whole row (``row``), or none.
    norms
        Whether norms stand ``before`` a block, ``after`` it, or at ``both`` ends.
    root_embedding
        Whether embeddings are multiplied by the root of the width.
    every
        Of so many layers the last sees the whole text, the others a window; 0: all see as much.
    local_base
        Base of the rotary positions of layers with a window; 0: as the others.
    still
        Every so manyth layer has no rotary positions; 0: all have.
    """

    pairs: Literal["neighbours", "halves"] = "halves"
    gate: Literal["silu", "gelu"] = "silu"
    head_norm: Literal["", "head", "row"] = ""
    norms: Literal["before", "after", "both"] = "before"
    root_embedding: bool = False
    every: int = 0
    local_base: float = 0.0
    still: int = 0


FAMILIES = {
    "llama": Family(pairs="neighbours"),
    "qwen2": Family(),
    "qwen3": Family(head_norm="head"),
    "gemma": Family(gate="gelu", root_embedding=True),
    "gemma2": Family(gate="gelu", root_embedding=True, norms="both", every=2),
    "gemma3": Family(
        gate="gelu", root_embedding=True, norms="both", head_norm="head", every=6, local_base=10000.0
    ),
    "phi3": Family(),
    "smollm3": Family(pairs="neighbours", still=4),
    "granite": Family(pairs="neighbours"),
    "olmo2": Family(head_norm="row", norms="after"),
}
"""By ``general.architecture`` of a file."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes and constants of a model; lengths in numbers, ``windows`` and ``turning`` per layer."""

    family: Family
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    max_positions: int
    epsilon: float
    windows: tuple[int, ...]  # 0: the layer sees the whole text
    turning: tuple[bool, ...]  # whether the layer has rotary positions
    rotary: int
    base: float
    query_scale: float
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    score_scale: float = 1.0
    attention_cap: float = 0.0
    score_cap: float = 0.0
    scaling: Mapping[str, Any] = field(default_factory=dict)  # of rotary positions, as the file has it

    @property
    def layers(self) -> int:
        return len(self.windows)


class _Keys:
    """Numbers of a file's metadata under its architecture's name."""

    def __init__(self, metadata: Mapping[str, Any], kind: str) -> None:
        self._metadata, self._kind = metadata, kind

    def whole(self, name: str, default: int | None = None, most: int = 1 << 24) -> int:
        """Return a whole number from 1 on; `ModelError` if it is missing or none."""
        found = self._metadata.get(f"{self._kind}.{name}", default)
        if isinstance(found, list) and found and all(one == found[0] for one in found):
            found = found[0]
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= most:
            raise ModelError(f"the file says {self._kind}.{name} is {found!r:.40}: get the file again")
        return found

    def real(self, name: str, default: float) -> float:
        found = self._metadata.get(f"{self._kind}.{name}", default)
        if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
            raise ModelError(f"the file says {self._kind}.{name} is {found!r:.40}: get the file again")
        return float(found)

    def has(self, name: str) -> bool:
        return f"{self._kind}.{name}" in self._metadata

    def scaling(self) -> dict[str, Any]:
        start = f"{self._kind}.rope.scaling."
        return {key.removeprefix(start): value for key, value in self._metadata.items() if key.startswith(start)}


def shape_of(metadata: Mapping[str, Any], vocabulary: int) -> Shape:
    """Read a model's shape from a file's metadata; ``vocabulary`` is the number of its embeddings.

    Raises `UnsupportedModelError` for other architectures, `ModelError` for sizes that make no sense.
    """
    kind = metadata.get("general.architecture")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise UnsupportedModelError(f"the CPU engine does not run models of type {kind}: llama.cpp does")
    keys = _Keys(metadata, str(kind))
    if keys.has("expert_count") and keys.real("expert_count", 0):
        raise UnsupportedModelError("the CPU engine does not run mixtures of experts: llama.cpp does")
    width, heads = keys.whole("embedding_length"), keys.whole("attention.head_count", most=4096)
    kv_heads = keys.whole("attention.head_count_kv", heads, 4096)
    size = keys.whole("attention.key_length", max(1, width // heads), 1024)
    if heads % kv_heads or keys.whole("attention.value_length", size) != size:
        raise ModelError(f"the file says {heads} heads with {kv_heads} of keys, and values of another size")
    layers = keys.whole("block_count", most=1024)
    window = int(keys.real("attention.sliding_window", 0)) if family.every or kind == "phi3" else 0
    local = [bool(window) and (not family.every or (i + 1) % family.every != 0) for i in range(layers)]
    rotary = keys.whole("rope.dimension_count", size, size)
    wide = kind in ("gemma2", "gemma3") and (layers, width) in ((46, 4608), (62, 5376))  # the 27B ones
    scale = keys.real("attention.scale", 0.0) or (width // heads if wide else size) ** -0.5
    return Shape(
        family=family, width=width, inner=keys.whole("feed_forward_length"), heads=heads, kv_heads=kv_heads,
        head_size=size, vocabulary=vocabulary, max_positions=keys.whole("context_length"),
        epsilon=keys.real("attention.layer_norm_rms_epsilon", 1e-5),
        windows=tuple(window if here else 0 for here in local),
        turning=tuple(not (family.still and (i + 1) % family.still == 0) for i in range(layers)),
        rotary=rotary, base=keys.real("rope.freq_base", 10000.0), query_scale=scale,
        embedding_scale=width**0.5 if family.root_embedding else keys.real("embedding_scale", 1.0),
        residual_scale=keys.real("residual_scale", 1.0), score_scale=1 / keys.real("logit_scale", 1.0),
        attention_cap=keys.real("attn_logit_softcapping", 0.0),
        score_cap=keys.real("final_logit_softcapping", 0.0), scaling=keys.scaling(),
    )  # fmt: skip
