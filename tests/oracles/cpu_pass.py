"""A whole pass of the CPU engine in plain numpy, one token at a time, with the engine's bits.

Read it to learn what the engine computes; `draftwood.engines.cpu` computes it fast: many tokens at once, on
threads, from packed weights. None of that changes a bit (law 13), so here a token is read alone, with the weights
as they lie in a GGUF file. Since rounding makes sums depend on their order, the order is part of the definition.

A token goes through `Pass.read`:

    x = scale * embedding[token]
    for each layer:
        x += r * mixer(norm(x))    (attention, short_convolution, delta_net or mamba; or two of them)
        x += r * unit(norm(x))     (gated_unit or experts; nemotron_h has in each layer a mixer or a unit)
        x = layer_input(x)         (only in gemma4)
    scores = cap(scale * output @ norm(x))

``x`` is float32[width], and so is whatever is not said to be something else. Families differ in where norms stand
(before a block, after it, or both: the file has a tensor for each), in constants, and in what
`draftwood.engines.files.families` lists. Products, ``W @ x``, and elementary functions are in
`tests.oracles.cpu_arithmetic`; a product rounds x to 8 bits where W is quantised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from tests.oracles.cpu_arithmetic import (
    F,
    Floats,
    Plain,
    Quantised,
    capped,
    clamped_gate,
    exponential,
    fma,
    folded,
    gelu,
    in_lanes,
    read_matrix,
    sigmoid,
    silu,
    squared,
)
from tests.oracles.cpu_attention import attend, cell
from tests.oracles.cpu_delta_net import delta_net
from tests.oracles.cpu_mamba import mamba

from draftwood.engines.files.formats import FORMATS
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.files.gguf_types import dequantised, read_blocks, read_floats
from draftwood.engines.files.rotary import query_growth, rotary_table
from draftwood.engines.files.shape_reading import shape_of


class Row(NamedTuple):
    """What a pass finds out about one token."""

    states: Floats  # [layers + 1, width]: x before each layer; last, the norm of x after the last layer
    scores: Floats  # [vocabulary]
    best: int  # the token with the best score, of equal ones the lowest; -1 if a score is NaN or all are -infinity


@dataclass
class Text:
    """What is kept of the tokens that were read: per layer a list with one entry for each token."""

    layers: list[list[Any]]

    def copy(self) -> Text:
        """Return a text that can go on differently, as the branches of a tree do."""
        return Text([list(kept) for kept in self.layers])


class Pass:
    """The model of a GGUF file; ``shape`` has its sizes and constants."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.matrix = cache(self._matrix)
        self.vector = cache(self._vector)
        self.shape = shape_of(file.metadata, file.tensors["token_embd.weight"].shape[0])
        self.growth = query_growth(self.shape, self.shape.max_positions)
        self.layers = [Layer(self, number) for number in range(self.shape.layers)]

    def begin(self) -> Text:
        """Return a text without tokens."""
        return Text([[] for _ in self.layers])

    def read(self, token: int, text: Text) -> Row:
        """Read the next token of a text, and add to the text what must be kept of it."""
        states = []
        with np.errstate(all="ignore"):
            x = self.embedding(token)
            inputs = layer_inputs(self, token, x) if self.shape.layer_input else [None] * len(self.layers)
            for layer, own in zip(self.layers, inputs, strict=True):
                states.append(x)
                x = layer.run(x, text.layers[layer.sizes.source])
                x = layer_input(layer, x, own) if "layer_input" in layer.blocks else x
            last = norm(x, self.vector(f"{self.shape.family.last_norm}.weight"), self.shape.epsilon)
            scores = self.scores(last)
        found = not np.isnan(scores).any() and scores.max() > -np.inf
        return Row(np.array([*states, last]), scores, int(scores.argmax()) if found else -1)

    def embedding(self, token: int) -> Floats:
        """Return the token's row of the embedding, ``(scale * code - least) * embedding scale``: [width]."""
        return self.row("token_embd.weight", token) * F(self.shape.embedding_scale)

    def row(self, name: str, token: int) -> Floats:
        """Return the token's row of a table, ``scale * code - least``."""
        tensor = self.file.tensors[name]
        raw = tensor.rows(slice(token, token + 1))
        if tensor.kind in FORMATS:
            (row,) = dequantised(read_blocks(tensor.kind, raw, self.scale(name)), FORMATS[tensor.kind])
        else:
            (row,) = read_floats(tensor.kind, raw)
        return row

    def scores(self, x: Floats) -> Floats:
        """Return ``cap(score scale * output @ x)``: [vocabulary]. Some files have the embedding as output, too.

        The score of a token that is never chosen is -infinity; 0 is added to the others, if there are such.
        """
        name = "output" if "output.weight" in self.file.tensors else "token_embd"
        found = self.matrix(f"{name}.weight").times(x) * F(self.shape.score_scale)
        found = capped(found, self.shape.score_cap)
        if not self.shape.suppressed:
            return found
        shift = np.zeros_like(found)
        shift[list(self.shape.suppressed)] = -np.inf
        return found + shift

    def _vector(self, name: str) -> Any:
        """Return a tensor of floats, such as a norm's weights, as float32; None where the file has none."""
        tensor = self.file.tensors.get(name)
        return None if tensor is None else read_floats(tensor.kind, tensor.data)

    def _matrix(self, name: str, expert: int | None = None) -> Quantised | Plain:
        """Return a matrix, or one of the experts' matrices that lie in one tensor."""
        tensor = self.file.tensors[name]
        raw = tensor.data if expert is None else tensor.data[expert]
        return read_matrix(tensor.kind, raw, self.scale(name, expert or 0))

    def scale(self, name: str, expert: int = 0) -> float:
        """Return what the file multiplies the weights of a tensor of NVFP4 by, one number or one per expert."""
        found = self.vector(f"{name.removesuffix('weight')}scale")
        if found is None or self.file.tensors[name].kind != "NVFP4":
            return 1.0
        return float(found[expert % len(found)])


class Layer:
    """One layer's tensors, by their names in the file without ``blk.N.`` and ``.weight``, and its constants."""

    def __init__(self, model: Pass, number: int) -> None:
        self.model, self.number = model, number
        self.shape = model.shape
        self.blocks = self.shape.blocks[number]
        self.sizes = self.shape.sizes[number]
        self._start = f"blk.{number}."
        self.window = self.shape.windows[number]  # 0: the layer sees the whole text
        self.turns = self._turns() if self.shape.turning[number] else None

    def run(self, x: Floats, kept: list[Any]) -> Floats:
        """Return what comes out of the layer, [width]; ``kept`` is what it keeps of each token."""
        if self.shape.family.single:
            for part in self._parts(self.norm("attn_norm", x), kept):
                x = self.added(x, part, "")
            return x
        mixer, unit, *_ = self.blocks
        before = self.norm("attn_norm", x)
        if mixer == "attention_and_mamba":
            for mix in attention_and_mamba(self, before, kept):
                x = self.added(x, mix, "")
        else:
            x = self.added(x, MIXERS[mixer](self, before, kept), "post_attention_norm")
        if unit == "dense_and_experts":
            return self.added(x, dense_and_experts(self, x), "post_ffw_norm")
        feed = gated_unit if unit == "gated_unit" else experts
        return self.added(x, feed(self, self.norm(self.shape.family.unit_norm, x)), "post_ffw_norm")

    def _parts(self, x: Floats, kept: list[Any]) -> list[Floats]:
        """Return what is added to x in a layer of one block, in this order."""
        (block,) = self.blocks
        if block in MIXERS:
            return [MIXERS[block](self, x, kept)]
        if block == "gated_unit":
            return [gated_unit(self, x)]
        return latent_experts(self, x) if self.shape.expert_latent else [experts(self, x)]

    def _turns(self) -> Floats:
        """Return cosines and sines of all positions, float32[positions, 2, pairs]."""
        shape = self.shape
        factors = self.model.vector("rope_freqs.weight")
        if factors is None:
            factors = self.model.vector(f"rope_factors_{'long' if shape.is_long else 'short'}.weight")
        return rotary_table(shape, factors, shape.is_local(self.number), shape.max_positions)

    def has(self, name: str) -> bool:
        return f"{self._start}{name}.weight" in self.model.file.tensors

    def vector(self, name: str) -> Any:
        """Return a vector, named in full; None where the layer has none."""
        return self.model.vector(self._start + name)

    def product(self, name: str, x: Floats, expert: int | None = None) -> Floats:
        """Return ``W x + bias``, without bias where the layer has none."""
        found = self.model.matrix(f"{self._start}{name}.weight", expert).times(x)
        bias = self.vector(f"{name}.bias")
        if bias is None:
            return found
        return found + (bias if expert is None else bias[expert])

    def products(self, names: tuple[str, ...], x: Floats, expert: int | None = None) -> Floats:
        """Return the products of those matrices that the layer has, one after the other.

        Some files have one matrix in place of several, with their rows in the same order.
        """
        return np.concatenate([self.product(name, x, expert) for name in names if self.has(name)])

    def matrix_of_head(self, name: str, head: int) -> Quantised | Plain:
        """Return one head's ``attn_k_b`` [rank, still] or ``attn_v_b`` [value, rank].

        Older files have both in ``attn_kv_b`` [heads * (still + value), rank], the first one transposed, which
        becomes float32.
        """
        if self.has(name):
            return self.model.matrix(f"{self._start}{name}.weight", head)
        still, value = self.shape.latent.still, self.shape.latent.value
        tensor = self.model.file.tensors[f"{self._start}attn_kv_b.weight"]
        raw = tensor.data[head * (still + value) : (head + 1) * (still + value)]
        if name == "attn_v_b":
            return read_matrix(tensor.kind, raw[still:], self.model.scale(tensor.name))
        blocks = raw[:still]
        if tensor.kind in FORMATS:
            found = read_blocks(tensor.kind, blocks, self.model.scale(tensor.name))
            return Plain(np.ascontiguousarray(dequantised(found, FORMATS[tensor.kind]).T))
        return Plain(np.ascontiguousarray(read_floats(tensor.kind, blocks).T))

    def norm(self, name: str, x: Floats) -> Floats:
        """Return the norm of x; x itself where the layer has none of this name."""
        weight = self.vector(f"{name}.weight" if self.has(name) else name)  # falcon-h1's ffn_norm has no ending
        return x if weight is None else norm(x, weight, self.shape.epsilon)

    def added(self, x: Floats, y: Floats, name: str) -> Floats:
        """Return ``x + residual scale * norm(y)`` by fma, y being a block's result.

        There is no such norm in families whose norms stand before blocks only.
        """
        y = y if self.shape.family.norms == "before" else self.norm(name, y)
        return fma(y, F(self.shape.residual_scale), x)


# --- norms -------------------------------------------------------------------------------------------------------


def norm(x: Floats, weight: Floats, epsilon: float) -> Floats:
    """Return ``x / sqrt(mean(x**2) + epsilon) * weight`` of a whole row [n] (RMSNorm, arXiv 1910.07467).

    Squares are added by fma in 16 lanes, which are folded; x is multiplied by 1 / root, then by the weight.
    """
    total = np.zeros(16, F)
    for run in in_lanes(x):
        total = fma(run, run, total)
    return x * _inverse_root(folded(total), len(x), epsilon) * weight


def head_norm(heads: Floats, weight: Floats, epsilon: float) -> Floats:
    """Return the norm of each row of [heads, size]; squares are added by fma, one after another."""
    total = np.zeros(len(heads), F)
    for column in heads.T:
        total = fma(column, column, total)
    return heads * _inverse_root(total, heads.shape[1], epsilon)[:, None] * weight


def _inverse_root(squares: Floats, count: int, epsilon: float) -> Floats:
    return F(1) / np.sqrt(squares / F(count) + F(epsilon))


# --- attention ---------------------------------------------------------------------------------------------------


def attention(layer: Layer, x: Floats, kept: list[Any]) -> Floats:
    """Return ``attn_output @ attend(q, keys, values)``: [width] from [width].

    Queries, keys and values are products of x, as heads of ``head_size`` numbers; each head of keys serves
    ``heads / kv_heads`` heads of queries (arXiv 2305.13245). Queries and keys get a norm, where the family has one
    (of each head, or of the whole row), and rotary positions. Queries are then multiplied by ``query_scale``.
    ``kept`` has each token's keys and values, as whole numbers (`tests.oracles.cpu_attention`). A layer without
    keys of its own reads those of an earlier one, which has added this token's already.

    Where the family's attention is gated, ``attn_q`` has for each head its queries and then as many gates. What
    attention finds is multiplied by their sigmoid (arXiv 2505.06708).
    """
    shape, sizes, own = layer.shape, layer.sizes, layer.sizes.source == layer.number
    names = ("attn_qkv", "attn_q", "attn_k", "attn_v") if own else ("attn_q",)
    q, rest = np.split(
        layer.products(names, x), [sizes.heads * sizes.head_size * (2 if shape.family.gated else 1)]
    )
    if shape.family.gated:
        q, gates = (both.ravel() for both in np.split(q.reshape(sizes.heads, -1), 2, axis=1))
    position = len(kept) - (not own)
    q = _heads(layer, "attn_q", q, position) * _query_scale(layer, position)
    if own:
        kept.append(cell(*_cell(layer, rest, position)))
    sinks = layer.vector("attn_sinks.weight")
    found = attend(q, kept, layer.window, shape.attention_cap, sinks).ravel()
    return layer.product("attn_output", found * sigmoid(gates) if shape.family.gated else found)


def _cell(layer: Layer, row: Floats, position: int) -> tuple[Floats, Floats]:
    """Return keys and values of a row of both, or of keys alone, which are the values then: [heads, size] each.

    In gemma4 values have the norm of each head, without weights.
    """
    sizes, shape = layer.sizes, layer.shape
    k, v = np.split(row, 2) if len(row) > sizes.kv_heads * sizes.head_size else (row, row)
    v = v.reshape(-1, sizes.head_size)
    if shape.family.value_norm:
        v = head_norm(v, np.ones(sizes.head_size, F), shape.epsilon)
    return _heads(layer, "attn_k", k, position), v


def _heads(layer: Layer, name: str, row: Floats, position: int) -> Floats:
    """Return a row of queries or keys as heads, with norm and rotary positions: [heads, size].

    In files of some families the numbers that rotate together are neighbours: (0, 1), (2, 3) and so on. They are
    reordered here, to lie ``rotary / 2`` apart as in the other files, so `attend` adds products in one order for
    all families.
    """
    shape, sizes, weight = layer.shape, layer.sizes, layer.vector(f"{name}_norm.weight")
    if shape.family.head_norm == "row":
        row = norm(row, weight, shape.epsilon)
    heads = row.reshape(-1, sizes.head_size)
    if shape.family.pairs == "neighbours":
        first = np.arange(0, sizes.rotary, 2)
        heads = heads[:, [*first, *first + 1, *range(sizes.rotary, sizes.head_size)]]
    if shape.family.head_norm == "head":
        heads = head_norm(heads, weight, shape.epsilon)
    if layer.turns is not None:
        heads = turned(heads, *layer.turns[position])
    return head_norm(heads, weight, shape.epsilon) if shape.family.head_norm == "turned" else heads


def _query_scale(layer: Layer, position: int) -> Floats:
    """Return ``query_scale``, in mistral3 times 1 + growth * ln(1 + position // growth_length)."""
    growth = layer.model.growth
    return F(layer.shape.query_scale) * (growth[position] if len(growth) else F(1))


def turned(heads: Floats, cosines: Floats, sines: Floats) -> Floats:
    """Rotate the pairs (i, i + pairs) of heads [heads, size] by a position's angles [pairs]: arXiv 2104.09864.

    (a, b) becomes (a * cos - b * sin, b * cos + a * sin): the second product is rounded, then the first one is
    added to it by fma. Numbers after the first 2 * pairs stay as they are.
    """
    a, b, rest = np.split(heads, [len(cosines), 2 * len(cosines)], axis=1)
    return np.concatenate((fma(a, cosines, -(b * sines)), fma(b, cosines, a * sines), rest), axis=1)


# --- latent attention --------------------------------------------------------------------------------------------


def latent_attention(layer: Layer, x: Floats, kept: list[Any]) -> Floats:
    """Return ``attn_output @ values``: [width], with one key head for all heads (arXiv 2405.04434).

    ``c = norm(attn_kv_a_mqa @ x)``, but for its last numbers, which rotate: t. The key is (t, c), and the values
    are the key itself. Of each head of queries, (still, turning), the query is (turning, ``attn_k_b @ still``). Of
    what attention finds, the part of c becomes ``attn_v_b @ it``. ``kept`` has each token's key twice,
    once as values.
    """
    own, heads, position = layer.shape.latent, layer.sizes.heads, len(kept)
    q = x
    if own.query_rank:
        q = norm(layer.product("attn_q_a", x), layer.vector("attn_q_a_norm.weight"), own.epsilon)
    q = layer.product("attn_q_b" if own.query_rank else "attn_q", q).reshape(heads, -1)
    still, turning = np.split(q, [own.still], axis=1)
    c, t = np.split(layer.product("attn_kv_a_mqa", x), [own.rank])
    c = norm(c, layer.vector("attn_kv_a_norm.weight"), own.epsilon)
    to_latent = [layer.matrix_of_head("attn_k_b", head).times(row) for head, row in enumerate(still)]
    cosines_and_sines = layer.turns[position]
    pairs = np.arange(own.turning).reshape(-1, 2).T.ravel()  # neighbours rotate together
    q = np.concatenate((turned(turning[:, pairs], *cosines_and_sines), to_latent), axis=1)
    key = np.concatenate((turned(t[None, pairs], *cosines_and_sines), c[None]), axis=1)
    kept.append(cell(key, key))
    found = attend(q * _query_scale(layer, position), kept, 0, layer.shape.attention_cap)[:, own.turning :]
    values = [layer.matrix_of_head("attn_v_b", head).times(row) for head, row in enumerate(found)]
    return layer.product("attn_output", np.concatenate(values))


# --- short convolution -------------------------------------------------------------------------------------------


def short_convolution(layer: Layer, x: Floats, kept: list[Any]) -> Floats:
    """Return ``shortconv.out_proj @ (c * s)``: [width]. lfm2 has it in place of attention (arXiv 2511.23404).

    ``b, c, u = split(shortconv.in_proj @ x)``, and ``w = b * u``, rounded once. For the token at t,
    ``s = conv[:, 0] * w(t - 2) + conv[:, 1] * w(t - 1) + conv[:, 2] * w(t)`` with ``conv`` [width, 3]: the first
    product is rounded, the second and the third are added by fma. w is 0 before the text. ``kept`` has the w of
    each token, as float32; the last two are needed.
    """
    b, c, u = np.split(layer.product("shortconv.in_proj", x), 3)
    kept.append(b * u)
    conv = layer.vector("shortconv.conv.weight").T
    nothing = [np.zeros_like(b)] * (len(conv) - 1)
    first, *others = [*nothing, *kept][-len(conv) :]
    total = conv[0] * first
    for taps, w in zip(conv[1:], others, strict=True):
        total = fma(taps, w, total)
    return layer.product("shortconv.out_proj", c * total)


# --- attention and Mamba-2 side by side --------------------------------------------------------------------------


def attention_and_mamba(layer: Layer, x: Floats, kept: list[Any]) -> tuple[Floats, Floats]:
    """Return what both make of x, [width] each (falcon-h1, arXiv 2507.22448).

    ``kept`` has what Mamba-2 keeps first, then each token's keys and values.
    """
    states, cells = kept[:1], kept[1:]
    found = attention(layer, x, cells), mamba(layer, x, states)
    kept[:] = [*states, *cells]
    return found


# --- gated unit and experts --------------------------------------------------------------------------------------


def gated_unit(layer: Layer, x: Floats, end: str = "", expert: int | None = None) -> Floats:
    """Return ``ffn_down @ (act(ffn_gate @ x) * (ffn_up @ x))``: [width] (arXiv 2002.05202).

    ``act`` is silu or gelu; gpt-oss gates by `clamped_gate`, and nemotron_h has ``squared(ffn_up @ x)``. ``end``
    is of names: in a mixture ``expert`` is a number, and the units lie in ``ffn_gate_exps`` and so on. Some files
    have the rows of both ``ffn_gate`` and ``ffn_up`` in ``ffn_up`` or ``ffn_gate_up``.
    """
    kind = layer.shape.family.gate
    if kind == "squared":
        return layer.product(f"ffn_down{end}", squared(layer.product(f"ffn_up{end}", x, expert)), expert)
    names = tuple(f"ffn_{part}{end}" for part in ("gate_up", "gate", "up"))
    gate, up = np.split(layer.products(names, x, expert), 2)
    gated = clamped_gate(gate, up) if kind == "clamped" else {"silu": silu, "gelu": gelu}[kind](gate) * up
    return layer.product(f"ffn_down{end}", gated, expert)


def experts(layer: Layer, x: Floats) -> Floats:
    """Return the sum of share * gated unit over the chosen experts: [width] (arXiv 2401.04088).

    The experts' scores are ``ffn_gate_inp @ x``. Results are added by fma, the best expert's first, to that of the
    shared expert where there is one.
    """
    chosen, shares = _choice(layer, layer.product("ffn_gate_inp", x))
    total = _shared_expert(layer, x) if layer.has("ffn_down_shexp") else np.zeros_like(x)
    for expert, share in zip(chosen, shares, strict=True):
        total = fma(gated_unit(layer, x, "_exps", expert), share, total)
    return total


def latent_experts(layer: Layer, x: Floats) -> list[Floats]:
    """Return what the shared expert finds, and ``ffn_latent_up @ sum``: [width] both.

    The other experts read ``ffn_latent_down @ x``, and their results are added as in `experts`.
    """
    chosen, shares = _choice(layer, layer.product("ffn_gate_inp", x))
    latent = layer.product("ffn_latent_down", x)
    total = np.zeros_like(latent)
    for expert, share in zip(chosen, shares, strict=True):
        total = fma(gated_unit(layer, latent, "_exps", expert), share, total)
    return [_shared_expert(layer, x), layer.product("ffn_latent_up", total)]


def dense_and_experts(layer: Layer, x: Floats) -> Floats:
    """Return ``norm(gated unit) + norm(mixture)``: [width] from x itself, as in gemma4's 26B-A4B.

    Both read norms of their own, and so does the router. A share is multiplied by a number of its expert.
    """
    dense = layer.norm("post_ffw_norm_1", gated_unit(layer, layer.norm("ffn_norm", x)))
    scale = layer.vector("ffn_gate_inp.scale") * F(len(x) ** -0.5)
    chosen, shares = _choice(layer, layer.product("ffn_gate_inp", norm(x, scale, layer.shape.epsilon)))
    if layer.model.file.tensors[f"blk.{layer.number}.ffn_down_exps.weight"].kind != "NVFP4":
        shares = shares * layer.vector("ffn_down_exps.scale")[chosen]  # else its weights have it
    inputs, total = layer.norm("pre_ffw_norm_2", x), np.zeros_like(x)
    for expert, share in zip(chosen, shares, strict=True):
        total = fma(gated_unit(layer, inputs, "_exps", expert), share, total)
    return dense + layer.norm("post_ffw_norm_2", total)


def _shared_expert(layer: Layer, x: Floats) -> Floats:
    """Return a gated unit that every token takes: times sigmoid(ffn_gate_inp_shexp . x) where the layer has this.

    The products are added by fma in 16 lanes, which are folded.
    """
    found = gated_unit(layer, x, "_shexp")
    gate = layer.vector("ffn_gate_inp_shexp.weight")
    if gate is None:
        return found
    total = np.zeros(16, F)
    for weights, run in zip(in_lanes(gate), in_lanes(x), strict=True):
        total = fma(weights, run, total)
    return found * sigmoid(folded(total))


def _choice(layer: Layer, scores: Floats) -> tuple[list[int], Floats]:
    """Return a token's experts, best first, and their shares."""
    shares, bias = layer.shape.shares, layer.vector("exp_probs_b.bias")
    if shares.gating == "softmax" and shares.normalised and shares.scale == 1 and bias is None:
        return _by_softmax(layer, scores)
    p = sigmoid(scores) if shares.gating == "sigmoid" else _softmax(scores)
    ranked = p if bias is None else p + bias
    if shares.kept_groups < shares.groups:
        ranked = _of_best_groups(ranked, shares.groups, shares.kept_groups)
    chosen, _ = _ranked(ranked, layer.shape.used)
    divisor = sum(p[chosen], F(0)) + F(shares.least) if shares.normalised else F(1)
    return chosen, p[chosen] / divisor * F(shares.scale)


def _softmax(scores: Floats) -> Floats:
    """Return exp(score - best score), divided by the sum of these, which are added in order."""
    weights = exponential(scores - np.fmax.reduce(scores))
    return weights / np.cumsum(weights, dtype=F)[-1]


def _of_best_groups(ranked: Floats, groups: int, kept: int) -> Floats:
    """Return what experts rank by: -infinity but in the best groups. A group counts as the sum of its two best."""
    parts = ranked.reshape(groups, -1)
    sums = np.sort(np.where(np.isnan(parts), F(-np.inf), parts))[:, -2:].sum(1)
    best = np.argsort(-sums, kind="stable")[:kept]
    found = np.full_like(parts, -np.inf)
    found[best] = parts[best]
    return found.ravel()


def _by_softmax(layer: Layer, scores: Floats) -> tuple[list[int], Floats]:
    """Return the experts with the best scores, best first, and their shares: softmax over the chosen.

    A share is exp(score - best score), divided by the sum of these, which are added in this order.
    """
    chosen, best = _ranked(scores, layer.shape.used)
    weights = exponential(best - best[0])
    return chosen, weights / sum(weights, F(0))


def _ranked(scores: Floats, used: int) -> tuple[list[int], Floats]:
    """Return the places of the best scores, of equal ones the lower first, and these scores. NaN are below all."""
    left = scores.copy()
    chosen: list[int] = []
    best: list[np.float32] = []
    for _ in range(used):
        place = int(np.where(np.isnan(left), F(-np.inf), left).argmax())
        chosen.append(place)
        best.append(left[place])
        left[place] = -np.inf
    return chosen, np.array(best)


# --- the end of a gemma4 layer -----------------------------------------------------------------------------------


def layer_inputs(model: Pass, token: int, x: Floats) -> Floats:
    """Return what a token brings of its own to each layer: [layers, layer_input].

    ``(norm(per_layer_model_proj @ x / sqrt(width)) + own * sqrt(layer_input)) / sqrt(2)``, each layer's part with
    a norm of its own; own is the token's row of a second table. The sum is by fma.
    """
    shape = model.shape
    made = model.matrix("per_layer_model_proj.weight").times(x) * F(shape.width**-0.5)
    weight, own = model.vector("per_layer_proj_norm.weight"), model.row("per_layer_token_embd.weight", token)
    found = [
        fma(mine, F(shape.layer_input**0.5), norm(part, weight, shape.epsilon))
        for part, mine in zip(np.split(made, shape.layers), np.split(own, shape.layers), strict=True)
    ]
    return np.array(found) * F(0.5**0.5)


def layer_input(layer: Layer, x: Floats, own: Floats | None) -> Floats:
    """Return ``(x + norm(proj @ (gelu(inp_gate @ x) * own))) * layer_output_scale``.

    Models without inputs of layers only scale; some files have no number to do that.
    """
    if own is not None:
        x = layer.added(x, layer.product("proj", gelu(layer.product("inp_gate", x)) * own), "post_norm")
    scale = layer.vector("layer_output_scale.weight")
    return x if scale is None else x * scale


MIXERS = {
    "attention": attention, "latent_attention": latent_attention, "short_convolution": short_convolution,
    "delta_net": delta_net, "mamba": mamba,
}  # fmt: skip
