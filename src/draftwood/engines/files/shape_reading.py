"""The reading of a model's shape from a file's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftwood.engines.files.families import FAMILIES
from draftwood.engines.files.layer_sizes import blocks_of, latent_of, sizes_of
from draftwood.engines.files.metadata import MOST_LAYERS, MOST_WIDTH, Keys
from draftwood.engines.files.mixture_sizes import mixture_of
from draftwood.engines.files.rotary import yarn_growth
from draftwood.engines.files.shapes import Latent, LayerSizes, Multipliers, Scaling, Shape
from draftwood.engines.files.state_sizes import recurrent_of
from draftwood.errors import ModelError, UnsupportedModelError


def shape_of(metadata: Mapping[str, Any], vocabulary: int) -> Shape:
    """Read a model's shape from a file's metadata; ``vocabulary`` is the number of its embeddings.

    Raises `UnsupportedModelError` for other architectures, `ModelError` for sizes that make no sense.
    """
    kind = metadata.get("general.architecture")
    family = FAMILIES.get(str(kind))
    if family is None:
        raise UnsupportedModelError(f"the CPU engine runs no models of type {kind!s:.40}: take another engine")
    keys = Keys(metadata, family)
    width, every = keys.whole("embedding_length", most=MOST_WIDTH), keys.whole("block_count", most=MOST_LAYERS)
    next_layers = keys.whole("nextn_predict_layers", 0, every - 1, 0)
    layers = every - next_layers
    blocks = blocks_of(keys, layers)
    window = keys.whole("attention.sliding_window", 0, 1 << 30, least=0)
    windows = tuple(window if here else 0 for here in keys.pattern(layers))
    latent = latent_of(keys) if "latent_attention" in family.mixers else Latent()
    sizes = sizes_of(keys, width, blocks, windows, latent)
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
        next_layers=next_layers, latent=latent, multipliers=_multipliers(keys), **recurrent_of(keys, has),
        **(mixture_of(keys) if has & {"experts", "dense_and_experts"} else {}),
    )  # fmt: skip


def _suppressed(metadata: Mapping[str, Any], vocabulary: int) -> tuple[int, ...]:
    found = metadata.get("tokenizer.ggml.suppress_tokens") or []
    if not isinstance(found, list) or not all(type(one) is int and 0 <= one < vocabulary for one in found):
        raise ModelError(f"the file says tokens {found!r:.40} are never chosen: get the file again")
    return tuple(found)


def _multipliers(keys: Keys) -> Multipliers:
    found = keys.get("multipliers")  # of folders; no GGUF file has such a value
    return found if isinstance(found, Multipliers) else Multipliers()


def _query_scale(keys: Keys, scaling: Scaling, width: int, sizes: Sequence[LayerSizes], latent: Latent) -> float:
    if not latent.rank:
        return float(_divisor(keys.family.architecture, width, sizes) ** -0.5)
    share = keys.real("rope.scaling.yarn_log_multiplier", 0.0)
    growth = yarn_growth(scaling.factor, 10 * share) if scaling.kind == "yarn" else 1.0  # the file has a tenth
    return float((latent.still + latent.turning) ** -0.5 * growth**2)


def _divisor(kind: Any, width: int, sizes: Sequence[LayerSizes]) -> int:
    """Return by whose root scores of attention are divided: a head's size, but in 27B models of two families."""
    is_large = kind in ("gemma2", "gemma3") and (len(sizes), width) in ((46, 4608), (62, 5376))
    return width // sizes[0].heads if is_large else sizes[0].head_size
