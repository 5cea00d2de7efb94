"""The token with which a chat template ends an answer, which a model's generation config may not name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from draftwood.api.remembering import Known, remembered
from draftwood.api.spelling import Spelling

_MARK = "answer"


class _Turn(NamedTuple):
    """How a template begins an answer, and the token that it puts behind one."""

    opening: tuple[int, ...]
    end: int


_known = Known[_Turn | None]()


def turn_ends(tokenizer: Any, prompt: Sequence[int]) -> frozenset[int]:
    """Return the token that ends an answer, if the prompt ends as the tokenizer's chat template begins answers."""
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        return frozenset()
    turn = remembered(_known, tokenizer, template, _turn)
    if turn is None or tuple(prompt[-len(turn.opening) :]) != turn.opening:
        return frozenset()
    return frozenset({turn.end})


def _turn(tokenizer: Any) -> _Turn | None:
    """Read a conversation of two messages; None where its template tells nothing."""
    asked = [{"role": "user", "content": "question"}]
    try:
        open_, closed = (_ids(tokenizer, asked, add_generation_prompt=opens) for opens in (True, False))
        both = [*asked, {"role": "assistant", "content": _MARK}]
        text = tokenizer.apply_chat_template(both, add_generation_prompt=False, tokenize=False)
        behind = tokenizer(text.rpartition(_MARK)[2].lstrip(), add_special_tokens=False)["input_ids"]
    except Exception:  # whatever a template raises, which is a program of the model's authors
        return None
    if not behind or open_[: len(closed)] != closed or len(open_) == len(closed):
        return None
    is_special = bool(Spelling(tokenizer).special(int(behind[0])))
    return _Turn(tuple(open_[len(closed) :]), int(behind[0])) if is_special else None


def _ids(tokenizer: Any, messages: Any, *, add_generation_prompt: bool) -> list[int]:
    found = tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, return_dict=False)
    return [int(i) for i in found]
