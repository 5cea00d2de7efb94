"""Tags of calls and thoughts that are control tokens of a model: the reader of calls sees them, no client does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftwood.api.prompts import decoder
from draftwood.serve.calls import TAGS


def hidden_tags(tokenizer: Any) -> Mapping[str, int]:
    """Return those of `TAGS` that the vocabulary has as control tokens, which decoding drops, with their ids."""
    shown, found = decoder(tokenizer), dict[str, int]()
    for tag in TAGS:
        ids = tokenizer(tag, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and not shown(ids):
            found[tag] = int(ids[0])
    return found
