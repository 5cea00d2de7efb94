"""The one list of drafters: it feeds every contract test and every law.

A new drafter gets its entry here. Each entry makes a set of drafters for a toy target and the sampling settings of
the request (toys that know the target need both).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from draftwood.contracts import Drafter, Sampling
from draftwood.drafters.cascade.drafter import CascadeDrafter
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.draft_model.drafter import DraftModelDrafter, EarlyExitDrafter, QuantizedSelfDrafter
from draftwood.drafters.head.drafter import HeadDrafter, MtpDrafter
from draftwood.drafters.load import load
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.memory.memory import Memory
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.drafters.parrot.drafter import ParrotDrafter
from draftwood.drafters.prediction.drafter import PredictionDrafter
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from tests.toy_head import ToyHead
from tests.toys import (
    DuplicatingDrafter,
    EmptyDrafter,
    HugeDrafter,
    InvalidDrafter,
    LyingDrafter,
    ModelDrafter,
    RaisingDrafter,
    RandomDrafter,
    SameDrafter,
    SlowDrafter,
    TopKDrafter,
    WindowDrafter,
    WrongDrafter,
)

Make = Callable[[ToyTarget, Sampling], Sequence[Drafter]]


def _twin(target: ToyTarget, **changes: int) -> ToyTarget:
    """Another target, with a cache of its own, for a drafter that owns one."""
    same = {"vocab_size": target.vocab_size, "order": target.order, "seed": target.seed}
    return ToyTarget(**(same | changes), sharpness=target.sharpness)  # type: ignore[arg-type]


def _cascade(target: ToyTarget, drafters: str, **changes: int) -> Drafter:
    """A draft model with drafters; the planner is one that goes by no clock."""
    return CascadeDrafter(target=_twin(target, **changes), drafters=load(drafters), planner=FixedPlanner(4))


def _corpus(target: ToyTarget, seed: int) -> Corpus:
    rng = np.random.default_rng(seed)
    return Corpus.of([rng.integers(target.vocab_size, size=n) for n in (1, 40, 90)])


def _expected(target: ToyTarget) -> tuple[tuple[int, ...], ...]:
    """What the target might answer to some prompt, and another text."""
    text = [1, 2]
    twin = _twin(target)
    ((session, scores),) = twin.open([text])
    for _ in range(60):
        text.append(scores.argmax(0))
        (scores,) = twin.extend([(session, text[-1:])])
    return tuple(text), tuple(np.random.default_rng(7).integers(target.vocab_size, size=50).tolist())


def _memory(target: ToyTarget) -> Memory:
    """Answers of other requests, and so few tokens that each session's answer drives some of them out."""
    memory, rng = Memory(150), np.random.default_rng(7)
    for length in (2, 40, 90):
        memory.add(rng.integers(target.vocab_size, size=length))
    return memory


SHIPPED: Mapping[str, Make] = {
    "ngram": lambda *_: load("ngram"),
    "lookup": lambda *_: load("lookup"),
    "ngram-cache": lambda *_: load("ngram-cache"),
    "ngram-simple": lambda *_: load("ngram-simple:size_n=2:size_m=6"),
    "ngram-map-k": lambda *_: load("ngram-map-k:size_n=2:size_m=6"),
    "ngram-map-k4v": lambda *_: load("ngram-map-k4v:size_n=1:size_m=6"),
    "ngram-mod": lambda *_: load("ngram-mod"),
    "prediction": lambda target, *_: [PredictionDrafter(texts=_expected(target))],
    "parrot": lambda target, *_: [ParrotDrafter(p=0.2, context=_expected(target)[1])],
    "memory": lambda target, *_: [MemoryDrafter(memory=_memory(target))],
    "corpus": lambda target, *_: [CorpusDrafter(corpora=(_corpus(target, 5), _corpus(target, 6)))],
    "jacobi": lambda *_: load("jacobi:block=6"),
    "recycling": lambda *_: load("recycling"),
    "logits-extend": lambda *_: load("logits-extend"),
    "draft-model": lambda target, *_: [DraftModelDrafter(target=_twin(target))],
    "early-exit": lambda target, *_: [EarlyExitDrafter(target=_twin(target))],
    "quantized-self": lambda target, *_: [QuantizedSelfDrafter(target=_twin(target, order=1))],
    "head": lambda target, *_: (
        [HeadDrafter(target=ToyHead(_twin(target, order=2)))] if target.capabilities.hidden else []
    ),
    "mtp": lambda target, *_: (
        [MtpDrafter(target=ToyHead(_twin(target, order=2)))] if target.capabilities.hidden else []
    ),
    "lookahead": lambda target, *_: load("lookahead:window=4:ngram=3:vocabulary=3") if target.trees else [],
}
"""The drafters that come with draftwood, by their names."""

TOYS: Mapping[str, Make] = {
    "empty": lambda *_: [EmptyDrafter()],
    "same": lambda target, sampling: [SameDrafter(target, sampling)],
    "wrong": lambda target, sampling: [WrongDrafter(target, sampling)],
    "random": lambda target, *_: [RandomDrafter(target.vocab_size, seed=3)],
    "lying": lambda target, *_: [LyingDrafter(target.vocab_size)],
    "slow": lambda target, *_: [SlowDrafter(target.vocab_size, seconds=1e-5)],
    "probing": lambda target, sampling: [WindowDrafter(target, sampling)],
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
        for kind in ("ids", "negative", "parents", "belief", "evidence", "type")
    },
}
"""Toys that break the contract and are off for the rest of the request."""

COMBINED: Mapping[str, Make] = {
    "ngram without frequent tokens+ngram": lambda *_: load("ngram:frequent=0+ngram"),
    "ngram+lookup": lambda *_: load("ngram:frequent=3+lookup"),
    "ngram with context+lookup": lambda *_: [NgramDrafter(context=((1, 2, 3, 4), (), (5, 1, 2))), *load("lookup")],
    "ngram-mod of short n-grams+lookup": lambda *_: load("ngram-mod:n_match=2:n_min=0+lookup"),
    "llama.cpp copiers": lambda *_: load(
        "ngram-simple:size_n=1:size_m=3+ngram-map-k:size_n=1:size_m=3+ngram-map-k4v:size_n=1:size_m=3"
    ),
    "ngram-mod+ngram": lambda *_: load("ngram-mod:n_match=1:n_min=2+ngram"),
    "previous jacobi+logits-extend+ngram": lambda *_: load(
        "jacobi:block=4:start=previous+logits-extend:roots=3+ngram"
    ),
    "copy-and-recycle": lambda *_: load("copy-and-recycle"),
    "all of the model's own passes": lambda target, *_: load(
        "ngram+logits-extend+jacobi:block=4+recycling"
        + ("+lookahead:window=3:ngram=3:vocabulary=3" if target.trees else "")
    ),
    "recycling that keeps+ngram+logits-extend": lambda *_: load("recycling:keep=true+ngram+logits-extend"),
    "random+ngram": lambda target, *_: [RandomDrafter(target.vocab_size), *load("ngram")],
    "wrong+same": lambda target, sampling: [WrongDrafter(target, sampling), SameDrafter(target, sampling)],
    "lookahead as in llama.cpp+of two tokens": lambda target, *_: (
        load("lookahead:window=3:ngram=4:variant=llama.cpp+lookahead:window=2:ngram=2")
        if target.trees
        else load("lookup+ngram")
    ),
    "probing+same+top-k": lambda target, sampling: [
        WindowDrafter(target, sampling),
        SameDrafter(target, sampling),
        TopKDrafter(),
    ],
    "model of another mind+ngram": lambda target, *_: [
        ModelDrafter(_twin(target, seed=target.seed + 1)),
        *load("ngram"),
    ],
    "draft-model that reads chains+draft-model of another mind": lambda target, *_: [
        DraftModelDrafter(target=ToyTarget(target.vocab_size, order=target.order, trees=False)),
        DraftModelDrafter(target=_twin(target, order=1, seed=9), length=3),
    ],
    "ngram+draft-model+recycling": lambda target, *_: [
        *load("ngram"),
        DraftModelDrafter(target=_twin(target, order=1)),
        *load("recycling"),
    ],
    "ngram+quantized-self": lambda target, *_: [
        *load("ngram"),
        QuantizedSelfDrafter(target=_twin(target, order=1)),
    ],
    "draft-model with drafters+ngram": lambda target, *_: [_cascade(target, "ngram"), *load("ngram")],
    "cascade of three models+ngram": lambda target, *_: [
        CascadeDrafter(
            target=_twin(target),
            drafters=(_cascade(target, "recycling", order=1),),
            planner=FixedPlanner(3),
            length=5,
        ),
        *load("ngram"),
    ],
    "cascades whose drafters are wrong, raise, and break the contract": lambda target, sampling: [
        CascadeDrafter(
            target=_twin(target), drafters=(WrongDrafter(_twin(target), sampling),), planner=FixedPlanner(4)
        ),
        CascadeDrafter(
            target=_twin(target), drafters=(RaisingDrafter(), InvalidDrafter()), planner=FixedPlanner(4), length=3
        ),
        CascadeDrafter(
            target=ToyTarget(target.vocab_size, trees=False), drafters=(RandomDrafter(target.vocab_size),)
        ),
    ],
    "raising+invalid+same": lambda target, sampling: [
        RaisingDrafter(),
        InvalidDrafter(),
        SameDrafter(target, sampling),
    ],
}

WELL_BEHAVED: Mapping[str, Make] = {**SHIPPED, **TOYS}
EVERY: Mapping[str, Make] = {**WELL_BEHAVED, **GREEDIER_THAN_ASKED, **BROKEN, **COMBINED}

THREE_TOYS = ("random", "same", "probing+same+top-k")
"""Sets that between them give every kind of tree: mostly wrong with branches, all right, with lookahead nodes."""


def with_settings(settings: Iterable[str], usual: str, sets: Iterable[str] = EVERY) -> list[tuple[str, str]]:
    """Every set with the usual setting, and every other setting with three toys; for ``parametrize``.

    The rule, the loop and the target see trees and never who proposed them, so what holds for a setting with trees
    of every kind holds with all drafters. Each drafter still runs once, for what it does of its own.
    """
    return [
        *((drafters, usual) for drafters in sets),
        *((drafters, setting) for setting in settings if setting != usual for drafters in THREE_TOYS),
    ]


SCORED = frozenset(
    name
    for name, make in WELL_BEHAVED.items()
    if any(d.needs.top_k or d.needs.hidden for d in make(ToyTarget(), Sampling()))
)
"""Drafters that learn from scores or hidden states, which are in no text."""

ANSWERING = frozenset({"prediction", "parrot", "ngram-map-k", "ngram-map-k4v"})
"""Drafters that tell the answer from its prompt, or keep what was accepted: that is nowhere in the text."""

SHARING = frozenset(
    {
        "memory",
        "ngram-mod",
        "ngram-mod of short n-grams+lookup",
        "ngram-mod+ngram",
        "recycling that keeps+ngram+logits-extend",
    }
)
"""Sets whose requests learn from each other while they are written: their steps depend on what else was read, the
text on the target alone."""
