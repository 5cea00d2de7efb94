"""Traces: recorded answers, to be replayed. Any JSONL with ``prompt_ids`` and ``output_ids``, with text
or chat messages, or with the bodies of requests and responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.api.prompts import as_ids
from draftwood.engines.replay import MAX_ID
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.errors import RecordError, UsageError, VocabularyError
from draftwood.files.foreign import LeftOut
from draftwood.files.lines import write_whole
from draftwood.measure.records.conversations import message_text, text_of
from draftwood.measure.records.formats import LogReader
from draftwood.measure.records.records import Row, grouped_by, header

_SHAPED = {"output", "request", "completion", "prompt_ids"}  # fields of lines whose shape we know


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded answer."""

    task: str  # by default the name of the file
    name: str  # of the prompt
    prompt_ids: list[int]  # at least one
    output_ids: list[int]  # at least one
    limit: int | None = None  # most tokens that might have been written; None: the text is taken to end there
    finish_reason: str | None = None

    def to_json(self) -> Row:
        """Return a JSON-ready dictionary without what is unknown."""
        names = self.__dataclass_fields__
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def read_traces(path: Path, tokenizer: Any = None) -> list[Trace]:
    """Read a file of a shape that `SHAPES` names, also compressed (``.zst``), or a folder of such files, which is
    one task. Of a records file one answer per prompt is taken: plain decoding's, else one of our loop, else a
    peer's. ``tokenizer`` reads lines that hold text only and bounds the ids. Lines that cannot be used (broken, an
    error, another shape) are left out, which the log says. Raises `UsageError` if the file cannot be opened,
    `RecordError` for one without answers, `VocabularyError` if the trace was made with another tokenizer or holds
    ids that this one does not know."""
    known = MAX_ID if tokenizer is None else len(tokenizer)
    traces: dict[Any, tuple[int, Trace]] = {}  # with the rank of the answer
    prompts: dict[tuple[str, str], list[int]] = {}
    left_out, shaped = LeftOut(path, RecordError), False
    reader, task = LogReader(path, left_out), path.resolve().name if path.is_dir() else path.name.partition(".")[0]
    for place, line in reader.rows():
        kind, key, rank = line.get("row"), (str(line.get("task")), str(line.get("name"))), 0
        if kind == "header":
            _refuse_other_tokenizer(path, line, tokenizer)
        if kind not in (None, "trace", "answer"):
            continue
        if kind == "answer":  # of a records file, which holds a prompt once, and no text after an early interrupt
            line.setdefault("prompt_ids", prompts.get(key))
            prompts[key] = line["prompt_ids"]
            rank = 0 if line.get("arm") == "none" else 1 + (line.get("engine", "draftwood") != "draftwood")
            if not line.get("output_ids") or (key in traces and rank >= traces[key][0]):
                continue
        shaped |= not _SHAPED.isdisjoint(line)
        try:
            trace = _trace({"task": task, "name": f"line {place}"} | line, tokenizer)
        except (RecordError, UsageError) as error:
            left_out.note(place, error)
            continue
        if (worst := max(max(trace.prompt_ids), max(trace.output_ids))) >= known:
            what = f"id {worst} is outside the vocabulary of {known} tokens"
            raise VocabularyError(f"{path}, line {place}: {what}: give the tokenizer it was made with")
        traces[key if kind == "answer" else len(traces)] = rank, trace
    left_out.say(len(traces), "" if shaped else reader.why())
    if not traces:
        raise RecordError(f"{path} holds no recorded answer: {reader.why()}")
    return [trace for _, trace in traces.values()]


def write_traces(path: Path, traces: Iterable[Trace], provenance: Row, tokenizer: Any) -> None:
    """Write a trace file completely or not at all."""
    made_with = {"tokenizer": tokenizer_fingerprint(tokenizer)} if tokenizer is not None else {}
    write_whole(path, [header("trace", made_with, provenance), *(t.to_json() for t in traces)])


def _refuse_other_tokenizer(path: Path, header: Row, tokenizer: Any) -> None:
    settings = header.get("settings")
    made_with = settings.get("tokenizer") if isinstance(settings, Mapping) else None
    if tokenizer is not None and made_with not in (None, tokenizer_fingerprint(tokenizer)):
        raise VocabularyError(f"{path} was made with another tokenizer: give that one, or leave --tokenizer out")


def _trace(line: Row, tokenizer: Any) -> Trace:
    line = exchanged(line)
    prompt, output = (_ids(line, name, tokenizer) for name in ("prompt", "output"))
    task, name = str(line["task"]), str(line["name"])
    limit, reason = line.get("limit"), line.get("finish_reason")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise RecordError(f"limit is {limit!r:.40}: write a whole number from 1 on")
    return Trace(task, name, prompt, output, limit, reason if isinstance(reason, str) else None)


def _ids(line: Row, which: str, tokenizer: Any) -> list[int]:
    """Return the ids of the prompt or the output, tokenized if the line holds text only."""
    name = f"{which}_ids"
    if "prompt_ids" in line and "output_ids" in line:
        ids = line[name]
        if not isinstance(ids, Sequence) or not all(type(i) is int and i >= 0 for i in ids):
            raise RecordError(f"{name} is no list of token ids (whole numbers from 0)")
    elif isinstance(line.get("output"), str) and ("messages" in line or "prompt" in line):
        given, name = line.get("messages") or line.get("prompt") if which == "prompt" else line["output"], which
        if tokenizer is None:
            raise RecordError("holds text and no ids: name a model whose tokenizer reads it (--tokenizer)")
        if isinstance(given, str):
            ids = tokenizer(given, add_special_tokens=which == "prompt")["input_ids"]
        else:
            ids = as_ids(given, tokenizer)
    elif line.get("output", "") != "" and not isinstance(line["output"], str):
        raise RecordError("its output is no text (a call, or an error?)")
    else:
        raise RecordError("lacks prompt_ids and output_ids (or prompt and output with --tokenizer)")
    if not ids:
        raise RecordError(f"{name} is empty")
    return list(ids)


def grouped(traces: Iterable[Trace]) -> Iterator[tuple[str, list[Trace]]]:
    """Yield each task with its traces, in the order of the file."""
    yield from grouped_by(traces, lambda trace: trace.task).items()


def exchanged(line: Row) -> Row:
    """Return a line of a log with what its bodies ``request`` and ``response`` say as ``messages`` or ``prompt``,
    and ``output``; other lines as they are.
    """
    request, response = line.get("request"), line.get("response")
    if isinstance(line.get("completion"), str):  # OpenAI's older lines for fine-tuning
        return {"output": line["completion"], **line}
    if not isinstance(request, Mapping):
        return dict(line)
    asked = {name: request[name] for name in ("messages", "prompt", "temperature", "top_p") if name in request}
    said = {"output": _said(response)} if isinstance(response, Mapping) else {}
    return {**asked, **said, **{name: line[name] for name in ("task", "name") if name in line}}


def _said(response: Mapping[str, Any]) -> Any:
    """Return the text of a response with its thoughts and calls, of several answers the first; None for others."""
    choices = response.get("choices")
    if not choices:
        return response.get("content")  # of llama.cpp's route /completion
    first = choices[0] if isinstance(choices, list) else None
    message = first.get("message", first) if isinstance(first, Mapping) else None
    if not isinstance(message, Mapping):
        return None
    thought = message.get("reasoning_content")
    parts = (thought if isinstance(thought, str) else "", message_text(message), text_of(message.get("text")))
    return "\n".join(filter(None, parts)) or None
