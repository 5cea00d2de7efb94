"""Splits texts into tokens by merging pairs of neighbours: of bytes, or of characters (gemma 4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from draftwood.engines.cpu.pre_tokenizers import PreTokenizer
from draftwood.engines.cpu.vocabulary import Vocabulary
from draftwood.errors import ModelError

_NEWLINES = re.compile(r"\n+|[^\n]+")
_BLANK = "\u2581"


def byte_letters() -> dict[int, str]:
    """Return the letter that stands for each byte in names of tokens, those of GPT-2."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + place) for place, b in enumerate(others)}


class ByteMerges:
    """Encodes texts without special tokens."""

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer) -> None:
        self._vocabulary, self._pre = vocabulary, pre
        self._missing = -1  # what stands for a byte without a token: nothing comes of it
        self._tokenizer = self._made()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        if not self._pre.is_bytes:
            text = text.replace(" ", _BLANK)
        if not self._pre.whole_newlines:
            return self._merged(text)
        ids: list[int] = []
        for part in _NEWLINES.findall(text):
            whole = self._vocabulary.ids.get(part) if part[0] == "\n" else None
            ids += self._merged(part) if whole is None else [whole]
        return ids

    def _merged(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [token for token in ids if token != self._missing] if self._missing in ids else ids

    def _made(self) -> Any:
        from tokenizers import Regex, Tokenizer, pre_tokenizers

        tokenizer = Tokenizer(self._model())
        steps: list[Any] = [pre_tokenizers.Split(Regex(each), "isolated") for each in self._pre.expressions()]
        if self._pre.is_bytes:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        return tokenizer

    def _model(self) -> Any:
        from tokenizers.models import BPE

        ids, settings = self._vocabulary.ids, dict[str, Any](ignore_merges=self._pre.whole_first)
        if not self._pre.is_bytes:
            settings["byte_fallback"] = True
        if not self._pre.is_bytes or not all(letter in ids for letter in byte_letters().values()):
            self._missing, name = len(ids), "\0missing"
            ids, settings = {**ids, name: self._missing}, {**settings, "unk_token": name}
        try:
            return BPE(vocab=ids, merges=self._merges(), **settings)
        except Exception as error:  # the library raises no kinds of its own
            raise ModelError(
                f"the file's vocabulary is damaged ({str(error).rstrip('.')}): get the file again, or convert the "
                "model anew"
            ) from error

    def _merges(self) -> Sequence[tuple[str, str]]:
        given = self._vocabulary.metadata.get("tokenizer.ggml.merges")
        if given is None:
            raise ModelError("the file's vocabulary has no merges: convert the model anew")
        pairs = [merge.partition(" ")[::2] if merge[:1] != " " else _behind_first(merge) for merge in given]
        return pairs if len(set(given)) == len(pairs) else list(dict.fromkeys(pairs))  # the first one counts


def _behind_first(merge: str) -> tuple[str, str]:
    """Return the halves of a merge whose first one begins with a space."""
    first, _, second = merge[1:].partition(" ")
    return " " + first, second
