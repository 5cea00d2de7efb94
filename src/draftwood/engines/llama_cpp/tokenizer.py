"""The tokenizer in a GGUF file: llama.cpp's own, under the names that transformers' tokenizers have."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from draftwood.engines.llama_cpp.chat_template import render
from draftwood.engines.llama_cpp.deep_stack import run_deep
from draftwood.engines.llama_cpp.library import library
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.errors import PromptError, UnsupportedModelError, UsageError

_SENTENCEPIECE = 1  # a vocabulary of this type spells unknown characters as bytes
UNUSED, _BYTE = 1 << 1, 1 << 5  # attributes of a token
_MOST_BYTES = 1 << 29  # of a text; the library counts tokens in 32 bits


class LlamaTokenizer:
    """Turns text into token ids and back, exactly as llama.cpp's server does.

    Takes the place of a tokenizer of transformers wherever draftwood takes one: the same names, the same meaning.
    Names of special tokens within a text (``<|im_start|>``) become these tokens.

    Attributes
    ----------
    chat_template
        The jinja template of the file, or None; may be replaced.
    bos_token_id, eos_token_id
        The tokens that begin a text and end an answer; None where the file names none.

    Raises
    ------
    UnsupportedModelError
        The vocabulary cannot spell every text.
    """

    def __init__(self, weights: Weights) -> None:
        self._weights, self._library, self._vocabulary = weights, library(), weights.vocabulary
        self._check_bytes()
        self._shown, self._all = _Pieces(weights, special=False), _Pieces(weights, special=True)
        self._leading_space = self._all.text(self._ids("a", False)).startswith(" ")
        self.chat_template = weights.metadata("tokenizer.chat_template")
        self.bos_token_id = self._known(self._library.llama_vocab_bos(self._vocabulary))
        self.eos_token_id = self._known(self._library.llama_vocab_eos(self._vocabulary))

    def __call__(
        self, text: str | Sequence[str], *, add_special_tokens: bool = True, return_attention_mask: bool = True,
        verbose: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the ids of a text, or of each of several, as ``input_ids``, unpadded.

        ``add_special_tokens`` puts those tokens around it that the file asks for. ``verbose`` changes nothing.
        """
        del verbose
        if isinstance(text, str):
            return _encoding(self._ids(text, add_special_tokens), return_attention_mask)
        return _encoding([self._ids(one, add_special_tokens) for one in text], return_attention_mask)

    def decode(
        self, ids: Sequence[int], *, skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: Literal[False] = False,
    ) -> str:  # fmt: skip
        """Return the text of these ids; bytes of half a character become U+FFFD, unknown ids nothing.

        Spaces are never changed, but for the one that some vocabularies put before a text.
        """
        del clean_up_tokenization_spaces
        text = (self._shown if skip_special_tokens else self._all).text(ids)
        return text[1:] if self._leading_space and text.startswith(" ") else text

    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, *,
        chat_template: str | None = None, add_generation_prompt: bool = False, tokenize: bool = True,
        return_dict: bool = True, **values: Any,
    ) -> Any:  # fmt: skip
        """Return chat messages as text, as ids, or as what a call returns (``return_dict``).

        ``tools`` are JSON schemas, and further keywords are for the template. The ids begin with one BOS token
        where the file asks for it, as with llama.cpp's server, whether the template writes it or not.
        """
        if tools and chat_template is None:  # some files have a second one for this
            chat_template = self._weights.metadata("tokenizer.chat_template.tool_use")
        template = chat_template or self.chat_template
        if not template:
            raise UsageError("this file has no chat template: give plain text, or chat_template=")
        special = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        given = {"documents": None} | {name: text for name, text in special.items() if text is not None} | values
        given |= {"tools": tools, "add_generation_prompt": add_generation_prompt}
        text = render(template, conversation, **given)
        if not tokenize:
            return text
        ids = self._ids(text, False)
        first = self.bos_token_id
        if first is not None and ids[:1] != [first] and self._library.llama_vocab_get_add_bos(self._vocabulary):
            ids = [first, *ids]
        return _encoding(ids) if return_dict else ids

    def token_bytes(self) -> list[bytes]:
        """Return the bytes of every token, by id; those of control tokens are their names."""
        return [self._all[token] for token in range(len(self))]

    def __len__(self) -> int:
        """The number of tokens, without those that only fill the model's last rows."""
        return self._size

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token, by its name in the file, which is its name in transformers, too."""
        return {self._name(token): token for token in range(len(self))}

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str | None]:
        """Return the name in the file of each id, None for an unknown one."""
        return [self._name(token) if 0 <= token < self._weights.vocab_size else None for token in ids]

    @property
    def bos_token(self) -> str | None:
        """The name of the token that begins a text."""
        return None if self.bos_token_id is None else self._name(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """The name of the token that ends an answer."""
        return None if self.eos_token_id is None else self._name(self.eos_token_id)

    @cached_property
    def all_special_ids(self) -> list[int]:
        """Tokens that stand for no text."""
        is_special = self._library.llama_vocab_is_control
        return [token for token in range(len(self)) if is_special(self._vocabulary, token)]

    @cached_property
    def _size(self) -> int:
        return known_tokens(self._weights.vocab_size, self._name, lambda token: self._has(token, UNUSED))

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

    def _has(self, token: int, attribute: int) -> bool:
        return bool(self._library.llama_vocab_get_attr(self._vocabulary, token) & attribute)

    def _known(self, token: int) -> int | None:
        return int(token) if 0 <= token < self._weights.vocab_size else None

    def _check_bytes(self) -> None:
        """Refuse a vocabulary without a token for each byte: the library would end the process for lack of one."""
        if self._library.llama_vocab_type(self._vocabulary) != _SENTENCEPIECE:
            return
        found = 0
        for token in range(self._weights.vocab_size):
            found += self._has(token, _BYTE)
            if found == 256:
                return
        raise UnsupportedModelError(
            f"the vocabulary of {self._weights.path} has tokens for {found} of 256 bytes, and llama.cpp crashes "
            "at a text that needs another: take another file"
        )


def known_tokens(size: int, name: Callable[[int], str], is_unused: Callable[[int], bool]) -> int:
    """Return how many tokens a vocabulary of ``size`` has without those that only fill the model's last rows."""
    while size and is_unused(size - 1) and name(size - 1).startswith("[PAD"):  # as converters call them
        size -= 1
    return size


class _Pieces(dict[int, bytes]):
    """The bytes of each token, asked of the library when it first occurs; without ``special``, control tokens
    have none."""

    def __init__(self, weights: Weights, *, special: bool) -> None:
        super().__init__()
        self._weights, self._special = weights, special

    def text(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.__getitem__, ids)).decode(errors="replace")

    def __missing__(self, token: int) -> bytes:
        if not 0 <= token < self._weights.vocab_size:
            return b""
        ask, size = library().llama_token_to_piece, 1 << 8
        while True:
            room = c.create_string_buffer(size)
            length = ask(self._weights.vocabulary, token, room, size, 0, self._special)
            if length >= 0:
                return self.setdefault(int(token), room.raw[:length])
            size = -length


def _encoding(ids: list[Any], with_mask: bool = True) -> dict[str, Any]:
    """Return ids, or rows of them, as transformers does."""
    if not with_mask:
        return {"input_ids": ids}
    rows = bool(ids) and isinstance(ids[0], list)
    return {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids] if rows else [1] * len(ids)}


def utf8(text: str) -> bytes:
    """Return a text's bytes, halves of a character (lone surrogates) as U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
