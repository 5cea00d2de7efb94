"""Reads texts that users give besides the prompt (predictions, context) as token ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from draftwood.errors import UsageError
from draftwood.files.foreign import whole

Text = str | Sequence[int]
Prediction = Text | Sequence[Text | Sequence[Text] | None]
Ids = tuple[int, ...]


def per_prompt(prediction: Any, prompts: int | None) -> list[Any]:
    """Return the prediction of each prompt: one text is for all of them.

    A list holds the alternatives of a single prompt (``prompts`` is None), or an entry per prompt, which may be
    None or a list of alternatives.
    """
    if prompts is None:
        return [prediction]
    if prediction is None or _is_text(prediction):
        return [prediction] * prompts
    entries = list(_listed(prediction, "prediction"))
    if len(entries) != prompts:
        raise UsageError(
            f"{prompts} prompts and {len(entries)} predictions: give one text for all, or a list with an entry (a "
            "text, a list of texts or None) per prompt"
        )
    return entries


def read_prediction(given: Any, tokenizer: Any, vocab_size: int | None = None) -> tuple[Ids, ...]:
    """Return the token ids of the prediction of one prompt, text in all its `variants`, without empty ones."""
    texts: list[Ids] = []
    for one in several(given, "prediction"):
        if isinstance(one, str):
            texts += variants(one, _needed(tokenizer, "prediction"))
        else:
            texts += [ids] if (ids := _ids(one, "prediction", tokenizer, vocab_size)) else []
    return tuple(dict.fromkeys(texts))


def variants(text: str, tokenizer: Any) -> tuple[Ids, ...]:
    """Return the token ids of a text as it is, after a space, and inside a JSON string, where these differ.

    A first token that differs (after a newline, in a code fence) costs the drafter one step, but newlines and
    quotes that are escaped, as in the arguments of a tool call, change tokens on every line.
    """
    forms = [text]
    if text[:1].strip():  # the chat template may leave a space to the answer
        forms.append(" " + text)
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    if escaped != text:
        forms.append(escaped)
    ids = (tuple(tokenizer(form, add_special_tokens=False)["input_ids"]) for form in forms)
    return tuple(dict.fromkeys(form for form in ids if form))


def read_texts(given: Any, what: str, tokenizer: Any, vocab_size: int | None) -> tuple[Ids, ...]:
    """Return the token ids of one text or several, called ``what`` in errors; empty ones are left out."""
    texts = (_ids(one, what, tokenizer, vocab_size) for one in several(given, what))
    return tuple(text for text in texts if text)


def several(given: Any, what: str) -> list[Any]:
    """Return one text, or each of several, as a list."""
    texts = [given] if _is_text(given) else list(_listed(given, what))
    for text in texts:
        if isinstance(text, str):
            whole(text, f"a text of {what}", UsageError)
    return texts


def _is_text(given: Any) -> bool:
    if isinstance(given, str) or getattr(given, "ndim", 0) == 1:
        return True
    return isinstance(given, Sequence) and len(given) > 0 and isinstance(given[0], Integral)


def _listed(given: Any, what: str) -> Iterable[Any]:
    if not isinstance(given, Iterable) or isinstance(given, bytes | dict) or getattr(given, "ndim", 1) == 0:
        raise UsageError(f"{what} is text, token ids or a list of these, not {type(given).__name__}")
    return given


def _ids(text: Any, what: str, tokenizer: Any, vocab_size: int | None) -> Ids:
    if isinstance(text, str):
        known = _needed(tokenizer, what)
        return tuple(known(text, add_special_tokens=False)["input_ids"]) if text else ()
    ids = text.tolist() if hasattr(text, "tolist") else list(_listed(text, what))
    if odd := [i for i in ids if not isinstance(i, Integral)]:
        raise UsageError(f"{what} is text, token ids or a list of these; {type(odd[0]).__name__} is none of them")
    if ids and (min(ids) < 0 or max(ids) >= (vocab_size or 1 << 31)):
        raise UsageError(f"{what} has token ids outside the vocabulary [0, {vocab_size or 1 << 31})")
    return tuple(int(i) for i in ids)


def _needed(tokenizer: Any, what: str) -> Any:
    if tokenizer is None:
        raise UsageError(f"{what} as text needs a tokenizer: pass tokenizer=, or give token ids")
    return tokenizer
