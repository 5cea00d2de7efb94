"""Latent attention (MLA): one short vector per token, the latent, stands for keys and values of all heads.

DeepSeek-V2, 2024 (arXiv 2405.04434), in the absorbed form. A cell keeps one head of keys of all heads of queries:
first numbers that rotate, then the latent, which is what values are, too. A head's query, whose matching part is
multiplied by the head's ``attn_k_b``, is compared with it; what attention finds of latents is multiplied by the
head's ``attn_v_b``.

    y -> attn_q_a, norm, attn_q_b -> of each head: turning | still --attn_k_b-->  turning | as a latent
    y -> attn_kv_a_mqa                                               -> key:      turning | norm = latent
    attention -> of each head: unused | sum of latents --attn_v_b--> values -> attn_output
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from draftwood.engines.cpu.blocks.attention import add_heads
from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.norm import NORM, ROUNDED, add_norm_before
from draftwood.engines.cpu.blocks.product import add_into_x, add_product, tiles_per_piece
from draftwood.engines.cpu.code.products import MATRIX, tiles_of
from draftwood.engines.cpu.code.records import NUMBER, ROWS, KernelModule, Per, PieceCode, RowsView
from draftwood.engines.cpu.code.rounding import GROUP_RECORD, write_rounded_row
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Buffer, Inputs, Program, records
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.formats import GROUP
from draftwood.engines.files.shapes import Shape


def _of_heads(piece: PieceCode) -> None:
    """Piece ``head * parts_of + part`` multiplies what one head has of all rows by some tiles of its matrix."""
    phase = piece.phase
    head, tiles = piece.number // phase.parts_of, phase.w.tiles
    x = RowsView(phase.x.start + head * phase.x_head, phase.x.stride)
    y = RowsView(phase.y.start + head * phase.y_head, phase.y.stride)
    part = tiles_of(piece.per, piece.number % phase.parts_of, tiles)
    phase.w.product(x, y, piece.whole.rows, part, expert=head)


def _rounded_heads(piece: PieceCode) -> None:
    code, phase = piece.code, piece.phase
    with piece.rows() as row, code.count(0, phase.heads) as head:
        out = phase.out[row] + head * (phase.width // GROUP * GROUP_RECORD)
        write_rounded_row(code, phase.x[row] + head * phase.x_head, phase.width, out)


MODULE = KernelModule("latent")
_OF_HEADS = MODULE.kernel(
    "product_of_heads", Per.TILES, _of_heads, w=MATRIX, x=ROWS, y=ROWS, x_head=NUMBER, y_head=NUMBER,
    parts_of=NUMBER,
)  # fmt: skip
"""``y = w x`` with a matrix for each head; ``x_head`` and ``y_head`` are the bytes from a head to the next one."""
_ROUNDED_HEADS = MODULE.kernel(
    "rounded_heads", Per.ROWS, _rounded_heads, x=ROWS, out=ROWS, x_head=NUMBER, width=NUMBER, heads=NUMBER
)
"""What each head has of rows, ``width`` numbers, as records that follow one another in out."""


class LatentAttention(Block):
    """Latent attention of a layer."""

    hub_names: ClassVar = {
        "self_attn.q_proj": "attn_q", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
        "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
        "self_attn.o_proj": "attn_output",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> LatentAttention:
        own, heads, width = shape.latent, shape.sizes[layer].heads, shape.width
        vectors = tensors.norms("attn_norm", "post_attention_norm")
        vectors["attn_kv_a_norm"] = tensors.vector("attn_kv_a_norm", own.rank)
        matrices, last, inputs = dict[str, Matrix](), "attn_q", width
        if own.query_rank:
            matrices["attn_q_a"] = tensors.part("attn_q_a", (own.query_rank, width))
            vectors["attn_q_a_norm"] = tensors.vector("attn_q_a_norm", own.query_rank)
            last, inputs = "attn_q_b", own.query_rank
        # Of each head the last numbers rotate. They come first here, and pairs half their number apart.
        size = own.still + own.turning
        turning = np.arange(own.turning).reshape(-1, 2).T.ravel()
        for name, rows in (("turning", own.still + turning), ("still", np.arange(own.still))):
            matrices[f"{last} {name}"] = tensors.of_heads(last, (heads, size, inputs), rows)
        order = np.concatenate((own.rank + turning, np.arange(own.rank)))
        matrices["attn_kv_a_mqa"] = tensors.part("attn_kv_a_mqa", (own.rank + own.turning, width), order)
        if "attn_kv_b" in tensors:  # both in one, the keys' part transposed
            both = heads, own.still + own.value, own.rank
            matrices["attn_k_b"] = tensors.transposed("attn_kv_b", both, slice(0, own.still))
            matrices["attn_v_b"] = tensors.of_heads("attn_kv_b", both, own.still + np.arange(own.value))
        else:
            matrices["attn_k_b"] = tensors.part("attn_k_b", (heads, own.rank, own.still))
            matrices["attn_v_b"] = tensors.part("attn_v_b", (heads, own.value, own.rank))
        matrices["attn_output"] = tensors.part("attn_output", (width, heads * own.value))
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        own, one = self.shape.latent, self.shape.sizes[self.layer]
        last = "attn_q_b" if own.query_rank else "attn_q"
        readers = ("attn_kv_a_mqa", "attn_q_a", "attn_q turning", "attn_q still")
        matrices = [self.matrices[name] for name in readers if name in self.matrices]
        inputs = add_norm_before(program, self.vectors.get("attn_norm"), matrices)
        k = program.shared("latent keys", one.head_size)
        add_product(program, self.matrices["attn_kv_a_mqa"], inputs, k)
        if own.query_rank:
            inputs = self._of_queries(program, inputs)
        latents = k[:, own.turning :]
        self._add_norm(program, latents, "attn_kv_a_norm", own.rank)
        q = program.shared("latent queries", one.heads * one.head_size)
        still = program.shared("still", one.heads * own.still)
        self._add_of_heads(program, f"{last} turning", inputs, q, one.head_size, joined=True)
        self._add_of_heads(program, f"{last} still", inputs, still, own.still, joined=True)
        self._add_each(program, "attn_k_b", still, own.still, q[:, own.turning :], one.head_size)
        found = self._attended(program, q, k)
        values = program.shared_inputs("values of heads", one.heads * own.value)
        self._add_each(program, "attn_v_b", found[:, own.turning :], one.head_size, values.plain, own.value)
        output = self.matrices["attn_output"]
        if output.is_rounded:
            width = one.heads * own.value
            program.add(ROUNDED, row=width, x=values.plain, out=values.rounded, width=width)
        add_into_x(program, output, values, self.vectors.get("post_attention_norm"))

    def _of_queries(self, program: Program, inputs: Inputs) -> Inputs:
        """Add the short vector that queries are made of; returns its norm."""
        rank = self.shape.latent.query_rank
        found = program.shared_inputs("queries' latents", rank)
        add_product(program, self.matrices["attn_q_a"], inputs, found.plain, joined=True)
        self._add_norm(program, found.plain, "attn_q_a_norm", rank, found.rounded)
        return found

    def _add_norm(self, program: Program, x: Buffer, name: str, width: int, rounded: Buffer | None = None) -> None:
        """Add a norm of short vectors, in place, with an epsilon of its own."""
        program.add(
            NORM, row=width, x=x, weight=self.vectors[name], width=width, epsilon=self.shape.latent.epsilon, y=x,
            out=rounded,
        )  # fmt: skip

    def _attended(self, program: Program, q: Buffer, k: Buffer) -> Buffer:
        """Add attention of these queries; returns what each head found. Values are the keys themselves."""
        one = self.shape.sizes[self.layer]
        found = program.shared("latent heads", one.heads * one.head_size)
        add_heads(
            program, self.layer, q, found, out=None, gates=None, sinks=None, k=k, v=k, norm_q=None, norm_k=None,
            norm_v=None, values_of_keys=False, norm_last=False,
        )  # fmt: skip
        return found

    def _add_each(self, program: Program, name: str, x: Buffer, x_head: int, y: Buffer, y_head: int) -> None:
        """Add a product of heads whose inputs differ; ``x_head`` and ``y_head`` are numbers between heads."""
        matrix, heads = self.matrices[name], self.shape.sizes[self.layer].heads
        rounded = program.shared(f"{name} rounded", heads * matrix.inputs, make=records)
        if matrix.is_rounded:
            program.add(
                _ROUNDED_HEADS, row=heads * matrix.inputs, x=x, out=rounded, x_head=4 * x_head,
                width=matrix.inputs, heads=heads,
            )  # fmt: skip
        between = matrix.inputs // GROUP * GROUP_RECORD if matrix.is_rounded else 4 * x_head
        self._add_of_heads(program, name, Inputs(x, rounded), y, y_head, between)

    def _add_of_heads(
        self, program: Program, name: str, inputs: Inputs, y: Buffer, y_head: int, x_head: int = 0, **how: Any
    ) -> None:
        """Add a product of heads; ``y_head``: numbers between heads; ``x_head``: bytes, 0 if all read the same."""
        matrix = self.matrices[name]
        per = tiles_per_piece(matrix.tile_bytes)
        parts = -(-matrix.tiles // per)
        program.add(
            _OF_HEADS, pieces=self.shape.sizes[self.layer].heads * parts, per_piece=per, w=matrix,
            x=inputs.of(matrix), y=y, x_head=x_head, y_head=4 * y_head, parts_of=parts, **how,
        )  # fmt: skip
