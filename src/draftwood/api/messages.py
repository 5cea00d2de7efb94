"""Chat messages as token ids: checks them, joins their text parts, and renders the tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftwood.errors import PromptError, UsageError


def render(messages: Sequence[Mapping[str, Any]], tokenizer: Any) -> list[int]:
    """Return the token ids of a conversation, up to where the assistant's next answer begins.

    `PromptError` for messages that cannot be read, `UsageError` without a chat template.
    """
    plain = [_plain(message, number) for number, message in enumerate(messages, 1)]
    if not getattr(needed(tokenizer), "chat_template", None):
        raise UsageError(
            "this tokenizer has no chat template: give plain text (without --chat), or take an instruct model"
        )
    try:
        rendered = tokenizer.apply_chat_template(plain, add_generation_prompt=True, return_dict=False)
    except Exception as error:  # whatever a template raises, which is a program of the model's authors
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PromptError(
            f"the model's chat template refuses these messages ({reason}): change their roles or their order"
        ) from error
    return [int(i) for i in rendered]


def needed(tokenizer: Any) -> Any:
    """Return the tokenizer; `UsageError` if there is none."""
    if tokenizer is None:
        raise UsageError("text and chat messages need a tokenizer: pass tokenizer=, or give token ids")
    return tokenizer


def _plain(message: Any, number: int) -> dict[str, Any]:
    """Return a message with its content as one string."""
    if not isinstance(message, Mapping):
        kind = type(message).__name__
        raise PromptError(
            f"message {number} is of type {kind}: write each message as a dict with 'role' and 'content'"
        )
    if not isinstance(message.get("role"), str):
        raise PromptError(f"message {number} has no role: add 'role': 'user', 'assistant' or 'system'")
    content = message.get("content")
    if content is None:
        if message.get("tool_calls"):  # an assistant's message that calls a tool and says nothing
            return dict(message)
        raise PromptError(f"message {number} ({message['role']}) has no content: add 'content' with its text")
    if not isinstance(content, str):
        if not isinstance(content, Sequence) or isinstance(content, bytes):
            kind = type(content).__name__
            raise PromptError(f"the content of message {number} is of type {kind}: give text (str)")
        content = "".join(_text(part, number) for part in content)
    return {**message, "content": content}


def _text(part: Any, number: int) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(text, str):
        raise PromptError(
            f"message {number} has a part of type {kind!r} that is no text: draftwood reads text parts "
            "({'type': 'text', 'text': ...}) only, so leave the others out"
        )
    return text
