"""The one list of drafters: it feeds every contract test and every law.

A new drafter gets its entry here. Each entry makes a set of drafters for a toy target and the sampling settings of
the request (toys that know the target need both).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from draftwood.contracts import Drafter, Sampling
from draftwood.drafters.load import load
from draftwood.testing import (
    DuplicatingDrafter,
    EmptyDrafter,
    HugeDrafter,
    InvalidDrafter,
    LyingDrafter,
    ModelDrafter,
    ProbingDrafter,
    RaisingDrafter,
    RandomDrafter,
    SameDrafter,
    SlowDrafter,
    TopKDrafter,
    ToyTarget,
    WrongDrafter,
)

Make = Callable[[ToyTarget, Sampling], Sequence[Drafter]]


def _twin(target: ToyTarget, **changes: int) -> ToyTarget:
    """Another target, with a cache of its own, for a drafter that owns one."""
    same = {"vocab_size": target.vocab_size, "order": target.order, "seed": target.seed}
    return ToyTarget(**(same | changes), sharpness=target.sharpness)  # type: ignore[arg-type]


SHIPPED: Mapping[str, Make] = {
    "suffix": lambda *_: load("suffix"),
    "lookup": lambda *_: load("lookup"),
}
"""The drafters that come with draftwood, by their names."""

TOYS: Mapping[str, Make] = {
    "empty": lambda *_: [EmptyDrafter()],
    "same": lambda target, sampling: [SameDrafter(target, sampling)],
    "wrong": lambda target, sampling: [WrongDrafter(target, sampling)],
    "random": lambda target, *_: [RandomDrafter(target.vocab_size, seed=3)],
    "lying": lambda target, *_: [LyingDrafter(target.vocab_size)],
    "slow": lambda target, *_: [SlowDrafter(target.vocab_size, seconds=1e-5)],
    "probing": lambda target, sampling: [ProbingDrafter(target, sampling)],
    "top-k": lambda *_: [TopKDrafter(k=2)],
    "model": lambda target, *_: [ModelDrafter(_twin(target))],
}
"""Toys that keep the contract, however badly they guess."""

GREEDIER_THAN_ASKED: Mapping[str, Make] = {
    "duplicating": lambda target, *_: [DuplicatingDrafter(target.vocab_size)],
    "huge": lambda target, *_: [HugeDrafter(target.vocab_size, size=200)],
}
"""Toys that propose more than they were asked for; the planner cuts it."""

BROKEN: Mapping[str, Make] = {
    **{
        f"raising in {where}": lambda *_, where=where: [RaisingDrafter(where)]  # type: ignore[misc]
        for where in ("open", "draft", "learn", "extend", "close")
    },
    **{
        f"invalid {kind}": lambda *_, kind=kind: [InvalidDrafter(kind)]  # type: ignore[misc]
        for kind in ("ids", "negative", "parents", "belief", "type")
    },
}
"""Toys that break the contract and are off for the rest of the request."""

COMBINED: Mapping[str, Make] = {
    "suffix+lookup": lambda *_: load("suffix+lookup"),
    "random+suffix": lambda target, *_: [RandomDrafter(target.vocab_size), *load("suffix")],
    "wrong+same": lambda target, sampling: [WrongDrafter(target, sampling), SameDrafter(target, sampling)],
    "probing+same+top-k": lambda target, sampling: [
        ProbingDrafter(target, sampling),
        SameDrafter(target, sampling),
        TopKDrafter(),
    ],
    "model of another mind+suffix": lambda target, *_: [
        ModelDrafter(_twin(target, seed=target.seed + 1)),
        *load("suffix"),
    ],
    "raising+invalid+same": lambda target, sampling: [
        RaisingDrafter(),
        InvalidDrafter(),
        SameDrafter(target, sampling),
    ],
}

WELL_BEHAVED: Mapping[str, Make] = {**SHIPPED, **TOYS}
EVERY: Mapping[str, Make] = {**WELL_BEHAVED, **GREEDIER_THAN_ASKED, **BROKEN, **COMBINED}
