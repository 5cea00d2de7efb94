"""What tokenizers of GGUF files have in common, whoever splits the text: transformers' names and their meaning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from draftwood.engines.chat_template import render
from draftwood.errors import UsageError


class FileTokenizer(ABC):
    """Turns text into token ids and back, exactly as llama.cpp's server does.

    Takes the place of a tokenizer of transformers wherever draftwood takes one: the same names, the same meaning.
    Names of special tokens within a text (``<|im_start|>``) become these tokens.

    Attributes
    ----------
    chat_template
        The jinja template of the file, or None; may be replaced.
    bos_token_id, eos_token_id
        The tokens that begin a text and end an answer; None where the file names none.
    """

    chat_template: str | None
    bos_token_id: int | None
    eos_token_id: int | None

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
            chat_template = self._metadata("tokenizer.chat_template.tool_use")
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
        if first is not None and ids[:1] != [first] and self._adds_bos:
            ids = [first, *ids]
        return _encoding(ids) if return_dict else ids

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token wherever it stands; those of a control token are its name."""
        return self._all[token]

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
        return [self._name(token) if 0 <= token < self._rows else None for token in ids]

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
        return [token for token in range(len(self)) if self._is_control(token)]

    @cached_property
    def _size(self) -> int:
        return known_tokens(self._rows, self._name, self._is_unused)

    @cached_property
    def _leading_space(self) -> bool:
        return self._all.text(self._ids("a", False)).startswith(" ")

    @cached_property
    def _all(self) -> Pieces:
        return Pieces(self._rows, self._reader(special=True))

    @cached_property
    def _shown(self) -> Pieces:
        return Pieces(self._rows, self._reader(special=False))

    @property
    @abstractmethod
    def _rows(self) -> int:
        """How many ids the model can choose."""

    @property
    @abstractmethod
    def _adds_bos(self) -> bool:
        """Whether the file asks for a BOS token before a text."""

    @abstractmethod
    def _metadata(self, key: str) -> str | None:
        """Return a text of the file's metadata, None where it has none."""

    @abstractmethod
    def _ids(self, text: str, add_special: bool) -> list[int]:
        """Return a text's ids, with the tokens around it that the file asks for or without."""

    @abstractmethod
    def _name(self, token: int) -> str:
        """Return the name in the file of a token."""

    @abstractmethod
    def _reader(self, *, special: bool) -> Callable[[int], bytes]:
        """Return what tells the bytes of a token, without ``special`` none for one that stands for no text.

        It does not hold the tokenizer, which would then live on, and its file with it, until cycles are collected.
        """

    @abstractmethod
    def _is_control(self, token: int) -> bool:
        """Whether a token stands for no text."""

    @abstractmethod
    def _is_unused(self, token: int) -> bool:
        """Whether the file says that a token is never chosen."""


class Pieces(dict[int, bytes]):
    """The bytes of each token, asked for when it first occurs; unknown ids have none."""

    def __init__(self, rows: int, ask: Callable[[int], bytes]) -> None:
        super().__init__()
        self._rows, self._ask = rows, ask

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of these ids."""
        return b"".join(map(self.__getitem__, ids)).decode(errors="replace")

    def __missing__(self, token: int) -> bytes:
        if not 0 <= token < self._rows:
            return b""
        return self.setdefault(int(token), self._ask(int(token)))


def known_tokens(size: int, name: Callable[[int], str], is_unused: Callable[[int], bool]) -> int:
    """Return how many tokens a vocabulary of ``size`` has without those that only fill the model's last rows."""
    while size and is_unused(size - 1) and name(size - 1).startswith("[PAD"):  # as converters call them
        size -= 1
    return size


def utf8(text: str) -> bytes:
    """Return a text's bytes, halves of a character (lone surrogates) as U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _encoding(ids: list[Any], with_mask: bool = True) -> dict[str, Any]:
    """Return ids, or rows of them, as transformers does."""
    if not with_mask:
        return {"input_ids": ids}
    rows = bool(ids) and isinstance(ids[0], list)
    return {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids] if rows else [1] * len(ids)}
