"""What tokenizers of our own share: the interface of those of transformers, and chat templates in a sandbox."""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache, partial
from typing import Any, Literal

from draftwood.errors import ModelError, UsageError

_SHORT = 10_000
"""Characters of a text that is tokenized within some milliseconds."""
_PROCESS = os.getpid()
_REASONING = ("reasoning_content", "thinking", "reasoning")  # names that a message's reasoning goes by


def ids_of(tokenizer: Any, text: str, *, special: bool = False) -> list[int]:
    """Return a text's ids by a tokenizer of the package tokenizers; while a long one is read, other threads run.

    ``special`` puts those tokens around it that the tokenizer's file asks for.
    """
    # `encode` keeps the interpreter's lock. A batch lets it go, but is read by threads of the package, which some
    # systems do not grant, and which a child of fork does not have.
    if len(text) <= _SHORT or threading.active_count() == 1 or os.getpid() != _PROCESS:
        found = tokenizer.encode(text, add_special_tokens=special)
    else:
        (found,) = tokenizer.encode_batch_fast([text], add_special_tokens=special)
    ids: list[int] = found.ids
    return ids


def decoder(tokenizer: Any, *, special: bool = False) -> Callable[[Sequence[int]], str]:
    """Return a function from token ids to text, without ``special`` tokens and without cleaning up spaces."""
    return partial(tokenizer.decode, skip_special_tokens=not special, clean_up_tokenization_spaces=False)


def single_token(tokenizer: Any, name: str) -> int | None:
    """Return the token of this name, None where there is none."""
    ids = tokenizer(name, add_special_tokens=False)["input_ids"]
    return int(ids[0]) if len(ids) == 1 and decoder(tokenizer, special=True)(ids) == name else None


def render(template: str, messages: Iterable[Mapping[str, Any]], **values: Any) -> str:
    """Return the text that a template makes of chat messages and of ``values``; it sees plain copies of them.
    Raises `ModelError` for a template that cannot be read or that reaches out of its sandbox, and whatever the
    template raises when it refuses the messages."""
    from jinja2.exceptions import SecurityError, TemplateSyntaxError

    given = json.loads(json.dumps({**values, "messages": [_message(message) for message in messages]}))
    try:
        return _compiled(template).render(given)
    except TemplateSyntaxError as error:
        raise _unusable(f"cannot be read (line {error.lineno}: {error.message})") from error
    except SecurityError as error:
        raise _unusable(f"does what it may not do ({str(error).rstrip('.')})") from error


def _unusable(why: str) -> ModelError:
    return ModelError(f"the model's chat template {why}: give plain text (without --chat), or take another file")


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without empty fields, its reasoning under the names that templates read."""
    kept = {key: value for key, value in message.items() if value is not None}
    reasoning = next((kept[name] for name in _REASONING if name in kept), None)
    return kept if reasoning is None else {"thinking": reasoning, **kept, "reasoning_content": reasoning}


def variables(template: str) -> frozenset[str]:
    """Return the names that a template reads beside those that it sets; none for one that cannot be read."""
    from jinja2.exceptions import TemplateError
    from jinja2.meta import find_undeclared_variables

    sandbox = _sandbox()
    try:
        return frozenset(find_undeclared_variables(sandbox.parse(template)) - set(sandbox.globals))
    except TemplateError:
        return frozenset()


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    return _sandbox().from_string(template)


@lru_cache(maxsize=1)
def _sandbox() -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what an assistant wrote, for training: its content alone is rendered."""

        tags = {"generation"}  # noqa: RUF012 - as declared there

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            content = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(content).set_lineno(line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = _tojson
    sandbox.globals["raise_exception"] = raise_exception
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return sandbox


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """As in transformers: Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class FileTokenizer(ABC):
    """Turns text into token ids and back: of a GGUF file as llama.cpp's server does, of a folder as transformers
    does. Has the methods of a tokenizer of transformers, whose place it takes. Names of special tokens within a
    text (``<|im_start|>``) become these tokens; ``bos_token_id`` and ``eos_token_id`` are None where the file
    names none."""

    chat_template: str | None  # may be replaced
    bos_token_id: int | None
    eos_token_id: int | None

    def __call__(
        self, text: str | Sequence[str], *, add_special_tokens: bool = True, return_attention_mask: bool = True,
        verbose: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the ids of a text, or of each of several, as ``input_ids``, unpadded. ``add_special_tokens`` puts
        those tokens around it that the file asks for. ``verbose`` changes nothing."""
        del verbose
        if isinstance(text, str):
            return _encoding(self._ids(text, add_special_tokens), return_attention_mask)
        return _encoding([self._ids(one, add_special_tokens) for one in text], return_attention_mask)

    def decode(
        self, ids: Sequence[int], *, skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: Literal[False] = False,
    ) -> str:  # fmt: skip
        """Return the text of these ids; bytes of half a character become U+FFFD, unknown ids nothing. Spaces are
        never changed, but for the one that some vocabularies put before a text."""
        del clean_up_tokenization_spaces
        text = (self._shown if skip_special_tokens else self._all).text(ids)
        return text[1:] if self._leading_space and text.startswith(" ") else text

    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, *,
        chat_template: str | None = None, add_generation_prompt: bool = False, tokenize: bool = True,
        return_dict: bool = True, **values: Any,
    ) -> Any:  # fmt: skip
        """Return chat messages as text, as ids, or as `__call__` returns ids (``return_dict``). ``tools`` are JSON
        schemas, and further keywords are for the template. ``chat_template`` is a template, or the name of one in
        the file. The ids begin with one BOS token where a GGUF file asks for it, as with llama.cpp's server,
        whether the template writes it or not."""
        if not all(isinstance(message, Mapping) for message in conversation):
            raise UsageError("a chat is a list of messages with role and content: give one chat at a time")
        wanted = "tool_use" if tools and chat_template is None else chat_template  # files may have several
        named = self._metadata(f"tokenizer.chat_template.{wanted}") if wanted else None
        template = named or chat_template or self.chat_template
        if not template:
            raise UsageError("this file has no chat template: give plain text, or chat_template=")
        given = {"documents": None, **self.special_tokens_map, **values}
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
        """The number of tokens, without those that only pad the vocabulary at its end."""
        return self._size

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token, by its name in the file, which is its name in transformers, too."""
        return {self._name(token): token for token in range(len(self))}

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str | None]:
        """Return the name in the file of each id, None for an unknown one."""
        return [self._name(token) if 0 <= token < self._rows else None for token in ids]

    @property
    def special_tokens_map(self) -> Mapping[str, str]:
        """The names of special tokens by their roles (``bos_token``)."""
        found = {"bos_token": self.bos_token_id, "eos_token": self.eos_token_id}
        return {role: self._name(token) for role, token in found.items() if token is not None}

    def role_token(self, role: str) -> int | None:
        """Return the token that the file's metadata name for a role (``fim_pre``), None where they name none."""
        said = self._metadata(f"tokenizer.ggml.{role}_token_id") or ""
        return int(said) if said.isdigit() and int(said) < self._rows else None

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens_map.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.special_tokens_map.get("eos_token")

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
        """Return a function from a token to its bytes; without ``special``, a token that stands for no text has
        none. It must not refer to the tokenizer: that cycle would keep it, and its file, alive for long."""

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
        return b"".join(map(self.__getitem__, ids)).decode(errors="replace")

    def __missing__(self, token: int) -> bytes:
        if not 0 <= token < self._rows:
            return b""
        return self.setdefault(int(token), self._ask(int(token)))


def known_tokens(size: int, name: Callable[[int], str], is_unused: Callable[[int], bool]) -> int:
    """Return how many tokens a vocabulary of ``size`` has without those that only pad it at its end."""
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
