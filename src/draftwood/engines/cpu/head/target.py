"""A trained head as what a draft model is, on the CPU engine: it reads a text, and grows trees after it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Capabilities, Floats
from draftwood.engines.committed import locked
from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.code.records import CHUNK, WIDEST
from draftwood.engines.cpu.head.mtp import MtpWeights
from draftwood.engines.cpu.head.tree_kernel import read_and_grow
from draftwood.engines.cpu.head.weights import FUSE, PackedHead
from draftwood.engines.cpu.pages import Page, Pages
from draftwood.engines.cpu.passes import PassRecord, Rows
from draftwood.engines.cpu.pool import pass_threads
from draftwood.engines.heads.fitting import check_fit
from draftwood.engines.heads.text import GrownTree, HeadText
from draftwood.engines.heads.weights import HeadWeights


class CpuHeadText(HeadText):
    """A head's keys and values of one text, in pages; nodes lie in the cells after its pairs while a tree grows.

    ``page_bytes`` and ``token_bytes`` are those of a page and of one pair; ``pages`` those of another text that it
    begins with.
    """

    def __init__(self, page_bytes: int, token_bytes: int, pages: Sequence[Page] = ()) -> None:
        super().__init__()
        self._page_bytes, self._token_bytes = page_bytes, token_bytes
        self.pages = Pages(page_bytes, pages)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values of the committed pairs."""
        return self._token_bytes * self.length

    cache_bytes = nbytes

    def truncate(self, position: int) -> None:
        before = self.length
        super().truncate(position)
        if self.length < before:
            self.pages.cut(self.length)

    def copied(self) -> CpuHeadText:
        """Return an independent copy, which shares pages."""
        twin = CpuHeadText(self._page_bytes, self._token_bytes, self.pages.share(self.length))
        twin.positions = list(self.positions)
        return twin

    def close(self) -> None:
        """Free the cache."""
        self.truncate(0)
        self.pages = Pages(self._page_bytes)


class CpuHead:
    """A head that drafts for one target.

    ``ids`` int32[v] has the token of each place in its vocabulary, ``layers`` are those whose hidden states it
    reads, ``capabilities`` and ``kernels`` the target's.
    """

    def __init__(
        self, weights: PackedHead | MtpWeights, kernels: Kernels, threads: int, ids: Any, layers: tuple[int, ...],
        capabilities: Capabilities,
    ) -> None:  # fmt: skip
        self._whole, self._threads = weights.program(kernels), threads
        self._program = self._whole.program
        self._record, self._pool = PassRecord(self._program), pass_threads()
        # A helper that comes late may still look at the record of the last pass.
        weakref.finalize(self, self._pool.forget, self._record, self._program)
        self._ids, self.layers = ids, layers
        self.lock = ChildSafeLock()
        self.capabilities = Capabilities(capabilities.vocab_size, capabilities.max_positions)
        self.weight_bytes = weights.nbytes

    def open(self) -> CpuHeadText:
        """Begin a text."""
        return CpuHeadText(self._program.page_bytes, self._program.cell_bytes // PAGE)

    @locked
    def read_and_grow(
        self, session: CpuHeadText, positions: Sequence[int], parts: Sequence[Sequence[Floats]],
        tokens: Sequence[int], asked: Any,
    ) -> GrownTree:  # fmt: skip
        """Read pairs into a text and grow a tree; a pair is the state at a position and the token after it.

        ``parts`` are the states of consecutive positions, [some, width] per layer; ``asked``, a
        `draftwood.drafters.head.reading.TreeRequest`, says how the tree grows. Its nodes are not kept."""
        states = parts[0] if len(parts) == 1 else [np.concatenate(layer) for layer in zip(*parts, strict=True)]
        program, width, more = self._program, self._program.shape.width, int(asked.sizes[1])
        states_in = self._whole.target_states
        program.reserve(0, positions[-1] + 2 + more)
        for low in range(0, len(positions), WIDEST):
            where, base = positions[low : low + WIDEST], session.length
            count, is_last = len(where), low + WIDEST >= len(positions)
            for i, one in enumerate(states):
                states_in[:count, i * width : (i + 1) * width] = one[low : low + count]
            session.pages.make_ready(base, base + count + more)
            scored = [count - 1] * is_last
            rows = Rows(session.pages, base, tokens[low : low + count], scored=scored, positions=where, more=more)
            self._record.fill([rows], (FUSE,))
            if is_last:
                grown = self._grow(count, -(-(base + count + more) // CHUNK), asked)
            else:
                self._pool.run(self._record.address, self._threads)
            session.positions += where
        return grown

    def _grow(self, count: int, chunks: int, asked: Any) -> GrownTree:
        """Run the pass that is filled, over ``count`` pairs, and the tree's, which see as many chunks."""
        record, (units, scores, *_) = self._record, self._record.memory
        limits, address = self._program.limits(1, 1, chunks, ())
        passes = np.array((self._pool.start, count, chunks, address, len(limits)))
        _, most, *_, size = asked.sizes.tolist()
        tree, numbers = np.empty((3, size), dtype=np.int32), np.empty((3, size), dtype=np.float32)
        beliefs = np.zeros(1 + most)

        def start(control: int, address: int, number: int, threads: int) -> int:
            return int(read_and_grow.unchecked(
                control, address, number, threads, passes, record.record, record.longs, record.words, units,
                scores.view(np.int32), self._whole.whole_x, self._ids, *asked, tree, numbers, beliefs,
            ))  # fmt: skip

        begun = perf_counter()
        self._pool.run(record.address, self._threads, start, 1 + most)
        seconds = perf_counter() - begun
        nodes, run = asked.sizes[:2].tolist()
        tree.flags.writeable = numbers.flags.writeable = False
        return GrownTree(tree[:, :nodes], numbers[:, :nodes], beliefs[:run].tolist(), seconds)


def fitted(target: Any, weights: HeadWeights, name: str = "this head") -> CpuHead:
    """Return a head for a `CpuTarget`; raises `CapabilityError` where it was made for another model."""
    model = target.model
    layers = check_fit(name, weights, target, model.weights.shape.width)
    packed = PackedHead(weights, model.weights, model.kernels)
    ids = weights.ids().astype(np.int32)
    return CpuHead(packed, model.kernels, model.threads, ids, layers, target.capabilities)


def next_head(target: Any) -> CpuHead:
    """Return the block for further tokens of a `CpuTarget` that has one, as a head."""
    model = target.model
    weights = MtpWeights(model.weights)
    ids = np.arange(weights.scored, dtype=np.int32)
    last = (model.weights.shape.layers,)
    return CpuHead(weights, model.kernels, model.threads, ids, last, target.capabilities)
