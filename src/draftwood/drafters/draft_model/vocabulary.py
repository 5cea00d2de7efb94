"""The tokens of a model as bytes, whether two models share them, and what special tokens become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from draftwood.errors import UsageError, VocabularyError

Role = Literal["begin", "end", "turn_start", "turn_end", "pad", "unknown"]
Encode = Callable[[str], Sequence[int]]
Replacements = Sequence[tuple[str, str]]
Unit = tuple[tuple[int, ...], tuple[int, ...]]
"""A sequence of the target's tokens, and the draft's tokens that it becomes."""

_NAMED = 3  # differences that a text names
_PROBE = "a Hello there, it's 12 o'clock:\n\n\tif x != 10:  return [y]\n caf\u00e9 \u4f60\u597d \U0001f642 z"
"""Letters, spaces in a row, line breaks, characters of two, three and four bytes; all in Unicode's form NFC."""


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """What a tokenizer's ids stand for; `tokenizer_view.tokens_of` makes one.

    Attributes
    ----------
    pieces
        Per id the bytes that it adds to a text, for a special token its name. None: no such token, the row of the
        model's head only fills it up. Ids from ``len(pieces)`` on are unknown, too.
    encode
        Ids of a text, without the special tokens that the tokenizer puts around it.
    special
        Ids of tokens that stand for no text, all of them below ``len(pieces)``.
    roles
        Special tokens with a known meaning.
    opening
        What the tokenizer puts before a text.
    prefix
        What the first token of a text has beyond the text: nothing, or the space of SentencePiece's dummy prefix.
        None: ids do not give back the text, so only a model with the same tokens can work with these.
    """

    pieces: Sequence[bytes | None]
    encode: Encode
    special: frozenset[int] = frozenset()
    roles: Mapping[Role, frozenset[int]] = field(default_factory=dict)
    opening: tuple[int, ...] = ()
    prefix: bytes | None = b""


class Comparison(NamedTuple):
    """Whether two models speak of the same tokens; rows without a token do not count.

    Attributes
    ----------
    shared
        How many ids both know.
    only_target
        How many the target knows alone.
    differences
        Ids that stand for different tokens, ascending, each with both of them.
    """

    shared: int
    only_target: int
    differences: Sequence[tuple[int, bytes, bytes]]

    @property
    def same(self) -> bool:
        """Whether every id that both know is the same token, and there is one."""
        return self.shared > 0 and not self.differences

    def __str__(self) -> str:
        """Return a sentence for a notice; names the first differences."""
        if not self.differences:
            return f"both models share {self.shared:,} tokens; {self.only_target} only the target has"
        named = "; ".join(
            f"{token} is {_shown(ours)} for the target and {_shown(theirs)} for the draft model"
            for token, ours, theirs in self.differences[:_NAMED]
        )
        more = "; ..." if len(self.differences) > _NAMED else ""
        return f"{len(self.differences):,} of {self.shared:,} ids differ: {named}{more}"


def compare(target: Tokens, draft: Tokens) -> Comparison:
    """Compare two vocabularies token by token. Sizes may differ: models pad their heads."""
    both = [
        (token, ours, theirs)
        for token, (ours, theirs) in enumerate(zip(target.pieces, draft.pieces, strict=False))
        if ours is not None and theirs is not None
    ]
    alone = sum(piece is not None for piece in target.pieces) - len(both)
    return Comparison(len(both), alone, [one for one in both if one[1] != one[2]])


def _shown(piece: bytes) -> str:
    return repr(piece.decode(errors="backslashreplace"))


def prefix_of(pieces: Sequence[bytes | None], encode: Encode) -> bytes | None:
    """Return what the first token of a text has beyond it (see `Tokens.prefix`), by encoding a sample.

    The sample is cut to the characters that the vocabulary has, but keeps its spaces.
    """
    spelled = b"\n".join(piece for piece in pieces if piece is not None)
    whole = set(spelled.decode(errors="ignore"))
    single = {piece[0] for piece in pieces if piece is not None and len(piece) == 1}
    kept = [c for c in _PROBE if c == " " or (c in whole and c != "\n") or single.issuperset(c.encode())]
    sample = "".join(kept).strip()
    if len(set(sample)) < 2:  # no letter, or no space between letters
        return None
    try:
        read = b"".join(pieces[token] or b"" for token in encode(sample))
    except Exception:  # a tokenizer without a token for the unknown
        return None
    return next((prefix for prefix in (b"", b" ") if read == prefix + sample.encode()), None)


def check_reversible(tokens: Tokens, whose: str) -> None:
    """Raise `VocabularyError` if the ids of a text do not give the text back."""
    if tokens.prefix is None:
        raise VocabularyError(
            f"the tokenizer of {whose} does not give back the text that it reads, so its tokens cannot be turned "
            "into another model's: take a draft model with the target's own tokenizer"
        )


def encoded(tokens: Tokens, data: bytes) -> list[int]:
    """Return the ids of a text, given as UTF-8, those that the model knows.

    None where the tokenizer raises at the text, as some do.
    """
    try:
        return [token for token in tokens.encode(data.decode()) if token < len(tokens.pieces)]
    except Exception:  # of many kinds
        return []


_STANDS_FOR: Mapping[Role, tuple[Role, ...]] = {
    "turn_end": ("turn_end", "end"),
    "end": ("end", "turn_end"),
    "turn_start": ("turn_start",),
}
_DROPPED: tuple[Role, ...] = ("begin", "pad", "unknown")


@dataclass(frozen=True, slots=True)
class Rules:
    """What the target's tokens become for the draft model if their text does not decide, and the way back.

    Attributes
    ----------
    units
        Sequences that are replaced, by their first token, the longest first.
    named
        Special tokens that are written as their names.
    back
        The target's token of a draft's special token.
    """

    units: Mapping[int, Sequence[Unit]]
    named: frozenset[int]
    back: Mapping[int, int]


def rules(target: Tokens, draft: Tokens, replacements: Replacements = ()) -> Rules:
    """Decide about every special token, in this order.

    1. A replacement that the user gave. It is matched token by token: the target's tokens of its first text become
       the draft's tokens of its second. So it should begin and end where tokens do, best with a special token
       (``("<|im_start|>assistant\\n", "<start_of_turn>model\\n")``).
    2. A special token of the same name becomes that one.
    3. A special token with a role (end of a turn, start of a turn, end of text) becomes the one that has it
       there, if there is one alone. An end of text serves where a vocabulary has no end of a turn, and vice versa.
    4. The beginning of a text, padding and the unknown token are dropped: the draft's text begins as its tokenizer
       begins texts. (Where that is the token of 2., it is not written twice.)
    5. Any other special token is written as its name, once where it is repeated (images are rows of one token).

    Raises `UsageError` for a replacement of a text without tokens.
    """
    pairs: dict[tuple[int, ...], tuple[int, ...]] = {}
    known, back = _counterparts(target, draft), _counterparts(draft, target)
    dropped = frozenset().union(*(target.roles.get(role, frozenset()) for role in _DROPPED))
    for token in target.special:
        if token in known or token in dropped:
            pairs[token,] = (known[token],) if token in known else ()
    for text, instead in replacements:
        before, after = tuple(encoded(target, text.encode())), tuple(encoded(draft, instead.encode()))
        if not before:
            raise UsageError(f"a replacement needs a text that the target's tokens spell, not {text!r}")
        pairs[before] = after
        if len(before) == len(after) == 1:
            back[after[0]] = before[0]
    return Rules(_by_first(pairs.items()), target.special - known.keys() - dropped, back)


def _counterparts(one: Tokens, other: Tokens) -> dict[int, int]:
    """Return the other vocabulary's special token for each of one's that has a clear counterpart there."""
    names = {other.pieces[token]: token for token in other.special}
    found = {token: names[one.pieces[token]] for token in one.special if one.pieces[token] in names}
    for role, instead in _STANDS_FOR.items():
        choices = next((ids for wanted in instead if (ids := other.roles.get(wanted))), frozenset[int]())
        if len(choices) == 1:
            found |= dict.fromkeys(one.roles.get(role, frozenset()) - found.keys(), *choices)
    return found


def _by_first(pairs: Iterable[Unit]) -> Mapping[int, Sequence[Unit]]:
    units: dict[int, list[Unit]] = {}
    for pair in sorted(pairs, key=lambda pair: -len(pair[0])):
        units.setdefault(pair[0][0], []).append(pair)
    return units
