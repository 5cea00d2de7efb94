"""Whatever a user calls a prompt, as token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from draftwood.errors import PromptError, UsageError

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]] | Any
"""Text, token ids (a list or a one-dimensional array or tensor), or chat messages."""


def as_prompts(given: Any, tokenizer: Any) -> tuple[bool, list[list[int]]]:
    """Return whether several prompts were given, and the ids of each.

    Raises
    ------
    PromptError
        For what is empty or cannot be read as a prompt.
    UsageError
        If text or messages come without a tokenizer.
    """
    if _is_one(given):
        return False, [as_ids(given, tokenizer)]
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise PromptError(
            f"a prompt of {type(given).__name__} cannot be read: give text, token ids or chat messages"
        )
    prompts = list(given)
    if not prompts:
        raise PromptError("the prompt is empty: give some text")
    return True, [as_ids(prompt, tokenizer) for prompt in prompts]


def as_ids(prompt: Any, tokenizer: Any) -> list[int]:
    """Token ids of one prompt; chat messages are rendered with the tokenizer's template."""
    if isinstance(prompt, str):
        if not prompt:
            raise PromptError("the prompt is empty: give some text")
        return list(_needed(tokenizer)(prompt)["input_ids"])
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes) or not len(prompt):
        raise PromptError("the prompt is empty or no prompt: give text, token ids or chat messages")
    if isinstance(prompt[0], Mapping):
        return render(prompt, tokenizer)
    if all(isinstance(i, Integral) for i in prompt):
        return [int(i) for i in prompt]
    odd = next(i for i in prompt if not isinstance(i, Integral))
    raise PromptError(f"a prompt of {type(odd).__name__} cannot be read: give text, token ids or chat messages")


def render(messages: Sequence[Mapping[str, Any]], tokenizer: Any) -> list[int]:
    """Token ids of a conversation, up to where the assistant's next answer begins.

    Raises
    ------
    UsageError
        If the tokenizer has no chat template.
    """
    if not getattr(_needed(tokenizer), "chat_template", None):
        raise UsageError(
            "this tokenizer has no chat template: give plain text (without --chat), or take an instruct model"
        )
    rendered = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
    return [int(i) for i in rendered]


def decoder(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Token ids to text without special tokens, spaces as they are."""

    def decode(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    return decode


def _is_one(given: Any) -> bool:
    if isinstance(given, str):
        return True
    if hasattr(given, "ndim"):
        return bool(given.ndim == 1)
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        return False
    return len(given) > 0 and isinstance(given[0], Integral | Mapping)


def _needed(tokenizer: Any) -> Any:
    if tokenizer is None:
        raise UsageError("text and chat messages need a tokenizer: pass tokenizer=, or give token ids")
    return tokenizer
