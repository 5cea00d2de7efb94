"""Lets a draft model with another vocabulary draft: characters decide, not ids.

The target's text is read in the draft's tokens, what was drafted is written in the target's. Both ways tokenize
only the end of the text: a window of the last tokens is encoded together with what is new, and taken over from the
first token on that both readings share. What the window's first token lacks on its left does not matter behind it.

A wrong token costs speed, never text, since the target checks every one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, takewhile
from typing import NamedTuple

import numpy as np

from draftwood.contracts import Ints
from draftwood.drafters.draft_model.alignment import NOWHERE, complete, is_inside, meet, place, valid
from draftwood.drafters.draft_model.special_tokens import Replacements, rules
from draftwood.drafters.draft_model.vocabulary import Tokens, check_reversible
from draftwood.drafters.draft_model.writing import Writer, encoded, pieces_of, products

WINDOW = 4
"""Tokens before the new ones that are tokenized again; LOG.md, 2026-11-23."""
WIDEST = 64
"""The same where the readings do not meet sooner."""
UNFINISHED = 0.4
"""How likely spaces at the end of a draft are the target's token: more may follow. Of words and marks 0.96 to 0.99
are; LOG.md, 2026-11-23."""


class Reading(NamedTuple):
    """A text in the draft's tokens, as a change of the reading before.

    Attributes
    ----------
    kept
        So many of the draft's tokens stand.
    added
        The tokens that follow them now.
    """

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


class _Mark(NamedTuple):
    """The state after a target token: bytes of whole characters, and the beginning of the next one.

    ``unit`` is the index of the target token at which the replaced sequence containing it begins. Where there is
    none, or it ends here, it is the index of the next token.
    """

    length: int
    rest: bytes
    unit: int


class _Fixed(NamedTuple):
    """Draft tokens that stand for a special or replaced token, ``first`` to ``after``.

    Text before and after them is tokenized separately.
    """

    first: int
    after: int
    offset: int
    cause: int  # the target token that they stand for
    behind: int  # the target token behind it


class Translation:
    """Two vocabularies that differ, and how one becomes the other.

    Immutable but for the tokenizers, which are asked for short texts; sessions are independent.

    Parameters
    ----------
    target, draft
        The tokens of the models, as `tokens_of` gives them.
    replacements
        Pairs of a text of the target and what the draft model reads instead; see `special_tokens`.

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
        more tokens must complete.
    """

    def __init__(self, translation: Translation) -> None:
        self._own = translation
        self._draft, self._rules = translation.draft, translation.rules
        self._seen: list[int] = []  # the target's tokens
        self._marks = [_Mark(0, b"", 0)]
        self._text = bytearray()  # what they amount to, whole characters
        self.ids = list(self._draft.opening)
        self._ends = [0] * len(self.ids)  # where each lies in the text
        self._fixed = [_Fixed(0, len(self.ids), 0, -1, 0)]
        self._read = 0  # so many bytes of the text are in ids; -1: the last tokens may have others
        self._told: list[int] = []
        self._low = 0  # ids before are those that were told

    def read(self, ids: Sequence[int] | Ints) -> Reading:
        """Return the draft's tokens of a text, given whole, as a change of the last reading.

        Whatever both texts begin with is not read again; comparing 8,000 ids takes 0.15 milliseconds, which
        `grow` saves.
        """
        seen, given = self._seen, ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        if given[: len(seen)] == seen:
            return self.grow(given[len(seen) :])
        pairs = enumerate(zip(seen, given, strict=False))
        same = next((at for at, (old, new) in pairs if old != new), min(len(seen), len(given)))
        return self.grow(given[same:], keep=same)

    def grow(self, ids: Sequence[int] | Ints, *, keep: int | None = None) -> Reading:
        """Return the draft's tokens of the text when these tokens of the target are appended.

        ``keep`` cuts the text before: to that many of the target's tokens.
        """
        seen = self._seen
        start = keep = len(seen) if keep is None else max(0, min(keep, len(seen)))
        if self._rules.longest > 1:  # the last tokens may turn out to begin a longer replacement
            start = max(0, keep - self._rules.longest + 1)
        start = self._marks[start].unit
        again = seen[start:keep]
        if start < len(seen):
            self._cut(start)
        self._append([*again, *map(int, ids)])
        self._encode_end()
        return self._tell()

    def write(self, drafted: Sequence[int], probabilities: Sequence[float] | None = None) -> Written:
        """Return what drafted tokens, which follow `ids`, are in the target's tokens, after the committed ones.

        Empty where they are not characters, or contradict the committed beginning of a character. Ends behind a
        special token, which is left out where the target has none like it.

        Parameters
        ----------
        drafted
            Ids of the draft model.
        probabilities
            The draft model's probability of each, given those before; left out: 1.
        """
        beliefs = [1.0] * len(drafted) if probabilities is None else probabilities
        rest = self._marks[-1].rest
        data, starts, special = self._drafted_text(drafted)
        if not data.startswith(rest):
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

    def _append(self, ids: Sequence[int]) -> None:
        at = 0
        while at < len(ids):
            for before, after in self._rules.units.get(ids[at], ()):
                if tuple(ids[at : at + len(before)]) == before:
                    self._fix(before, after)
                    at += len(before)
                    break
            else:
                self._take(ids[at])
                at += 1

    def _take(self, token: int) -> None:
        """Append a token that is text."""
        piece = self._own.spelled[token] if 0 <= token < len(self._own.spelled) else b""
        if token in self._rules.named and self._seen and self._seen[-1] == token:
            piece = b""
        rest = self._marks[-1].rest
        prefix = self._own.target.prefix
        if prefix and not self._text and len(self._seen) == self._fixed[-1].behind:
            piece = piece.removeprefix(prefix)
        characters, rest = complete(rest + piece)
        self._text += characters
        self._seen.append(token)
        self._marks.append(_Mark(len(self._text), rest, len(self._seen)))

    def _fix(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Append tokens of the target that become given ones of the draft."""
        self._encode_end()
        first, offset, cause = len(self.ids), len(self._text), len(self._seen)
        if not cause and tuple(after) == self._draft.opening:  # both begin alike: not twice
            after = ()
        self.ids += after
        self._ends += [offset] * len(after)
        self._fixed.append(_Fixed(first, len(self.ids), offset, cause, cause + len(before)))
        self._low = min(self._low, first)
        for number, token in enumerate(before, 1):
            self._seen.append(token)
            self._marks.append(_Mark(offset, b"", cause if number < len(before) else len(self._seen)))

    def _cut(self, length: int) -> None:
        """Forget the target's tokens from ``length`` on, where no replaced sequence is cut in two."""
        del self._seen[length:], self._marks[length + 1 :]
        end = self._marks[-1].length
        del self._text[end:]
        while self._fixed[-1].cause >= length:
            self._keep_drafts(self._fixed.pop().first)
        kept = len(self.ids)
        while kept > self._fixed[-1].after and not 0 <= self._ends[kept - 1] <= end:
            kept -= 1
        self._keep_drafts(kept)
        self._read = -1

    def _keep_drafts(self, count: int) -> None:
        del self.ids[count:], self._ends[count:]
        self._low = min(self._low, count)

    def _encode_end(self) -> None:
        """Take the text that is not in the draft's tokens yet into them."""
        end = len(self._text)
        if self._read == end:
            return
        self._read = end
        for back in (WINDOW, WIDEST):
            start, offset = self._window(back)
            new, ends = self._encoded(offset)
            old = [at if at == NOWHERE else at - offset for at in self._ends[start:]]
            inside = self._fixed[-1].after < start < len(self.ids)
            met = meet(self.ids[start:], old, new, ends, 0) if inside else None
            if met or not inside:
                break
        if not new and end > offset:  # no token for it: as if it were not there
            if len(self.ids) > self._fixed[-1].after:
                self._ends[-1] = end
            else:
                self._fixed[-1] = self._fixed[-1]._replace(offset=end)
            return
        stands, taken = met or (0, 0)
        self._keep_drafts(start + stands)
        self.ids += new[taken:]
        self._ends += [at if at == NOWHERE else at + offset for at in ends[taken:]]

    def _window(self, back: int) -> tuple[int, int]:
        """Return the draft token from which on the text is tokenized again, and where it begins in the text.

        About ``back`` tokens from the end, where a token and a character begin.
        """
        floor, count = self._fixed[-1].after, len(self.ids)
        low = max(floor, count - back)
        for start in chain(range(low, count + 1), range(low - 1, floor, -1)):
            if start == floor:
                break
            offset = self._ends[start - 1]
            if offset != NOWHERE and not is_inside(self._text, offset):
                return start, offset
        return floor, min(self._fixed[-1].offset, len(self._text))

    def _encoded(self, offset: int) -> tuple[list[int], list[int]]:
        """Return the draft's tokens of the text from a byte on, and where they end behind it."""
        data = bytes(self._text[offset:])
        ids = encoded(self._draft, data)
        return ids, place(pieces_of(self._draft, ids), data, self._draft.prefix or b"")

    def _tell(self) -> Reading:
        told, ids = self._told, self.ids
        pairs = zip(told[self._low :], ids[self._low :], strict=False)
        kept = self._low + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        told[kept:] = ids[kept:]
        self._low = len(ids)
        return Reading(kept, ids[kept:])

    def _drafted_text(self, drafted: Sequence[int]) -> tuple[bytes, list[int], int | None]:
        """Return the bytes of drafted tokens, where each begins, and the target's token of a special one behind.

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
            if len(starts) == 1 and len(self.ids) == self._fixed[-1].after:
                piece = piece.removeprefix(self._draft.prefix or b"")
            data += piece
        return bytes(data), starts, special

    def _target_tokens(self, text: bytes) -> tuple[list[int], list[int]]:
        """Return the target's tokens of characters behind the committed text, and where they end in them."""
        if not text:
            return [], []
        marks = self._marks
        first = max(self._fixed[-1].offset, marks[max(0, len(marks) - 1 - WINDOW)].length)
        return self._own.writer.tokens_behind(bytes(self._text[first:]) + marks[-1].rest, text)
