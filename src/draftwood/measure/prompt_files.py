"""A user's own prompts: JSONL, plain text in blocks, or lists of token ids."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftwood.api.prompts import as_ids, check_shape
from draftwood.api.setup import Setup
from draftwood.decoding.request import Request
from draftwood.errors import PromptError, UsageError
from draftwood.files.foreign import LeftOut, given_text
from draftwood.files.lines import compressed, read_lines
from draftwood.files.paths import content
from draftwood.measure.records.records import Row
from draftwood.measure.records.traces import exchanged


@dataclass(frozen=True, slots=True)
class PromptJob:
    """One prompt to be answered; task and name together are unique."""

    task: str
    name: str
    prompt: Any  # text, chat messages or token ids
    sampling: dict[str, Any] = field(default_factory=dict)  # settings of this prompt that differ from greedy

    def request(self, setup: Setup, **settings: Any) -> Request:
        """Return the request for this prompt; `PromptError` names the job that cannot be written."""
        try:
            request = setup.request(as_ids(self.prompt, setup.tokenizer), **settings)
            request.check(setup.target.capabilities)
        except PromptError as error:
            raise PromptError(f"{self.task} {self.name}: {error}") from error
        return request


def task_jobs(names: str, limit: int | None = None) -> list[PromptJob]:
    """Return the prompts of tasks, whose names are joined by commas; raises as `draftwood.tasks.prompts` does."""
    from draftwood.tasks import prompts

    jobs = []
    for prompt in (p for name in dict.fromkeys(names.split(",")) for p in prompts(name.strip(), limit)):
        sampling = {name: value for name in ("temperature", "top_p") if (value := getattr(prompt, name))}
        jobs.append(PromptJob(prompt.task, prompt.name, prompt.content, sampling))
    return jobs


def read_prompts(path: Path) -> list[PromptJob]:
    """Read prompts: JSONL by the file's ending, else text with one prompt per block between blank lines. A line
    holds ``prompt`` (text) or ``messages``, or a body with them as ``request``, and may hold ``task``, ``name``,
    ``temperature`` and ``top_p``. Lines that cannot be used are left out, which the log says. Raises
    `PromptError` for a file without a prompt, `UsageError` or `RecordError` for unreadable files."""
    if not (compressed(path) or path.suffix in (".jsonl", ".json", ".ndjson")):
        blocks = re.split(r"\n[ \t\r]*\n", _text(path))
        jobs = [PromptJob(path.stem, f"block {i}", b.strip("\r\n")) for i, b in enumerate(blocks, 1) if b.strip()]
    else:
        jobs, left_out = [], LeftOut(path, PromptError)
        for number, line in read_lines(path):
            if line.get("row") == "header":
                continue
            try:
                jobs.append(_job(path, number, line))
            except PromptError as error:
                left_out.note(number, error)
        left_out.say(len(jobs))
    return _named_apart(path, jobs)


def read_prompt_ids(path: Path) -> list[PromptJob]:
    """Read prompts as token ids, one per line, separated by commas or spaces; brackets around them are allowed."""
    jobs = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = re.split(r"[,\s]+", line.strip().strip("[]").strip())
        if words == [""]:
            continue
        if not all(word.isdecimal() for word in words):
            raise PromptError(f"{path}, line {number}: no list of token ids (whole numbers from 0)")
        jobs.append(PromptJob(path.stem, f"line {number}", [int(word) for word in words]))
    return _named_apart(path, jobs)


def _job(path: Path, number: int, line: Row) -> PromptJob:
    line = exchanged(line)
    prompt = line.get("messages") or line.get("prompt") or line.get("text") or line.get("prompt_ids")
    if not prompt:
        raise PromptError("no prompt: give 'prompt' (text) or 'messages'")
    check_shape(prompt)
    sampling = {name: line[name] for name in ("temperature", "top_p") if line.get(name)}
    if odd := [name for name, value in sampling.items() if type(value) not in (int, float)]:
        raise PromptError(f"{odd[0]} is {sampling[odd[0]]!r:.40}: write a number")
    return PromptJob(str(line.get("task", path.stem)), str(line.get("name", f"line {number}")), prompt, sampling)


def _text(path: Path) -> str:
    try:
        return given_text(content(path, streams=True), str(path), PromptError)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its name") from error


def _named_apart(path: Path, jobs: list[PromptJob]) -> list[PromptJob]:
    if not jobs:
        raise PromptError(f"{path} holds no prompt: write one per line or block")
    seen: set[tuple[str, str]] = set()
    for job in jobs:
        if (job.task, job.name) in seen:
            raise PromptError(f"{path} names two prompts {job.task}/{job.name}: give each a name of its own")
        seen.add((job.task, job.name))
    return jobs
