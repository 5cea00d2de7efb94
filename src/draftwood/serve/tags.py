"""Tags of calls and thoughts that are control tokens of a model: the reader of calls sees them, no client does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from draftwood.api.prompts import decoder
from draftwood.api.text import Decode
from draftwood.serve.calls import TAGS


def hidden_tags(tokenizer: Any) -> Mapping[str, int]:
    """Return those of `TAGS` that the vocabulary has as control tokens, which decoding drops, with their ids."""
    shown, found = decoder(tokenizer), dict[str, int]()
    for tag in TAGS:
        ids = tokenizer(tag, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and not shown(ids):
            found[tag] = int(ids[0])
    return found


def tag_decoder(tokenizer: Any, tags: Collection[int]) -> Decode:
    """Return a function from token ids to text with these control tokens, and without all others."""
    shown, everything = decoder(tokenizer), decoder(tokenizer, special=True)

    @cache
    def is_text(token: int) -> bool:
        return token in tags or bool(shown([token])) or not everything([token])

    def decode(ids: Sequence[int]) -> str:
        return everything([token for token in ids if is_text(token)])

    return decode
