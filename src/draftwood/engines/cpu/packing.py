"""Packs weights of a file into the layout of `formats`: sixteen outputs side by side.

Floats are packed as [tiles, inputs, 16], F16 and BF16 as their 16 bits in uint16, F32 as float32.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from threading import Thread
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.files.formats import FORMATS, GROUP, TILE, Bytes, Format
from draftwood.engines.files.gguf_blocks import Blocks
from draftwood.engines.files.gguf_file import Tensor
from draftwood.engines.files.gguf_types import bfloat16_bits, not_read, quantised, read_blocks, read_floats
from draftwood.errors import ModelError, UnsupportedModelError

T = TypeVar("T")

_SLAB = 64 << 20
_LINE = 64  # bytes of a cache line


def write_tiles(tiles: Bytes, blocks: Blocks, format: Format) -> None:
    """Write rows into tiles [tiles, blocks, bytes of a block]; padding of the last tile is left as it is."""
    row = TILE * format.scale_bytes
    for i, scale in enumerate((blocks.scale, blocks.least)):
        if scale is not None:
            place = tiles[..., row * i : row * (i + 1)].view(scale.dtype)
            _fill(place.swapaxes(1, 2), scale)
    head = tiles[..., row * (1 + format.least) : format.head_bytes]
    rows = head.reshape(*tiles.shape[:2], format.groups, (1 + format.least) * format.factors, TILE)
    rows = np.moveaxis(rows, -1, 1)  # [tiles, 16, blocks, groups, of a group]
    for i, factors in enumerate((blocks.factors, blocks.least_factors)):
        if factors is not None:
            place = rows[..., format.factors * i : format.factors * (i + 1)]
            _fill(place, factors.view(np.uint8).reshape(-1, *place.shape[2:]))
    words = tiles[..., format.head_bytes :].view(np.uint32)  # a word is a step of four inputs
    words = words.reshape(*tiles.shape[:2], format.groups, sum(format.planes), TILE)
    words, begin = np.moveaxis(words, -1, 1), 0
    for bits, plane in zip(format.planes, blocks.planes, strict=True):
        _fill(words[..., begin : begin + bits], plane.view(np.uint32))
        begin += bits


def _fill(place: NDArray[Any], rows: NDArray[Any]) -> None:
    """Copy rows [rows, ...] to a place for them, [tiles, 16, ...]."""
    whole, rest = divmod(len(rows), TILE)
    place[:whole] = rows[: whole * TILE].reshape(whole, TILE, *rows.shape[1:])
    if rest:
        place[whole, :rest] = rows[whole * TILE :]


class Slabs:
    """Allocates zeros from large blocks of memory in huge pages, which a pass reads a fifth faster.

    A block lives as long as one of its arrays.
    """

    def __init__(self) -> None:
        self._left: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    def zeros(self, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        """Return zeros that begin at a cache line; `MemoryError` where there is no room."""
        size = prod(shape) * np.dtype(dtype).itemsize
        taken = -(-size // _LINE) * _LINE
        if taken > len(self._left):
            self._left = _slab(max(taken, _SLAB))
        found, self._left = self._left[:size], self._left[taken:]
        return found.view(dtype).reshape(shape)


def _slab(size: int) -> NDArray[np.uint8]:
    try:
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        memory = mmap.mmap(-1, size, **private)  # shared memory, the default, gets no huge pages
    except (OSError, ValueError) as error:
        raise MemoryError(f"no room for {size} bytes") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


_AT_ONCE = 1 << 20  # weights that a thread packs at once, so that intermediate arrays stay in its cache
_FLOATS: dict[str, type[np.generic]] = {"F32": np.float32, "F16": np.uint16, "BF16": np.uint16}

Packed = NDArray[Any]
Room = Callable[[tuple[int, ...], type[np.generic]], Packed]
Rows = slice | NDArray[np.intp] | None


@dataclass(frozen=True, slots=True)
class SomeRows:
    """Some rows of a tensor, as `Tensor.rows` numbers them, and the tiles that they go to.

    ``scale`` is as of `read_blocks`.
    """

    becomes: str
    source: Tensor
    rows: slice | NDArray[np.intp]
    tiles: Packed
    scale: float = 1.0

    def pack(self) -> None:
        """Write the rows into their tiles."""
        raw, kind, was = self.source.rows(self.rows), self.becomes, self.source.kind
        same = kind == was
        if kind not in _FLOATS:
            blocks = read_blocks(kind, raw, self.scale) if same else quantised(kind, read_floats(was, raw))
            if not blocks.is_finite:
                raise ModelError(
                    f"{self.source.name} has scales that are infinite or no numbers (NaN): get the file again"
                )
            write_tiles(self.tiles, blocks, FORMATS[kind])
            return
        if same:
            values = raw.view(_FLOATS[kind])
        elif kind == "BF16":
            values = bfloat16_bits(read_floats(was, raw))
        else:
            with np.errstate(over="ignore"):
                halves = read_floats(was, raw).astype(np.float16)
            if not np.isfinite(halves).all():
                raise ModelError("weights that are too large for float16, or no numbers: take bfloat16")
            values = halves.view(np.uint16)
        _fill(self.tiles.swapaxes(1, 2), values)


class Jobs(Generic[T]):
    """Work that threads do, as many as are to be had. Who waits for the results works, too, so none is needed."""

    def __init__(self, jobs: Iterable[Callable[[], T]], threads: int) -> None:
        self._left = deque((Future[T](), job) for job in jobs)
        self._futures = [future for future, _ in self._left]
        with suppress(RuntimeError):  # no further thread is to be had
            for _ in range(threads):
                Thread(target=self._work, name="draftwood-packing").start()

    def results(self) -> Iterator[T]:
        """Yield the results in order; raises what a job has raised."""
        for future in self._futures:
            self._work(future)
            yield future.result()

    def drop(self) -> None:
        """Begin no further job."""
        self._left.clear()

    def _work(self, until: Future[T] | None = None) -> None:
        while until is None or not until.done():
            try:
                future, job = self._left.popleft()
            except IndexError:
                return
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
                if until is not None:
                    raise


@contextmanager
def packing(parts: Sequence[SomeRows], threads: int, done: Callable[[int], None]) -> Iterator[None]:
    """Run a block while threads pack the parts; at its end all are packed.

    ``done`` takes the bytes of each part, one after another, at the end of the block.
    """
    jobs = Jobs([part.pack for part in parts], threads)
    try:
        yield
        for part, _ in zip(parts, jobs.results(), strict=True):
            done(part.tiles.nbytes)
    finally:
        jobs.drop()


def plan(
    tensor: Tensor | Sequence[Tensor], rows: Rows, room: Room, kind: str = "", scales: Sequence[float] = (1.0,)
) -> tuple[Packed, list[SomeRows]]:
    """Return room for a packed tensor of the file, and the parts that fill it.

    ``tensor`` is a matrix [outputs, inputs], or one for each expert, in one tensor or in several. ``rows`` says
    which outputs, in which order (None: all), ``kind`` the type that floats become (empty: they stay), ``scales``
    those of each expert, or one for all: see `read_blocks`. ``room`` allocates zeros that begin at a multiple of
    64 bytes: uint8[tiles, blocks, bytes of a block] for quantised types, uint16 or float32[tiles, inputs, 16] for
    floats, the experts in front.

    Raises `UnsupportedModelError` for a type without a format, or experts of several types, and `ModelError` for
    what is no matrix, or where inputs are no whole blocks.
    """
    one, *others = [tensor] if isinstance(tensor, Tensor) else tensor
    kind, inputs = kind or one.kind, one.shape[-1]
    if len(one.shape) not in (2, 3):
        raise ModelError(f"the tensor {one.name!r} has the shape {one.shape}: get a file that has a matrix there")
    if any(other.kind != one.kind for other in others):
        raise UnsupportedModelError(
            f"the experts {one.name} and so on are of several types: get the model in another quantisation"
        )
    every = one.known.shape[-2]
    count = one.shape[0] if len(one.shape) == 3 else 1
    matrices = [(each, expert * every) for each in (one, *others) for expert in range(count)]
    if isinstance(rows, slice):
        rows = np.arange(every)[rows]
    outputs = every if rows is None else len(rows)
    shape, dtype = packed_shape(kind, outputs, inputs), _FLOATS.get(kind, np.uint8)
    packed = room(shape if len(one.shape) == 2 and not others else (len(matrices), *shape), dtype)
    step = max(TILE, _AT_ONCE // inputs // TILE * TILE)
    parts = []
    for number, ((source, first), tiles) in enumerate(zip(matrices, packed.reshape(-1, *shape), strict=True)):
        scale = scales[number % len(scales)]
        for start in range(0, outputs, step):
            end = min(start + step, outputs)
            some = slice(first + start, first + end) if rows is None else first + rows[start:end]
            parts.append(SomeRows(kind, source, some, tiles[start // TILE : (start + step) // TILE], scale))
    return packed, parts


def packed_shape(kind: str, outputs: int, inputs: int) -> tuple[int, int, int]:
    """Return the shape of a packed matrix, the outputs padded to 16; raises what `plan` raises."""
    tiles = -(-outputs // TILE)
    if kind in _FLOATS:
        return tiles, inputs, TILE
    if kind not in FORMATS:
        raise not_read(kind)
    held = GROUP * FORMATS[kind].groups
    if inputs % held:
        raise ModelError(f"{inputs} inputs are no multiple of the {held} of a block: choose another quantisation")
    return tiles, inputs // held, FORMATS[kind].block_bytes


@dataclass(frozen=True, slots=True)
class Matrix:
    """One packed matrix, or one for each expert, and the addresses of the functions for its type."""

    kind: str
    packed: NDArray[Any]
    outputs: int
    inputs: int
    product: int
    reader: int

    @property
    def is_rounded(self) -> bool:
        """Whether its products take inputs that are rounded to 8 bits."""
        return self.kind in FORMATS

    @property
    def tiles(self) -> int:
        return int(self.packed.shape[-3])

    @property
    def blocks(self) -> int:
        """Blocks of a tile; for floats, inputs."""
        return int(self.packed.shape[-2])

    @property
    def tile_bytes(self) -> int:
        return int(self.packed.strides[-3])

    @property
    def expert_bytes(self) -> int:
        """Bytes from one expert's matrix to the next one's; 0 where there are no experts."""
        return int(self.packed.strides[0]) if self.packed.ndim == 4 else 0


def matrix_of(kind: str, packed: NDArray[Any], outputs: int, inputs: int, kernels: Kernels) -> Matrix:
    """Return a packed matrix with the functions for its type."""
    return Matrix(kind, packed, outputs, inputs, kernels.product(kind), kernels.reader(kind))
