"""What `drafting.py` times: every drafter of the project, and other projects' proposers, behind the same calls."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from drafting_peers import ArcticSession, ArcticSuffix, Drawn, Peer, VllmNgram, chain
from numpy.typing import NDArray

from draftwood.contracts import Drafter, Feedback
from draftwood.corpora.suffix_array import suffix_array
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.corpus.file import BORDER, Documents, Part
from draftwood.drafters.load import DRAFTERS, load
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.memory.memory import Memory
from draftwood.drafters.prediction.drafter import PredictionDrafter
from draftwood.testing import EmptyDrafter
from draftwood.tree import TokenTree

Ints = NDArray[np.int32]

PIECE = 500  # tokens of a document or an answer
BEFORE = 64  # tokens of prompt where the text lies elsewhere
CHANGED = 20  # one token of so many is another one in a prediction


@dataclass(frozen=True)
class Shape:
    """How much is asked for. A chain is what a target without trees gets: the likeliest path of a tree."""

    name: str
    nodes: int
    tree: bool


SHAPES = (Shape("chain 16", 16, False), Shape("tree 16", 16, True), Shape("tree 64", 64, True))


class OurRun:
    """A session of ours, and how it is told what a pass gave."""

    def __init__(self, drafter: Drafter, prompt: list[int]) -> None:
        self.drafter, self._accept_rates = drafter, drafter.prior
        self._session = drafter.open(prompt, None)
        self._tree = TokenTree.empty()
        self.prepare(prompt[:1])

    def draft(self, shape: Shape) -> Any:
        tree = self._tree = self._session.draft(shape.nodes, 0, self._accept_rates)
        return tree if shape.tree or tree.is_chain else tree.best_chain()

    def drawn(self, shape: Shape, found: Any) -> Drawn:  # noqa: ARG002
        tree = found if isinstance(found, TokenTree) else self._tree.take(found)
        return tree.tokens.tolist(), tree.parents.tolist()

    def prepare(self, emitted: list[int]) -> None:
        """Make, untimed, what the loop would tell after the last draft."""
        self._lesson = _lesson(self._tree, emitted)

    def learn(self) -> None:
        self._session.learn(self._lesson)

    @property
    def nbytes(self) -> int:
        return held(self._session, self.drafter)

    def close(self) -> None:
        self._session.close()


class TheirRun:
    """A session of a peer."""

    def __init__(self, peer: Peer, ids: Ints, beside: TheirRun | None = None) -> None:
        self.peer, shared = peer, beside._session if beside else None
        if isinstance(peer, ArcticSuffix) and isinstance(shared, ArcticSession):
            self._session: Any = peer.open_beside(shared, ids)
        else:
            self._session = peer.open(ids, SHAPES[0].nodes)
        self._emitted = [0]

    def draft(self, shape: Shape) -> Any:
        if isinstance(self._session, ArcticSession):
            return self._session.draft(shape.nodes, tree=shape.tree)
        return self._session.draft(shape.nodes)

    def drawn(self, shape: Shape, found: Any) -> Drawn:  # noqa: ARG002
        return self._session.drawn(found)

    def prepare(self, emitted: list[int]) -> None:
        self._emitted = emitted

    def learn(self) -> None:
        self._session.learn(self._emitted)

    @property
    def nbytes(self) -> int:
        return self._session.nbytes

    def close(self) -> None:
        pass


Run = OurRun | TheirRun
Start = Callable[[Ints, int, int], tuple[Callable[[], Run], int]]


@dataclass(frozen=True)
class Arm:
    """One line of the tables.

    Attributes
    ----------
    name, version
        Who drafts.
    shapes
        What it can be asked for.
    start
        (text, place, size) -> a function that reads ``size`` tokens and gives the session, timed; and where in the
        text the answer goes on.
    """

    name: str
    version: str | None
    shapes: tuple[Shape, ...]
    start: Start

    def beside(self, first: Run, text: Ints, place: int, size: int) -> Run:
        """Return another session at another place, which shares with the first what requests share."""
        if isinstance(first, TheirRun):
            return TheirRun(first.peer, text[place : place + size], first)
        if self.name == "prediction":
            return self.start(text, place, size)[0]()
        if self.name in _BOUND:
            place, size = place + size, BEFORE
        return OurRun(first.drafter, text[place : place + size].tolist())


def our_arms() -> list[Arm]:
    own = [name for name, make in DRAFTERS.items() if not hasattr(make, "with_models")]  # whose time is our own
    names = [*own, *(name for name in _BOUND if name not in DRAFTERS)]
    nothing = Arm("nothing", None, SHAPES, lambda text, place, size: (_nothing(text, place), place + size))
    return [nothing] + [Arm(name, None, SHAPES, _BOUND.get(name) or _plain(name)) for name in names]


def their_arm(peer: Peer) -> Arm:
    def start(text: Ints, place: int, size: int) -> tuple[Callable[[], Run], int]:
        return lambda: TheirRun(peer, text[place : place + size]), place + size

    return Arm(peer.name, peer.version, SHAPES if peer.trees else SHAPES[:1], start)


def vllm_batch(peer: VllmNgram, texts: Sequence[Ints]) -> Any:
    return peer.open_batch(texts, SHAPES[0].nodes)


def _nothing(text: Ints, place: int) -> Callable[[], Run]:
    """What the calls themselves take: a drafter that proposes nothing."""
    return lambda: OurRun(EmptyDrafter(), text[place : place + 1].tolist())


def _plain(name: str) -> Start:
    def start(text: Ints, place: int, size: int) -> tuple[Callable[[], Run], int]:
        (drafter,), prompt = load(name), text[place : place + size].tolist()
        return lambda: OurRun(drafter, prompt), place + size

    return start


def _memory(text: Ints, place: int, size: int) -> tuple[Callable[[], Run], int]:
    def make() -> Run:
        memory = Memory(max(size, 1))
        for at in range(place, place + size, PIECE):
            memory.add(text[at : min(at + PIECE, place + size)])
        return OurRun(MemoryDrafter(memory=memory), text[place + size : place + size + BEFORE].tolist())

    return make, place + size + BEFORE


def _corpus(text: Ints, place: int, size: int) -> tuple[Callable[[], Run], int]:
    def make() -> Run:
        tokens = text[place : place + size].copy()
        tokens[PIECE - 1 :: PIECE] = BORDER
        tokens[-1] = BORDER
        starts = [0, *(np.flatnonzero(tokens == BORDER)[:-1] + 1).tolist()]
        table = Documents.listed([str(i) for i in range(len(starts))], starts)
        corpus = Corpus((Part(tokens, suffix_array(tokens)),), table)
        return OurRun(CorpusDrafter(corpora=(corpus,)), text[place + size : place + size + BEFORE].tolist())

    return make, place + size + BEFORE


def _prediction(text: Ints, place: int, size: int) -> tuple[Callable[[], Run], int]:
    """The answer is the predicted text from its middle on, which the prediction has with changes."""
    expected = text[place : place + size].copy()
    expected[::CHANGED] = text[place + 1 : place + 1 + size : CHANGED]

    def make() -> Run:
        return OurRun(PredictionDrafter(texts=(tuple(expected.tolist()),)), text[place : place + BEFORE].tolist())

    return make, place + size // 2


_BOUND = {"prediction": _prediction, "memory": _memory, "corpus": _corpus}


def accepted(tokens: Sequence[int], parents: Sequence[int], truth: Sequence[int]) -> dict[int, int]:
    """Return which nodes of a tree are on the path of the true text, and at which depth from 0."""
    found: dict[int, int] = {}
    depth = {-1: -1}
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        below = depth.get(parent, len(truth)) + 1
        if below < len(truth) and token == truth[below] and below not in found.values():
            found[node] = depth[node] = below
    return found


def _lesson(proposal: TokenTree, emitted: list[int]) -> Feedback:
    """A pass that accepted all but the last of these tokens, whoever proposed them; the rest was pruned."""
    path = TokenTree.build(*chain(emitted[:-1]))
    node_map = np.full(len(proposal), -1, dtype=np.int32)
    for node, row in accepted(proposal.tokens.tolist(), proposal.parents.tolist(), emitted[:-1]).items():
        node_map[node] = row
    choice = np.array(emitted, dtype=np.int32)
    return Feedback(path, proposal, node_map, tuple(range(len(path))), tuple(emitted), choice)


def held(*roots: Any) -> int:
    """Return the bytes of all arrays and containers that draftwood's objects among these hold, each once."""
    total, seen, todo = 0, set(), list(roots)
    while todo:
        one = todo.pop()
        while isinstance(one, np.ndarray) and isinstance(one.base, np.ndarray):
            one = one.base
        if id(one) in seen or isinstance(one, type | types.ModuleType | types.FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            total += one.nbytes
        elif isinstance(one, dict):
            total += one.__sizeof__()
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            total += one.__sizeof__()
            if not all(type(each) is int for each in one):
                todo += one
        elif type(one).__module__.startswith("draftwood"):
            slots = [s for kind in type(one).__mro__ for s in getattr(kind, "__slots__", ())]
            todo += [getattr(one, slot) for slot in slots if hasattr(one, slot)]
            todo += vars(one).values() if hasattr(one, "__dict__") else []
    return total
