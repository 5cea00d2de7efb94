"""The tokenizer of a GGUF file, from its metadata alone: ids and texts are those of llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from draftwood.engines.files.vocabulary import BYTE, CONTROL, NORMAL, SPECIAL, UNKNOWN, UNUSED, FileVocabulary
from draftwood.engines.tokens.encoders import (
    ByteMerges,
    CharacterMerges,
    ScoredPieces,
    SpecialTokens,
    byte_letters,
)
from draftwood.engines.tokens.file_tokenizer import FileTokenizer, ids_of, utf8
from draftwood.engines.tokens.hub_tokenizer import read_parts
from draftwood.errors import PromptError

_MOST_BYTES = 1 << 29  # of a text, as with llama.cpp
_BYTE_OF_LETTER = {letter: byte for byte, letter in byte_letters().items()}
_BYTES: dict[int, int | str] = {
    **dict.fromkeys(range(256), "\uffff"),
    **{ord(letter): byte for letter, byte in _BYTE_OF_LETTER.items()},
}
_HEX = re.compile("...([0-9A-Fa-f]{1,2})")


class GgufTokenizer(FileTokenizer):
    """Turns text into token ids and back, without llama.cpp, by a GGUF file's metadata.

    ``end_ids`` are the tokens that end an answer. Raises `UnsupportedModelError` for a vocabulary that only
    llama.cpp reads, or that cannot spell every text, and `ModelError` for metadata that contradict themselves.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._vocabulary = found = FileVocabulary(metadata)
        self._encoder = _encoder(found)
        self._special = SpecialTokens(found.names, found.special, found.takes_blanks)
        self.chat_template = found.text("tokenizer.chat_template")
        self.bos_token_id, self.eos_token_id, self.end_ids = found.bos, found.eos, found.end_ids

    @property
    def _rows(self) -> int:
        return len(self._vocabulary.names)

    @property
    def _adds_bos(self) -> bool:
        return self._vocabulary.adds_bos

    def _metadata(self, key: str) -> str | None:
        return self._vocabulary.text(key)

    def role_token(self, role: str) -> int | None:
        return self._vocabulary.role_id(role)

    def _ids(self, text: str, add_special: bool) -> list[int]:
        found = utf8(text)
        if len(found) > _MOST_BYTES:
            raise PromptError(f"a text of {len(found):,} bytes is too long to tokenize: cut it")
        vocabulary, ids = self._vocabulary, list[int]()
        if add_special and vocabulary.adds_bos and vocabulary.bos is not None:
            ids.append(vocabulary.bos)
        begins = vocabulary.adds_space  # a blank goes before a text and after each special token
        for part in self._special.split(found.decode()):
            if isinstance(part, int):
                ids.append(part)
                begins = vocabulary.adds_space
            else:
                ids += self._encoder.encode(" " + part if begins else part)
                begins = False
        if add_special and vocabulary.adds_eos and vocabulary.eos is not None:
            ids.append(vocabulary.eos)
        return ids

    def _name(self, token: int) -> str:
        return self._vocabulary.names[token]

    def _reader(self, *, special: bool) -> Callable[[int], bytes]:
        return partial(_piece, self._vocabulary, special)

    def _is_control(self, token: int) -> bool:
        return bool(self._vocabulary.kinds[token] & CONTROL)

    def _is_unused(self, token: int) -> bool:
        return bool(self._vocabulary.kinds[token] & UNUSED)


def _encoder(vocabulary: FileVocabulary) -> ByteMerges | CharacterMerges | ScoredPieces:
    if vocabulary.pre is not None:
        return ByteMerges(vocabulary, vocabulary.pre)
    return CharacterMerges(vocabulary) if vocabulary.model == "gemma4" else ScoredPieces(vocabulary)


def _piece(vocabulary: FileVocabulary, special: bool, token: int) -> bytes:
    """Return the bytes of a token, without ``special`` none for control tokens."""
    name, kind = vocabulary.names[token], int(vocabulary.kinds[token])
    if not special and kind & (UNKNOWN | CONTROL):
        return b""
    if kind & SPECIAL:
        return name.encode(errors="replace")
    if kind & NORMAL:
        if vocabulary.pre is not None:
            return _bytes(name)
        return name.replace("\u2581", " ").encode(errors="replace")
    if kind & BYTE:
        digits = _HEX.match(name)
        return bytes([int(digits[1], 16)]) if digits else b"\0"
    return b""


def _bytes(name: str) -> bytes:
    """Return the bytes that the letters of a name stand for; an unknown letter becomes llama.cpp's note."""
    try:
        return name.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return b"".join([_byte(letter, name) for letter in name])


def _byte(letter: str, name: str) -> bytes:
    byte = _BYTE_OF_LETTER.get(letter)
    return f"[UNK_BYTE_0x{letter.encode().hex()}{name}]".encode() if byte is None else bytes([byte])


_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


class HubTokenizer(FileTokenizer):
    """Turns text into token ids and back by the files of a folder, as transformers does, but without it.

    Raises what `read_parts` raises.
    """

    def __init__(self, folder: Path) -> None:
        parts = read_parts(folder)
        self._tokenizer, self._named, self._templates = parts.core, parts.named, parts.templates
        self._beyond = parts.beyond
        self.chat_template = self._templates.get("default")
        added = self._tokenizer.get_added_tokens_decoder()
        self.bos_token_id, self.eos_token_id = (self._id(f"{role}_token") for role in ("bos", "eos"))
        self._added = {token: str(said.content) for token, said in added.items()}
        self._control = frozenset(token for token, said in added.items() if said.special)

    def decode(
        self, ids: Sequence[int], *, skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: Literal[False] = False,
    ) -> str:  # fmt: skip
        del clean_up_tokenization_spaces
        known = [int(token) for token in ids if 0 <= token < self._rows]
        return str(self._tokenizer.decode(known, skip_special_tokens=skip_special_tokens))

    @property
    def decoder(self) -> Any:
        """What makes a text of names of tokens, of the package tokenizers; None joins them by blanks."""
        return self._tokenizer.decoder

    @property
    def special_tokens_map(self) -> Mapping[str, str]:
        return self._named

    def _id(self, role: str) -> int | None:
        if role not in self._named:
            return None
        found: int | None = self._tokenizer.token_to_id(self._named[role])
        return self._id("unk_token") if found is None and role != "unk_token" else found

    @cached_property
    def _size(self) -> int:
        size = self._rows
        while size - 1 in self._beyond:
            size -= 1
        return size

    @cached_property
    def _rows(self) -> int:
        return 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    @property
    def _adds_bos(self) -> bool:
        return False  # as with transformers, a chat has the token that its template writes

    def _metadata(self, key: str) -> str | None:
        return self._templates.get(key.removeprefix("tokenizer.chat_template."))

    def _ids(self, text: str, add_special: bool) -> list[int]:
        return ids_of(self._tokenizer, utf8(text).decode(), special=add_special)

    def _name(self, token: int) -> str:
        found = self._added.get(token) or self._tokenizer.id_to_token(token)
        return f"[PAD{token}]" if found is None else str(found)

    def _reader(self, *, special: bool) -> Callable[[int], bytes]:
        del special  # `decode` leaves them out itself
        return partial(_hub_piece, self._tokenizer, self._added, self._control)

    def _is_control(self, token: int) -> bool:
        return token in self._control

    def _is_unused(self, token: int) -> bool:
        return self._tokenizer.id_to_token(token) is None


def _hub_piece(tokenizer: Any, added: Mapping[int, str], control: Collection[int], token: int) -> bytes:
    """Return the bytes of a token behind others; ``added`` has the names of added tokens."""
    name, decoder = added.get(token) or tokenizer.id_to_token(token), repr(tokenizer.decoder)
    if token in control or name is None:
        return (name or "").encode(errors="replace")
    if "ByteLevel" in decoder:
        is_spelled = _BYTE_OF_LETTER.keys() >= set(name)
        return bytes(map(_BYTE_OF_LETTER.__getitem__, name)) if is_spelled else str(name).encode()
    if "ByteFallback" in decoder and (byte := _BYTE.fullmatch(name)):
        return bytes.fromhex(byte[1])
    if "\u2581" in decoder:
        return str(name).replace("\u2581", " ").encode(errors="replace")
    text, twice = (tokenizer.decode([token] * count, skip_special_tokens=False) for count in (1, 2))
    return str(twice[len(text) :] or text).encode(errors="replace")
