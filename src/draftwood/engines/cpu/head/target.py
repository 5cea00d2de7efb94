"""A trained head as what a draft model is, on the CPU engine: it reads a text, and grows trees after it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Capabilities, Floats
from draftwood.engines.committed import locked
from draftwood.engines.cpu.attention import WIDEST
from draftwood.engines.cpu.gguf_types import bfloat16_bits
from draftwood.engines.cpu.head.weights import FUSE, HeadProgram, PackedHead
from draftwood.engines.cpu.kernels import Kernels, pass_threads
from draftwood.engines.cpu.pages import Page, Pages
from draftwood.engines.cpu.passes import PassRecord, Rows
from draftwood.engines.cpu.session import groups
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.heads.fitting import check_fit, fingerprint_of, fingerprint_rows, head_in, shipped
from draftwood.engines.heads.text import HeadText, ReducedScores, Request, grown
from draftwood.engines.heads.weights import HeadWeights
from draftwood.engines.lent_scores import LentScores
from draftwood.errors import CapabilityError


class CpuHeadText(HeadText[Floats]):
    """A head's keys and values of one text, in pages; grown nodes lie in the cells after its pairs.

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
        twin.take(self)
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
        self, weights: PackedHead, kernels: Kernels, threads: int, ids: Any, layers: tuple[int, ...],
        capabilities: Capabilities,
    ) -> None:  # fmt: skip
        self._program, self._threads = HeadProgram(weights, kernels), threads
        self._record, self._lent, self._pool = PassRecord(self._program), LentScores(), pass_threads()
        # A helper that comes late may still look at the record of the last pass.
        weakref.finalize(self, self._pool.forget, self._record, self._program)
        self._ids, self.layers = ids, layers
        self.lock = ChildSafeLock()
        self.capabilities = Capabilities(
            capabilities.vocab_size, capabilities.max_positions, batch=True, grows=True
        )
        self.weight_bytes = weights.nbytes

    def open(self) -> CpuHeadText:
        """Begin a text."""
        shape = self._program.weights.shape
        return CpuHeadText(self._program.layer_bytes, 4 * shape.kv_heads * shape.head_size)

    @locked
    def read(
        self, session: CpuHeadText, positions: Sequence[int], parts: Sequence[Sequence[Floats]],
        tokens: Sequence[int],
    ) -> ReducedScores:  # fmt: skip
        """Read pairs into a text: the states at these positions, and the tokens after them.

        ``parts`` are the states of consecutive positions, [some, width] per layer. Returns the scores of the last
        pair. Grown nodes are dropped.
        """
        session.forget_grown()
        states = parts[0] if len(parts) == 1 else [np.concatenate(layer) for layer in zip(*parts, strict=True)]
        inputs, width = self._program.target_states, self._program.weights.shape.width
        for low in range(0, len(positions), WIDEST):
            where = positions[low : low + WIDEST]
            count = len(where)
            for i, one in enumerate(states):
                inputs[:count, i * width : (i + 1) * width] = one[low : low + count]
            session.pages.make_ready(session.length, session.length + count)
            is_last = low + count == len(positions)
            some = tokens[low : low + count]
            rows = Rows(session.pages, session.length, some, scored=[count - 1] * is_last, positions=where)
            scores = self._run([rows], (FUSE,))
            session.commit(list(where), self._program.x[count - 1].copy())
        return ReducedScores(self._lent.add([scores], self)[0], self._ids)

    @locked
    def grow(self, requests: Sequence[Request]) -> list[ReducedScores]:
        """As `Target.grow`; -1 is the last pair that was read."""
        if any(len(session.lines) + len(tokens) > WIDEST for session, tokens, _ in requests):
            raise CapabilityError(f"a head grows trees of at most {WIDEST} nodes: draft fewer")
        is_known = all(max(parents) < session.nodes for session, _, parents in requests)
        if is_known and sum(len(tokens) for _, tokens, _ in requests) <= WIDEST:
            views = self._grow(requests)
        else:  # several passes, each of which overwrites the scores of the one before
            views = [np.concatenate(parts) for parts in grown(requests, self._copied)]
        return [ReducedScores(scores, self._ids) for scores in self._lent.add(views, self)]

    def _copied(self, requests: Sequence[Request]) -> list[Floats]:
        some = groups(requests, lambda request: len(request[1]))
        return [rows.copy() for group in some for rows in self._grow(group)]

    def _grow(self, requests: Sequence[Request]) -> list[Floats]:
        """Run a pass over nodes whose parents are known; returns the scores of each request's."""
        texts, states = [], []
        for session, tokens, parents in requests:
            made, positions = session.begin(parents)
            base, nodes = session.length, len(session.lines)
            session.pages.make_ready(base, base + nodes)
            ways = [[base + node for node in line] for line in session.lines[nodes - len(parents) :]]
            texts.append(Rows(session.pages, base, tokens, ways=ways, positions=positions))
            states += made
        x = self._program.x[: len(states)]
        x[:] = states
        scores, made, found, first = self._run(texts), x.copy(), [], 0
        for session, tokens, _ in requests:
            part = slice(first, first := first + len(tokens))
            session.finish(list(made[part]))
            found.append(scores[part])
        return found

    def _run(self, texts: Sequence[Rows], asked: tuple[str, ...] = ()) -> Floats:
        """Compute a pass; returns scores of the rows that are scored, a view until the next pass."""
        self._lent.keep()
        scored = self._record.fill(texts, asked)
        self._pool.run(self._record.address, self._threads)
        return self._record.results(scored)[0]


def head_of(target: CpuTarget, path: Path) -> CpuHead:
    """Return the head in this file, ready to draft for a target; read once per target and file.

    Raises `CapabilityError` for a head that was made for another model, `ModelError` for a file that is no head.
    """
    return head_in(path, target, lambda weights, name: fitted(target, weights, name))


def shipped_head(target: CpuTarget) -> Path | None:
    """Return the head that comes with draftwood for this target; None where there is none."""
    return shipped(fingerprint(target))


def fitted(target: CpuTarget, weights: HeadWeights, name: str = "this head") -> CpuHead:
    """Return a head for a target; raises `CapabilityError` where it was made for another model."""
    model, shape = target.model, target.model.weights.shape
    sizes = (shape.width, shape.vocabulary, shape.layers)
    layers = check_fit(name, weights, sizes, target.capabilities.hidden, fingerprint(target))
    packed = PackedHead(weights, model.weights, model.kernels)
    ids = weights.ids().astype(np.int32)
    return CpuHead(packed, model.kernels, model.threads, ids, layers, target.capabilities)


def fingerprint(target: CpuTarget) -> str:
    """Return the fingerprint of a target's weights, the same as of the model of transformers made of its file."""
    weights = target.model.weights
    rows = fingerprint_rows(weights.shape.vocabulary)
    return fingerprint_of(bfloat16_bits(weights.floats(weights.embedding, rows)))
