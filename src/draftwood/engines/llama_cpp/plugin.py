"""Drafts inside llama-cpp-python, which reads the text and checks the drafts itself."""

from __future__ import annotations

import sys
import weakref
from array import array
from collections.abc import Sequence
from functools import cached_property, partial
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Capabilities, Declaration, Drafter, Plan, PlannerSession, Sampling, Verdict
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.feedback import feedback, record
from draftwood.decoding.propose import propose
from draftwood.engines.llama_cpp.tokenizer import UNUSED, run_deep
from draftwood.engines.replay import ReplayScores
from draftwood.engines.tokens.file_tokenizer import known_tokens, utf8
from draftwood.errors import CapabilityError
from draftwood.step import SourceStep, Step


def calling() -> Any:
    """Return the `Llama` whose ``generate`` is asking for a draft, by its frame; None if something else is.

    A draft model is told the ids alone, and must know the vocabulary, and whether drafts can work, too.
    """
    kind = getattr(sys.modules.get("llama_cpp"), "Llama", None)
    code = getattr(getattr(kind, "generate", None), "__code__", None)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("self")


def room(llama: Any) -> int:
    """Return how many tokens a text can have; the context is rounded up, the object's own buffer is not."""
    return min(llama.n_ctx(), len(llama.input_ids))


def check(llama: Any) -> None:
    """Raise `CapabilityError` for a `Llama` that fails, or reads wrong scores, as soon as it drafts.

    It has room for the scores of one batch only, or got its draft model later and computes the last token's alone.
    """
    if len(llama.scores) < room(llama) or not getattr(llama, "_logits_all", True):
        raise CapabilityError(
            "this Llama does not keep the scores of all tokens, and fails at drafts: make it with "
            "Llama(..., logits_all=True, draft_model=...)"
        )


def cuts(llama: Any) -> bool:
    """Return whether rejected tokens can be taken back; recurrent models keep them without notice."""
    return not (getattr(llama, "_is_recurrent", False) or getattr(llama, "_is_hybrid", False))


class CallerTokenizer:
    """The tokenizer of a `Llama`, which it does not keep alive, under the names of transformers' tokenizers."""

    def __init__(self, llama: Any) -> None:
        self._llama = weakref.proxy(llama)

    def __call__(self, text: str, *, add_special_tokens: bool = False) -> dict[str, list[int]]:
        ask = partial(self._llama.tokenize, utf8(text), add_bos=add_special_tokens, special=True)
        return {"input_ids": run_deep(text, ask)}

    def __len__(self) -> int:
        return len(self._vocabulary)

    def get_vocab(self) -> dict[str, int]:
        return dict(self._vocabulary)

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        says, size = sys.modules["llama_cpp"], self._llama.n_vocab()
        given = says.llama_model_get_vocab(self._llama.model)
        names = [says.llama_vocab_get_text(given, token).decode(errors="replace") for token in range(size)]
        known = known_tokens(
            size, names.__getitem__, lambda token: bool(says.llama_vocab_get_attr(given, token) & UNUSED)
        )
        return {name: token for token, name in enumerate(names[:known])}


Tokens = NDArray[np.intc]


class FollowedText:
    """One request, with the text so far (``ids``) and one record per draft whose outcome is known (``steps``).

    It fulfils `contracts.State`, which is all that a planner sees of it. Each draft is followed by its accepted
    tokens and one more, or by another text. The time until then is taken for that of the pass: it holds the other
    program's work on the tokens, too.
    """

    greedy = False  # unknown; acceptance rates are learnt anyway
    traced = False

    def __init__(
        self, ids: Tokens, drafters: Sequence[Drafter], planner: PlannerSession, capabilities: Capabilities
    ) -> None:
        """Begin with a prompt and the first token of its answer."""
        self.ids = array("i", ids.tobytes())
        self.capabilities, self._planner = capabilities, planner
        self.steps: list[Step] = []
        self.step = Step(0, len(self.ids))
        self._plan: Plan | None = None
        self._drafted: list[int] = []
        self._since = 0.0
        self._sources = [DraftSource(drafter) for drafter in drafters]
        for source in self._sources:
            source.open(ids[:-1].tolist(), None)
            source.begin_answer(ids[-1:].tolist())

    @property
    def drafters(self) -> list[Declaration | None]:
        return [source.seat for source in self._sources]

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def remaining(self) -> int:
        return max(1, self.capabilities.max_positions - len(self.ids))

    def new_tokens(self, ids: Tokens) -> list[int] | None:
        """Return what ``ids`` adds to this text, or None where they are not what may follow the last draft."""
        known = len(self.ids)
        new: list[int] = ids[known : known + len(self._drafted) + 2].tolist()
        if not new or new[:-1] != self._drafted[: len(new) - 1]:
            return None
        return new if np.array_equal(np.frombuffer(self.ids, dtype=np.intc), ids[:known]) else None

    def draft(self) -> Tokens:
        """Return what may come next, possibly nothing."""
        started = perf_counter()
        (asks,) = self._planner.ask([self])
        asked = perf_counter()
        by_source = tuple(source.step for source in self._sources)
        self.step = Step(len(self.steps), len(self.ids), by_source=by_source)
        proposals = propose([self._sources], [asks], [self.capabilities.vocab_size])[0]
        drafted = perf_counter()
        (self._plan,) = self._planner.plan([self], [proposals])
        tokens = self._plan.tree.tokens.astype(np.intc)
        self._drafted = tokens.tolist()
        self._since = perf_counter()
        self.step.draft_s, self.step.plan_s = drafted - asked, asked - started + self._since - drafted
        return tokens

    def learn(self, new: Sequence[int]) -> None:
        """Take in the tokens that followed the last draft."""
        seen = perf_counter()
        step, plan = self.step, self._plan
        assert plan is not None, "learn() follows a draft()"
        step.score_s = seen - self._since
        verdict = Verdict(tuple(range(len(new) - 1)), tuple(new))
        lessons = feedback(
            self._sources, plan, verdict, ReplayScores(new, 0, plan.tree),
            context=step.context, sampling=Sampling(), noise=None,
        )  # fmt: skip
        for source, lesson in zip(self._sources, lessons, strict=True):
            source.learn(lesson)
        self.ids.extend(new)
        record(step, plan.tree, verdict)
        for source in self._sources:
            source.step = SourceStep()
        step.learn_s = perf_counter() - seen
        taught = perf_counter()
        self._planner.learn([self], [lessons])
        step.plan_s += perf_counter() - taught
        self.steps.append(step)

    def close(self) -> None:
        for source in self._sources:
            source.close()
