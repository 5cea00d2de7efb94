"""Which blocks each layer has, and their sizes of attention and gated units, as a file's metadata say it."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.engines.files.metadata import MOST_INNER, Keys
from draftwood.engines.files.shapes import Latent, LayerSizes
from draftwood.errors import ModelError, UnsupportedModelError


def sizes_of(
    keys: Keys, width: int, blocks: Sequence[tuple[str, ...]], windows: Sequence[int], latent: Latent
) -> tuple[LayerSizes, ...]:
    """Return the sizes of each layer; layers that read another one's keys have as many heads of these."""
    layers, sources = len(blocks), _sources(keys, windows)
    heads = keys.each("attention.head_count", layers, most=4096)
    kv_heads = keys.each("attention.head_count_kv", layers, heads, 4096, least=int(len(keys.family.mixers) == 1))
    kv_heads = [kv_heads[source] for source in sources]
    has_unit = ["experts" not in names for names in blocks]
    inner = (
        keys.each("feed_forward_length", layers, None, MOST_INNER, least=int(not keys.family.single))
        if any(has_unit)
        else [0] * layers
    )
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


def _sources(keys: Keys, windows: Sequence[int]) -> list[int]:
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


def _head_size(keys: Keys, kind: str, usual: int, usually_turned: int = 1024) -> tuple[int, int]:
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


def latent_of(keys: Keys) -> Latent:
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


def blocks_of(keys: Keys, layers: int) -> tuple[tuple[str, ...], ...]:
    """Return the names of the blocks of each layer; `UnsupportedModelError` for those of other families."""
    family = keys.family
    if family.single:
        return tuple((one,) for one in _single_blocks(keys, layers))
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


def _single_blocks(keys: Keys, layers: int) -> list[str]:
    """Return the name of the one block of each layer.

    Attention has heads of keys, a unit has an inner size; a layer with 0 of both has the other mixer.
    """
    names = "attention.head_count_kv", "feed_forward_length"
    attention, unit = (keys.each(name, layers, None, MOST_INNER, least=0) for name in names)
    if both := [layer for layer in range(layers) if attention[layer] and unit[layer]]:
        raise ModelError(f"the file says layer {both[0]} has {' and '.join(names)}: get the file again")
    units = "experts" if keys.get("expert_count") else "gated_unit"
    usual, other = keys.family.mixers
    return [usual if attention[layer] else units if unit[layer] else other for layer in range(layers)]


def _mixers(keys: Keys, layers: int) -> list[str]:
    """Return the name of the first block of each layer."""
    (*_, other) = keys.family.mixers
    if other in ("short_convolution", "mamba"):
        without = keys.lacking("attention.head_count_kv", layers)
    elif other == "delta_net":
        without = keys.recurrent(layers)
    else:
        without = [False] * layers
    return [other if here else keys.family.mixers[0] for here in without]
