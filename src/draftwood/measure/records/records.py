"""Rows files, the one format of every instrument: a header, then each answer with its steps, an object per line.

::

    {"row": "header", "format": 1, "verb": "bench", "settings": {...}, "provenance": {...}}
    {"row": "answer", "id": 0, "task": "chat", "name": "rainbow", "arm": "suffix", ..., "n_steps": 41}
    {"row": "step", "answer": 0, "index": 0, "context": 71, "emitted": [12], ...}
    {"row": "difference", "answer": 7, "against": 3, "index": 55, "margin": 1e-06, ...}

A profile is such a file too, with rows of its own (``pass``, ``prefill``, ...).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from draftwood.contracts import Sampling
from draftwood.decoding.request import Emission
from draftwood.errors import RecordError, UsageError
from draftwood.measure.records.lines import read_lines, warn_of_torn
from draftwood.step import MODEL, Step

FORMAT = 1
OF_THE_PROMPT = ("prompt_ids", "prompt_pieces")
"""Fields of an answer that a file says once per prompt."""


@dataclass(slots=True)
class Answer:
    """One answer of one arm.

    Attributes
    ----------
    id
        Number within the file.
    task, name
        Which prompt.
    arm
        The drafters as typed, or the name of a peer; ``none`` is plain decoding.
    engine
        Who ran it: ``draftwood``, ``replay``, ``transformers``, ``llama.cpp``.
    round
        From 0.
    drafters
        Names of the sources, by the index that steps use.
    planner
        As typed.
    limit
        Most tokens that might have been written.
    prompt_ids, output_ids
        Token ids; the first of the output comes from reading the prompt and belongs to no step. In a file a prompt
        stands only with its first answer.
    pieces, prompt_pieces
        Text of each token of output and prompt, where kept; a character of several tokens stands with the last.
    finish_reason, seed, sampling
        As in `Generation`; ``sampling`` holds the settings of `Sampling` that are not its defaults.
    prefill_s, decode_s
        Seconds until the first token, and from there to the last one.
    arrivals
        [tokens, seconds since the first] where there are no steps to tell.
    drafted, accepted, passes
        What a peer without steps tells.
    cpu_share, joules, celsius
        Processor use in cores, energy and temperature, where measured.
    steps
        What happened.
    """

    id: int
    task: str
    name: str
    arm: str
    engine: str = "draftwood"
    round: int = 0
    drafters: list[str] = field(default_factory=list)
    planner: str | None = None
    limit: int | None = None
    prompt_ids: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    pieces: list[str] | None = None
    prompt_pieces: list[str] | None = None
    finish_reason: str | None = None
    seed: int | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    prefill_s: float | None = None
    decode_s: float | None = None
    arrivals: list[list[float]] | None = None
    drafted: int | None = None
    accepted: int | None = None
    passes: int | None = None
    cpu_share: float | None = None
    joules: float | None = None
    celsius: float | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What a run does once: (task, name, arm, round)."""
        return self.task, self.name, self.arm, self.round

    @property
    def sampled(self) -> bool:
        """Whether noise decided."""
        return bool(self.sampling.get("temperature"))

    def comparable(self, plain: Answer) -> bool:
        """Whether that plain answer says something about this one: another engine draws other random numbers."""
        return not self.sampled or plain.engine == self.engine

    @property
    def sources(self) -> list[str]:
        """Per output token who wrote it: a drafter's name or ``model``."""
        if not self.steps:
            return ["model"] * len(self.output_ids)
        names = ["model" if s == MODEL else self.drafters[s] for step in self.steps for s in step.sources]
        return ["model"] * (len(self.output_ids) - len(names)) + names

    def take(self, emission: Emission) -> None:
        """Take in what the loop emitted."""
        self.output_ids += emission.tokens
        self.finish_reason = emission.finish
        if emission.step is not None:
            self.steps.append(emission.step)

    def lines(self, without: Collection[str] = ()) -> Iterator[dict[str, Any]]:
        """Yield the answer's row, without these fields, and those of its steps."""
        names = [f.name for f in dataclasses.fields(self) if f.name not in ("steps", *without)]
        said = {name: value for name in names if (value := getattr(self, name)) not in (None, {})}
        yield {"row": "answer", **said, "n_steps": len(self.steps)}
        for step in self.steps:
            yield {"row": "step", "answer": self.id, **step.to_json()}

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """Read an answer's row, without its steps; unknown or missing fields raise `RecordError`."""
        given = {name: value for name, value in row.items() if name not in ("row", "n_steps")}
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := set(given) - known:
            raise RecordError(f"an answer has unknown fields {sorted(unknown)}: written by another version?")
        if missing := {"id", "task", "name", "arm"} - set(given):
            raise RecordError(f"an answer lacks {sorted(missing)}")
        return cls(**given)


@dataclass(slots=True)
class Records:
    """What a rows file holds.

    Attributes
    ----------
    header
        Its first line.
    answers
        Complete ones, with their steps.
    others
        Rows of every other kind (``difference``, ``pass``, ...), in order.
    torn
        Whether the file ends in a record that was cut off, which is not here.
    """

    header: dict[str, Any]
    answers: list[Answer] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)
    torn: bool = False

    def of_kind(self, row: str) -> list[dict[str, Any]]:
        """Rows of one other kind."""
        return [r for r in self.others if r.get("row") == row]


def sampling_said(sampling: Sampling) -> dict[str, Any]:
    """Return the settings that are not the defaults, without the seed."""
    said = dataclasses.asdict(sampling)
    defaults = dataclasses.asdict(Sampling())
    return {name: value for name, value in said.items() if value != defaults[name] and name != "seed"}


def header(verb: str, settings: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first line of a rows file; ``settings`` must agree where a run is resumed."""
    said = {"settings": dict(settings), "provenance": dict(provenance)}
    return {"row": "header", "format": FORMAT, "verb": verb, **said}


def read_records(path: Path) -> Records:
    """Read a rows file; an answer or line that was cut off at its very end is left out, with a warning in the log.

    Parameters
    ----------
    path
        Of a ``.jsonl`` or ``.jsonl.zst``.

    Raises
    ------
    RecordError
        For a broken line (by number), no header, another version's format, an answer that is followed by
        something else than all its steps.
    UsageError
        If the file cannot be opened.
    """
    reader = _Reader(path)
    for number, row in read_lines(path, reader.torn):
        reader.take(number, row)
    return reader.finish()


class _Reader:
    """Puts lines together; an answer counts once all its steps were read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: Records | None = None
        self._open: Answer | None = None
        self._missing = 0
        self._torn = False
        self._prompts: dict[tuple[str, str], Answer] = {}

    def take(self, number: int, row: dict[str, Any]) -> None:
        try:
            self._take(row)
        except (RecordError, UsageError, TypeError, KeyError) as error:
            raise RecordError(f"{self._path}, line {number}: {error}") from error

    def _take(self, row: dict[str, Any]) -> None:
        kind = row.get("row")
        if self.rows is None:
            self.rows = Records(_checked_header(row))
        elif kind == "step":
            if self._open is None or row.get("answer") != self._open.id:
                raise RecordError("a step without its answer")
            self._open.steps.append(Step.from_json({k: v for k, v in row.items() if k not in ("row", "answer")}))
            self._missing -= 1
        elif self._missing:
            raise RecordError(f"{self._missing} steps of the answer before are missing")
        elif kind == "answer":
            self._open, self._missing = self._answer(row), int(row.get("n_steps", 0))
        elif isinstance(kind, str):
            self.rows.others.append(row)
        else:
            raise RecordError("a line that does not say what 'row' it is")
        if self._open is not None and not self._missing:
            self.rows.answers.append(self._open)
            self._open = None

    def _answer(self, row: Mapping[str, Any]) -> Answer:
        answer = Answer.read(row)
        first = self._prompts.setdefault((answer.task, answer.name), answer)
        for name in OF_THE_PROMPT:
            if not getattr(answer, name):
                setattr(answer, name, getattr(first, name))
        return answer

    def torn(self, path: Path, where: str) -> None:
        self._torn = True
        if self._open is None:  # else it is the answer that is told
            warn_of_torn(path, where)

    def finish(self) -> Records:
        if self.rows is None:
            raise RecordError(f"{self._path} is empty: give a file that draftwood wrote with -o")
        if self._open is not None:
            warn_of_torn(self._path, f"{self._open.task} {self._open.name}, {self._open.arm}")
        self.rows.torn = self._torn or self._open is not None
        return self.rows


def _checked_header(row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("row") != "header":
        raise RecordError("no rows file: the first line is no header (a trace is read by simulate)")
    if row.get("format") != FORMAT:
        raise RecordError(
            f"format {row.get('format')!r}, and this version reads {FORMAT}: use the draftwood that wrote it"
        )
    return dict(row)
