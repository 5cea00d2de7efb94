"""The tokenizer of a GGUF file, from its metadata alone: ids and texts are those of llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from draftwood.engines.cpu.special_tokens import SpecialTokens
from draftwood.engines.cpu.vocabulary import BYTE, CONTROL, NORMAL, SPECIAL, UNKNOWN, UNUSED, Vocabulary
from draftwood.engines.cpu.vocabulary_bpe import ByteMerges, byte_letters
from draftwood.engines.cpu.vocabulary_spm import ScoredPieces
from draftwood.engines.file_tokenizer import FileTokenizer, utf8
from draftwood.errors import PromptError

_MOST_BYTES = 1 << 29  # of a text, as with llama.cpp
_BYTE_OF_LETTER = {letter: byte for byte, letter in byte_letters().items()}
_BYTES: dict[int, int | str] = {
    **dict.fromkeys(range(256), "\uffff"),
    **{ord(letter): byte for letter, byte in _BYTE_OF_LETTER.items()},
}
_HEX = re.compile("...([0-9A-Fa-f]{1,2})")


class GgufTokenizer(FileTokenizer):
    """Turns text into token ids and back, without llama.cpp.

    Parameters
    ----------
    metadata
        Keys and values of a GGUF file: ``tokenizer.ggml.tokens`` and the others.

    Attributes
    ----------
    end_ids
        Tokens that end an answer.

    Raises
    ------
    UnsupportedModelError
        The vocabulary is of a kind that only llama.cpp reads, or cannot spell every text.
    ModelError
        The metadata contradict themselves.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._vocabulary = found = Vocabulary(metadata)
        self._encoder = ScoredPieces(found) if found.pre is None else ByteMerges(found, found.pre)
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

    def _ids(self, text: str, add_special: bool) -> list[int]:
        found = utf8(text)
        if len(found) > _MOST_BYTES:
            raise PromptError(f"a text of {len(found):,} bytes is too long to tokenize: cut it")
        vocabulary, ids = self._vocabulary, list[int]()
        if add_special and vocabulary.adds_bos and vocabulary.bos is not None:
            ids.append(vocabulary.bos)
        begins = vocabulary.adds_space  # a blank goes before a text and behind each special token
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


def _piece(vocabulary: Vocabulary, special: bool, token: int) -> bytes:
    """Return the bytes of a token, without ``special`` none for control tokens."""
    name, kind = vocabulary.names[token], int(vocabulary.kinds[token])
    if not special and kind & (UNKNOWN | CONTROL):
        return b""
    if kind & SPECIAL:
        return name.encode(errors="replace")
    if kind & NORMAL:
        if vocabulary.pre is not None and vocabulary.pre.is_bytes:
            return _bytes(name)
        return name.replace("\u2581", " ").encode(errors="replace")
    if kind & BYTE:
        digits = _HEX.match(name)
        return bytes([int(digits[1], 16)]) if digits else b"\0"
    return b""


def _bytes(name: str) -> bytes:
    """Return the bytes that the letters of a name stand for; what stands for none is told of as llama.cpp does."""
    try:
        return name.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return b"".join([_byte(letter, name) for letter in name])


def _byte(letter: str, name: str) -> bytes:
    byte = _BYTE_OF_LETTER.get(letter)
    return f"[UNK_BYTE_0x{letter.encode().hex()}{name}]".encode() if byte is None else bytes([byte])
