"""A user's own prompts: JSONL, plain text in blocks, or lists of token ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftwood.api.prompts import as_ids
from draftwood.api.setup import Setup
from draftwood.decoding.request import Request
from draftwood.errors import PromptError, UsageError
from draftwood.measure.records.lines import compressed, read_lines


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt to be answered.

    Attributes
    ----------
    task, name
        Which one; unique together.
    prompt
        What the doors call a prompt: text, chat messages or token ids.
    sampling
        Settings of this prompt that differ from greedy.
    """

    task: str
    name: str
    prompt: Any
    sampling: dict[str, Any] = field(default_factory=dict)

    def request(self, setup: Setup, **settings: Any) -> Request:
        """Return the request for this prompt; `PromptError` names the job that cannot be written."""
        try:
            request = setup.request(as_ids(self.prompt, setup.tokenizer), **settings)
            request.check(setup.target.capabilities)
        except PromptError as error:
            raise PromptError(f"{self.task} {self.name}: {error}") from error
        return request


def task_jobs(names: str, limit: int | None = None) -> list[Job]:
    """Return the prompts of tasks, named with commas between; raises what `draftwood.tasks.prompts` raises."""
    from draftwood.tasks import prompts

    found = [p for name in dict.fromkeys(names.split(",")) for p in prompts(name.strip(), limit)]
    return [Job(p.task, p.name, p.content, _sampling(p.temperature, p.top_p)) for p in found]


def _sampling(temperature: float, top_p: float | None) -> dict[str, Any]:
    if not temperature:
        return {}
    return {"temperature": temperature} | ({"top_p": top_p} if top_p is not None else {})


def read_prompts(path: Path) -> list[Job]:
    """Read prompts: JSONL where the name says so, else text, one prompt per block between blank lines.

    A line holds ``prompt`` (text) or ``messages``, and may say ``task``, ``name``, ``temperature`` and ``top_p``.

    Raises
    ------
    PromptError
        For a file without prompts, and a line without one, by number.
    UsageError, RecordError
        If the file cannot be read.
    """
    if not (compressed(path) or path.suffix in (".jsonl", ".json", ".ndjson")):
        blocks = re.split(r"\n[ \t]*\n", _text(path))
        jobs = [Job(path.stem, f"block {i}", b.strip("\n")) for i, b in enumerate(blocks, 1) if b.strip()]
    else:
        jobs = [_job(path, number, row) for number, row in read_lines(path) if row.get("row") != "header"]
    return _named_apart(path, jobs)


def read_prompt_ids(path: Path) -> list[Job]:
    """Read token ids, a prompt per line, with commas or spaces between, in brackets or not."""
    jobs = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = re.split(r"[,\s]+", line.strip().strip("[]").strip())
        if words == [""]:
            continue
        if not all(word.isdecimal() for word in words):
            raise PromptError(f"{path}, line {number}: no list of token ids (whole numbers from 0)")
        jobs.append(Job(path.stem, f"line {number}", [int(word) for word in words]))
    return _named_apart(path, jobs)


def _job(path: Path, number: int, row: Mapping[str, Any]) -> Job:
    prompt = row.get("messages") or row.get("prompt") or row.get("text") or row.get("prompt_ids")
    if not prompt:
        raise PromptError(f"{path}, line {number}: no prompt: give 'prompt' (text) or 'messages'")
    sampling = {name: row[name] for name in ("temperature", "top_p") if row.get(name)}
    return Job(str(row.get("task", path.stem)), str(row.get("name", f"line {number}")), prompt, sampling)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its name") from error
    except UnicodeDecodeError as error:
        raise PromptError(f"{path} is no UTF-8 text: give a text file") from error


def _named_apart(path: Path, jobs: list[Job]) -> list[Job]:
    if not jobs:
        raise PromptError(f"{path} holds no prompt: write one per line or block")
    seen: set[tuple[str, str]] = set()
    for job in jobs:
        if (job.task, job.name) in seen:
            raise PromptError(f"{path} names two prompts {job.task}/{job.name}: give each a name of its own")
        seen.add((job.task, job.name))
    return jobs
