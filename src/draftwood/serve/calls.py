"""Calls of tools within what a model writes, read as they are written: one reader for streams and whole answers.

Each model writes calls in the form of its chat template (`call_forms`). Calls are told of from the moment their
names and the first character of their arguments are known; until then they may turn out to be text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from draftwood.serve.call_forms.base import BARE_OPENINGS, CallForm, Event, FormReader
from draftwood.serve.call_forms.found import OURS
from draftwood.serve.json_reader import BLANK, BLANKS

__all__ = ["CallReader", "Event"]


class CallReader(FormReader):
    """Reads one answer without its thoughts; however its text is cut, the events joined are the same.

    Only ``functions`` can be called: JSON Schemas of their parameters by name. Blanks beside a call are left out
    where no other text follows; all else that is no call is text. ``hidden`` are those of the forms' tags that are
    control tokens of the model, which no client is shown.
    """

    def __init__(
        self, functions: Mapping[str, Mapping[str, Any]], hidden: Collection[str] = (),
        forms: Sequence[CallForm] = (OURS,),
    ) -> None:  # fmt: skip
        super().__init__(functions)
        self._forms, self._hidden = forms, frozenset(hidden)
        self._tags = tuple({*hidden, *(opening for form in forms for opening in form.openings)})
        self._begin = re.compile("|".join(sorted({re.escape(tag[0]) for tag in self._tags})))
        self._blank, self._said, self.calls = "", False, 0
        self._events = self._answer()

    def feed(self, text: str) -> list[Event]:
        """Read more text; returns the events that no later text can change."""
        if not self.is_trying:
            self.text, self.at = self.text[self.at :], 0
        self.text += text
        return self._certain()

    def end(self, *, is_cut: bool) -> list[Event]:
        """Return the rest, once nothing more comes; ``is_cut``: a length limit has cut the text."""
        self.is_ended, self.is_cut = True, is_cut
        return self._certain()

    def _certain(self) -> list[Event]:
        found = list[Event]()
        for event in self._events:
            if event is None:
                break
            found.append(event)
        joined = groupby(found, lambda event: (event.kind, event.number))
        return [Event(kind, "".join(event.text for event in some), number) for (kind, number), some in joined]

    def _answer(self) -> Iterator[Event | None]:
        may_be_bare = True  # a call without an opening may stand here, with nothing but calls before it
        while True:
            self.text, self.at = self.text[self.at :], 0
            yield from self.ahead()
            if not self.text:
                break
            if (blank := BLANK.match(self.text)) is not None:
                self._blank, self.at = self._blank + blank[0], blank.end()
                continue
            tag, before = (yield from self.one_of(self._tags)), self.calls
            for form in self._forms:
                may_begin = may_be_bare and form.may_be_bare and before == self.calls
                is_bare = may_begin and (yield from self.one_of(BARE_OPENINGS)) is not None
                if before == self.calls and (tag in form.openings or is_bare):
                    yield from self._calls(form)
            if before < self.calls:
                may_be_bare = True
            elif tag is None:
                end = self._begin.search(self.text, 1)
                run = self.text if end is None else self.text[: end.start()]
                kept = run.rstrip(BLANKS)
                yield self._as_text(kept)
                self._blank, self.at, may_be_bare = run[len(kept) :], len(run), False
            else:
                hidden = next(filter(self.next_is, self._hidden), None)
                may_be_bare, self.at = False, len(hidden or tag)
                if hidden is None:
                    yield self._as_text(tag)
        if self._blank and not self.calls:
            yield self._as_text("")

    def _as_text(self, text: str) -> Event:
        text, self._blank, self._said = self._blank + text, "", True
        return Event("text", text, self.calls)

    def _calls(self, form: CallForm) -> Iterator[Event | None]:
        """Read calls in a form; where none stands here, read nothing."""
        self.is_trying, before = True, self.calls
        for event in form.read(self):
            if event is None:
                yield None
                continue
            if event.kind == "call":
                self.calls += 1
                self._blank = self._blank if self._said else ""
            self.is_trying = event.kind == "end"  # what follows may turn out to be no call
            yield event._replace(number=self.calls - 1)
        self.is_trying = False
        if before == self.calls:
            self.at = 0
