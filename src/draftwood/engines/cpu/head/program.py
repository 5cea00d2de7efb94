"""The phases of a head's pass: one layer, on a state and an embedding side by side."""

from __future__ import annotations

from typing import Any

from draftwood.engines.cpu.buffers import Buffer, floats, records
from draftwood.engines.cpu.head.weights import PackedHead
from draftwood.engines.cpu.kernels import Kernels
from draftwood.engines.cpu.phases import ROWS
from draftwood.engines.cpu.program import Program
from draftwood.engines.cpu.records import real_slot

FUSE = "fuse"
"""What a pass is asked for that begins with the target's states (`Program.limits`)."""


class HeadProgram(Program):
    """A head's phases and buffers.

    Attributes
    ----------
    target_states
        float32[WIDEST, layers * width]: the target's states, read by passes that are asked to `FUSE`.
    x
        float32[WIDEST, width]: what the layer reads, made by `FUSE` or written here; what the layer makes of it.
    """

    weights: PackedHead  # type: ignore[assignment]

    def __init__(self, weights: PackedHead, kernels: Kernels) -> None:
        width = weights.shape.width
        self._seen, self._seen_rounded = floats(weights.fuse.inputs), records(weights.fuse.inputs)
        self._token, self._both, self._both_rounded = floats(width), floats(2 * width), records(2 * width)
        super().__init__(weights, kernels)  # type: ignore[arg-type]
        self.target_states = self._seen.array[:, : weights.fuse.inputs]
        self.x = self._x.array[:, :width]

    def _build(self) -> None:
        weights, width = self.weights, self.weights.shape.width
        embedding = weights.embedding
        slots = {
            "core": embedding.reader, "weights": embedding.packed.ctypes.data, "blocks": embedding.blocks,
            "tile_bytes": embedding.tile_bytes, "scale": real_slot(1.0),
        }  # fmt: skip
        self._add("embedding", ROWS, width, slots | self._token.slots("out"))
        inputs = weights.fuse.inputs
        slots = self._seen.slots("x") | self._seen_rounded.slots("out") | {"width": inputs}
        self._add("rounded", ROWS, inputs, slots, joined=True, only=FUSE)
        self._product(weights.fuse, self._seen, self._seen_rounded, self._x.slots("y"), only=FUSE)
        self._half(self._token, weights.embedding_norm, 0)
        self._half(self._x, weights.state_norm, width)
        self._attend(0, weights.matrices[0], {}, self._both, self._both_rounded)
        self._gated_unit(weights.matrices[0], weights.vectors[0])
        self._ends()

    def _half(self, source: Buffer, norm: Any, first: int) -> None:
        """Add the norm of one half of what the layer reads."""
        plain, rounded = self._both.behind(first), self._both_rounded.behind(first)
        slots = self._norm_slots(norm) | source.slots("x") | plain.slots("y") | rounded.slots("out")
        self._add("norm_rounded", ROWS, self.weights.shape.width, slots, joined=first > 0)
