"""A model's sizes and constants: see `draftwood.engines.files.shape_reading`."""

from __future__ import annotations

from dataclasses import dataclass

from draftwood.engines.files.families import Family
from draftwood.engines.files.formats import GROUP, padded

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
        """Numbers of keys, and of values, that a head has in a cell: its size, rounded up to whole groups."""
        return padded(self.head_size)

    @property
    def cell_bytes(self) -> int:
        """Bytes of the keys and values of one token, with their scales: see `draftwood.engines.cpu.code.cells`."""
        return self.kv_heads * (3 * self.head_room + 4 * self.head_room // GROUP)


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
    normed: bool | None = True  # whether there is a norm at the end of Mamba-2; None: the file may have one

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
class Multipliers:
    """What a pass multiplies in folders of Falcon-H1; of its GGUF files the weights were multiplied."""

    attention: float = 1.0  # attention's result
    mamba: float = 1.0  # Mamba's result
    gate: float = 1.0  # in gated units what goes into silu
    unit: float = 1.0  # their result
    of_z: float = 1.0  # of Mamba's first product the parts: z,
    of_mixed: tuple[float, float, float] = (1.0, 1.0, 1.0)  # x, B and C,
    of_step: float = 1.0  # and the steps


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
    expert_latent: int = 0  # numbers that experts read, of a product of x; 0: they read x
    shares: Shares = Shares()
    has_shared: bool = False  # whether each mixture has an expert that every token takes
    next_layers: int = 0  # blocks for further tokens (MTP), after the layers
    latent: Latent = Latent()
    convolution: int = 0  # tokens that convolutions read; 0: no layer has one
    states: States = States()
    multipliers: Multipliers = Multipliers()
    layer_input: int = 0  # numbers of a token's own input of each layer; 0: layers have none

    @property
    def layers(self) -> int:
        return len(self.windows)

    @property
    def attention(self) -> LayerSizes:
        """The sizes of the first layer of attention."""
        return next(one for one in self.sizes if one.kv_heads)

    @property
    def expert_width(self) -> int:
        """Numbers that experts read, and that they find."""
        return self.expert_latent or self.width

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
