"""`Tokens` of a tokenizer: transformers' fast ones and llama.cpp's, known by their methods alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from draftwood.drafters.draft_model.vocabulary import Encode, Role, Tokens, prefix_of

_ROLE_OF_NAME: Mapping[str, Role] = {
    "<s>": "begin", "<bos>": "begin", "<|begin_of_text|>": "begin",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>": "begin",
    "</s>": "end", "<eos>": "end", "<|endoftext|>": "end", "<|end_of_text|>": "end",
    "<\uff5cend\u2581of\u2581sentence\uff5c>": "end",
    "<|im_start|>": "turn_start", "<start_of_turn>": "turn_start", "<|turn>": "turn_start",
    "<|im_end|>": "turn_end", "<end_of_turn>": "turn_end", "<|eot_id|>": "turn_end", "<|end|>": "turn_end",
    "<turn|>": "turn_end",
    "<pad>": "pad", "<unk>": "unknown",
}  # fmt: skip
_ROLE_OF_SETTING: Mapping[str, Role] = {
    "bos_token_id": "begin", "eos_token_id": "end", "pad_token_id": "pad", "unk_token_id": "unknown",
}  # fmt: skip
_SPACE = "\u0120"  # the space in a byte-level vocabulary
_FILLER = re.compile(r"\[PAD\d+\]")  # what converters call rows without a token
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def tokens_of(tokenizer: Any, rows: int | None = None) -> Tokens:
    """Return what a tokenizer's ids stand for.

    Parameters
    ----------
    tokenizer
        A fast tokenizer of transformers, or draftwood's of a GGUF file.
    rows
        Size of the model's vocabulary: how many ids it can choose. None: as many as the tokenizer has.
    """
    vocabulary = tokenizer.get_vocab()
    names = _names(tokenizer, vocabulary, rows)
    added = getattr(tokenizer, "added_tokens_decoder", {})
    marked = [token for token, settings in added.items() if settings.special]
    special = {token for token in (*marked, *tokenizer.all_special_ids) if token < len(names)}
    literal = special.union(added)
    encode, prefix = _encoder(tokenizer), None
    styles = (_byte_level, _metaspace, _plain) if _SPACE in vocabulary else (_metaspace, _byte_level, _plain)
    for spelled in styles:  # the last one stays where ids do not give back their text
        pieces = _pieces(names, literal, spelled)
        if (prefix := prefix_of(pieces, encode)) is not None:
            break
    return Tokens(
        pieces=pieces,
        encode=encode,
        special=frozenset(special),
        roles=_roles(tokenizer, names, special),
        opening=tuple(token for token in _opening(tokenizer, encode) if token < len(names)),
        prefix=prefix,
    )


def _names(tokenizer: Any, vocabulary: Mapping[str, int], rows: int | None) -> list[str | None]:
    size = max(len(tokenizer), max(vocabulary.values(), default=-1) + 1)
    names: list[str | None] = [None] * size
    for name, token in vocabulary.items():
        names[token] = name
    missing = [
        token for token, name in enumerate(names) if name is None
    ]  # of two of one name, the vocabulary has one
    for token, name in zip(missing, tokenizer.convert_ids_to_tokens(missing), strict=True):
        names[token] = name
    return [None if name is None or _FILLER.fullmatch(name) else name for name in names[:rows]]


def _encoder(tokenizer: Any) -> Encode:
    fast = getattr(tokenizer, "backend_tokenizer", None)

    def slowly(text: str) -> Sequence[int]:
        found: Sequence[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return found

    if fast is None:
        return slowly

    def quickly(text: str) -> Sequence[int]:
        if fast.padding is not None or fast.truncation is not None:  # left over from somebody's call
            return slowly(text)
        found: Sequence[int] = fast.encode(text, add_special_tokens=False).ids
        return found

    return quickly


def _pieces(
    names: Sequence[str | None], literal: Collection[int], spelled: Callable[[str], bytes]
) -> list[bytes | None]:
    return [
        None if name is None else name.encode(errors="replace") if token in literal else spelled(name)
        for token, name in enumerate(names)
    ]


def _byte_alphabet() -> dict[str, int]:
    """Return the character that stands for each byte in GPT-2's vocabulary and its successors."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}


_ALPHABET = _byte_alphabet()


def _byte_level(name: str) -> bytes:
    try:
        return bytes([_ALPHABET[character] for character in name])
    except KeyError:
        return name.encode(errors="replace")


def _metaspace(name: str) -> bytes:
    byte = _BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace("\u2581", " ").encode(errors="replace")


def _plain(name: str) -> bytes:
    return name.encode(errors="replace")


def _roles(tokenizer: Any, names: Sequence[str | None], special: Collection[int]) -> Mapping[Role, frozenset[int]]:
    """Return special tokens by role: by their names; by the tokenizer's settings where the name says nothing.

    Settings come second because some files set ``<|im_start|>`` as the token that begins a text.
    """
    found: dict[Role, set[int]] = {}
    named = {token for token in special if names[token] in _ROLE_OF_NAME}
    for token in named:
        found.setdefault(_ROLE_OF_NAME[names[token] or ""], set()).add(token)
    for setting, role in _ROLE_OF_SETTING.items():
        chosen = getattr(tokenizer, setting, None)
        if not isinstance(chosen, int) or chosen not in special:
            continue
        if chosen not in named:
            found.setdefault(role, set()).add(chosen)
            named.add(chosen)
        elif chosen in found.get(role, ()):  # the file of gemma3 has a tag of HTML among them
            found[role] = {chosen}
    return {role: frozenset(ids) for role, ids in found.items()}


def _opening(tokenizer: Any, encode: Encode) -> tuple[int, ...]:
    """Return the ids that the tokenizer puts before a text."""
    bare, whole = list(encode("a")), list(tokenizer("a")["input_ids"])
    places = range(len(whole) - len(bare) + 1)
    return tuple(next((whole[:n] for n in places if bare and whole[n : n + len(bare)] == bare), []))
