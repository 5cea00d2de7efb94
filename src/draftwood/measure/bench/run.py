"""Runs arms on the same prompts, interleaved, and saves each answer at once."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter, process_time
from typing import Any

from draftwood.api.setup import Setup
from draftwood.decoding.request import Request
from draftwood.local.crowding import Others
from draftwood.measure.bench.arms import Arm
from draftwood.measure.bench.table import BUSY, PLAIN, table
from draftwood.measure.prompt_files import PromptJob
from draftwood.measure.records.records import TRACED, Answer, Row, sampling_said, token_texts
from draftwood.measure.records.writer import RecordsWriter
from draftwood.measure.wording import doubted
from draftwood.planning.policies.sensors import temperature
from draftwood.tree import TokenTree

Key = tuple[str, str, str, int]  # task, prompt, arm, round
Entry = tuple[Key, PromptJob, Arm]
_WARM_PROMPT, _WARM_TOKENS, _WARM_WIDTH = 16, 4, 33


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """Settings of all answers of a bench."""

    planner: str = "fixed:16"  # as typed; each arm has its own, for all rounds
    max_new_tokens: int = 192
    temperature: float | None = None  # None: that of the prompt, else greedy
    seed: int = 0  # of sampling and of the shuffling
    rule: str = "exact"  # as typed; lossy ones change texts

    def sampling(self, job: PromptJob) -> dict[str, Any]:
        """Sampling settings of a prompt; empty is greedy."""
        if self.temperature is None:
            return job.sampling
        return {"temperature": self.temperature} if self.temperature else {}


class Bench:
    """Runs every arm on every prompt, round after round, and saves each answer as soon as it is finished. Arms are
    shuffled for every prompt and round; the first should be ``none``. With a file, each arm that drafts then
    writes once more, with the trace of its steps, in the round `TRACED`. Answers that ``writer`` holds are not run
    again, but for those of an earlier sitting that cannot be compared (the machine was busy, or plain decoding was
    not timed in that sitting) and for plain decoding beside an arm that is run now. ``on_run`` is called with
    (runs done, all runs, name of this run) before each run. Raises `PromptError` for a prompt that the model
    cannot take, `UsageError` for one that differs from the writer's."""

    def __init__(
        self, setup: Setup, arms: Sequence[Arm], jobs: Sequence[PromptJob], settings: BenchSettings,
        writer: RecordsWriter, on_run: Callable[[int, int, str], None] = lambda _done, _all, _what: None,
    ) -> None:  # fmt: skip
        self._setup, self._arms, self._jobs, self._settings = setup, arms, jobs, settings
        self._writer, self._on_run = writer, on_run
        self._requests = {(j.task, j.name): self._request(j) for j in jobs}
        self._warmed: set[str] = set()
        self._round: int | None = None
        self._again: set[Key] = set()  # what is run now

    def run(self, rounds: int) -> None:
        """Run what is missing of this many rounds; raises `RecordError` if an answer cannot be saved."""
        self._carry_out([*self._plan([*range(rounds), *[TRACED] * bool(self._writer.path)])])

    def run_doubted(self, number: int) -> None:
        """Run one more round, of this number, of plain decoding and arms with a speedup that cannot be, or with
        none since the machine was busy; only the tasks where that is so, whose answers alone an arm's memory then
        holds. Raises as `run`."""
        rows = table(self._writer.records)
        odd = [r for r in rows if r["apart"] == BUSY or doubted(r["speedup_unlooped"], r["most_speedup"])]
        again = {(row["task"], arm) for row in odd for arm in (row["drafter"], *PLAIN[row["engine"]])}
        self._carry_out([one for one in self._plan([number]) if (one[1].task, one[2].label) in again])

    def _carry_out(self, plan: list[Entry]) -> None:
        left = self._left(plan)
        self._again = {key for key, _, _ in left}
        for count, (key, job, arm) in enumerate(left, len(plan) - len(left)):
            number = key[3]
            if number != self._round:
                self._round = number
                for each in self._arms:
                    self._begin_round(each)
            called = "trace" if number == TRACED else f"round {number + 1}"
            self._on_run(count, len(plan), f"{called}: {job.task} {job.name}, {arm.label}")
            self.warm(arm, job)
            self._writer.answer(self.answer(arm, job, number))

    def _left(self, plan: list[Entry]) -> list[Entry]:
        """Return what is missing, and the plain decoding that it is compared with."""
        records, ours = self._writer.records, {arm.label for arm in self._arms}
        quiet = [a for a in records.answers if a.round != TRACED and records.is_quiet(a)]
        there = {(a.task, a.name, a.sitting, a.arm) for a in quiet}

        def stands(a: Answer) -> bool:
            plains = ours.intersection(PLAIN.get(a.engine, ()))
            return not plains or any((a.task, a.name, a.sitting, plain) in there for plain in plains)

        new = {a.key for a in records.answers if a.round == TRACED or a.sitting == self._writer.sitting}
        done = new.union(a.key for a in quiet if stands(a))
        missing = [(key, arm) for key, _, arm in plan if key not in done and key[3] != TRACED]
        plain = {(t, name, each, n) for (t, name, _, n), arm in missing for each in PLAIN.get(arm.engine, ())}
        return [entry for entry in plan if entry[0] not in done or entry[0] in plain - new]

    def _begin_round(self, arm: Arm) -> None:
        arm.begin_round()
        for answer in self._writer.records.answers:  # those of an interrupted round; none is its own draft
            if (answer.arm, answer.round) == (arm.label, self._round) and answer.key not in self._again:
                arm.remember(answer.output_ids)

    def answer(self, arm: Arm, job: PromptJob, number: int) -> Answer:
        request = dataclasses.replace(self._requests[job.task, job.name], trace=number == TRACED)
        answer = Answer(
            self._writer.next_id, job.task, job.name, arm.label, arm.engine, number, limit=request.limit,
            prompt_ids=list(request.prompt), seed=request.sampling.seed, sampling=sampling_said(request.sampling),
        )  # fmt: skip
        others, busy, started = Others(), process_time(), perf_counter()
        arm.run(request, answer)
        if arm.engine != "llama.cpp":  # it may start a server within the answer
            answer.cpu_share = (process_time() - busy) / (perf_counter() - started)
        answer.other_programs, answer.celsius = others.cores, temperature()
        if number in (0, TRACED) and self._setup.tokenizer is not None:
            answer.pieces = token_texts(answer.output_ids, self._setup.tokenizer)
            answer.prompt_pieces = token_texts(answer.prompt_ids, self._setup.tokenizer)
        return answer

    def is_quiet(self, answer: Answer) -> bool:
        """Whether other programs left enough cores to an answer."""
        return self._writer.records.is_quiet(answer)

    def _plan(self, rounds: Iterable[int]) -> Iterator[Entry]:
        for number in rounds:
            for job in self._jobs:
                shuffle = random.Random(f"{self._settings.seed} {number} {job.task} {job.name}")
                for arm in shuffle.sample(self._arms, len(self._arms)):
                    if number != TRACED or arm.drafts:
                        yield (job.task, job.name, arm.label, number), job, arm

    def _request(self, job: PromptJob) -> Request:
        settings = {"temperature": 0.0, **self._settings.sampling(job), "seed": self._settings.seed}
        request = job.request(self._setup, max_new_tokens=self._settings.max_new_tokens, **settings)
        self._writer.refuse_another_prompt(job.task, job.name, request.prompt)
        return request

    def warm(self, arm: Arm, job: PromptJob) -> None:
        """Run a few untimed tokens once per arm, so that compiling and allocating are done before timing; before
        the first arm also a pass of every width, which may compile or choose a kernel."""
        if arm.label in self._warmed:
            return
        if not self._warmed:
            target = self._setup.target
            ((session, _),) = target.open([[0] * _WARM_PROMPT])
            for width in range(min(_WARM_WIDTH, target.capabilities.max_pass)):
                target.score([(session, 0, TokenTree.build([0] * width))])
            session.close()
        self._warmed.add(arm.label)
        request = self._requests[job.task, job.name]
        short = dataclasses.replace(request, prompt=list(request.prompt)[:_WARM_PROMPT], limit=_WARM_TOKENS)
        arm.run(short, Answer(-1, job.task, job.name, arm.label))
        self._begin_round(arm)


@dataclass(slots=True)
class Sustained:
    """The pace of one arm over time."""

    arm: str  # its label
    # Per answer: at_s (seconds since the start), tokens_per_second of decoding; where known celsius, and busy.
    windows: list[Row] = field(default_factory=list)

    def to_json(self) -> Row:
        """Return a record of kind ``sustained``: the mean pace of the first and the last quarter of the time, and
        the share that was kept; None for fewer than four answers on a quiet machine."""
        first = last = kept = None
        quiet = [window for window in self.windows if not window.get("busy")]
        if len(quiet) >= 4:
            end = quiet[-1]["at_s"]
            early = [w for w in quiet if w["at_s"] <= end / 4] or quiet[:1]
            late = [w for w in quiet if w["at_s"] >= 3 * end / 4]
            first, last = (fmean(w["tokens_per_second"] for w in part) for part in (early, late))
            kept = last / first if first else None
        quarters = {"first_quarter": first, "last_quarter": last, "kept": kept}
        return {"row": "sustained", "drafter": self.arm, **quarters, "windows": self.windows}


def sustain(
    bench: Bench, arms: Sequence[Arm], job: PromptJob, seconds: float, into: list[Sustained],
    on_answer: Callable[[str, float], None] = lambda _arm, _elapsed: None,
) -> None:  # fmt: skip
    """Let the arms answer one prompt by turns, so that the machine's changes affect all alike, until ``seconds``
    have passed. ``into`` gets an entry per arm; ``on_answer`` is called with an arm's label and the seconds so
    far."""
    into += [Sustained(arm.label) for arm in arms]
    for arm in arms:
        bench.warm(arm, job)
    started = perf_counter()
    while perf_counter() - started < seconds:
        for arm, found in zip(arms, into, strict=True):
            arm.begin_round()
            answer = bench.answer(arm, job, 1)
            elapsed = perf_counter() - started
            if answer.decode_s:
                pace = (len(answer.output_ids) - 1) / answer.decode_s
                window = {"at_s": round(elapsed, 3), "tokens_per_second": pace, "celsius": answer.celsius}
                window["busy"] = None if bench.is_quiet(answer) else True
                found.windows.append({name: value for name, value in window.items() if value is not None})
            on_answer(arm.label, elapsed)
