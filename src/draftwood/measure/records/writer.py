"""Writes a records file, or resumes one where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from draftwood.errors import RecordError, UsageError
from draftwood.files.foreign import json_object
from draftwood.files.lines import Appender, compressed, write_whole
from draftwood.files.paths import alone, is_stream
from draftwood.measure.records.records import OF_THE_PROMPT, Answer, Records, Row, read_records

_SAME_MACHINE = ("draftwood", "commit", "packages", "processor", "instructions")


class RecordsWriter:
    """Writes a records file, locked until `close`; an existing one is resumed if its settings are the same.
    Without a ``path`` nothing is written. ``wait`` is how many seconds to wait for another writer; None does not
    lock. Raises `RecordError` or `UsageError` if the file is broken, of other settings, locked or cannot be
    written."""

    def __init__(self, path: Path | None, header: Row, *, wait: float | None = 1.0) -> None:
        self.records = Records(json_object(json.dumps(header), "the header", RecordError))  # as it is read again
        self.path = path
        self._resumed: Row | None = None  # a record that comes before the next answer
        self._written: dict[tuple[str, str], Answer] = {}
        self._file: Appender | None = None
        self._held = ExitStack()
        if path is None:
            return
        try:
            with ExitStack() as held:
                self._open(path, wait, held)
                self._held = held.pop_all()
        except OSError as error:
            raise RecordError(f"{path} cannot be written ({error.strerror}): choose another place") from error

    def _open(self, path: Path, wait: float | None, held: ExitStack) -> None:
        """Lock a file and go on with it; a stream begins anew."""
        header, begun = self.records.header, False
        if not is_stream(path):
            if wait is not None:  # before looking, as another writer may create the file meanwhile
                held.enter_context(alone(path, wait, error=RecordError))
            begun = path.exists() and path.stat().st_size > 0
        if begun:
            self._resume(path, header)
        self._file = held.enter_context(closing(Appender(path)))
        if not begun:
            self._file.write([header])

    def _resume(self, path: Path, header: Row) -> None:
        """Take over the complete records."""
        self.records = read_records(path)
        _refuse_another_run(path, self.records.header, header)
        if self.records.answers:
            self._resumed = {"row": "resumed", "provenance": header["provenance"]}
        lines = [line for answer in self.records.answers for line in self._lines(answer)]
        # In a compressed file a torn piece may go unnoticed, and what follows it could not be read.
        if self.records.torn or compressed(path) or not path.read_bytes().endswith(b"\n"):
            write_whole(path, [self.records.header, *lines, *self.records.others])

    def refuse_another_prompt(self, task: str, name: str, ids: Sequence[int]) -> None:
        """Raise `UsageError` if the file holds another prompt of this name."""
        held = next((a.prompt_ids for a in self.records.answers if (a.task, a.name) == (task, name)), None)
        if held is not None and held != list(ids):
            raise UsageError(f"{self.path} holds another prompt named {task} {name}: choose another -o")

    @property
    def sitting(self) -> int:
        """The sitting of answers that are written now."""
        return self.records.sitting + (self._resumed is not None)

    @property
    def next_id(self) -> int:
        return 1 + max((a.id for a in self.records.answers), default=-1)

    def answer(self, answer: Answer) -> None:
        if self._resumed is not None:  # not before something was measured
            self.other(self._resumed)
            self._resumed = None
        answer.sitting = self.sitting
        if self._file is not None:
            self._file.write(self._lines(answer))
        self.records.answers.append(answer)

    def _lines(self, answer: Answer) -> Iterator[Row]:
        """Lines of an answer, without what the first answer to its prompt holds already."""
        first = self._written.setdefault((answer.task, answer.name), answer)
        known = [n for n in OF_THE_PROMPT if first is not answer and getattr(first, n) == getattr(answer, n)]
        return answer.lines(without=known)

    def other(self, record: Row) -> None:
        if self._file is not None:
            self._file.write([record])
        self.records.add(record)

    def close(self) -> None:
        self._held.close()


def _refuse_another_run(path: Path, old: Row, new: Row) -> None:
    """Raise `UsageError` if the records could not be compared with those in the file."""
    if old["verb"] != new["verb"]:
        raise UsageError(f"{path} was written by draftwood {old['verb']}: choose another -o")
    parts = [("settings", name) for name in sorted({*old["settings"], *new["settings"]})]
    for part, name in [*parts, *(("provenance", name) for name in _SAME_MACHINE)]:
        before, now = old[part].get(name), new[part].get(name)
        if before != now:
            raise UsageError(f"{path} was written with {name} {before!r}, this run has {now!r}: choose another -o")
