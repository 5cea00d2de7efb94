"""The phases of a model's pass: which function works on which weights and buffers, in which order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.attention import CHUNK, PART_HEAD, SHARES, UNIT_ROWS, WIDEST
from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.code.records import PHASE, real_slot
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.phases import Buffer, MixtureBuffers, Per, Phase, floats, limits, records
from draftwood.engines.cpu.weights import Weights
from draftwood.engines.files.formats import TILE
from draftwood.engines.files.shapes import rotary_table

_PIECE_BYTES = 16 << 10
"""Bytes of weights in a piece of work: small enough to divide a phase evenly, large enough to be worth taking."""
_PARTS_BYTES = 64 << 20  # most of the parts of attention while a prompt is read
_ROW_NUMBERS = 1024  # numbers that a piece of rows reads


class Program:
    """A model's phases, as the records that compiled code reads, and the buffers that they use.

    One pass at a time runs on it, of at most `WIDEST` rows.
    """

    def __init__(self, weights: Weights, kernels: Kernels) -> None:
        self.weights, self._kernels, shape = weights, kernels, weights.shape
        self._phases: list[Phase] = []
        self._layer: int | None = None  # whose phases are being made
        queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        inner = max(shape.inner, shape.expert_inner)
        self.room = -(-shape.head_size // TILE) * TILE
        self.layer_bytes = shape.kv_heads * (shape.head_size + self.room) * 2 * PAGE
        self._x, self._plain, self._rounded = floats(shape.width), floats(shape.width), records(shape.width)
        self._q, self._k, self._v = floats(queries), floats(keys), floats(keys)
        self._heads, self._heads_rounded = floats(queries), records(queries)
        slots = WIDEST * max(1, shape.used)
        self._gate, self._up = floats(inner, slots), floats(inner, slots)
        self._gate_rounded = records(inner, slots)
        self._mixture = MixtureBuffers(shape) if shape.experts else None
        self._part_size = 0
        self._parts = np.zeros(0, dtype=np.float32)
        self.positions = 0  # of the rotary tables
        self._tables: dict[bool, NDArray[np.float32]] = {}
        self._build()
        self.record = np.zeros((len(self._phases), len(PHASE)), dtype=np.int64)
        for row, phase in zip(self.record, self._phases, strict=True):
            for name, value in phase.slots.items():
                row[PHASE[name]] = value
        self.pieces = self._phases[-2].per  # of the scores
        self.limits = lru_cache(256)(self._limits)
        self._states: dict[int, Buffer] = {}  # of layers whose states were asked for
        self.reserve(parts=256, positions=2048)

    def _limits(self, *size: Any) -> tuple[NDArray[np.int64], int]:
        """Return the `limits` of a pass of this size, and their address."""
        found = limits(self._phases, self.weights.shape.experts, self.weights.shape.used, *size)
        return found, found.ctypes.data

    def most_rows(self, positions: int) -> int:
        """Return how many rows of a prompt a pass reads, so that its parts of attention take little memory."""
        row = 4 * self.weights.shape.heads * (self.room + PART_HEAD) * -(-positions // CHUNK)
        return max(UNIT_ROWS, min(WIDEST, _PARTS_BYTES // row))

    def reserve(self, parts: int, positions: int) -> None:
        """Make room for so many parts of attention, and for rotary positions up to so many."""
        shape = self.weights.shape
        size = parts * shape.heads * (self.room + PART_HEAD)
        # An interrupt may come between any two lines: sizes are set last, and are 0 while anything is written.
        if self._part_size < size:
            self._part_size = 0
            self._parts = np.zeros(size + size // 2, dtype=np.float32)
            self.record[:, PHASE["parts"]] = self._parts.ctypes.data
            self._part_size = self._parts.size
        if self.positions < positions:
            count = max(positions, min(2 * self.positions, shape.max_positions))
            tables = {local: rotary_table(shape, self.weights.factors, local, count) for local in (False, True)}
            self.positions = 0
            self._tables = tables
            for layer in range(shape.layers):
                if shape.turning[layer]:
                    local = bool(shape.windows[layer] and shape.local_base)
                    mine = self.record[:, PHASE["layer"]] == layer + 1
                    self.record[mine, PHASE["turns"]] = self._tables[local].ctypes.data
            self.positions = count

    def _build(self) -> None:
        shape, weights = self.weights.shape, self.weights
        self._embed(self._x, shape.embedding_scale)
        for number in range(shape.layers):
            self._kept_states(number)
            self._layer = number
            self._attention(number, weights.matrices[number], weights.vectors[number])
            unit = self._experts if shape.experts else self._gated_unit
            unit(weights.matrices[number], weights.vectors[number])
            self._layer = None
        self._kept_states(shape.layers)
        self._ends()

    def _embed(self, out: Buffer, scale: float) -> None:
        """Add the phase that reads the tokens' embeddings."""
        embedding = self.weights.embedding
        slots = {
            "core": embedding.reader, "weights": embedding.packed.ctypes.data, "blocks": embedding.blocks,
            "tile_bytes": embedding.tile_bytes, "scale": real_slot(scale),
        }  # fmt: skip
        self._add("embedding", Per.ROWS, self.weights.shape.width, slots | out.slots("out"))

    def _ends(self) -> None:
        """Add the norm after the last layer, and the scores."""
        shape, weights = self.weights.shape, self.weights
        norm = self._norm_slots(weights.last_norm) | self._x.slots("x") | self._plain.slots("y")
        ending = "_rounded" if weights.output.is_rounded else ""
        norm |= self._rounded.slots("out")
        self._add(f"last_norm{ending}", Per.SCORED, shape.width, norm, ends=True)
        slots = self._matrix_slots(weights.output, self._plain, self._rounded) | {
            "y_stride": 4 * self.score_width, "width": shape.vocabulary, "scale": real_slot(shape.score_scale),
            "soft_cap": real_slot(shape.score_cap), "per_piece": (per := _tiles_of(weights.output, scores=True)),
        }  # fmt: skip
        pieces = -(-weights.output.tiles // per)
        self._add("scores", Per.TILES, pieces, slots, ends=True)
        self._add("choices", Per.ONE, 1, {"pieces": pieces}, ends=True)

    @property
    def score_width(self) -> int:
        """Numbers of a row of scores: the vocabulary, padded to whole tiles."""
        return self.weights.output.tiles * TILE

    def _kept_states(self, layer: int) -> None:
        """Add the copy of what a layer reads; after the last one, of what tokens are scored by."""
        slots = self._x.slots("x") | {"width": self.weights.shape.width}
        if layer == self.weights.shape.layers:
            slots |= self._norm_slots(self.weights.last_norm)
        self._add("norm" if "weight" in slots else "copied", Per.ROWS, slots["width"], slots, only=layer)

    def states(self, layer: int) -> NDArray[np.float32]:
        """Return where passes that are asked for this layer leave what it reads: float32[WIDEST, width]."""
        found = self._states.get(layer)
        if found is None:
            found = floats(self.weights.shape.width)
            (number,) = (i for i, phase in enumerate(self._phases) if phase.only == layer)
            for name, value in found.slots("y").items():
                self.record[number, PHASE[name]] = value
            self._states[layer] = found
        return found.array[:, : self.weights.shape.width]

    def _attention(self, layer: int, matrices: Mapping[str, Matrix], vectors: Mapping[str, Any]) -> None:
        before, source = self._before(vectors.get("attn_norm"), [matrices[f"attn_{part}"] for part in "qkv"])
        self._attend(layer, matrices, vectors, before, source)

    def _attend(
        self, layer: int, matrices: Mapping[str, Matrix], vectors: Mapping[str, Any], before: Buffer,
        source: Buffer,
    ) -> None:  # fmt: skip
        """Add attention, whose queries, keys and values are products of ``before``, or rounded of ``source``."""
        shape, family = self.weights.shape, self.weights.shape.family
        for i, (name, out) in enumerate((("attn_q", self._q), ("attn_k", self._k), ("attn_v", self._v))):
            bias = vectors.get(f"{name}.bias")
            slots = out.slots("y") | ({} if bias is None else {"bias": bias.ctypes.data})
            self._product(matrices[name], before, source, slots, joined=i > 0)
        if family.head_norm == "row":
            for name, out, joined in (("attn_q_norm", self._q, False), ("attn_k_norm", self._k, True)):
                slots = self._norm_slots(vectors[name]) | out.slots("x") | out.slots("y")
                heads = shape.heads if name == "attn_q_norm" else shape.kv_heads
                slots["width"] = heads * shape.head_size
                self._add("norm", Per.ROWS, slots["width"], slots, joined=joined)
        common = {
            "layer": layer + 1, "heads": shape.heads, "kv_heads": shape.kv_heads, "head_size": shape.head_size,
            "head_room": self.room, "page_layer": layer * self.layer_bytes, "window": shape.windows[layer],
            "scale_q": real_slot(shape.query_scale), "soft_cap": real_slot(shape.attention_cap),
            "epsilon": real_slot(shape.epsilon), "rotary": shape.rotary,
            "q": self._q.address, "k": self._k.address, "v": self._v.address,
        }  # fmt: skip
        if family.head_norm == "head":
            common |= {f"norm_{part}": vectors[f"attn_{part}_norm"].ctypes.data for part in "qk"}
        self._add("turned", Per.UNITS, shape.kv_heads, common)
        self._add("attention", Per.UNITS, shape.kv_heads * SHARES, common)
        ending = "_rounded" if matrices["attn_output"].is_rounded else ""
        slots = common | self._heads.slots("y") | self._heads_rounded.slots("out")
        self._add(f"joined{ending}", Per.ROWS, shape.heads * shape.head_size, slots)
        self._into_x(matrices["attn_output"], self._heads, self._heads_rounded, vectors.get("post_attention_norm"))

    def _gated_unit(self, matrices: Mapping[str, Matrix], vectors: Mapping[str, Any]) -> None:
        gate, up, down = (matrices[f"ffn_{name}"] for name in ("gate", "up", "down"))
        before, source = self._before(vectors.get("ffn_norm"), [gate, up])
        slots, pieces = self._gate_slots(gate, up, before, source)
        ending = "_rounded" if down.is_rounded else ""
        self._add(f"{self.weights.shape.family.gate}_gate{ending}", Per.TILES, pieces, slots)
        self._into_x(down, self._gate, self._gate_rounded, vectors.get("post_ffw_norm"))

    def _gate_slots(self, gate: Matrix, up: Matrix, plain: Buffer, rounded: Buffer) -> tuple[dict[str, int], int]:
        """Return the slots of both products of a gated unit, and their pieces."""
        second = self._matrix_slots(up, plain, rounded) | self._up.slots("y")
        slots = self._matrix_slots(gate, plain, rounded) | self._gate.slots("y") | self._gate_rounded.slots("out")
        names = ("core", "weights", "blocks", "tile_bytes", "expert_bytes", "x", "x_stride", "y")
        slots |= {f"{name}_2": second[name] for name in names}
        both = (gate.tile_bytes + up.tile_bytes) // 2
        per = max(2, _PIECE_BYTES // both // 2 // 2 * 2)  # two tiles fill a group of what is rounded next
        return slots | {"per_piece": per}, -(-gate.tiles // per)

    def _experts(self, matrices: Mapping[str, Matrix], vectors: Mapping[str, Any]) -> None:
        """Add a mixture: see `draftwood.engines.cpu.code.experts`."""
        shape, mixture = self.weights.shape, self._mixture
        assert mixture is not None
        router, gate, up, down = (matrices[f"ffn_{name}"] for name in ("gate_inp", "gate", "up", "down"))
        before, source = self._before(vectors.get("ffn_norm"), [router, gate, up])
        self._product(router, before, source, mixture.scores.slots("y"))
        slots = mixture.slots
        self._add("experts_chosen", Per.ROWS, shape.width, slots | mixture.scores.slots("x"))
        self._add("experts_grouped", Per.ONE, 1, slots)
        kinds = {matrix.is_rounded for matrix in (gate, up)}
        for is_rounded in sorted(kinds):
            source_, target = (source, mixture.rounded) if is_rounded else (before, mixture.plain)
            gathered = slots | source_.slots("x") | target.slots("out")
            joined = is_rounded and len(kinds) > 1
            self._add("experts_gathered", Per.ROWS, shape.width, gathered, joined=joined)
        both, pieces = self._gate_slots(gate, up, mixture.plain, mixture.rounded)
        ending = "_rounded" if down.is_rounded else ""
        self._add(f"{shape.family.gate}_experts{ending}", Per.EXPERTS, pieces, slots | both | {"parts_of": pieces})
        per = _tiles_of(down)
        pieces = -(-down.tiles // per)
        last = self._matrix_slots(down, self._gate, self._gate_rounded) | mixture.outputs.slots("y")
        self._add("experts_product", Per.EXPERTS, pieces, slots | last | {"per_piece": per, "parts_of": pieces})
        norm, scale = vectors.get("post_ffw_norm"), real_slot(shape.residual_scale)
        last = slots | mixture.outputs.slots("x") | {"width": shape.width, "scale": scale}
        last |= self._x.slots("out") | {"adds": 1} if norm is None else self._plain.slots("out")
        self._add("experts_added", Per.ROWS, shape.width, last)
        if norm is not None:
            self._add_norm(norm)

    def _before(self, norm: Any, matrices: list[Matrix]) -> tuple[Buffer, Buffer]:
        """Add the norm before a block, or only the rounding; return where plain and rounded inputs lie."""
        rounded = any(matrix.is_rounded for matrix in matrices)
        width, ends = self.weights.shape.width, self._x.slots("x") | self._rounded.slots("out")
        if norm is not None:
            slots = self._norm_slots(norm) | ends | self._plain.slots("y")
            self._add("norm_rounded" if rounded else "norm", Per.ROWS, width, slots)
            return self._plain, self._rounded
        if rounded:
            self._add("rounded", Per.ROWS, width, ends | {"width": width})
        return self._x, self._rounded

    def _into_x(self, matrix: Matrix, plain: Buffer, rounded: Buffer, norm: Any) -> None:
        """Add a block's last product, which is added to x, after a norm where the family has one there."""
        scale = real_slot(self.weights.shape.residual_scale)
        if norm is None:
            self._product(matrix, plain, rounded, self._x.slots("y") | {"adds": 1, "scale": scale})
            return
        self._product(matrix, plain, rounded, self._plain.slots("y"))
        self._add_norm(norm)

    def _add_norm(self, norm: Any) -> None:
        """Add the phase that adds the norm of the plain rows to x."""
        slots = self._norm_slots(norm) | self._plain.slots("x") | self._x.slots("out")
        slots |= {"scale": real_slot(self.weights.shape.residual_scale)}
        self._add("norm_added", Per.ROWS, self.weights.shape.width, slots)

    def _norm_slots(self, weight: Any) -> dict[str, int]:
        shape = self.weights.shape
        return {"width": shape.width, "weight": weight.ctypes.data, "epsilon": real_slot(shape.epsilon)}

    def _matrix_slots(self, matrix: Matrix, plain: Buffer, rounded: Buffer) -> dict[str, int]:
        source = rounded if matrix.is_rounded else plain
        return {
            "core": matrix.product, "weights": matrix.packed.ctypes.data, "blocks": matrix.blocks,
            "tile_bytes": matrix.tile_bytes, "tiles": matrix.tiles, "scale": real_slot(1.0),
            "expert_bytes": matrix.expert_bytes,
        } | source.slots("x")  # fmt: skip

    def _product(self, matrix: Matrix, plain: Buffer, rounded: Buffer, slots: dict[str, int], **how: Any) -> None:
        per = _tiles_of(matrix)
        slots = self._matrix_slots(matrix, plain, rounded) | {"per_piece": per} | slots
        self._add("product", Per.TILES, -(-matrix.tiles // per), slots, **how)

    def _add(
        self, name: str, pieces: Per, per: int, slots: dict[str, int], *, joined: bool = False, ends: bool = False,
        only: Hashable = None,
    ) -> None:  # fmt: skip
        """Add a phase; if its pieces are of rows, ``per`` is how many numbers a row has."""
        if pieces in (Per.ROWS, Per.SCORED):
            per = max(1, _ROW_NUMBERS // per)
            slots = slots | {"per_rows": per}
        slots = slots | {"function": self._kernels[name]}
        self._phases.append(Phase(slots, pieces, per, joined, ends, only, self._layer))


def _tiles_of(matrix: Matrix, *, scores: bool = False) -> int:
    """Return how many tiles a piece takes."""
    return max(1, (4 if scores else 1) * _PIECE_BYTES // matrix.tile_bytes)
