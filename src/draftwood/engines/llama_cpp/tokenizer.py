"""The tokenizer in a GGUF file: llama.cpp's own, under the names that transformers' tokenizers have."""

from __future__ import annotations

import ctypes as c
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from draftwood.engines.llama_cpp.library import library
from draftwood.engines.llama_cpp.weights import LlamaWeights
from draftwood.engines.tokens.file_tokenizer import FileTokenizer, utf8
from draftwood.errors import PromptError, UnsupportedModelError

_SENTENCEPIECE = 1  # a vocabulary of this type spells unknown characters as bytes
UNUSED, _BYTE = 1 << 1, 1 << 5  # attributes of a token
_MOST_BYTES = 1 << 29  # of a text; the library counts tokens in 32 bits


class LlamaTokenizer(FileTokenizer):
    """Turns text into ids and back; `UnsupportedModelError` if the vocabulary cannot spell every text."""

    def __init__(self, weights: LlamaWeights) -> None:
        self._weights, self._library, self._vocabulary = weights, library(), weights.vocabulary
        self._check_bytes()
        self.chat_template = weights.metadata("tokenizer.chat_template")
        self.bos_token_id = self._known(self._library.llama_vocab_bos(self._vocabulary))
        self.eos_token_id = self._known(self._library.llama_vocab_eos(self._vocabulary))

    def _known(self, token: int) -> int | None:
        return int(token) if 0 <= token < self._weights.vocab_size else None

    @property
    def _rows(self) -> int:
        return self._weights.vocab_size

    @property
    def _adds_bos(self) -> bool:
        return bool(self._library.llama_vocab_get_add_bos(self._vocabulary))

    def _metadata(self, key: str) -> str | None:
        return self._weights.metadata(key)

    def _ids(self, text: str, add_special: bool) -> list[int]:
        return run_deep(text, lambda: self._tokenize(utf8(text), add_special))

    def _tokenize(self, text: bytes, add_special: bool) -> list[int]:
        if len(text) > _MOST_BYTES:
            raise PromptError(f"a text of {len(text):,} bytes is too long to tokenize: cut it")
        count = -len(text) - 8
        while count < 0:  # room for -count tokens is needed
            found = np.empty(-count, dtype=np.int32)
            count = self._library.llama_tokenize(
                self._vocabulary, text, len(text), found.ctypes.data, len(found), add_special, True
            )
        return found[:count].tolist()

    def _name(self, token: int) -> str:
        return self._library.llama_vocab_get_text(self._vocabulary, token).decode(errors="replace")

    def _reader(self, *, special: bool) -> Callable[[int], bytes]:
        return partial(_piece, self._library, self._vocabulary, special)

    def _is_control(self, token: int) -> bool:
        return bool(self._library.llama_vocab_is_control(self._vocabulary, token))

    def _is_unused(self, token: int) -> bool:
        return self._has(token, UNUSED)

    def _has(self, token: int, attribute: int) -> bool:
        return bool(self._library.llama_vocab_get_attr(self._vocabulary, token) & attribute)

    def _check_bytes(self) -> None:
        """Refuse a vocabulary without a token for each byte: the library would end the process for lack of one."""
        if self._library.llama_vocab_type(self._vocabulary) != _SENTENCEPIECE:
            return
        every = (token for token in range(self._weights.vocab_size) if self._has(token, _BYTE))
        found = len(list(islice(every, 256)))
        if found < 256:
            raise UnsupportedModelError(
                f"the vocabulary of {self._weights.path} has tokens for {found} of 256 bytes, and llama.cpp "
                "crashes at a text that needs another: take another file"
            )


def _piece(library: Any, vocabulary: Any, special: bool, token: int) -> bytes:
    size = 1 << 8
    while True:
        room = c.create_string_buffer(size)
        length = library.llama_token_to_piece(vocabulary, token, room, size, 0, special)
        if length >= 0:
            return room.raw[:length]
        size = -length


_Result = TypeVar("_Result")

_SHORT = 2_000  # characters that fit every stack
_FRAME = 1 << 10  # bytes per character: the worst expression takes a third of it
_MOST = 4_000_000  # characters of one match; a stack for more may not be given
_SETTING = threading.Lock()


def run_deep(text: str, function: Callable[[], _Result]) -> _Result:
    """Call a function that tokenizes ``text``, of a long one in a thread with a deep stack.

    Raises `PromptError` where no stack is deep enough.
    """
    if len(text) <= _SHORT:
        return function()
    longest = max(map(len, re.findall(r"\S+|\s+", text))) if len(text) > _MOST else 0
    if longest > _MOST:
        raise PromptError(f"a text has {longest:,} characters without a space, too many to tokenize: cut it")
    size = ((_FRAME * min(len(text), _MOST) >> 20) + 1) << 20  # some systems take whole pages only
    with ThreadPoolExecutor(1) as pool:
        with _SETTING:
            usual = threading.stack_size(size)
            try:
                future = pool.submit(function)  # starts the thread
            except RuntimeError as error:
                raise PromptError(
                    f"a text of {len(text):,} characters needs {size >> 20:,} MiB of stack to be tokenized, which "
                    "the system refuses: allow more memory (ulimit -v) or threads (ulimit -u), or cut the text"
                ) from error
            finally:
                threading.stack_size(usual)
        return future.result()
