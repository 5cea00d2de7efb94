"""Requests of Anthropic's ``/v1/messages``: their fields, checked, and what they are as a chat."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from draftwood.serve.errors import ApiError
from draftwood.serve.fields import (
    FUNCTION_NAME,
    ChatRequest,
    Every,
    Items,
    JsonObject,
    Lenient,
    Messages,
    Name,
    RequestBody,
    Tokens,
    Writing,
    few_stops,
    with_tools_of_clients,
)
from draftwood.serve.meanings import ALL
from draftwood.serve.parts import PartReader

_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
"""A line at the front of Claude Code's system prompt that changes between requests: nothing that was read after it
could be used again."""
_SESSION = re.compile(r"_session_[0-9a-f-]+\Z")
"""The end of what older versions of Claude Code send as user id."""
_AS_IN_CHATS = ("temperature", "top_p", "top_k", "seed", "prediction", "draftwood")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class ClientTool(Lenient):
    """A function that the client runs."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=FUNCTION_NAME)]
    description: str | None = None
    input_schema: JsonObject
    strict: bool | None = None
    cache_control: Any = None  # as in every block: what was read is kept without it, too

    def function(self) -> JsonObject:
        """Return the same as a tool of a chat."""
        told = {"description": self.description, "parameters": self.input_schema, "strict": self.strict}
        return {"type": "function", "function": {"name": self.name, **told}}


class ToolChoice(Lenient):
    """Whether tools are called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if self.type == "tool" and self.name is None:
            raise ValueError("a choice of type 'tool' needs the name of a tool: add 'name'")
        return self

    def as_in_chats(self) -> Any:
        return _CHOICES.get(self.type) or {"type": "function", "function": {"name": self.name}}


class Thinking(Lenient):
    """Whether the model thinks before it answers, for how many tokens, and whether its thoughts are sent."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Tokens | None = None
    display: Literal["summarized", "omitted"] | None = None

    def as_in_chats(self) -> JsonObject:
        """Return the same for a chat; to think nothing but what stands between calls is to think nothing."""
        kind = "disabled" if self.type == "between_tools" else self.type
        return {"type": kind, **({"budget_tokens": self.budget_tokens} if self.budget_tokens else {})}


class OutputFormat(Lenient):
    """The form that an answer must have."""

    type: Literal["json_schema"]
    schema_: Annotated[JsonObject, Field(alias="schema")]


class OutputConfig(Lenient):
    """The form of an answer, and how much the model should put into it."""

    effort: Annotated[str, Field(max_length=32)] | None = None
    format: OutputFormat | None = None


class Metadata(Lenient):
    """Whose request it is."""

    user_id: Annotated[str, Field(max_length=512)] | None = None


class CountRequest(RequestBody):
    """Body of ``/v1/messages/count_tokens``."""

    model: Name | None = None
    messages: Messages
    system: str | Items[JsonObject] | None = None
    tools: Items[ClientTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: Any = None

    @model_validator(mode="before")
    @classmethod
    def _tools_of_clients(cls, given: Any) -> Any:
        """Leave out tools that Anthropic's service would run or knows by itself, and name them as ignored."""
        return with_tools_of_clients(given, "custom")

    def chat(self, parts: PartReader) -> ChatRequest:
        """Return the same as a chat, its contents read by ``parts``; raises `ApiError` or pydantic's error."""
        choice, config = self.tool_choice, self.output_config or OutputConfig()
        wanted = config.format and {"type": "json_schema", "json_schema": {"schema": config.format.schema_}}
        given = {
            "messages": self._messages(parts),
            "tools": [tool.function() for tool in self.tools or ()] or None,
            "tool_choice": choice and choice.as_in_chats(),
            "parallel_tool_calls": not choice.disable_parallel_tool_use if choice else None,
            "response_format": wanted,
            "thinking": self.thinking and self.thinking.as_in_chats(),
            "reasoning_effort": config.effort,
        }
        return ChatRequest.model_validate({name: value for name, value in given.items() if value is not None})

    def _messages(self, parts: PartReader) -> list[JsonObject]:
        found = list[JsonObject]()
        if system := parts.text(_without_billing(self.system), "system"):
            found.append({"role": "system", "content": system})
        for number, message in enumerate(self.messages):
            place = f"messages.{number}"
            blocks = _blocks(message.get("content"), f"{place}.content")
            match message.get("role"):
                case "user":
                    found += _of_user(blocks, f"{place}.content", parts)
                case "assistant":
                    found.append(_of_assistant(blocks, f"{place}.content", parts))
                case "system":
                    found.append({"role": "system", "content": parts.text(_readable(blocks), f"{place}.content")})
                case role:
                    said = f"the role {str(role)[:80]!r} is none: choose user, assistant or system"
                    raise ApiError(f"{place}.role: {said}", param=f"{place}.role")
        return found


class MessagesRequest(CountRequest, Writing):
    """Body of ``/v1/messages``."""

    max_tokens: Annotated[int, Field(ge=0, le=ALL)]  # 0: the prompt is read, and nothing is written
    stop_sequences: Every[str] | None = None
    top_k: Tokens | None = None
    metadata: Metadata | None = None

    named: ClassVar[Mapping[str, str]] = {"reasoning_effort": "output_config.effort"}

    _few_stops = field_validator("stop_sequences")(few_stops)

    def chat(self, parts: PartReader) -> ChatRequest:
        if self.messages[-1].get("role") == "assistant":
            said = "the last message is the assistant's, and no answer is continued here: end with the user's"
            raise ApiError(said, param="messages")
        more = {
            **{name: getattr(self, name) for name in _AS_IN_CHATS},
            "user": self.user or (self.metadata and _user(self.metadata.user_id)),
            "max_completion_tokens": self.max_tokens,
            "stop": self.stop_sequences or None,
        }
        return super().chat(parts).model_copy(update=more)


def _user(user_id: str | None) -> str | None:
    """Return whose request this is, without the session that Claude Code names.

    What was read for a user is then there in the user's next session.
    """
    try:
        told = json.loads(user_id or "")
    except ValueError:
        return user_id and _SESSION.sub("", user_id)
    if not isinstance(told, dict):
        return user_id
    return json.dumps({name: told[name] for name in sorted(told) if name != "session_id"}, separators=(",", ":"))


def _without_billing(system: Any) -> Any:
    if isinstance(system, list) and system and _is_text(system[0]):
        return [{**system[0], "text": _without_billing(system[0]["text"])}, *system[1:]]
    return _BILLING.sub("", system) if isinstance(system, str) else system


def _blocks(content: Any, place: str) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise ApiError(f"{place}: give a text or a list of content blocks", param=place)
    return content


def _of_user(blocks: list[Any], place: str, parts: PartReader) -> Iterator[JsonObject]:
    """Yield a user's words and the results of tools, each as a message, in their order."""
    words = list[str]()
    for number, block in enumerate(blocks):
        here = f"{place}.{number}"
        if not isinstance(block, Mapping) or block.get("type") != "tool_result":
            words.append(parts.part(_read(block), here))
            continue
        if words:
            yield {"role": "user", "content": "".join(words)}
            words = []
        text = parts.text(_readable(block.get("content")), f"{here}.content") or ""
        said = f"Error: {text}" if block.get("is_error") else text
        yield {"role": "tool", "content": said, "tool_call_id": block.get("tool_use_id")}
    if words or not blocks:
        yield {"role": "user", "content": "".join(words)}


def _of_assistant(blocks: list[Any], place: str, parts: PartReader) -> JsonObject:
    """Return an assistant's turn as a message: its thoughts, its texts and its calls."""
    thoughts, texts, calls = list[str](), list[str](), list[JsonObject]()
    for number, block in enumerate(blocks):
        here = f"{place}.{number}"
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_use":
            calls.append(_call(block, here))
        elif kind == "thinking":
            thoughts.append(_string(block, "thinking", here))
        elif kind == "redacted_thinking":  # which only the service that wrote it can read
            parts.left_out.append(here)
        else:
            texts.append(parts.part(block, here))
    message: JsonObject = {"role": "assistant", "content": None if calls and not texts else "".join(texts)}
    message |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
    return message | ({"tool_calls": calls} if calls else {})


def _call(block: Mapping[str, Any], place: str) -> JsonObject:
    given = block.get("input")
    if not isinstance(given, dict):
        raise ApiError(f"{place}.input: give the arguments of the call as an object", param=f"{place}.input")
    function = {"name": _string(block, "name", place), "arguments": json.dumps(given, ensure_ascii=False)}
    return {"id": block.get("id"), "type": "function", "function": function}


def _string(block: Mapping[str, Any], name: str, place: str) -> str:
    if not isinstance(found := block.get(name), str):
        raise ApiError(f"{place}.{name}: give a text", param=f"{place}.{name}")
    return found


def _readable(content: Any) -> Any:
    """Return a content in which blocks that hold text are texts."""
    return list(map(_read, content)) if isinstance(content, list) else content


def _read(block: Any) -> Any:
    """Return a document or a search result that is text as a block of text; other blocks as they are."""
    match block:
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            pass
        case {"type": "document", "source": {"type": "content", "content": str(text)}}:
            pass
        case {"type": "search_result", "content": [*some]} if all(map(_is_text, some)):
            text = "\n".join(one["text"] for one in some)
        case _:
            return block
    told = [block[name] for name in ("title", "source", "context") if isinstance(block.get(name), str)]
    return {"type": "text", "text": "\n".join([*told, text])}


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)
