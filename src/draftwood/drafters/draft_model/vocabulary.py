"""The tokens of a model as bytes, and whether two models share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from draftwood.errors import VocabularyError

Role = Literal["begin", "end", "turn_start", "turn_end", "pad", "unknown"]
Encode = Callable[[str], Sequence[int]]

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

    def role_of(self, token: int) -> Role | None:
        """Return the role of a special token."""
        return next((role for role, ids in self.roles.items() if token in ids), None)


class Difference(NamedTuple):
    """An id that stands for different tokens."""

    id: int
    target: bytes
    draft: bytes


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether two models speak of the same tokens.

    Attributes
    ----------
    same
        Every id that both know is the same token, and there is one.
    shared
        How many ids both know.
    only_target, only_draft
        How many ids one of them knows alone; rows without a token do not count.
    differences
        All ids that both know and that differ, ascending.
    """

    shared: int
    only_target: int
    only_draft: int
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        return self.shared > 0 and not self.differences

    def __str__(self) -> str:
        """Return a sentence for a notice; names the first differences."""
        if self.same:
            alone = f"; {self.only_target} only the target has, {self.only_draft} only the draft model"
            return (
                f"both models share {self.shared:,} tokens{alone if self.only_target or self.only_draft else ''}"
            )
        if not self.shared:
            return "the models share no id"
        named = "; ".join(
            f"{d.id} is {_shown(d.target)} for the target and {_shown(d.draft)} for the draft model"
            for d in self.differences[:_NAMED]
        )
        more = len(self.differences) - _NAMED
        return f"{len(self.differences):,} of {self.shared:,} ids differ: {named}" + ("; ..." if more > 0 else "")


def compare(target: Tokens, draft: Tokens) -> Comparison:
    """Compare two vocabularies token by token.

    Sizes may differ (models pad their heads), and each may have tokens of its own where the other has none.
    """
    known = [sum(piece is not None for piece in tokens.pieces) for tokens in (target, draft)]
    both = [
        (token, ours, theirs)
        for token, (ours, theirs) in enumerate(zip(target.pieces, draft.pieces, strict=False))
        if ours is not None and theirs is not None
    ]
    differences = tuple(Difference(*found) for found in both if found[1] != found[2])
    return Comparison(len(both), known[0] - len(both), known[1] - len(both), differences)


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


def _shown(piece: bytes) -> str:
    return repr(piece.decode(errors="backslashreplace"))
