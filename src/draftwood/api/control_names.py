"""Names of control tokens, which stand for no text; templates write these tokens by their names."""

from __future__ import annotations

import re
from collections.abc import Sized
from typing import Any

from draftwood.engines.tokens.file_tokenizer import single_token
from draftwood.engines.tokens.fingerprint import remembered


def control_names(tokenizer: Any) -> re.Pattern[str] | None:
    """Return a pattern of the names of a tokenizer's control tokens, the longest first; None if it has none."""
    size = len(tokenizer) if isinstance(tokenizer, Sized) else None  # it changes when tokens are added
    return remembered(tokenizer, "control names", size, _control_names)


def control_ids(tokenizer: Any) -> list[int]:
    """Return the control tokens of a tokenizer, ascending."""
    added = getattr(tokenizer, "added_tokens_decoder", None)
    if added is None:
        return sorted(int(token) for token in getattr(tokenizer, "all_special_ids", ()))
    return sorted(int(token) for token, about in added.items() if about.special)


def _control_names(tokenizer: Any) -> re.Pattern[str] | None:
    from draftwood.engines.files.vocabulary import MESSAGE_MARKS  # imports numpy

    added = getattr(tokenizer, "added_tokens_decoder", None)
    if added is not None:  # transformers; added tokens that are not special are text
        names = [token.content for token in added.values() if token.special]
    else:
        ids = getattr(tokenizer, "all_special_ids", ())
        names = tokenizer.convert_ids_to_tokens(ids) if ids else []
    names = [*names, *(name for name in (*MESSAGE_MARKS, "<|end|>") if single_token(tokenizer, name) is not None)]
    longest = sorted({name for name in names if name and len(name) > 1}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest))) if longest else None
