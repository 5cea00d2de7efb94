"""A tokenizer of a few bytes per token, a toy model for it, a processor that makes the toy write proper text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from draftwood.testing import ToyTarget

END, USER, BOT = 0, 1, 2
TOKENS = [
    b"",
    b"",
    b"",
    b"a",
    b"b",
    b"ab",
    b" ",
    b"\n",
    *(bytes([byte]) for byte in "\u00e9\u6728\U0001f333".encode()),
]
"""Three special tokens, some text, and the single bytes of characters of two, three and four bytes."""
NAMES = (b"<end>", b"<user>", b"<bot>")
"""Of the special tokens."""


class FakeTokenizer:
    """What draftwood asks of a tokenizer of transformers, and no more."""

    chat_template: str | None = "<user>question<end><bot>answer<end>"

    def __len__(self) -> int:
        return len(TOKENS)

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        del add_special_tokens  # it has none
        ids, left = [], text.encode()
        while left:
            token = max((t for t in TOKENS if t and left.startswith(t)), key=len, default=b"")
            ids += [TOKENS.index(token)] if token else []  # what it does not know it leaves out
            left = left[len(token) or 1 :]
        return {"input_ids": ids}

    def decode(self, ids: Any, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        assert clean_up_tokenization_spaces is False
        named = () if skip_special_tokens else NAMES
        return b"".join(named[i] if i < len(named) else TOKENS[i] for i in ids).decode(errors="replace")

    def apply_chat_template(self, messages: Any, *, add_generation_prompt: bool, return_dict: bool) -> list[int]:
        assert (add_generation_prompt, return_dict) == (True, False)
        ids = []
        for message in messages:
            ids += [{"assistant": BOT}.get(message["role"], USER), *self(message["content"])["input_ids"], END]
        return [*ids, BOT]


TOKENIZER = FakeTokenizer()


def text_of(ids: Any) -> str:
    return TOKENIZER.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def toy(**options: Any) -> ToyTarget:
    """A toy model with the fake's vocabulary and a generation config without an opinion."""
    config = {name: options.pop(name) for name in list(options) if name not in ToyTarget.__dataclass_fields__}
    target = ToyTarget(**{"vocab_size": len(TOKENS), "order": 4, "sharpness": 1.0} | options)
    target.generation_config = SimpleNamespace(**config)
    return target


STARTS = {TOKENS.index(letter.encode()[:1]): letter.encode()[1:] for letter in "\u00e9\u6728\U0001f333"}


def proper(prefix: Any, row: Any) -> Any:
    """Masks what would not be UTF-8: within a character all but its next byte, else all that begins none."""
    for start, rest in STARTS.items():
        for done in range(len(rest)):
            if list(prefix[-1 - done :]) == [start, *(TOKENS.index(bytes([b])) for b in rest[:done])]:
                only = np.full_like(row, -np.inf)
                only[TOKENS.index(bytes([rest[done]]))] = 0
                return only
    row[[END, USER, BOT, *(i for i in range(8, len(TOKENS)) if i not in STARTS)]] = -np.inf
    return row
