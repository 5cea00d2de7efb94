"""Records files, the one format of every instrument: JSON lines, a header first, then each answer and its steps.

::

    {"row": "header", "format": 1, "verb": "bench", "settings": {...}, "provenance": {...}}
    {"row": "answer", "id": 0, "task": "chat", "name": "rainbow", "arm": "ngram", ..., "n_steps": 41}
    {"row": "step", "answer": 0, "index": 0, "context": 71, "emitted": [12], ...}
    {"row": "difference", "answer": 7, "against": 3, "index": 55, "margin": 1e-06, ...}

A profile is such a file too, with records of its own (``pass``, ``prefill``, ...).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from draftwood.api.text import Spelling, TextBuilder
from draftwood.contracts import Sampling
from draftwood.decoding.request import Emission
from draftwood.errors import RecordError
from draftwood.files.lines import read_lines, warn_of_torn
from draftwood.local.crowding import crowds
from draftwood.local.findings import threads_of
from draftwood.step import MODEL, Step

Row = dict[str, Any]
"""A row of a file, of a table, or of a page: a JSON object."""

T = TypeVar("T")
K = TypeVar("K")

FORMAT = 1
TRACED = -1
"""The round of a bench that is not timed: its answers have a trace, which takes 1 to 2 % of a step."""
OF_THE_PROMPT = ("prompt_ids", "prompt_pieces")
"""Fields of an answer that a file holds once per prompt, with its first answer."""


@dataclass(slots=True)
class Answer:
    """One answer of one arm."""

    id: int  # number within the file
    task: str  # task and name say which prompt
    name: str
    arm: str  # the drafters as typed, or the name of a peer; ``none`` is plain decoding
    engine: str = "draftwood"  # whose loop ran: draftwood, transformers, llama.cpp
    round: int = 0  # from 0, or `TRACED`
    drafters: list[str] = field(default_factory=list)  # names, by the source index that steps use
    planner: str | None = None  # as typed
    rule: str | None = None  # the lossy rule by which it was written; None: the exact one
    limit: int | None = None  # most tokens that the answer might have
    prompt_ids: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)  # the first comes from reading the prompt: no step has it
    # Text of each token, where kept; a character of several tokens stands with the last of them.
    pieces: list[str] | None = None
    prompt_pieces: list[str] | None = None
    finish_reason: str | None = None  # as in `Generation`
    seed: int | None = None
    sampling: dict[str, Any] = field(default_factory=dict)  # settings of `Sampling` that are not its defaults
    prefill_s: float | None = None  # seconds until the first token
    decode_s: float | None = None  # seconds from the first token to the last
    # Of peers, which have no steps: [tokens, seconds since the first token], and counts where they tell them.
    arrivals: list[list[float]] | None = None
    drafted: int | None = None
    accepted: int | None = None
    passes: int | None = None
    # Of drafters with models: bytes of weights and, at the end, of caches that are not the target's own.
    draft_weight_bytes: int | None = None
    draft_cache_bytes: int | None = None
    cpu_share: float | None = None  # processor use in cores
    celsius: float | None = None
    other_programs: float | None = None  # cores that they took meanwhile
    sitting: int = 0  # times of one run of the bench can be compared, from the start or a resumption to its end
    steps: list[Step] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What identifies an answer within a sitting: (task, name, arm, round)."""
        return self.task, self.name, self.arm, self.round

    @property
    def sampled(self) -> bool:
        return bool(self.sampling.get("temperature"))

    def comparable(self, plain: Answer) -> bool:
        """Whether the times can be compared; two engines that sample write different texts."""
        return not self.sampled or plain.engine == self.engine

    def repeats(self, plain: Answer) -> bool:
        """Whether the texts should be equal, too: transformers' drafts use up random numbers when it samples."""
        drawn_otherwise = self.sampled and self.engine == "transformers" and self.arm != plain.arm
        return self.comparable(plain) and not drawn_otherwise

    @property
    def sources(self) -> list[str]:
        """For each output token the drafter's name, or ``model``."""
        if not self.steps:
            return ["model"] * len(self.output_ids)
        names = ["model" if s == MODEL else self.drafters[s] for step in self.steps for s in step.sources]
        return ["model"] * (len(self.output_ids) - len(names)) + names

    def take(self, emission: Emission) -> None:
        self.output_ids += emission.tokens
        self.finish_reason = emission.finish
        if emission.step is not None:
            self.steps.append(emission.step)

    def lines(self, without: Collection[str] = ()) -> Iterator[Row]:
        """Yield the answer's record, without these fields, and those of its steps."""
        names = [f.name for f in dataclasses.fields(self) if f.name not in ("steps", *without)]
        known = {name: value for name in names if (value := getattr(self, name)) not in (None, {})}
        yield {"row": "answer", **known, "n_steps": len(self.steps)}
        for step in self.steps:
            yield {"row": "step", "answer": self.id, **step.to_json()}

    @classmethod
    def read(cls, record: Row) -> Self:
        """Read an answer's record, without its steps; unknown or missing fields raise `RecordError`."""
        given = {name: value for name, value in record.items() if name not in ("row", "n_steps")}
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := set(given) - known:
            raise RecordError(f"an answer has unknown fields {sorted(unknown)}: written by another version?")
        if missing := {"id", "task", "name", "arm"} - set(given):
            raise RecordError(f"an answer lacks {sorted(missing)}")
        return cls(**given)


@dataclass(slots=True)
class Records:
    """The content of a records file."""

    header: Row  # its first line
    answers: list[Answer] = field(default_factory=list)  # complete ones, with their steps
    others: list[Row] = field(default_factory=list)  # other kinds (difference, pass, ...), in order
    torn: bool = False  # whether the file ends in a record that was cut off, which is left out here

    def of_kind(self, kind: str) -> list[Row]:
        return [record for record in self.others if record.get("row") == kind]

    @property
    def sitting(self) -> int:
        """The number of the last sitting."""
        return len(self.of_kind("resumed"))

    def add(self, record: Row) -> None:
        """Add a record that is no answer; what is known of the machine is known of all answers of the sitting."""
        self.others.append(record)
        for answer in self.answers if record.get("row") == "machine" else ():
            if answer.sitting == self.sitting and answer.other_programs is None:
                answer.other_programs = record["other_programs"]

    @property
    def facts(self) -> Row:
        """What the header says of the model and the machine."""
        return {**self.header.get("provenance", {}), **self.header.get("settings", {})}

    def is_quiet(self, answer: Answer) -> bool:
        """Whether other programs left enough cores to an answer, as far as is known."""
        taken, cores = answer.other_programs, self.facts.get("cores")
        return not (taken and cores and crowds(taken, cores, threads_of(self.facts) or cores))


def grouped_by(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return key -> its members, both in the order of first appearance."""
    found: dict[K, list[T]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found


def sampling_said(sampling: Sampling) -> dict[str, Any]:
    """Return the settings that are not the defaults, without the seed."""
    defaults = dataclasses.asdict(Sampling(seed=sampling.seed))
    return {name: value for name, value in dataclasses.asdict(sampling).items() if value != defaults[name]}


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the text of each token, as `Answer.pieces` keeps it to be shown without the tokenizer."""
    builder = TextBuilder(Spelling(tokenizer))
    texts = ["".join(piece.text for piece in builder.push(token, "")) for token in ids]
    if texts:
        texts[-1] += "".join(piece.text for piece in builder.finish(""))
    return texts


def header(verb: str, settings: Row, provenance: Row) -> Row:
    """Return the first line of a records file; to resume a run its ``settings`` must be the same."""
    facts = {"settings": dict(settings), "provenance": dict(provenance)}
    return {"row": "header", "format": FORMAT, "verb": verb, **facts}


def read_records(path: Path) -> Records:
    """Read a records file, ``.jsonl`` or ``.jsonl.zst``; what was cut off at the very end is left out, with a
    warning in the log. Raises `RecordError` for a broken line, no header, another version's format, or an answer
    whose steps do not follow it, and `UsageError` if the file cannot be opened."""
    found, prompts, torn = Records({}), dict[tuple[str, str], Answer](), list[tuple[Path, str]]()
    missing = 0  # steps of the last answer that are still to be read
    for number, record in read_lines(path, lambda *place: torn.append(place)):
        try:
            if not found.header:
                found.header = _checked_header(record)
            else:
                missing = _take(found, record, missing, prompts)
        except (RecordError, ValueError, TypeError, KeyError) as error:
            raise RecordError(f"{path}, line {number}: {error}") from error
    if not found.header:
        raise RecordError(f"{path} is empty: give a file that draftwood wrote with -o")
    if missing:
        unfinished = found.answers.pop()
        torn = [(path, f"{unfinished.task} {unfinished.name}, {unfinished.arm}")]
    if torn:
        warn_of_torn(*torn[0])
    found.torn = bool(torn)
    return found


def _take(found: Records, record: Row, missing: int, prompts: dict[tuple[str, str], Answer]) -> int:
    """Add a record; returns how many steps of the last answer are missing now."""
    kind, answers = record.get("row"), found.answers
    if kind == "step":
        if not missing or record.get("answer") != answers[-1].id:
            raise RecordError("a step without its answer")
        fields = {name: value for name, value in record.items() if name not in ("row", "answer")}
        answers[-1].steps.append(Step.from_json(fields))
        return missing - 1
    if missing:
        raise RecordError(f"{missing} steps of the answer before are missing")
    if kind == "answer":
        answer = Answer.read({"sitting": found.sitting} | record)  # earlier versions did not write it
        first = prompts.setdefault((answer.task, answer.name), answer)
        for name in OF_THE_PROMPT:
            if not getattr(answer, name):
                setattr(answer, name, getattr(first, name))
        answers.append(answer)
        return int(record.get("n_steps", 0))
    if not isinstance(kind, str):
        raise RecordError("a line that does not say what 'row' it is")
    found.add(record)
    return 0


def _checked_header(record: Row) -> Row:
    if "trace" in (record.get("row"), record.get("verb")):
        told = "has no steps (draftwood simulate replays it): give records of generate or bench"
        raise RecordError(f"this is a trace, which {told}")
    if record.get("row") != "header":
        raise RecordError("no records file: the first line is no header (a trace is read by simulate)")
    if record.get("format") != FORMAT:
        raise RecordError(f"format {record.get('format')!r}, not {FORMAT}: use the version that wrote it")
    return dict(record)
