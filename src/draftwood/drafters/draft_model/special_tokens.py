"""What becomes of special tokens, and of replaced texts, when a text changes its vocabulary.

In this order:

1. A replacement that the user gave. It is matched token by token: the target's tokens of its first text become the
   draft's tokens of its second. So it should begin and end where tokens do, best with a special token
   (``("<|im_start|>assistant\\n", "<start_of_turn>model\\n")``).
2. A special token of the same name becomes that one.
3. A special token with a role (end of a turn, start of a turn, end of text) becomes the one that has it there, if
   there is one alone. An end of text serves where a vocabulary has no end of a turn, and the other way round.
4. The beginning of a text, padding and the unknown token are dropped: the draft's text begins as its tokenizer
   begins texts. (Where that is the token of 2., it is not written twice.)
5. Any other special token is written as its name, once where it is repeated (images are rows of one token).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from draftwood.drafters.draft_model.vocabulary import Role, Tokens
from draftwood.drafters.draft_model.writing import encoded
from draftwood.errors import UsageError

Replacements = Sequence[tuple[str, str]]

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
        By its first token, sequences of the target's tokens, the longest first, each with the draft's tokens.
    longest
        Length of the longest sequence.
    named
        Special tokens that are written as their names.
    back
        The target's token of a draft's special token.
    """

    units: Mapping[int, Sequence[tuple[tuple[int, ...], tuple[int, ...]]]]
    longest: int
    named: frozenset[int]
    back: Mapping[int, int]


def rules(target: Tokens, draft: Tokens, replacements: Replacements = ()) -> Rules:
    """Decide about every special token; see the module.

    Raises `UsageError` for a replacement of a text without tokens.
    """
    pairs: dict[tuple[int, ...], tuple[int, ...]] = {}
    known, back = _counterparts(target, draft), _counterparts(draft, target)
    dropped = frozenset().union(*(target.roles.get(role, frozenset()) for role in _DROPPED))
    for token in target.special:
        if token in known or token in dropped:
            pairs[token,] = (known[token],) if token in known else ()
    named = target.special - known.keys() - dropped
    for text, instead in replacements:
        before, after = tuple(encoded(target, text.encode())), tuple(encoded(draft, instead.encode()))
        if not before:
            raise UsageError(f"a replacement needs a text that the target's tokens spell, not {text!r}")
        pairs[before] = after
        if len(before) == len(after) == 1:
            back[after[0]] = before[0]
    return Rules(_by_first(pairs.items()), max(map(len, pairs), default=1), named, back)


def _counterparts(one: Tokens, other: Tokens) -> dict[int, int]:
    """Return the other vocabulary's special token for each of one's that has a clear counterpart there."""
    names = {other.pieces[token]: token for token in other.special}
    found = {token: names[one.pieces[token]] for token in one.special if one.pieces[token] in names}
    for role, instead in _STANDS_FOR.items():
        choices = next((ids for wanted in instead if (ids := other.roles.get(wanted))), frozenset[int]())
        if len(choices) == 1:
            found |= dict.fromkeys(one.roles.get(role, frozenset()) - found.keys(), *choices)
    return found


def _by_first(
    pairs: Iterable[tuple[tuple[int, ...], tuple[int, ...]]],
) -> Mapping[int, Sequence[tuple[tuple[int, ...], tuple[int, ...]]]]:
    units: dict[int, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for pair in sorted(pairs, key=lambda pair: -len(pair[0])):
        units.setdefault(pair[0][0], []).append(pair)
    return units
