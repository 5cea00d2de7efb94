"""The kernel of delta nets: states go from token to token, along chains and trees.

A state maps keys to values, S [keys, values]. A token with q, k, v, beta and decay does (arXiv 2412.06464)

    delta = beta * (v - decay * S^T k)
    S     = decay * S + k (x) delta
    o     = S^T q

Columns of S (values) do not depend on one another. A piece is one text's tile of `COLUMNS` columns of one head: it
stays in the first-level cache while the piece goes through all tokens of the pass, in the steps that
`draftwood.engines.cpu.walk` lists. A token that an earlier pass has read is applied by its k, delta and decay
alone, with the same bits. Sums over keys are added by fma in `PARTS` parts, which are folded. Nothing is blocked
over tokens, so bits do not depend on how many a pass has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftwood.engines.cpu.code.emit import Code
from draftwood.engines.cpu.code.records import ADDRESS, NUMBER, ROWS, WIDEST, KernelModule, Per, PieceCode
from draftwood.engines.cpu.code.values import F32, LANES, Place, Value, Variable
from draftwood.engines.cpu.walk import NOWHERE, OWN, PLACES
from draftwood.engines.files.shapes import DELTA_SIZE as SIZE

COLUMNS = 32
"""Columns of a tile, whose 16 KiB fit into the first-level cache twice."""
TILES = SIZE // COLUMNS
PARTS = 4
_TILE_BYTES = 4 * SIZE * COLUMNS
_STARTS = range(0, COLUMNS, LANES)  # of the vectors of a row of a tile
Vectors = Sequence[Value]
"""The columns of a tile, 16 to a vector."""


def _row(tile: Place, key: Value) -> Place:
    """Return where the columns of a key lie in a tile."""
    return tile + key * (4 * COLUMNS)


def _vectors(place: Place) -> Vectors:
    return [place.f32x16[start] for start in _STARTS]


def _put(place: Place, vectors: Vectors) -> None:
    for start, one in zip(_STARTS, vectors, strict=True):
        place.f32x16[start] = one


class _Sums:
    """Sums over keys of a tile's rows, each times a number of its key."""

    def __init__(self, code: Code) -> None:
        self._parts: list[list[Variable]] = [
            [code.variable(code.real(0.0, LANES)) for _ in _STARTS] for _ in range(PARTS)
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


def _keys(code: Code) -> Iterator[tuple[int, Value]]:
    """Write a loop over the keys of a state; yields the part of sums that a key belongs to, and the key."""
    with code.count(0, SIZE, PARTS) as first:
        for part in range(PARTS):
            yield part, first + part


def _given(code: Code, tile: Place, k: Place) -> Vectors:
    """Write ``S^T k``."""
    sums = _Sums(code)
    for part, key in _keys(code):
        sums.add(part, _vectors(_row(tile, key)), k.f32[key])
    return sums.folded()


def _next(row: Vectors, factor: Value, delta: Vectors, decay: Value) -> Vectors:
    """Return a key's row of ``decay * S + k (x) delta``."""
    return [(one * decay).plus_product(factor.splat(), new) for one, new in zip(row, delta, strict=True)]


def _read(code: Code, tile: Place, to: Place | None, k: Place, q: Place, delta: Vectors, decay: Value) -> Vectors:
    """Write the state after a token to a place, or nowhere; return ``S^T q`` of it."""
    sums = _Sums(code)
    for part, key in _keys(code):
        row = _next(_vectors(_row(tile, key)), k.f32[key], delta, decay)
        if to is not None:
            _put(_row(to, key), row)
        sums.add(part, row, q.f32[key])
    return sums.folded()


class _Piece:
    """The code of a piece: one text's tile of one head in one layer."""

    def __init__(self, piece: PieceCode) -> None:
        code, phase = self.code, self.phase = piece.code, piece.phase
        self.kept = piece.whole.kept
        self.walk = piece.whole.walks + piece.number // (phase.heads * TILES) * 32
        within = piece.number % (phase.heads * TILES)
        self.head, column = within // TILES, within % TILES * COLUMNS
        self.key_head = phase.key_heads.i64[self.head]
        self.value = self.head * SIZE + column  # the first of the tile's values, of all heads
        self.column = column * 4
        state = phase.layer * phase.heads * TILES * _TILE_BYTES + within * _TILE_BYTES
        self.given, self.own = (self.walk.i64[slot] + state for slot in range(2))
        self.room = code.room(F32, PLACES * SIZE * COLUMNS)

    def place(self, number: Value) -> Place:
        """Return one of the `PLACES`, or the given or own state."""
        outside = number.equals(OWN).where(self.own, self.given)
        inside = self.room.number() + number * _TILE_BYTES
        return (number < 0).where(outside, inside).place()

    def row(self, name: str, head: Value, row: Value) -> Place:
        """Return a row of a head; of each head those of all rows lie side by side."""
        place: Place = getattr(self.phase, name)[head * WIDEST + row]
        return place

    def known(self, slot: Place, source: Place, target: Place) -> None:
        """Write the step over a token that an earlier pass has read."""
        phase = self.phase
        slot = slot + phase.layer * phase.slot_bytes
        k = slot + phase.slot_k + self.key_head * (4 * SIZE)
        delta = _vectors(slot + phase.slot_delta + self.value * 4)
        decay = (slot + phase.slot_decay).f32[self.head].splat()
        with self.code.count(0, SIZE) as key:
            _put(_row(target, key), _next(_vectors(_row(source, key)), k.f32[key], delta, decay))

    def new(self, row: Value, source: Place, target: Value) -> None:
        """Write the step over a row of the pass."""
        code, phase = self.code, self.phase
        q, k = (self.row(name, self.key_head, row) for name in "qk")
        v, out = (self.row(name, self.head, row) + self.column for name in "vo")
        beta, decay = (getattr(phase, name)[row].f32[self.head].splat() for name in ("beta", "decay"))
        given, minus = _given(code, source, k), -decay
        delta = [beta * one.plus_product(minus, old) for one, old in zip(_vectors(v), given, strict=True)]
        kept = self.kept.i64[row]
        with code.when(kept.differs(0)):
            _put((kept + phase.layer * phase.slot_bytes + phase.slot_delta + self.value * 4).place(), delta)
        with code.if_else(target.equals(NOWHERE).ir) as (nowhere, somewhere):
            with nowhere:
                _put(out, _read(code, source, None, k, q, delta, decay))
            with somewhere:
                _put(out, _read(code, source, self.place(target), k, q, delta, decay))


def _walked(piece: PieceCode) -> None:
    code, own = piece.code, _Piece(piece)
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
WALKED = MODULE.kernel(
    "delta_walked", Per.WALKS, _walked, layer=NUMBER, heads=NUMBER, key_heads=ADDRESS, q=ROWS, k=ROWS, v=ROWS,
    beta=ROWS, decay=ROWS, o=ROWS, slot_bytes=NUMBER, slot_k=NUMBER, slot_delta=NUMBER, slot_decay=NUMBER,
)  # fmt: skip
"""``layer`` is the number among the layers with a delta net, ``key_heads`` int64[heads] the head of keys of each
head of values. q and k are float32[heads of keys * WIDEST, SIZE], v and o [heads * WIDEST, SIZE], beta and decay
[WIDEST, heads]. ``slot_bytes`` are those of a token's slot in a layer; k, delta and decay lie there in it."""
