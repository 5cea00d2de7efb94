"""Builds what decoding needs from what the user gave: target, drafters, planner, requests."""

from __future__ import annotations

import copy
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from typing import Any, Self

from draftwood.api.chat_template import turn_ends
from draftwood.api.checks import (
    CHAT_TEMPERATURE,
    NEW_TOKENS,
    check_model,
    check_tokenizer_kind,
    end_ids,
    fill_sampling,
    new_tokens,
    refuse_settings,
    stop_strings,
)
from draftwood.api.draft_models import DraftModels, with_models
from draftwood.api.generation import Generation
from draftwood.api.learned import fresh, learned
from draftwood.api.target import target_of
from draftwood.api.text import StopStrings
from draftwood.api.user_texts import UserTexts, check_tokenizer, predicting, saving
from draftwood.contracts import Capabilities, Drafter, Planner, Processor, Rule, Sampling
from draftwood.contracts.declaring import lacking, refuse_mismatch
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.tokens.file_tokenizer import decoder
from draftwood.errors import UnknownNameError, UsageError, VocabularyError
from draftwood.grammar.drafter import GrammarDrafter
from draftwood.grammar.follower import Follower
from draftwood.grammar.grammar import Grammar, as_grammar
from draftwood.grammar.later import Beginning, LaterFollower
from draftwood.grammar.processor import GrammarProcessor
from draftwood.grammar.vocabulary import vocabulary_of
from draftwood.index.compiling import importing
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.planning.load import load as load_planner
from draftwood.verify.load import DEFAULT as DEFAULT_RULE
from draftwood.verify.load import label
from draftwood.verify.load import load as load_rule
from draftwood.verify.sampling import check_sampling

DrafterSpec = str | Drafter | Sequence["str | Drafter"]

# Keywords of users: those that requests of one call share, and those of `Setup.request`.
_TEXTS = frozenset(f.name for f in fields(UserTexts))
_SHARED = frozenset({"tokenizer", "drafters", "planner", "rule"})
_SETTINGS = frozenset(
    {"max_new_tokens", "stop", "logits_processor", "grammar", "trace", *(f.name for f in fields(Sampling))}
)


class Setup:
    """What requests of one call share: model, tokenizer, target, drafters with the user's texts, planner, rule.

    The model is one of transformers, a `Target`, or a name that `draftwood.load` takes, which brings its
    tokenizer. Names and files are checked before a model is loaded. ``checked``: a tokenizer with more tokens than
    the model has is refused; inside of transformers' own ``generate`` the two have worked together already.
    """

    def __init__(
        self, model: Any, tokenizer: Any = None, drafters: DrafterSpec = "default",
        planner: str | Planner = DEFAULT_PLANNER, texts: UserTexts = UserTexts(),  # noqa: B008 - frozen
        rule: str | Rule = DEFAULT_RULE, checked: bool = True,
    ) -> None:  # fmt: skip
        self.texts = texts
        self.drafters = texts.complete(load_drafters(drafters))
        load_planner(planner)  # a wrong name raises before a model is loaded
        self.rule = load_rule(rule)
        opened = texts.opened(self.drafters)
        self._memory = texts.to_save(opened)
        if isinstance(model, str | os.PathLike):
            from draftwood.models.load import load

            model, known = load(model)
            tokenizer = tokenizer or known
        check_model(model)
        check_tokenizer_kind(tokenizer)
        self.model, self.tokenizer = model, tokenizer
        self.target = target_of(model)  # for its capabilities; `refresh` prepares the model
        self.drafters = with_models(self.drafters, DraftModels(self.target, tokenizer))
        # What a lossy rule accepts says nothing about exact decoding, so what is learnt from it is not kept.
        known = fresh(self.model) if self.rule.lossy else learned(self.model)
        self.planner = load_planner(planner, known)
        self.drafters = affordable(drafters, self.drafters, self.target.capabilities, given=bool(texts.given))
        vocab_size = self.target.capabilities.vocab_size
        if checked and tokenizer is not None and len(tokenizer) > vocab_size:
            raise VocabularyError(
                f"the tokenizer knows {len(tokenizer)} tokens and the model {vocab_size}: they do not belong "
                "together; take both from one place"
            )
        self.drafters = opened.bind(self.drafters, tokenizer, vocab_size)
        check_tokenizer(self.drafters, tokenizer)

    @classmethod
    def of(cls, model: Any, settings: dict[str, Any], *more: str) -> Self:
        """Build it from the keywords of `generate`, taken out of ``settings``; those of `request` stay there.

        `UnknownNameError` for others; ``more`` are names that the caller knows, too.
        """
        known = _TEXTS | _SHARED | _SETTINGS | {*more}
        for name in settings:
            if name not in known:
                raise UnknownNameError("setting", name, known)
        texts = UserTexts(**{name: settings.pop(name) for name in _TEXTS & settings.keys()})
        return cls(model, texts=texts, **{name: settings.pop(name) for name in _SHARED & settings.keys()})

    @property
    def names(self) -> list[str]:
        """Names of the drafters, by index."""
        return [d.name for d in self.drafters]

    def generation(self, request: Request) -> Generation:
        """Return the record of an answer, empty so far."""
        seed, rule = request.sampling.seed, self.rule
        return Generation(prompt_tokens=len(request.prompt), seed=seed, rule=label(rule), lossy=rule.lossy)

    def predicting(self, prediction: Any) -> tuple[Drafter, ...] | None:
        """Return the drafters for a request with this prediction; None without one (it uses the shared ones)."""
        if prediction is None:
            return None
        self.drafters = UserTexts(prediction).complete(self.drafters)
        return predicting(self.drafters, prediction, self.tokenizer, self.target.capabilities.vocab_size)

    def saving(self) -> AbstractContextManager[None]:
        """Return a context that saves a memory that was given as a file when it ends, with or without an error."""
        return saving(self._memory)

    def refresh(self) -> None:
        """Prepare the model, and what drafters draft by, as they are now: all of it or, if that fails, nothing."""
        target = target_of(self.model, now=True)
        drafters = with_models(self.drafters, DraftModels(target, self.tokenizer))
        if target is not self.target:
            refuse_mismatch(target.capabilities, drafters)
        self.target, self.drafters = target, drafters

    @contextmanager
    def open(self, requests: Sequence[Request]) -> Iterator[list[ActiveSequence]]:
        """Return a context with the opened sequences of these requests, on the model as it is now."""
        self.refresh()
        requests = [self.on_the_model(request) for request in requests]
        opened = open_sequences(self.target, self.drafters, requests, self.rule)
        with importing(self._modules(requests)), opened as sequences:
            yield sequences

    def on_the_model(self, request: Request) -> Request:
        """Return the request with the models of its own drafters as the target is now."""
        if request.drafters is None:
            return request
        drafters = with_models(request.drafters, DraftModels(self.target, self.tokenizer))
        return request if drafters == tuple(request.drafters) else replace(request, drafters=drafters)

    def _modules(self, requests: Sequence[Request]) -> list[str]:
        """Return the names of modules that take long to import and are needed once the prompts are read."""
        names = [] if all(request.sampling.greedy for request in requests) else ["draftwood.verify.gumbel_max"]
        drafters = [drafter for request in requests for drafter in request.drafters or ()]
        drafting = [name for drafter in (*self.drafters, *drafters) for name in drafter.modules]
        return names + drafting

    def request(
        self, ids: Sequence[int], *, max_new_tokens: int | None = None, stop: str | Sequence[str] | None = None,
        logits_processor: Any = None, grammar: Any = None, trace: bool = False,
        drafters: Sequence[Drafter] | None = None, served: bool = False, chat: bool = False,
        grammar_begins: Callable[[], Beginning] | None = None, **sampling: Any,
    ) -> Request:  # fmt: skip
        """Return a request with checked settings; those not given come from the model's generation config.

        ``grammar`` is a `Grammar` or a JSON Schema; ``trace`` keeps the trees of all steps; ``drafters`` are those
        of `predicting`. ``grammar_begins`` is for `LaterFollower`; None: at once. Where the config leaves it open,
        too, a text that is ``served`` has as many tokens as the model takes, and a ``chat`` `CHAT_TEMPERATURE`.
        """
        config = self.model.generation_config
        fill_sampling(config, sampling, otherwise=CHAT_TEMPERATURE if chat else 0.0)
        if sampling.get("seed") is None:
            sampling["seed"] = secrets.randbits(32)
        settings = check_sampling(Sampling(**sampling))
        refuse_settings(config, sampled=not settings.greedy)
        otherwise = self.target.capabilities.max_positions if served else NEW_TOKENS
        limit = new_tokens(config, max_new_tokens, len(ids), otherwise)
        processors = self._processors(logits_processor)
        ends = end_ids(config) | turn_ends(self.tokenizer, ids)
        request = Request(
            ids, limit, settings, processors, end_ids=ends, criteria=self._stop(stop_strings(config, stop)),
            seconds=getattr(config, "max_time", None), trace=trace, drafters=drafters,
        )  # fmt: skip
        if grammar is None:
            return request
        return self._constrained(request, as_grammar(grammar), grammar_begins)

    def expect_grammars(self) -> None:
        """Add the drafter for what a request's grammar forces, unless there are no drafters (plain decoding)."""
        if self.drafters and not any(isinstance(drafter, GrammarDrafter) for drafter in self.drafters):
            self.drafters = (*self.drafters, GrammarDrafter())

    def _constrained(self, request: Request, grammar: Grammar, begins: Callable[[], Beginning] | None) -> Request:
        vocabulary = vocabulary_of(self.tokenizer, self.target.capabilities.vocab_size, request.end_ids)
        made = [Follower(grammar, vocabulary) for _ in range(2)]  # see `Template`
        follower, drafted = made if begins is None else [LaterFollower(one, vocabulary, begins) for one in made]
        self.expect_grammars()
        drafters = self.drafters if request.drafters is None else request.drafters
        if len(drafters) < len(self.drafters) and drafters:  # made before the set had one for grammars
            drafters = (*drafters, *self.drafters[len(drafters) :])
        own = tuple(d.following(drafted) if isinstance(d, GrammarDrafter) else d for d in drafters)
        start = len(request.prompt)
        processors: list[Processor] = [*request.processors, GrammarProcessor(follower, start)]
        # A model without an end token cannot say that the text is complete.
        criteria = request.criteria if vocabulary.ends else (*request.criteria, follower.is_complete)
        return replace(
            request, processors=processors, drafters=own, end_ids=vocabulary.ends, criteria=criteria,
            permits=lambda ids, tree: drafted.fitting(ids[start:], tree),
        )  # fmt: skip

    def _stop(self, stop: Sequence[str]) -> Sequence[StopStrings]:
        if not stop:
            return ()
        if self.tokenizer is None:
            raise UsageError(
                "stop strings need a tokenizer: pass tokenizer=, or stop=[] to leave out those that the model's "
                "generation config sets"
            )
        return (StopStrings(stop, decoder(self.tokenizer, special=True)),)

    def _processors(self, processors: Any) -> Sequence[Processor]:
        if processors is None:
            return []
        single = callable(processors) and not isinstance(processors, list)  # LogitsProcessorList is callable, too
        given = [processors] if single or not isinstance(processors, Iterable) else list(processors)
        if odd := [one for one in given if not callable(one)]:
            raise UsageError(f"{odd[0]!r:.80} is no logits processor: give callables (scores of a row in and out)")
        device = self.target.device
        if device is None:
            return [_for_numpy(one) for one in given]
        from draftwood.engines.transformers.processors import adapt

        return adapt(given, device)


def followed_apart(request: Request) -> Request:
    """Return a request for another text of the same prompt, which follows the grammar by itself.

    Texts that are written in turns would lead one follower back and forth.
    """
    processors = [one.twin() if isinstance(one, GrammarProcessor) else one for one in request.processors]
    followers = [one.follower for one in request.drafters or () if isinstance(one, GrammarDrafter)]
    if not followers or followers[0] is None:
        return replace(request, processors=processors)
    drafted, start = followers[0].twin(), len(request.prompt)
    return replace(request, processors=processors, permits=lambda ids, tree: drafted.fitting(ids[start:], tree))


def _for_numpy(processor: Any) -> Processor:
    """Return a copy of a processor for a target with scores in NumPy; processors of transformers get tensors."""
    known = sys.modules.get("transformers.generation.logits_process")  # imported by users of such processors
    if known is None or not isinstance(processor, known.LogitsProcessor):
        return copy.deepcopy(processor)
    from draftwood.engines.transformers.processors import adapt_numpy

    return adapt_numpy(processor)


def affordable(
    spec: DrafterSpec, drafters: tuple[Drafter, ...], capabilities: Capabilities, *, given: bool = False
) -> tuple[Drafter, ...]:
    """Return the drafters; of the default set only those that the target can serve, which may be none.

    Others, if named, or if texts were ``given`` that no drafter can copy, stay: opening a request refuses them.
    """
    if spec != "default":
        return drafters
    able = tuple(drafter for drafter in drafters if lacking(drafter, capabilities) is None)
    return drafters if given and not able else able
