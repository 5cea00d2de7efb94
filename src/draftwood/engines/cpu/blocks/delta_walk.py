"""The kernels of delta nets and of Mamba-2: states go from token to token, along chains and trees.

A state maps keys to values, S [keys, values]. A token with q, k, v, beta and decay does (arXiv 2412.06464)

    delta = beta * (v - decay * S^T k)
    S     = decay * S + k (x) delta
    o     = S^T q

A token of Mamba-2 does the same with ``delta = beta * v`` (arXiv 2405.21060: k, q and v are its B, C and x).

Columns of S (values) do not depend on one another. A piece is one text's tile of some columns of one head: it
stays in the first-level cache while the piece goes through all tokens of the pass, in the steps that
`draftwood.engines.cpu.walk` lists. A token that an earlier pass has read is applied by its k, delta and decay
alone, with the same bits. Sums over keys are added by fma in `PARTS` parts, which are folded. Nothing is blocked
over tokens, so bits do not depend on how many a pass has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from draftwood.engines.cpu.code.emit import Code
from draftwood.engines.cpu.code.records import ADDRESS, NUMBER, ROWS, WIDEST, KernelModule, Per, PieceCode
from draftwood.engines.cpu.code.values import F32, LANES, Place, Value, Variable
from draftwood.engines.cpu.program import Program, Vector
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.cpu.walk import NOWHERE, OWN, PLACES
from draftwood.engines.files.formats import padded
from draftwood.engines.files.shapes import DELTA_SIZE, MOST_KEYS, Shape
from draftwood.errors import ModelError

COLUMNS, SCAN_COLUMNS = 32, 16
"""Columns of a tile in delta nets and in Mamba-2. Its 16 KiB at most fit into the first-level cache twice."""
PARTS = 4
Vectors = Sequence[Value]
"""The columns of a tile, 16 to a vector."""
_Size: TypeAlias = int | Value


class _Sizes(NamedTuple):
    """Numbers of a key and of a head's value; columns of a tile."""

    keys: _Size
    values: _Size
    columns: int

    @property
    def tiles(self) -> _Size:
        return self.values // self.columns

    @property
    def tile_bytes(self) -> _Size:
        return self.keys * (4 * self.columns)

    def row(self, tile: Place, key: Value) -> Place:
        """Return where the columns of a key lie in a tile."""
        return tile + key * (4 * self.columns)

    def vectors(self, place: Place) -> Vectors:
        return [place.f32x16[start] for start in range(0, self.columns, LANES)]


def slot_places(shape: Shape) -> dict[str, int]:
    """Return where a token's slot in a layer has its key, its delta and its decay, and its size, in numbers.

    It begins with the inputs of the convolution.
    """
    states = shape.states
    delta = shape.convolved + states.groups * states.keys
    decay = delta + states.inner
    return {"k": shape.convolved, "delta": delta, "decay": decay, "size": decay + padded(states.heads, LANES)}


def rates_of(tensors: LayerTensors, shape: Shape, layer: int) -> Vector:
    """Return how fast the states of a layer's heads fade; `ModelError` for numbers with which they would grow."""
    rates = tensors.flat("ssm_a", shape.states.heads, "")
    if not np.all(np.isfinite(rates) & (rates <= 0)):
        raise ModelError(f"ssm_a of layer {layer} has numbers that are not below 0: get the file again")
    return rates


def state_rows(program: Program) -> dict[str, Any]:
    """Return fields that phases of a layer with states read: rows of all heads, and where things lie in a slot."""
    states = program.shape.states
    numbers, keys = (states.heads, WIDEST), (states.keys, states.groups * WIDEST)
    values = states.values, states.heads * WIDEST
    sizes = {"beta": numbers, "decay": numbers, "q": keys, "k": keys, "v": values}
    rows = {name: program.shared(f"{name} of states", *size) for name, size in sizes.items()}
    slot = {name: 4 * at for name, at in slot_places(program.shape).items()}
    places = {"slot_bytes": slot["size"], "slot_k": slot["k"], "slot_decay": slot["decay"]}
    return {**rows, **places, "heads": states.heads, "layer": program.take_inputs()}


def write_kept(piece: PieceCode, row: Value, groups: Value, keys: _Size) -> None:
    """Copy what later passes need of a row to its slot, where it has one; the walk adds the delta."""
    code, phase = piece.code, piece.phase
    kept = piece.whole.kept.i64[row]
    with code.when(kept.differs(0)):
        slot = (kept + phase.layer * phase.slot_bytes).place()
        with code.count(0, phase.width, LANES) as i:
            slot.f32x16[i] = phase.x[row].f32x16[i]
        with code.count(0, groups) as head, code.count(0, keys, LANES) as i:
            (slot + phase.slot_k + head * (keys * 4)).f32x16[i] = phase.k[head * WIDEST + row].f32x16[i]
        with code.count(0, phase.heads, LANES) as i:
            (slot + phase.slot_decay).f32x16[i] = phase.decay[row].f32x16[i]


def state_sizes(shape: Shape) -> tuple[int, int]:
    """Return how many numbers are kept of a token, and the size of the states, in each layer that has states."""
    return slot_places(shape)["size"], shape.states.inner * shape.states.keys


def _put(place: Place, vectors: Vectors) -> None:
    for number, one in enumerate(vectors):
        place.f32x16[number * LANES] = one


class _Sums:
    """Sums over keys of a tile's rows, each times a number of its key."""

    def __init__(self, code: Code, columns: int) -> None:
        self._parts: list[list[Variable]] = [
            [code.variable(code.real(0.0, LANES)) for _ in range(0, columns, LANES)] for _ in range(PARTS)
        ]

    def add(self, part: int, row: Vectors, factor: Value) -> None:
        for total, one in zip(self._parts[part], row, strict=True):
            total.now = total.now.plus_product(one, factor.splat())

    def folded(self) -> Vectors:
        found = [[one.now for one in part] for part in self._parts]
        while len(found) > 1:
            half = len(found) // 2
            pairs = zip(found[:half], found[half:], strict=True)
            found = [[a + b for a, b in zip(low, high, strict=True)] for low, high in pairs]
        return found[0]


def _keys(code: Code, sizes: _Sizes) -> Iterator[tuple[int, Value]]:
    """Write a loop over the keys of a state; yields the part of sums that a key belongs to, and the key."""
    with code.count(0, sizes.keys, PARTS) as first:
        for part in range(PARTS):
            yield part, first + part


def _given(code: Code, sizes: _Sizes, tile: Place, k: Place) -> Vectors:
    """Write ``S^T k``."""
    sums = _Sums(code, sizes.columns)
    for part, key in _keys(code, sizes):
        sums.add(part, sizes.vectors(sizes.row(tile, key)), k.f32[key])
    return sums.folded()


def _next(row: Vectors, factor: Value, delta: Vectors, decay: Value) -> Vectors:
    """Return a key's row of ``decay * S + k (x) delta``."""
    return [(one * decay).plus_product(factor.splat(), new) for one, new in zip(row, delta, strict=True)]


class _Piece:
    """The code of a piece: one text's tile of one head in one layer."""

    def __init__(self, piece: PieceCode, sizes: _Sizes, most_keys: int, *, corrects: bool) -> None:
        code, phase = self.code, self.phase = piece.code, piece.phase
        self.sizes, self.corrects = sizes, corrects
        self.kept = piece.whole.kept
        tiles = phase.heads * sizes.tiles
        self.walk = piece.whole.walks + piece.number // tiles * 32
        within = piece.number % tiles
        self.head, column = within // sizes.tiles, within % sizes.tiles * sizes.columns
        self.key_head = phase.key_heads.i64[self.head]
        self.value = self.head * sizes.values + column  # the first of the tile's values, of all heads
        self.column = column * 4
        state = (phase.layer * tiles + within) * sizes.tile_bytes
        self.given, self.own = (self.walk.i64[slot] + state for slot in range(2))
        self.room = code.room(F32, PLACES * most_keys * sizes.columns)

    def place(self, number: Value) -> Place:
        """Return one of the `PLACES`, or the given or own state."""
        outside = number.equals(OWN).where(self.own, self.given)
        inside = self.room.number() + number * self.sizes.tile_bytes
        return (number < 0).where(outside, inside).place()

    def row(self, name: str, head: Value, row: Value) -> Place:
        """Return a row of a head; of each head those of all rows lie side by side."""
        place: Place = getattr(self.phase, name)[head * WIDEST + row]
        return place

    def known(self, slot: Place, source: Place, target: Place) -> None:
        """Write the step over a token that an earlier pass has read."""
        phase, sizes = self.phase, self.sizes
        slot = slot + phase.layer * phase.slot_bytes
        k = slot + phase.slot_k + self.key_head * sizes.keys * 4
        delta = sizes.vectors(slot + phase.slot_delta + self.value * 4)
        decay = (slot + phase.slot_decay).f32[self.head].splat()
        with self.code.count(0, sizes.keys) as key:
            row = sizes.vectors(sizes.row(source, key))
            _put(sizes.row(target, key), _next(row, k.f32[key], delta, decay))

    def new(self, row: Value, source: Place, target: Value) -> None:
        """Write the step over a row of the pass."""
        code, phase = self.code, self.phase
        q, k = (self.row(name, self.key_head, row) for name in "qk")
        v, out = (self.row(name, self.head, row) + self.column for name in "vo")
        beta, decay = (getattr(phase, name)[row].f32[self.head].splat() for name in ("beta", "decay"))
        values = self.sizes.vectors(v)
        if self.corrects:
            given, minus = _given(code, self.sizes, source, k), -decay
            values = [one.plus_product(minus, old) for one, old in zip(values, given, strict=True)]
        delta = [beta * one for one in values]
        kept = self.kept.i64[row]
        with code.when(kept.differs(0)):
            _put((kept + phase.layer * phase.slot_bytes + phase.slot_delta + self.value * 4).place(), delta)
        with code.if_else(target.equals(NOWHERE).ir) as (nowhere, somewhere):
            with nowhere:
                _put(out, self.read(source, None, k, q, delta, decay))
            with somewhere:
                _put(out, self.read(source, self.place(target), k, q, delta, decay))

    def read(
        self, tile: Place, to: Place | None, k: Place, q: Place, delta: Vectors, decay: Value
    ) -> Vectors:  # fmt: skip
        """Write the state after a token to a place, or nowhere; return ``S^T q`` of it."""
        sizes, sums = self.sizes, _Sums(self.code, self.sizes.columns)
        for part, key in _keys(self.code, sizes):
            row = _next(sizes.vectors(sizes.row(tile, key)), k.f32[key], delta, decay)
            if to is not None:
                _put(sizes.row(to, key), row)
            sums.add(part, row, q.f32[key])
        return sums.folded()


def _walked(piece: PieceCode) -> None:
    sizes = _Sizes(DELTA_SIZE, DELTA_SIZE, COLUMNS)
    _write_steps(piece, _Piece(piece, sizes, DELTA_SIZE, corrects=True))


def _scanned(piece: PieceCode) -> None:
    sizes = _Sizes(piece.phase.keys, piece.phase.values, SCAN_COLUMNS)
    _write_steps(piece, _Piece(piece, sizes, MOST_KEYS, corrects=False))


def _write_steps(piece: PieceCode, own: _Piece) -> None:
    code = piece.code
    steps = own.walk.i64[2].place()
    with code.count(0, own.walk.i64[3]) as number:
        step = steps + number * 32
        token, target = step.i64[0], step.i64[2]
        source = own.place(step.i64[1])
        with code.if_else(step.i64[3].differs(0).ir) as (known, new):
            with known:
                own.known(token.place(), source, own.place(target))
            with new:
                own.new(token, source, target)


MODULE = KernelModule("delta_walk")
_FIELDS = {
    "layer": NUMBER, "heads": NUMBER, "key_heads": ADDRESS, "q": ROWS, "k": ROWS, "v": ROWS, "beta": ROWS,
    "decay": ROWS, "o": ROWS, "slot_bytes": NUMBER, "slot_k": NUMBER, "slot_delta": NUMBER, "slot_decay": NUMBER,
}  # fmt: skip
WALKED = MODULE.kernel("delta_walked", Per.WALKS, _walked, **_FIELDS)
SCANNED = MODULE.kernel("scanned", Per.WALKS, _scanned, **_FIELDS, keys=NUMBER, values=NUMBER)
"""``layer`` is the number among the layers with states, ``key_heads`` int64[heads] the head of keys of each
head of values. q and k are float32[heads of keys * WIDEST, keys], v and o [heads * WIDEST, values], beta and decay
[WIDEST, heads]. ``slot_bytes`` are those of a token's slot in a layer; k, delta and decay lie there in it."""
