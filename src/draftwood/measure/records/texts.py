"""Texts of tokens, kept so that answers can be shown without their tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftwood.api.prompts import decoder
from draftwood.api.text import TextBuilder


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the text of each token; a character of several tokens stands with the last of them."""
    builder = TextBuilder(decoder(tokenizer))
    texts = ["".join(piece.text for piece in builder.push(token, "")) for token in ids]
    if texts:
        texts[-1] += "".join(piece.text for piece in builder.finish(""))
    return texts
