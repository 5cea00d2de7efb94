"""The draft model for programs that use llama-cpp-python."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from draftwood.api.checks import check_tokenizer_kind, check_whole
from draftwood.api.draft_models import DraftModels, with_models
from draftwood.api.setup import DrafterSpec
from draftwood.api.user_texts import (
    CorpusGiven,
    MemoryGiven,
    Prediction,
    Text,
    UserTexts,
    check_tokenizer,
    predicting,
    read_texts,
    saving,
    several,
)
from draftwood.contracts import Capabilities, Drafter, Planner
from draftwood.contracts.declaring import refuse_mismatch
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.llama_cpp.plugin import CallerTokenizer, FollowedText, Tokens, calling, check, cuts, room
from draftwood.engines.replay import MAX_ID
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.planning.load import load as load_planner
from draftwood.rates import Rates

log = logging.getLogger("draftwood")


class LlamaDraftModel:
    """Drafts for llama-cpp-python: ``Llama(path, logits_all=True, draft_model=draftwood.LlamaDraftModel())``.

    llama-cpp-python checks the drafts, with its own sampler. Its passes over several tokens round differently from
    passes over one, so where two tokens are almost equally likely the text may change. The planner learns from how
    the text grows, and how fast. Only the latest request is kept, and a call that continues its text belongs to
    it: make one object for each `Llama`.

    Parameters
    ----------
    drafters, planner
        As in `generate`; drafters that need more of a model than its tokens are refused.
    max_tokens
        Most tokens of a draft.
    prediction
        The text that is expected, or its token ids, or several of these. As an attribute it may be set before each
        answer; it holds until it is set again.
    memory, corpus, context
        As in `generate`. A memory file is saved when the next request begins, and by `close`.
    tokenizer
        Turns these texts into token ids; by default that of the `Llama`.

    Raises
    ------
    UnknownNameError, UsageError, CapabilityError, FileFormatError, VocabularyError
        For wrong arguments at once; for what only the `Llama` shows (no ``logits_all=True``, another tokenizer,
        unknown token ids) when it asks for the first draft.
    """

    def __init__(
        self, drafters: DrafterSpec = "default", planner: str | Planner = DEFAULT_PLANNER, *, max_tokens: int = 16,
        prediction: Prediction | None = None, memory: MemoryGiven | None = None,
        corpus: CorpusGiven | Sequence[CorpusGiven] | None = None, context: Text | Sequence[Text] | None = None,
        tokenizer: Any = None,
    ) -> None:  # fmt: skip
        check_tokenizer_kind(tokenizer)
        self._max_tokens = check_whole("max_tokens", max_tokens)
        texts = UserTexts(None, memory, corpus, context)
        self._chosen = texts.complete(load_drafters(drafters))
        refuse_mismatch(self._capabilities(None), self._chosen)
        _check_ids(context, "context")
        self._texts = texts.opened(self._chosen)
        self._memory = texts.to_save(self._texts)
        self._planner, self._tokenizer = planner, tokenizer
        if tokenizer is not None:
            check_tokenizer(self._texts.bind(self._chosen, tokenizer, None), tokenizer)
        self._lock = Lock()
        # What depends on the calling `Llama`, to which this is a weak reference: drafters, without the prediction.
        self._llama: Callable[[], Any] | None = None
        self._bound: tuple[Drafter, ...] = ()
        self._can, self._spells, self._plans = self._capabilities(None), tokenizer, load_planner(planner)
        self._drafters: tuple[Drafter, ...] | None = None  # with the prediction
        self._text: FollowedText | None = None
        self.prediction = prediction

    @property
    def prediction(self) -> Prediction | None:
        return self._prediction

    @prediction.setter
    def prediction(self, given: Prediction | None) -> None:
        UserTexts(given).complete(self._chosen)  # refuses it together with 'none'
        _check_ids(given, "prediction")
        with self._lock:
            self._end()
            self._prediction, self._drafters = given, None

    @property
    def stats(self) -> Rates:
        """Acceptance rates of the latest request, but for its last pass, of which we are not told the outcome."""
        text = self._text
        return Rates.of([] if text is None else text.steps)

    def close(self) -> None:
        """End the latest request: what was written is remembered and saved. Another request may follow."""
        with self._lock:
            self._end()

    def __call__(self, input_ids: Tokens, /, **_: Any) -> Tokens:
        """Return the tokens that may follow these, at most ``max_tokens``, possibly none."""
        ids = np.asarray(input_ids, dtype=np.intc)
        with self._lock:
            drafters = self._ready(calling())
            if not drafters or not len(ids):
                return np.empty(0, dtype=np.intc)
            new = None if self._text is None else self._text.new_tokens(ids)
            if self._text is None or new is None:
                self._end()
                self._text = FollowedText(ids, drafters, self._plans.open(), self._can)
            else:
                self._text.learn(new)
            return self._text.draft()

    def _ready(self, llama: Any) -> tuple[Drafter, ...]:
        """Return the drafters for this caller and the present prediction."""
        if self._llama is None or self._llama() is not llama:
            self._end()
            self._llama = self._drafters = None
            self._meet(llama)
            self._llama = (lambda: None) if llama is None else weakref.ref(llama)
        if self._drafters is None:
            wanted = UserTexts(self._prediction).complete(self._bound) if self._bound else ()
            self._drafters = predicting(wanted, self._prediction, self._spells, self._can.vocab_size)
        return self._drafters

    def _meet(self, llama: Any) -> None:
        """Get ready for a new caller (None: one that is no `Llama`), refusing one that cannot draft."""
        self._can, self._spells, self._plans = (
            self._capabilities(llama),
            self._tokenizer,
            load_planner(self._planner),
        )
        if llama is not None:
            check(llama)
            self._spells = self._spells or CallerTokenizer(llama)
        drafters = self._texts.bind(self._chosen, self._spells, self._can.vocab_size)
        self._bound = with_models(drafters, DraftModels(tokenizer=self._spells))
        check_tokenizer(self._bound, self._spells)
        if llama is not None and not cuts(llama):
            log.warning("llama-cpp-python cannot take tokens back from a recurrent model: no drafts are made")
            self._bound = ()

    def _capabilities(self, llama: Any) -> Capabilities:
        size, longest = (MAX_ID, 1 << 30) if llama is None else (llama.n_vocab(), room(llama))
        return Capabilities(size, longest, trees=False, top_k=False, max_pass=1 + self._max_tokens)

    def _end(self) -> None:
        """Let go of the latest request."""
        text, self._text = self._text, None
        if text is not None:
            with saving(self._memory):
                text.close()


def _check_ids(given: Any, what: str) -> None:
    """Raise `UsageError` for what is neither text nor token ids; whether the vocabulary has them is seen later."""
    if given is not None:
        read_texts([one for one in several(given, what) if not isinstance(one, str)], what, None, None)
