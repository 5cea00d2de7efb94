"""Traces: recorded answers, to be replayed. Any JSONL with ``prompt_ids`` and ``output_ids``, or with text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.engines.replay import MAX_ID
from draftwood.errors import RecordError, VocabularyError
from draftwood.measure.records.lines import read_lines, write_whole
from draftwood.measure.records.records import header
from draftwood.models.fingerprint import tokenizer_fingerprint


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded answer.

    Attributes
    ----------
    task, name
        Which prompt; a file that does not say is one task under its own name.
    prompt_ids, output_ids
        Token ids, at least one each.
    limit
        Most tokens that might have been written; None where unknown: then the text ended at its limit.
    finish_reason
        Why it ended, where known.
    prompt, output
        Text, where kept.
    """

    task: str
    name: str
    prompt_ids: list[int]
    output_ids: list[int]
    limit: int | None = None
    finish_reason: str | None = None
    prompt: str | None = None
    output: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary without what is unknown."""
        names = self.__dataclass_fields__
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def read_traces(path: Path, tokenizer: Any = None) -> list[Trace]:
    """Read a trace, or a rows file, of which each prompt's plain answer counts, else one of ours, else a peer's.

    Parameters
    ----------
    path
        Of a ``.jsonl`` or ``.jsonl.zst``; a header line is optional.
    tokenizer
        Reads rows that hold text only (``prompt`` and ``output``), and limits the ids to its own.

    Raises
    ------
    RecordError
        For a broken line, by number, and for a file without answers.
    VocabularyError
        If the trace was made with another tokenizer, or holds ids that this one does not know.
    """
    known = MAX_ID if tokenizer is None else len(tokenizer)
    traces: dict[tuple[str, str], Trace] = {}
    best: dict[tuple[str, str], int] = {}
    prompts: dict[tuple[str, str], list[int]] = {}
    for number, row in read_lines(path):
        kind, key = row.get("row"), (str(row.get("task")), str(row.get("name")))
        if kind == "header":
            _refuse_other_tokenizer(path, row, tokenizer)
        if kind == "answer":  # of a rows file, where a prompt stands once and an interrupt may leave no text
            row.setdefault("prompt_ids", prompts.get(key))
            prompts[key] = row["prompt_ids"]
            rank = _rank(row)
            if not row.get("output_ids") or rank >= best.get(key, _RANKS):
                continue
            best[key] = rank
        if kind in (None, "trace", "answer"):
            trace = _trace(path, number, row, tokenizer)
            if (worst := max(max(trace.prompt_ids), max(trace.output_ids))) >= known:
                raise VocabularyError(
                    f"{path}, line {number}: id {worst} is outside the vocabulary of {known} tokens: give the "
                    "tokenizer that the trace was made with"
                )
            traces[trace.task, trace.name if kind == "answer" else f"{trace.name}\n{number}"] = trace
    if not traces:
        raise RecordError(f"{path} holds no recorded answer: give a trace, or rows that draftwood wrote")
    return list(traces.values())


_RANKS = 3


def _rank(row: Mapping[str, Any]) -> int:
    """Which of several answers to a prompt is replayed: plain's, else one of ours, else a peer's."""
    if row.get("arm") == "none":
        return 0
    return 1 if row.get("engine", "draftwood") in ("draftwood", "replay") else 2


def write_traces(path: Path, traces: Iterable[Trace], provenance: Mapping[str, Any], tokenizer: Any) -> None:
    """Write a trace file, whole or not at all."""
    made_with = {"tokenizer": tokenizer_fingerprint(tokenizer)} if tokenizer is not None else {}
    write_whole(path, [header("trace", made_with, provenance), *(t.to_json() for t in traces)])


def _refuse_other_tokenizer(path: Path, row: Mapping[str, Any], tokenizer: Any) -> None:
    made_with = row.get("settings", {}).get("tokenizer")
    if tokenizer is not None and made_with is not None and made_with != tokenizer_fingerprint(tokenizer):
        raise VocabularyError(f"{path} was made with another tokenizer: give that one, or leave --tokenizer out")


def _trace(path: Path, number: int, row: Mapping[str, Any], tokenizer: Any) -> Trace:
    try:
        prompt, output = _recorded(row, tokenizer)
    except RecordError as error:
        raise RecordError(f"{path}, line {number}: {error}") from error
    return Trace(
        str(row.get("task", path.name.partition(".")[0])),
        str(row.get("name", f"line {number}")),
        prompt,
        output,
        limit=row.get("limit"),
        finish_reason=row.get("finish_reason"),
    )


def _recorded(row: Mapping[str, Any], tokenizer: Any) -> tuple[list[int], list[int]]:
    if "prompt_ids" in row and "output_ids" in row:
        return _ids(row, "prompt_ids"), _ids(row, "output_ids")
    if isinstance(row.get("prompt"), str) and isinstance(row.get("output"), str):
        if tokenizer is None:
            raise RecordError("holds text and no ids: name a model whose tokenizer reads it (--tokenizer)")
        return _tokenised(row, "prompt", tokenizer), _tokenised(row, "output", tokenizer)
    raise RecordError("lacks prompt_ids and output_ids (or prompt and output with --tokenizer)")


def _ids(row: Mapping[str, Any], name: str) -> list[int]:
    ids = row[name]
    if not isinstance(ids, Sequence) or not all(type(i) is int and i >= 0 for i in ids):
        raise RecordError(f"{name} is no list of token ids (whole numbers from 0)")
    if not ids:
        raise RecordError(f"{name} is empty")
    return list(ids)


def _tokenised(row: Mapping[str, Any], name: str, tokenizer: Any) -> list[int]:
    ids: list[int] = tokenizer(row[name], add_special_tokens=name == "prompt")["input_ids"]
    if not ids:
        raise RecordError(f"{name} is empty")
    return ids


def grouped(traces: Iterable[Trace]) -> Iterator[tuple[str, list[Trace]]]:
    """Yield each task with its traces, in the order of the file."""
    tasks: dict[str, list[Trace]] = {}
    for trace in traces:
        tasks.setdefault(trace.task, []).append(trace)
    yield from tasks.items()
