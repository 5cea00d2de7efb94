"""From the text that a user expects to the token ids in which a model may write it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from draftwood.errors import UsageError


def predictions(texts: str | Sequence[str], tokenizer: Any) -> tuple[tuple[int, ...], ...]:
    """Return the token ids of all expected texts in all their `variants`, for drafters that take a prediction.

    Parameters
    ----------
    texts
        One text or several; empty ones are left out.
    tokenizer
        Of the model, called as transformers' are.

    Raises
    ------
    UsageError
        If something of it is no text.
    """
    several = [texts] if isinstance(texts, str) else list(texts)
    found = [form for text in several for form in variants(text, tokenizer)]
    return tuple(dict.fromkeys(found))


def variants(text: str, tokenizer: Any) -> tuple[tuple[int, ...], ...]:
    """Return the token ids of a text as it is, behind a space, and inside a JSON string, where these differ.

    A first token that differs (behind a newline, in a code fence) costs the drafter one step, but newlines and
    quotes that are escaped, as in the arguments of a tool call, change tokens on every line.

    Parameters
    ----------
    text
        What the user expects; an empty one has no variants.
    tokenizer
        Of the model, called as transformers' are.

    Raises
    ------
    UsageError
        If it is no text.
    """
    if not isinstance(text, str):
        raise UsageError(f"a prediction is text (str), not {type(text).__name__}: decode it first")
    forms = [text]
    if text[:1].strip():  # an answer may begin with a space where the model's template leaves it to it
        forms.append(" " + text)
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    if escaped != text:
        forms.append(escaped)
    ids = (tuple(tokenizer(form, add_special_tokens=False)["input_ids"]) for form in forms)
    return tuple(dict.fromkeys(form for form in ids if form))
