"""Toy drafters, right, wrong and broken: no drafter can change the text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftSession, Feedback, Floats, Needs, Noise, Sampling, Target
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.testing.targets import ToyTarget
from draftwood.tree import TokenTree
from draftwood.verify.sampling import choose


@dataclass(frozen=True)
class _Toy(BaseDrafter):
    """A drafter whose sessions ask it what to propose after a text; by default nothing."""

    name: ClassVar[str] = "toy"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        return _ToyDraftSession(prompt, self, noise)

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        return TokenTree.empty()


class _ToyDraftSession(TextSession):
    def __init__(self, prompt: Sequence[int], drafter: _Toy, noise: Noise | None) -> None:
        super().__init__(prompt)
        self._drafter, self._noise = drafter, noise

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        return self._drafter.propose(self.text, nodes, self._noise)


@dataclass(frozen=True)
class EmptyDrafter(_Toy):
    """Never proposes anything."""

    name: ClassVar[str] = "empty"


@dataclass(frozen=True)
class SameDrafter(_Toy):
    """Knows the target and reads the noise: every token is right."""

    target: ToyTarget
    sampling: Sampling = Sampling()  # noqa: RUF009  (frozen)
    name: ClassVar[str] = "same"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        so_far = text.tolist()
        for _ in range(nodes):
            so_far.append(self.choice(so_far, noise))
        return TokenTree.build(so_far[len(text) :])

    def choice(self, text: list[int], noise: Noise | None) -> int:
        """What the target takes after ``text`` (penalties and processors not counted)."""
        return choose(self.target.scores_after(text), self.sampling, noise, len(text))


@dataclass(frozen=True)
class WrongDrafter(SameDrafter):
    """Knows the target and proposes all other tokens, as a tree; every node is wrong."""

    name: ClassVar[str] = "wrong"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        right = self.choice(text.tolist(), noise)
        others = [t for t in range(self.target.vocab_size) if t != right][:nodes]
        return TokenTree.build(others, [-1] * len(others), belief=0.9)


@dataclass(frozen=True)
class RandomDrafter(_Toy):
    """A random tree of random tokens, siblings all different."""

    vocab_size: int = 8
    seed: int = 0
    name: ClassVar[str] = "random"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        rng = np.random.default_rng([self.seed, len(text)])
        found: dict[tuple[int, int], None] = {}  # (token, parent), in order
        for _ in range(nodes):
            token, parent = int(rng.integers(self.vocab_size)), int(rng.integers(-1, len(found)))
            found.setdefault((token, parent))
        tokens, parents = [token for token, _ in found], [parent for _, parent in found]
        return TokenTree.build(tokens, parents, belief=rng.random(len(tokens)))


@dataclass(frozen=True)
class DuplicatingDrafter(_Toy):
    """Proposes equal siblings at the root and below, which must be merged into one node."""

    vocab_size: int = 8
    name: ClassVar[str] = "duplicating"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        rng = np.random.default_rng(len(text))
        tokens = rng.integers(self.vocab_size, size=3 * nodes)
        parents = [-1] * nodes + list(range(nodes)) + list(range(nodes))
        return TokenTree.build(tokens, parents, belief=rng.random(3 * nodes))


@dataclass(frozen=True)
class HugeDrafter(_Toy):
    """Proposes thousands of nodes whatever it is asked for."""

    vocab_size: int = 8
    size: int = 3000
    name: ClassVar[str] = "huge"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        rng = np.random.default_rng(len(text))
        parents = [int(rng.integers(-1, max(1, i))) if i else -1 for i in range(self.size)]
        return TokenTree.build(rng.integers(self.vocab_size, size=self.size), parents, belief=0.5)


@dataclass(frozen=True)
class WindowDrafter(SameDrafter):
    """A right first node as a draft, and the right continuation as lookahead nodes, which must not be emitted."""

    name: ClassVar[str] = "probing"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        chain = super().propose(text, min(6, nodes), noise)
        return TokenTree.build(chain.tokens, lookahead=np.arange(len(chain)) > 0)


@dataclass(frozen=True)
class RaisingDrafter(_Toy):
    """Raises in the verb ``where``: open, draft, learn, extend or close."""

    where: str = "draft"
    name: ClassVar[str] = "raising"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        if self.where == "open":
            raise RuntimeError("this drafter raises in open()")
        return _RaisingSession(prompt, self, noise)

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        return TokenTree.build([0] * nodes)


class _RaisingSession(_ToyDraftSession):
    def __getattribute__(self, name: str) -> Any:
        # TextSession's constructor calls extend(), so raise only once the drafter is set.
        if name in ("draft", "learn", "extend", "close"):
            drafter = self.__dict__.get("_drafter")
            if drafter is not None and drafter.where == name:
                raise RuntimeError(f"this drafter raises in {name}()")
        return super().__getattribute__(name)


@dataclass(frozen=True)
class SlowDrafter(RandomDrafter):
    """Sleeps before it proposes."""

    seconds: float = 0.001
    name: ClassVar[str] = "slow"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        time.sleep(self.seconds)
        return super().propose(text, nodes, noise)


@dataclass(frozen=True)
class LyingDrafter(RandomDrafter):
    """Random tokens, each with a belief of 1."""

    name: ClassVar[str] = "lying"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        honest = super().propose(text, nodes, noise)
        return TokenTree.build(honest.tokens, honest.parents, belief=1.0)


@dataclass(frozen=True)
class InvalidDrafter(_Toy):
    """Proposes a tree that breaks the contract: ``kind`` is ids, negative, parents, belief, evidence or type."""

    kind: str = "ids"
    name: ClassVar[str] = "invalid"

    def propose(self, text: NDArray[np.int32], nodes: int, noise: Noise | None) -> TokenTree:
        if self.kind == "type":
            return None  # type: ignore[return-value]
        if self.kind == "parents":
            return TokenTree.build([0, 0], [1, 0])
        if self.kind == "belief":
            return TokenTree.build([0], belief=float("nan"))
        if self.kind == "evidence":
            return TokenTree.build([0], evidence=len(self.prior))
        return TokenTree.build([-1 if self.kind == "negative" else 1 << 30])


@dataclass(frozen=True)
class TopKDrafter(_Toy):
    """Needs top-k, and proposes the best tokens it last saw after the last token, on the path or off it."""

    k: int = 3
    name: ClassVar[str] = "top-k"

    @property
    def needs(self) -> Needs:
        return Needs(top_k=self.k, choice=True)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        return _TopKSession(prompt, self, noise)


class _TopKSession(_ToyDraftSession):
    def __init__(self, prompt: Sequence[int], drafter: TopKDrafter, noise: Noise | None) -> None:
        super().__init__(prompt, drafter, noise)
        self._after: dict[int, list[int]] = {}

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        known = self._after.get(int(self.text[-1]), [])[:nodes]
        return TokenTree.build(known, [-1] * len(known))

    def learn(self, feedback: Feedback) -> None:
        assert feedback.top_k is not None, "top-k was declared"
        row_tokens = [int(self.text[-1]), *feedback.tree.tokens.tolist()]
        for token, best in zip(row_tokens, feedback.top_k[0].tolist(), strict=True):
            self._after[token] = best
        super().learn(feedback)


@dataclass(frozen=True)
class ModelDrafter(BaseDrafter):
    """A draft model: drafts a greedy chain with a target of its own, whose cache follows the committed text."""

    model: Target
    name: ClassVar[str] = "model"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        return _ModelSession(self.model, prompt, noise)


class _ModelSession(TextSession):
    """Between steps the model's cache holds committed tokens only."""

    def __init__(self, model: Target, prompt: Sequence[int], noise: Noise | None) -> None:
        self._model, self._noise = model, noise
        ((self._cache, _),) = model.open([prompt])
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        committed = len(self.text)
        tokens: list[int] = []
        # Read what the last step emitted, at least the last committed token.
        self._cache.truncate(committed - 1)
        (scores,) = self._model.extend([(self._cache, self.text[self._cache.length :].tolist())])
        while len(tokens) < nodes:
            tokens.append(scores.argmax(0))
            (scores,) = self._model.score([(self._cache, tokens[-1], TokenTree.empty())])
            self._cache.keep(())
        self._cache.truncate(committed)  # drafts may be rejected
        return TokenTree.build(tokens)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._cache.truncate(length)

    def close(self) -> None:
        super().close()
        self._cache.close()
