"""Models that write what a test says, token by token, with each kind of tokenizer and on each engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import draftwood
from draftwood.api.setup import Setup
from tests.engines.tiny_gguf import write_gguf

KINDS = ("transformers", "cpu", "llama.cpp")


class Script:
    """A processor that lets the next token of ``ids`` win, at ``script`` by the length of the answer so far."""

    def __init__(self, ids: list[int], start: int, margin: float) -> None:
        self._ids, self._start, self._margin = ids, start, margin

    def __call__(self, prefix: Any, row: Any) -> Any:
        place = len(prefix) - self._start
        if place < len(self._ids):
            row[self._ids[place]] = float(row.max()) + self._margin
        return row


def scripted(setup: Setup, ids: list[int] | Callable[[Any], list[int]], margin: float = 3.0) -> Setup:
    """Let a set-up write the tokens that the list holds when it is asked, and behind them what it will.

    Instead of a list, a function from the prompt; ``margin`` is by how much a score is the best.
    """
    request = setup.request

    def asked(prompt: Any, **settings: Any) -> Any:
        found = request(prompt, **settings)
        wanted = ids(prompt) if callable(ids) else list(ids)
        return replace(found, processors=[Script(wanted, len(prompt), margin), *found.processors])

    setup.request = asked  # type: ignore[method-assign]
    return setup


def make(kind: str, folder: Any) -> Setup:
    """A tiny model: with tokens of bytes in letters (transformers), or as SentencePiece has them (GGUF)."""
    if kind == "transformers":
        return Setup(str(save_bytes(folder / "bytes")), None, "ngram", "fixed:4")
    pytest.importorskip("xllamacpp" if kind == "llama.cpp" else "llvmlite")
    path = write_gguf(folder / "tiny.gguf", kind="Q8_0", template=GGUF_TEMPLATE)
    model, tokenizer = draftwood.load(str(path), engine=kind)
    return Setup(model, tokenizer, "ngram", "fixed:4")


GGUF_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|user|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Its turns end with a token that the file does not call an end."""


def byte_tokenizer(*more: str) -> Any:
    """Of transformers: its tokens are the 256 bytes, `` a`` and special tokens, ``more`` of them at the end."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    from draftwood.engines.tokens.encoders import byte_letters

    letters = list(byte_letters().values())
    words = Tokenizer(BPE({name: i for i, name in enumerate([*letters, "\u0120a"])}, [("\u0120", "a")]))
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<end>", "<system>", "<user>", "<assistant>", "<turn>", *more]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<end>", additional_special_tokens=special[1:]
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<turn>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    return tokenizer


def save_bytes(folder: Any, *more: str) -> Any:
    """A model with this tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_tokenizer(*more)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, initializer_range=0.5,
        eos_token_id=257, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def spell(tokenizer: Any, *parts: bytes | str) -> list[int]:
    """Tokens of single bytes, and special ones by their names."""
    names = tokenizer.get_vocab()
    from draftwood.engines.tokens.encoders import byte_letters

    letters, ids = byte_letters(), list[int]()
    for part in parts:
        if isinstance(part, str):
            ids.append(names[part])
            continue
        for byte in part:
            name = f"<0x{byte:02X}>"
            ids.append(names[name] if name in names else names[letters[byte]])
    return ids
