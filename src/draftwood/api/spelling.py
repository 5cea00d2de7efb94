"""What tokens stand for: their text as users see it, their names, and their bytes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from draftwood.api.prompts import decoder
from draftwood.engines.file_tokenizer import FileTokenizer

_BYTE = re.compile("<0x([0-9A-F]{2})>")
_BLANK = "\u2581"


class Spelling:
    """Spells tokens; called with ids it gives their text without special tokens.

    Parameters
    ----------
    tokenizer
        Of transformers, of a GGUF file, or whatever decodes ids.
    kept
        Special tokens whose names are part of the text all the same.

    Attributes
    ----------
    full
        From ids to their text with the names of special tokens.
    """

    def __init__(self, tokenizer: Any, kept: Collection[int] = ()) -> None:
        self._tokenizer, self._kept = tokenizer, kept
        self._shown, self.full = decoder(tokenizer), decoder(tokenizer, special=True)
        self._pieces: dict[int, bytes | None] = {}
        self._names: dict[int, str] = {}

    def __call__(self, ids: Sequence[int]) -> str:
        if self._kept:
            return self.full([token for token in ids if not self.special(token)])
        return self._shown(ids)

    def special(self, token: int) -> str:
        """Return the name of a token that texts leave out; nothing for others."""
        if token not in self._names:
            is_text = token in self._kept or bool(self._shown([token]))
            self._names[token] = "" if is_text else self.full([token])
        return self._names[token]

    def piece(self, token: int) -> bytes | None:
        """Return the bytes of a token wherever it stands, of a special one its name; None where nobody knows."""
        if token not in self._pieces:
            self._pieces[token] = self._found(token)
        return self._pieces[token]

    def name(self, token: int) -> str:
        """Return a token as text; one whose bytes are none as OpenAI writes it: ``bytes:\\xe6\\x9c``."""
        piece = self.piece(token)
        return self.full([token]) if piece is None else as_text(piece)

    def _found(self, token: int) -> bytes | None:
        if isinstance(self._tokenizer, FileTokenizer):
            return self._tokenizer.piece(token)
        text, names = self.full([token]), getattr(self._tokenizer, "convert_ids_to_tokens", None)
        name = None if names is None else names(token)
        if not isinstance(name, str) or text == name:
            return None if name is None and "\ufffd" in text else text.encode(errors="replace")
        if byte := _BYTE.fullmatch(name):
            return bytes([int(byte[1], 16)])
        if "\ufffd" in text:  # parts of characters, in letters that stand for bytes
            found = bytes(map(_letters().get, name)) if set(name) <= set(_letters()) else b""  # type: ignore[arg-type]
            return found if found.decode(errors="replace") == text else None
        bare = name.replace(_BLANK, " ")
        return (bare if bare == f" {text}" else text).encode(errors="replace")  # decoders drop the first blank


def as_text(piece: bytes) -> str:
    """Return bytes as text, those that are none as OpenAI writes them."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


@cache
def _letters() -> dict[str, int]:
    from draftwood.engines.cpu.vocabulary_bpe import byte_letters

    return {letter: byte for byte, letter in byte_letters().items()}
