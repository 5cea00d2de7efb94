"""The texts that the verbs of ``draftwood cache`` read, as token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from draftwood.cli import options
from draftwood.errors import RecordError, UsageError

_ENDINGS = (".jsonl", ".jsonl.zst")


class Tokens:
    """Reads files of text, of records or of ids.

    ``tokenizer`` names the model or folder whose tokenizer reads text; it is loaded when there is some, and is by
    default that of the default model.
    """

    def __init__(self, tokenizer: str | None) -> None:
        self._name, self._known = tokenizer, None
        self.skipped: Counter[str] = Counter()

    def texts(self, paths: list[Path], progress: Callable[[int, int, str], None]) -> Iterator[list[int]]:
        """Yield the ids of each text: a file, or a record of a file of records that is named itself.

        Folders are walked; in them every file is text, and those are left out that a corpus would leave out.
        Raises UsageError for a path that cannot be read or a file without text, RecordError for a broken record.
        """
        from draftwood.corpora.texts import documents
        from draftwood.corpora.walk import MAX_BYTES, sources

        found = sources(paths, MAX_BYTES, self.skipped)
        for number, source in enumerate(found):
            progress(number, len(found), source.name)
            if source.path in paths and source.path.name.endswith(_ENDINGS):
                yield from self._records(source.path)
            else:
                yield from (self._ids(text) for _, text in documents(source, (), self.skipped))
        progress(len(found), len(found), "")

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; loaded now if it was not needed yet."""
        if self._known is None:
            self._known = options.load_tokenizer(self._name or options.MODEL_DEFAULT)
        return self._known

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the tokenizer; None where ids were read and none was named."""
        from draftwood.models.fingerprint import tokenizer_fingerprint

        if self._known is None and self._name is None:
            return None
        return tokenizer_fingerprint(self.tokenizer)

    def _records(self, path: Path) -> Iterator[list[int]]:
        from draftwood.measure.records.lines import read_lines
        from draftwood.measure.records.traces import read_traces

        empty = True
        for number, row in read_lines(path):
            if row.get("row") == "header":  # what draftwood recorded: of several answers to a prompt, one
                yield from (trace.prompt_ids + trace.output_ids for trace in read_traces(path))
                return
            try:
                yield self._record(row)
            except ValueError as error:
                raise RecordError(f"{path}, line {number}: {error}") from error
            empty = False
        if empty:
            raise UsageError(f"{path} is empty: give a file with texts")

    def _record(self, row: Mapping[str, Any]) -> list[int]:
        for names in (("ids",), ("prompt_ids", "output_ids"), ("text",), ("prompt", "output")):
            if all(name in row for name in names):
                return [token for name in names for token in self._part(name, row[name])]
        raise ValueError(
            "has neither text, nor prompt and output, nor ids, nor prompt_ids and output_ids: add one"
        )

    def _part(self, name: str, value: Any) -> list[int]:
        if not name.endswith("ids"):
            if not isinstance(value, str):
                raise ValueError(f"{name} is no text")
            return self._ids(value)
        if not isinstance(value, list) or not all(type(i) is int and 0 <= i < 1 << 31 for i in value):
            raise ValueError(f"{name} is no list of token ids (whole numbers from 0)")
        return value

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids
