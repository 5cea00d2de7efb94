"""Turns a client's request into ours, one per choice: prompt, settings, grammar, drafters."""

from __future__ import annotations

import json
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.api.prompts import check_fits, most_characters, render
from draftwood.api.setup import Setup, followed_apart
from draftwood.api.text import StopStrings
from draftwood.api.thought_path import AnswerStops, ThoughtBudget, ThoughtPath
from draftwood.contracts import Drafter, Processor, Watch
from draftwood.decoding.request import Request
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.errors import PromptError, UnknownNameError, UsageError
from draftwood.grammar.calls import CallParts, check_parameters, in_messages, rule_of
from draftwood.grammar.grammar import Grammar
from draftwood.serve.answer import Choice
from draftwood.serve.call_forms.found import hidden_tags
from draftwood.serve.call_forms.named import HARMONY, message_marks
from draftwood.serve.constraints import constraints_of
from draftwood.serve.errors import GONE, ApiError
from draftwood.serve.fields import ChatRequest, Common, CompletionRequest, DraftingField
from draftwood.serve.infill import InfillText, infill_ids, marks_of
from draftwood.serve.logprobs import LogprobRecorder
from draftwood.serve.thinking import ThinkingDefault, ThinkingPlan, thinking_of
from draftwood.serve.tools import ToolUse, tools_of, with_calls

HEADER = "x-draftwood"
_MOST_GRAMMAR = 1 << 16
"""Most characters of a grammar: compiling takes time quadratic in them, in which other requests may wait."""


class Wishes(NamedTuple):
    """What the header ``x-draftwood`` asks for, a list of words with commas between them."""

    trace: bool = False  # the answer says step by step what was drafted, by whom, and what was accepted
    plain: bool = False  # the text is written without drafts

    @classmethod
    def of(cls, header: str | None) -> Wishes:
        """Read the header; raises `UnknownNameError` for another word."""
        words = {word.strip().lower() for word in (header or "").split(",")} - {""}
        for word in sorted(words):
            if word not in cls._fields:
                raise UnknownNameError(f"word in the header {HEADER},", word[:80], cls._fields)
        return cls(**dict.fromkeys(words, True))


@dataclass(frozen=True, slots=True)
class ChoiceMaker:
    """Makes the choices of one request, in any thread. Among the drafters of its `Setup` one takes predictions."""

    setup: Setup
    loop: AbstractEventLoop  # in which the answers will be read
    wishes: Wishes
    namespace: str = ""  # of the client: what is kept of its texts is not used for other namespaces
    seconds: float | None = None  # a text that takes longer ends with the reason "length"; None: no limit
    special: bool = False  # names of control tokens in the text of messages become these tokens
    thinking: ThinkingDefault = field(default_factory=ThinkingDefault)
    passes_unknown: bool = False  # calls of functions that were not offered are calls, too
    ignored: list[str] = field(default_factory=list)  # fields that change nothing with this model
    left: Event = field(default_factory=Event)  # set once nobody waits for the choices

    def chat(self, asked: ChatRequest) -> list[Choice]:
        """Return the choices of a chat; raises `ApiError` or what `Setup.request` raises."""
        tools, tokenizer = tools_of(asked, passes_unknown=self.passes_unknown), self.setup.tokenizer
        ids, plan = self._planned(asked, tools)
        tags = {} if tools is None else hidden_tags(tokenizer)
        grammar = grammar_of(asked, tools, tokenizer, message_marks(tokenizer, ids))
        if asked.top_logprobs and not asked.logprobs:
            raise ApiError("top_logprobs needs logprobs: set logprobs to true", param="top_logprobs")
        top = asked.top_logprobs or 0 if asked.logprobs else None
        return self._answers(asked, ids, top, grammar, tools, tags, plan.budget)

    def prompt(self, asked: ChatRequest, most: int | None = None) -> list[int]:
        """Return the token ids of a chat's prompt, of about ``most`` or else the model's own; raises as `chat`."""
        return self._planned(asked, tools_of(asked), most)[0]

    def _planned(
        self, asked: ChatRequest, tools: ToolUse | None, most: int | None = None
    ) -> tuple[list[int], ThinkingPlan]:
        """Return the ids of a chat, and its plan, without the effort where the template refuses that."""
        plan = thinking_of(asked, self.thinking, self.setup.tokenizer, special=self.special)
        try:
            ids = self._rendered(asked, tools, plan, most)
        except PromptError:
            lesser = plan.without_effort()
            if asked.reasoning_effort is None or lesser.arguments == plan.arguments:
                raise
            ids, plan = self._rendered(asked, tools, lesser, most), lesser
        self.ignored.extend(plan.ignored)
        return ids, plan

    def _rendered(
        self, asked: ChatRequest, tools: ToolUse | None, plan: ThinkingPlan, most: int | None
    ) -> list[int]:
        tokenizer, most = self.setup.tokenizer, most or self._positions
        how: dict[str, Any] = {"special": self.special, "most": most, "arguments": plan.arguments}
        if tools is None:
            return render(with_calls(asked.messages), tokenizer, **how)
        return tools.prompt(asked.messages, tokenizer, **how)

    def completions(self, asked: CompletionRequest) -> list[Choice]:
        """Return the choices of all prompts, prompt by prompt; raises as `chat`."""
        grammar = grammar_of(asked, None, None)
        answers: list[Choice] = []
        for prompt in asked.prompts:
            text = prompt if isinstance(prompt, str) else None
            if asked.suffix or isinstance(asked, InfillText):
                ids, text = self._infill_ids(asked, prompt), None
            else:
                ids = list(prompt) if text is None else self._ids(text)
            for answer in self._answers(asked, ids, asked.logprobs, grammar, None, {}):
                answer.index, answer.prompt_text = len(answers), text
                answers.append(answer)
        return answers

    def infill(self, asked: InfillText) -> list[Choice]:
        """Return the choice of a text between two others, which may have a time limit; raises as `chat`."""
        limits = [seconds for seconds in (asked.seconds, self.seconds) if seconds]
        return replace(self, seconds=min(limits, default=None)).completions(asked)

    def _infill_ids(self, asked: CompletionRequest, prompt: Any) -> list[int]:
        tokenizer, files = self.setup.tokenizer, asked.files if isinstance(asked, InfillText) else ()
        for text in (prompt if isinstance(prompt, str) else "", asked.suffix or "", *(one.text for one in files)):
            check_fits(text, tokenizer, self._positions)
        special = self.special or not isinstance(asked, InfillText)
        return infill_ids(tokenizer, asked, prompt, special=special)

    @property
    def _positions(self) -> int:
        return self.setup.target.capabilities.max_positions

    def _ids(self, text: str) -> list[int]:
        if self.left.is_set():
            raise ApiError("the client has gone", GONE)
        check_fits(text, self.setup.tokenizer, self._positions)
        return list(self.setup.tokenizer(text)["input_ids"])

    def _answers(
        self, asked: ChatRequest | CompletionRequest, ids: Sequence[int], top: int | None,
        grammar: Grammar | None, tools: ToolUse | None, tags: Mapping[str, int], budget: int | None = None,
    ) -> list[Choice]:  # fmt: skip
        """Return the choices of one prompt.

        Log-probabilities are kept of each token and the ``top`` best at its place; None: of none. ``tags`` are
        those of `Choice`; ``budget``: most tokens of thoughts.
        """
        setup, can, limit = self.setup, self.setup.target.capabilities, asked.limit
        without = (asked.draftwood or DraftingField()).without(setup.names)
        room = max(1, can.max_positions - len(ids))
        most = room if limit is None else min(limit, room)
        is_chat = isinstance(asked, ChatRequest)
        path = partial(ThoughtPath, setup.tokenizer, ids, budget) if is_chat else None
        thinks = path is not None and (path().first.thinks or path().opening(()))
        request = setup.request(
            ids, max_new_tokens=None if limit is None else max(1, most), stop=asked.stop,
            served=True, chat=is_chat, trace=self.wishes.trace,
            grammar=grammar, grammar_begins=path if thinks else None,
            drafters=() if without is None else self._drafters(asked, len(ids) + most),
            temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p, min_p=asked.min_p,
            repetition_penalty=asked.repetition_penalty, seed=asked.seed,
        )  # fmt: skip
        request = replace(request, without=without or frozenset(), limit=min(request.limit, room))
        if self.seconds is not None and (request.seconds is None or request.seconds > self.seconds):
            request = replace(request, seconds=self.seconds)
        if isinstance(asked, InfillText) or getattr(asked, "suffix", None):
            marks = marks_of(setup.tokenizer)
            request = replace(request, end_ids=request.end_ids | (marks.ends if marks else frozenset()))
        if asked.ignore_eos and grammar is None:
            request = replace(request, end_ids=frozenset())
        processors: list[Processor] = []
        if asked.presence_penalty or asked.frequency_penalty:
            penalties = asked.presence_penalty or 0.0, asked.frequency_penalty or 0.0
            processors.append(Penalties(*penalties, len(ids)))
        if asked.logit_bias:
            processors.append(Biases(_biases(asked.logit_bias, can.vocab_size)))
        request = replace(request, processors=[*processors, *request.processors])
        has_prompt = isinstance(asked, CompletionRequest) and asked.echo
        found = []
        for number in range(asked.n or 1):
            own, logprobs = replace(followed_apart(request) if number else request, sequence=number), None
            if path is not None:
                own = _thinking(own, path, has_budget=budget is not None)
            if top is not None:
                logprobs = LogprobRecorder(request.sampling, top, ids if has_prompt else ())
                own = replace(own, processors=[*own.processors, logprobs])
                if has_prompt:
                    own = replace(own, shown=Watch(logprobs.show))
            # With a limit of 0 the first token, which comes from reading the prompt, is not returned.
            found.append(Choice(
                setup, own, self.loop, number, logprobs, self.namespace, is_silent=most == 0, tools=tools,
                tags=tags, is_chat=is_chat,
            ))  # fmt: skip
        return found

    def _drafters(self, asked: Common, most: int) -> Sequence[Drafter] | None:
        """Return a request's own drafters, None for the shared ones; ``most``: tokens of prompt and answer."""
        if self.wishes.plain:
            return ()
        drafters = None
        if asked.prediction is not None and self.setup.drafters:
            text = asked.prediction.text
            if len(text) > (longest := most_characters(self.setup.tokenizer, most)):
                raise ApiError(
                    f"the prediction has {len(text):,} characters, this text at most {longest:,}: send less",
                    param="prediction",
                )
            drafters = self.setup.predicting(text) if text else None
        found = self.setup.drafters if drafters is None else drafters
        if not any(isinstance(drafter, MemoryDrafter) for drafter in found):
            return drafters
        return [d.in_namespace(self.namespace) if isinstance(d, MemoryDrafter) else d for d in found]


def _thinking(request: Request, path: Callable[[], ThoughtPath], *, has_budget: bool) -> Request:
    """Return the request of one choice of a chat: its stop strings are those of the answer, its thoughts end."""
    criteria = [AnswerStops(one, path()) if isinstance(one, StopStrings) else one for one in request.criteria]
    budget = [ThoughtBudget(path(), len(request.prompt))] if has_budget else []
    return replace(request, criteria=criteria, processors=[*request.processors, *budget])


class Penalties:
    """Lowers scores of tokens that the text has from ``start`` on: by presence + frequency * count, as in the API.

    Rows of processors are NumPy arrays or torch tensors, float32[vocab].
    """

    def __init__(self, presence: float, frequency: float, start: int) -> None:
        self._presence, self._frequency, self._start = presence, frequency, start

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        ids, counts = np.unique(prefix[self._start :], return_counts=True)
        for count in np.unique(counts).tolist():
            row[ids[counts == count]] -= self._presence + self._frequency * count
        return row


class Biases:
    """Adds to the scores of some tokens."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._ids, self._values = np.array(list(biases), np.int64), np.array(list(biases.values()), np.float32)

    def __call__(self, _prefix: NDArray[np.int64], row: Any) -> Any:
        row[self._ids] += row.new_tensor(self._values) if hasattr(row, "new_tensor") else self._values
        return row


def _biases(given: Mapping[str, float], vocab: int) -> dict[int, float]:
    try:
        found = {int(token): value for token, value in given.items()}
    except ValueError as error:
        raise ApiError("logit_bias maps token ids to numbers", param="logit_bias") from error
    if odd := [token for token in found if not 0 <= token < vocab]:
        raise ApiError(f"logit_bias: {odd[0]} is no token id below {vocab}", param="logit_bias")
    return found


def grammar_of(
    asked: Common, tools: ToolUse | None, tokenizer: Any, marks: Mapping[str, int] | None = None
) -> Grammar | None:
    """Return the grammar of a request's answers, checked; None where they are free. Raises `ApiError`.

    ``marks`` are the tokens of headers, where an answer comes in messages.
    """
    found: list[tuple[str, Grammar]] = []
    try:
        found += constraints_of(asked)
        if tools is not None and tools.forced:  # the calls alone: no answer follows them
            found = [one for one in found if one[0] != "response_format"]
            found.insert(0, ("tool_choice", tools.forced_grammar(tokenizer)))
        elif not found and tools is not None and tools.is_strict(tokenizer):
            found.append(("tools", tools.strict_grammar(tokenizer)))
        if len(found) > 1:
            raise ApiError(
                f"an answer cannot follow {found[0][0]} and {found[1][0]} at once: leave one out",
                param=found[1][0],
            )
        for name, grammar in found:
            if len(grammar.text) > _MOST_GRAMMAR:
                said = f"the grammar has {len(grammar.text):,} characters, the most are {_MOST_GRAMMAR:,} here"
                raise ApiError(f"{said}: simplify it", param=name)
            try:
                grammar.compiled()
            except UsageError:
                if name in ("tool_choice", "tools") and tools is not None:
                    check_parameters(tools.parameters)  # whose error says which one it is
                raise
            if name == "response_format" and tools is not None:  # or calls, as in the API
                either = tools.grammar_beside(json.loads(grammar.text), tokenizer)
                either.compiled()
                return either
            rule = rule_of(grammar) if marks and name not in ("tool_choice", "tools") else None
            if rule is not None and marks is not None:
                return in_messages(CallParts({}, "", "", "", marks), HARMONY, rule)
            return grammar
    except UsageError as error:
        raise ApiError(str(error), param=found[0][0] if found else "tool_choice") from error
    return None
