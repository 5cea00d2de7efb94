"""Turns what a client asks for into requests of ours."""

from __future__ import annotations

import secrets
from asyncio import AbstractEventLoop
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from draftwood.api.prompts import render
from draftwood.contracts import Drafter, Processor, Sampling
from draftwood.decoding.request import Request
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.errors import UsageError
from draftwood.grammar.grammar import Grammar
from draftwood.serve.answer import Answer, Logprobs
from draftwood.serve.constraining import grammar_of
from draftwood.serve.openai.errors import BAD_REQUEST, ApiError
from draftwood.serve.openai.fields import ChatRequest, Common, CompletionRequest, Drafting
from draftwood.serve.processors import Biases, LogprobRecorder, Penalties, PromptLogprobs
from draftwood.serve.tags import hidden_tags
from draftwood.serve.tools import tools_of, without_calls
from draftwood.serve.wishes import Wishes

TEMPERATURE = 1.0
"""Where a client names none, as in the API."""
_CHARACTERS = 64
"""Of the longest tokens of common vocabularies, which bounds the text that an answer can have."""


class Wanted(NamedTuple):
    """Which log-probabilities are wanted: of how many best tokens besides, and whether of the prompt, too."""

    top: int
    of_prompt: bool = False


class Asking:
    """Makes the answers of one request, in any thread.

    Parameters
    ----------
    setup
        Model, drafters, planner and rule; its drafters take predictions.
    loop
        The event loop in which the answers will be read.
    wishes
        What the client asks for besides.
    namespace
        Of the client: nothing of its texts is of use to clients of other namespaces.
    seconds
        After so many a text ends as if it were long enough; None: never.
    special
        Whether names of control tokens in the text of messages become these tokens.
    """

    def __init__(
        self,
        setup: Any,
        loop: AbstractEventLoop,
        wishes: Wishes,
        namespace: str = "",
        seconds: float | None = None,
        special: bool = False,
    ) -> None:
        self._setup, self._loop, self._wishes = setup, loop, wishes
        self._namespace, self._seconds, self._special = namespace, seconds, special

    def chat(self, asked: ChatRequest) -> list[Answer]:
        """Return the choices of a chat; raises `ApiError` or what `Setup.request` raises."""
        tools = tools_of(asked)
        messages = without_calls(asked.messages) if tools is None else tools.messages(asked.messages)
        ids = render(messages, self._setup.tokenizer, special=self._special)
        tags = {} if tools is None else hidden_tags(self._setup.tokenizer)
        grammar = grammar_of(asked, tools, tags)
        wanted = Wanted(asked.top_logprobs or 0) if asked.logprobs else None
        if asked.top_logprobs and not asked.logprobs:
            raise ApiError(BAD_REQUEST, "top_logprobs needs logprobs: set logprobs to true", param="top_logprobs")
        return self._choices(asked, ids, asked.limit, wanted, grammar, frozenset(tags.values()))

    def completions(self, asked: CompletionRequest) -> list[Answer]:
        """Return the choices of all prompts, prompt by prompt; raises as `chat`."""
        prompts = _several(asked.prompt)
        read = [list(self._setup.tokenizer(p)["input_ids"]) if isinstance(p, str) else list(p) for p in prompts]
        grammar = grammar_of(asked, None, {})
        wanted = None if asked.logprobs is None else Wanted(asked.logprobs, of_prompt=bool(asked.echo))
        answers: list[Answer] = []
        for prompt, ids in zip(prompts, read, strict=True):
            for answer in self._choices(asked, ids, asked.limit, wanted, grammar):
                answer.index, answer.prompt_text = len(answers), prompt if isinstance(prompt, str) else None
                answers.append(answer)
        return answers

    def _choices(
        self, asked: Common, ids: Sequence[int], limit: int | None, wanted: Wanted | None,
        grammar: Grammar | None, tags: Collection[int] = (),
    ) -> list[Answer]:  # fmt: skip
        setup = self._setup
        trace, without = self._wishes.trace, (asked.draftwood or Drafting()).without(setup.names)
        room = max(1, setup.target.capabilities.max_positions - len(ids))
        limit = room if limit is None else min(limit, room)  # as in the API: as long as the model takes
        request = setup.request(
            ids, max_new_tokens=max(1, limit), stop=asked.stop, trace=trace, grammar=grammar,
            drafters=() if without is None else self._drafters(asked, len(ids) + limit), **_sampling(asked),
        )  # fmt: skip
        request = replace(request, without=without or frozenset())
        request.check(setup.target.capabilities)
        if self._seconds is not None and (request.seconds is None or request.seconds > self._seconds):
            request = replace(request, seconds=self._seconds)
        if asked.ignore_eos and grammar is None:
            request = replace(request, end_ids=frozenset())
        is_silent = limit == 0  # then the token that reading the prompt has paid for is told to nobody
        return [
            self._answer(asked, request, number, wanted, is_silent=is_silent, tags=tags)
            for number in range(asked.choices)
        ]

    def _drafters(self, asked: Common, most: int) -> Sequence[Drafter] | None:
        """Return a request's own drafters, if it has any; its text has at most ``most`` tokens."""
        if self._wishes.plain:
            return ()
        if asked.prediction is None or not self._setup.drafters:
            return self._namespaced(None)
        text = asked.prediction.text
        if len(text) > (longest := most * _CHARACTERS):
            said = f"the prediction has {len(text):,} characters, and this answer at most {longest:,}: send less"
            raise ApiError(BAD_REQUEST, said, param="prediction")
        return self._namespaced(self._setup.predicting(text) if text else None)

    def _namespaced(self, drafters: Sequence[Drafter] | None) -> Sequence[Drafter] | None:
        """Return the drafters (None: those of all), a memory among them in the client's namespace."""
        found = self._setup.drafters if drafters is None else drafters
        if not any(isinstance(drafter, MemoryDrafter) for drafter in found):
            return drafters
        return [d.in_namespace(self._namespace) if isinstance(d, MemoryDrafter) else d for d in found]

    def _answer(self, asked: Common, request: Request, number: int, wanted: Wanted | None, **more: Any) -> Answer:
        processors: list[Processor] = []
        if asked.presence_penalty or asked.frequency_penalty:
            start = len(request.prompt)
            processors.append(Penalties(asked.presence_penalty or 0.0, asked.frequency_penalty or 0.0, start))
        if asked.logit_bias:
            processors.append(Biases(_biases(asked.logit_bias, self._setup.target.capabilities.vocab_size)))
        own = replace(request, processors=[*processors, *request.processors], sequence=number)
        logprobs = None
        if wanted is not None:
            of_prompt = PromptLogprobs(request.prompt, wanted.top) if wanted.of_prompt else None
            logprobs = Logprobs(LogprobRecorder(request.sampling, wanted.top), of_prompt)
            shown = None if of_prompt is None else of_prompt.show
            own = replace(own, processors=[*own.processors, logprobs.answer], shown=shown)
        return Answer(self._setup, own, self._loop, number, logprobs, self._namespace, **more)


def _sampling(asked: Common) -> dict[str, Any]:
    """Return the settings of `Sampling` that a client has named, with the API's own default."""
    found = {name: getattr(asked, name, None) for name in Sampling.__dataclass_fields__}
    found["temperature"] = TEMPERATURE if asked.temperature is None else asked.temperature
    found["seed"] = secrets.randbits(32) if asked.seed is None else asked.seed
    return found


def _biases(given: Mapping[str, float], vocab: int) -> dict[int, float]:
    try:
        found = {int(token): value for token, value in given.items()}
    except ValueError as error:
        raise ApiError(BAD_REQUEST, "logit_bias maps token ids to numbers", param="logit_bias") from error
    if odd := [token for token in found if not 0 <= token < vocab]:
        raise ApiError(BAD_REQUEST, f"logit_bias: {odd[0]} is no token id below {vocab}", param="logit_bias")
    return found


def _several(prompt: Any) -> list[Any]:
    """Return the prompts of a request for plain texts: one text or its ids, or several of either."""
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        return [prompt]
    if not prompt:
        raise UsageError("the prompt is empty: give some text")
    return list(prompt)
