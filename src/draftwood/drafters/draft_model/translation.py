"""Lets a draft model with another vocabulary draft: characters decide, not ids.

The target's text is read in the draft's tokens, what was drafted is written in the target's. Both ways tokenize
only the end of the text: a window of the last tokens is encoded together with what is new, and taken over from the
first token on that both readings share. What the window's first token lacks on its left does not matter after it.

A wrong token costs speed, never text, since the target checks every one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from draftwood.contracts import Ints
from draftwood.drafters.draft_model.vocabulary import Replacements, Tokens, Unit, check_reversible, encoded, rules
from draftwood.drafters.draft_model.writing import (
    NOWHERE,
    Writer,
    complete,
    is_inside,
    meet,
    pieces_of,
    place,
    products,
    valid,
)  # fmt: skip

WINDOW = 16
"""The draft's tokens before the new ones that are tokenized again."""
_BEFORE = 4
"""The target's tokens before drafted characters that are tokenized together with them."""
UNFINISHED = 0.4
"""How likely spaces at the end of a draft are the target's token: more may follow. Of words and marks 0.96 to 0.99
are; LOG.md, 2026-11-23."""


class Change(NamedTuple):
    """A text in the draft's tokens, as a change: ``kept`` of the earlier tokens stand, ``added`` follow them."""

    kept: int
    added: list[int]


class Written(NamedTuple):
    """What was drafted, in the target's tokens.

    Attributes
    ----------
    ids
        Tokens that may follow the committed ones.
    probabilities
        For each, given those before, the product of the probabilities of the draft's tokens that begin in it: the
        product up to a token's end is that of all drafted tokens that it takes. The last one's is lower where more
        characters are likely to change it.
    """

    ids: list[int]
    probabilities: list[float]


class Translation:
    """Two vocabularies that differ, and how one becomes the other.

    Immutable but for the tokenizers, which are asked for short texts; sessions are independent.

    Parameters
    ----------
    target, draft
        The tokens of the models, as `tokens_of` gives them.
    replacements
        Pairs of a text of the target and what the draft model reads instead; see `rules`.

    Raises
    ------
    VocabularyError
        The ids of one do not give back their text.
    UsageError
        A replacement is for a text without tokens.
    """

    def __init__(self, target: Tokens, draft: Tokens, replacements: Replacements = ()) -> None:
        check_reversible(target, "the target")
        check_reversible(draft, "the draft model")
        self.target, self.draft = target, draft
        self.rules = rules(target, draft, replacements)
        self.spelled = [piece or b"" for piece in target.pieces]  # what each token adds to the text
        self.writer = Writer(target)

    def open(self) -> TranslationSession:
        """Return a session for one text."""
        return TranslationSession(self)


class TranslationSession:
    """One growing text in both vocabularies. Raises nothing: what it cannot make sense of is left out.

    Attributes
    ----------
    ids
        The text read so far in the draft's tokens; do not change it. Without the beginning of a character that
        more tokens must complete, and without tokens that may begin a replacement.
    """

    def __init__(self, translation: Translation) -> None:
        self._own, self._draft, self._rules = translation, translation.draft, translation.rules
        self.ids = list(translation.draft.opening)
        self._ends = [0] * len(self.ids)  # where each of them ends in the text
        self._text, self._rest = bytearray(), b""  # whole characters, and the beginning of the next one
        self._lengths = deque([0], _BEFORE + 1)  # of the text, after each of the last target tokens
        self._read = 0  # bytes of the text that are in the draft's tokens
        self._held: list[int] = []  # target tokens that may begin a replacement
        self._last: int | None = None  # the target token before those
        # Draft tokens and text that special or replaced tokens have fixed; what follows is tokenized separately.
        self._fixed, self._offset, self._is_fresh = len(self.ids), 0, True
        self._low = len(self.ids)  # draft tokens that this call has not changed

    def grow(self, ids: Sequence[int] | Ints) -> Change:
        """Return the draft's tokens of the text when these tokens of the target are appended."""
        before, self._low = list(self.ids), len(self.ids)
        new, at = [*self._held, *map(int, ids)], 0
        while at < len(new):
            unit = self._unit(new, at)
            if unit is None:
                self._take(new[at])
                at += 1
            elif len(unit[0]) > len(new) - at:
                break
            else:
                self._fix(*unit)
                at += len(unit[0])
        self._held = new[at:]
        self._encode_end()
        low = self._low
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before[low:], self.ids[low:], strict=False))
        kept = low + sum(1 for _ in same)
        return Change(kept, self.ids[kept:])

    def _unit(self, ids: Sequence[int], at: int) -> Unit | None:
        """Return the longest sequence that is replaced, of those that begin here, or may when the text goes on."""
        for unit in self._rules.units.get(ids[at], ()):
            found = tuple(ids[at : at + len(unit[0])])
            if found == unit[0][: len(found)]:
                return unit
        return None

    def write(self, drafted: Sequence[int], probabilities: Sequence[float] | None = None) -> Written:
        """Return what drafted tokens, which follow `ids`, are in the target's tokens, after the committed ones.

        Empty where they are not characters, or contradict the committed beginning of a character. Ends with a
        special token, which is left out where the target has none like it.

        Parameters
        ----------
        drafted
            Ids of the draft model.
        probabilities
            The draft model's probability of each, given those before; left out: 1.
        """
        beliefs = [1.0] * len(drafted) if probabilities is None else probabilities
        rest = self._rest
        data, starts, special = self._drafted_text(drafted)
        if self._held or not data.startswith(rest):
            return Written([], [])
        ids, ends = self._target_tokens(data[len(rest) : valid(data)])
        ended = special is not None and (ends[-1] if ends else 0) + len(rest) == len(data)
        if special is not None and ended:
            ids.append(special)
            ends.append(len(data) - len(rest) + 1)
        found = products(ends, [start - len(rest) for start in starts], beliefs)
        if ids and not ended and data[len(rest) + ends[-1] - 1 : len(rest) + ends[-1]].isspace():
            found[-1] *= UNFINISHED
        return Written(ids, found)

    def _take(self, token: int) -> None:
        """Append a token that is text."""
        piece = self._own.spelled[token] if 0 <= token < len(self._own.spelled) else b""
        if token in self._rules.named and self._last == token:
            piece = b""
        if self._own.target.prefix and not self._text and self._is_fresh:
            piece = piece.removeprefix(self._own.target.prefix)
        characters, self._rest = complete(self._rest + piece)
        self._text += characters
        self._passed(token)
        self._is_fresh = False

    def _passed(self, token: int) -> None:
        self._last = token
        self._lengths.append(len(self._text))

    def _fix(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Append tokens of the target that become given ones of the draft."""
        self._encode_end()
        if self._last is None and tuple(after) == self._draft.opening:  # both begin alike: not twice
            after = ()
        self.ids += after
        self._ends += [len(self._text)] * len(after)
        self._fixed, self._offset, self._is_fresh, self._rest = len(self.ids), len(self._text), True, b""
        for token in before:
            self._passed(token)

    def _encode_end(self) -> None:
        """Take the text that is not in the draft's tokens yet into them."""
        end = len(self._text)
        if self._read == end:
            return
        self._read = end
        start, offset = self._window()
        data = bytes(self._text[offset:])
        new = encoded(self._draft, data)
        ends = place(pieces_of(self._draft, new), data, self._draft.prefix or b"")
        if not new and end > offset:  # no token for it: as if it were not there
            if len(self.ids) > self._fixed:
                self._ends[-1] = end
            else:
                self._offset = end
            return
        old = [at if at == NOWHERE else at - offset for at in self._ends[start:]]
        inside = self._fixed < start < len(self.ids)
        stands, taken = (meet(self.ids[start:], old, new, ends) if inside else None) or (0, 0)
        kept = start + stands
        self._low = min(self._low, kept)
        self.ids[kept:] = new[taken:]
        self._ends[kept:] = [at if at == NOWHERE else at + offset for at in ends[taken:]]

    def _window(self) -> tuple[int, int]:
        """Return the draft token from which on the text is tokenized again, and where it begins in the text.

        About `WINDOW` tokens from the end, where a token and a character begin.
        """
        count = len(self.ids)
        low = max(self._fixed, count - WINDOW)
        for start in chain(range(low, count + 1), range(low - 1, self._fixed, -1)):
            if start == self._fixed:
                break
            offset = self._ends[start - 1]
            if offset != NOWHERE and not is_inside(self._text, offset):
                return start, offset
        return self._fixed, min(self._offset, len(self._text))

    def _drafted_text(self, drafted: Sequence[int]) -> tuple[bytes, list[int], int | None]:
        """Return the bytes of drafted tokens, where each begins, and the target's token of a special last one.

        A dummy prefix begins before the text.
        """
        pieces, starts, special = self._draft.pieces, list[int](), None
        data = bytearray()
        for token in drafted:
            piece = pieces[token] if 0 <= token < len(pieces) else None
            starts.append(len(data))
            if piece is None or token in self._draft.special:
                special = self._rules.back.get(int(token))
                break
            if len(starts) == 1 and len(self.ids) == self._fixed:
                piece = piece.removeprefix(self._draft.prefix or b"")
            data += piece
        return bytes(data), starts, special

    def _target_tokens(self, text: bytes) -> tuple[list[int], list[int]]:
        """Return the target's tokens of characters that follow the committed text, and where they end in them."""
        if not text:
            return [], []
        first = max(self._offset, self._lengths[0])
        return self._own.writer.tokens_behind(bytes(self._text[first:]) + self._rest, text)
