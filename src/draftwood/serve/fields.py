"""Request bodies, checked: the fields of the OpenAI API, and a few of other servers.

Fields of a body that are not listed here are ignored, as by other servers, and named in a header of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from draftwood.errors import UnknownNameError, UsageError
from draftwood.serve.meanings import ALL, BUDGETS, REFUSED, TEXT, read_as

MOST_CHOICES, MOST_TOP, MOST_STOPS, MOST_MESSAGES, MOST_BIASES = 16, 20, 64, 4096, 1 << 16
FUNCTION_NAME = r"^[a-zA-Z0-9_-]{1,128}$"  # those of tools of MCP servers are longer than 64
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields of an assistant's message that hold what it thought: of DeepSeek, of vLLM and OpenRouter; the last has
parts, beside one of the others."""
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

JsonObject = dict[str, Any]

Item = TypeVar("Item")
Every = Annotated[list[Item], Field(fail_fast=True)]
"""A list of which the first wrong item is told: errors for a million would take minutes and gigabytes."""
Items = Annotated[Every[Item], Field(max_length=MOST_MESSAGES)]
Messages = Annotated[Items[JsonObject], Field(min_length=1)]
Name = Annotated[str, Field(max_length=512)]  # of a model; each event of a stream repeats it
Tokens = Annotated[int, Field(ge=1, le=ALL)]
Top = Annotated[int, Field(ge=0, le=MOST_TOP)]
Pattern = Annotated[str, Field(max_length=1 << 22)]
Choices = Annotated[Items[Annotated[str, Field(min_length=1, max_length=1 << 16)]], Field(min_length=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]


class Lenient(BaseModel):
    """A body or a part of one; unknown fields are kept, so that they can be named."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, given: Any) -> Any:
        """Null means for every field that it is left out."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}

    @property
    def ignored(self) -> list[str]:
        """Names of fields that are not read, those of parts behind the part's name and a point."""
        found = set(self.model_extra or ())
        for name in self.model_fields_set:
            value = getattr(self, name, None)
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Lenient):
                    found.update(f"{name.rstrip('_')}.{inner}" for inner in part.ignored)
        return sorted(found)


class ThinkingField(Lenient):
    """Whether the model thinks before it answers, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=0, le=ALL)] | None = None


class RequestBody(Lenient):
    """The body of a request, whose values are read by the table `VALUES`."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return {name: read_as(name, value) for name, value in given.items()} if isinstance(given, dict) else given


class StreamOptions(Lenient):
    """How an answer is streamed."""

    include_usage: bool = False


class TextPart(Lenient):
    """A part of a text that comes in parts."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class PredictedText(Lenient):
    """What the client expects in the answer; drafts copy from it."""

    type: Literal["content"] = "content"
    content: str | Items[TextPart]

    @property
    def text(self) -> str:
        parts = self.content
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)


class FunctionTool(Lenient):
    """A function that the model may call."""

    name: Annotated[str, Field(pattern=FUNCTION_NAME)]
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(Lenient):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionTool


class NamedFunction(Lenient):
    """The name of a function."""

    name: str


class NamedTool(Lenient):
    """The one tool that the model must call."""

    type: Literal["function"]
    function: NamedFunction


class AllowedFunctions(Lenient):
    """Some of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: Annotated[Items[NamedTool], Field(min_length=1)]


class AllowedTools(Lenient):
    """A choice of tools that allows only some of them."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedFunctions


class JsonSchema(Lenient):
    """A schema by name."""

    name: Annotated[str, Field(max_length=256)] = "answer"
    description: str | None = None
    strict: bool | None = None
    schema_: Annotated[JsonObject | None, Field(alias="schema")] = None


class ResponseFormat(Lenient):
    """The form that an answer must have."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: Annotated[JsonObject | None, Field(alias="schema")] = None


class StructuredOutputs(Lenient):
    """vLLM's field for the form of an answer."""

    json_: Annotated[JsonObject | str | None, Field(alias="json")] = None
    json_object: bool | None = None
    regex: Pattern | None = None
    choice: Choices | None = None
    grammar: Pattern | None = None


class DraftingField(BaseModel):
    """Our own field ``draftwood``: with which drafters an answer is written. The text is the same with all."""

    model_config = ConfigDict(extra="forbid")

    draft: bool | str | Items[str] | None = None

    def without(self, names: Sequence[str]) -> frozenset[str] | None:
        """Return which of the server's drafters are not wanted, None for all; raises `UnknownNameError`."""
        if self.draft is None or self.draft is True:
            return frozenset()
        said = self.draft or []
        chosen = re.split(r"[+,]", said) if isinstance(said, str) else said
        wanted = {name.strip() for name in chosen} - {"", "none"}
        for name in sorted(wanted):
            if name not in names:
                raise UnknownNameError("drafter of this server", name[:80], names)
        return frozenset(names) - wanted if wanted else None


class Writing(RequestBody):
    """What all requests for texts have in common."""

    model: Name | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)] | None = None
    stream: bool | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    prediction: PredictedText | None = None
    draftwood: DraftingField | None = None

    named: ClassVar[Mapping[str, str]] = {}
    """What this API calls fields that chats call otherwise."""


def few_stops(stop: Any) -> Any:
    """Return stop strings; `ValueError` where they are too many, or one is empty."""
    if isinstance(stop, list) and len(stop) > MOST_STOPS:
        raise ValueError(f"{len(stop)} stop strings are too many: give at most {MOST_STOPS}")
    if "" in ([stop] if isinstance(stop, str) else stop or ()):
        raise ValueError("a stop string is empty: leave it out or write some text")
    return stop


class Common(Writing):
    """What requests for chats and for plain texts have in common."""

    top_k: Tokens | None = None
    ignore_eos: bool | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None  # scores must stay finite
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[str, Bias], Field(max_length=MOST_BIASES)] | None = None
    stop: str | Every[str] | None = None
    max_tokens: Tokens | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    json_schema: JsonObject | None = None
    grammar: Pattern | None = None
    guided_json: JsonObject | str | None = None
    guided_regex: Pattern | None = None
    guided_choice: Choices | None = None
    guided_grammar: Pattern | None = None

    _few_stops = field_validator("stop")(few_stops)

    @property
    def texts(self) -> int:
        """How many texts are asked for."""
        return self.n or 1


class Thinks(Writing):
    """What requests for chats of any API say of thinking."""

    enable_thinking: bool | None = None
    thinking: ThinkingField | None = None
    thinking_budget: Annotated[int, Field(ge=0, le=ALL)] | None = None
    chat_template_kwargs: JsonObject | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_budget(cls, given: Any) -> Any:
        """Read the names that servers have for the budget as one."""
        if not isinstance(given, dict) or not any(name in given for name in BUDGETS):
            return given
        found = next((given[name] for name in BUDGETS if given.get(name) is not None), None)
        return {**{name: value for name, value in given.items() if name not in BUDGETS}, BUDGETS[0]: found}


def _as_known(message: JsonObject) -> JsonObject:
    """Return a message under the names that templates know; a thought is a text."""
    if message.get("role") == "developer":
        return {**message, "role": "system"}
    thoughts = [message[name] for name in THOUGHTS if isinstance(message.get(name), str)]
    if not any(name in message for name in THOUGHTS):
        return message
    kept = {name: value for name, value in message.items() if name not in THOUGHTS}
    return {**kept, "reasoning_content": thoughts[0]} if thoughts and thoughts[0] else kept


def with_tools_of_clients(given: Any, kind: str) -> Any:
    """Return a body whose tools are those without a type or of this ``kind``; each other one is a field apart."""
    tools = given.get("tools") if isinstance(given, dict) else None
    if not isinstance(tools, list):
        return given
    kinds = [tool.get("type") if isinstance(tool, dict) else None for tool in tools]
    hosted = {n for n, one in enumerate(kinds) if isinstance(one, str) and one != kind}
    left = [tool for n, tool in enumerate(tools) if n not in hosted]
    return {**given, **{f"tools.{n}": tools[n] for n in hosted}, "tools": left} if hosted else given


class ChatRequest(Common, Thinks):
    """Body of ``/v1/chat/completions``."""

    messages: Messages
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    tools: Items[Tool] | None = None
    tool_choice: (
        Literal["none", "auto", "required"]
        | Annotated[NamedTool | AllowedTools, Field(discriminator="type")]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Annotated[str, Field(max_length=32)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _functions_alone(cls, given: Any) -> Any:
        """Leave out tools that OpenAI's service would run itself, and name them among the ignored fields."""
        return with_tools_of_clients(given, "function")

    @field_validator("messages")
    @classmethod
    def _known_roles(cls, messages: list[JsonObject]) -> list[JsonObject]:
        """Refuse roles that the API does not have; a developer's words are those of the system."""
        for number, message in enumerate(messages, 1):
            role = message.get("role")
            if isinstance(role, str) and role not in ROLES:
                raise ValueError(f"message {number} has the role {role[:80]!r}: choose one of {sorted(ROLES)}")
        return [_as_known(message) for message in messages]

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class CompletionRequest(Common):
    """Body of ``/v1/completions``."""

    prompt: str | Items[str] | Every[int] | Items[Every[int]]
    max_tokens: Annotated[int, Field(ge=0, le=ALL)] | None = None  # 0: only the prompt's scores are wanted
    echo: bool | None = None
    logprobs: Top | None = None
    best_of: int | None = None
    suffix: str | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.best_of not in (None, self.n or 1):
            raise ValueError(f"best_of: {REFUSED[TEXT]['best_of']}")
        return self

    @property
    def limit(self) -> int:
        """Most tokens of an answer; the API's own default."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> Sequence[Any]:
        """The prompts, each a text or its ids; raises `UsageError` where there is none."""
        prompt = self.prompt
        if not isinstance(prompt, str) and not prompt:
            raise UsageError("the prompt is empty: give some text")
        return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt

    @property
    def texts(self) -> int:
        """How many texts are asked for."""
        return (self.n or 1) * len(self.prompts)
