"""The bench: arms side by side on the same prompts, interleaved in one process, each answer kept at once."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

from draftwood.contracts import Planner
from draftwood.doors.prompts import as_ids
from draftwood.doors.setup import Setup
from draftwood.engines.peers import Peer
from draftwood.errors import PromptError
from draftwood.loop import write
from draftwood.measure.prompt_files import Job
from draftwood.measure.records import Answer, RowsWriter
from draftwood.measure.sensors import Sensors
from draftwood.measure.texts import token_texts
from draftwood.planning.load import load as load_planner
from draftwood.request import Request

_WARM_PROMPT, _WARM_TOKENS = 16, 4


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What every answer of a bench shares.

    Attributes
    ----------
    planner
        As typed; each arm has its own, which goes on through all rounds.
    max_new_tokens
        Most tokens of an answer.
    temperature
        For every prompt, or None: what the prompt says, else greedy.
    seed
        Of sampling and of the shuffling.
    """

    planner: str = "fixed:16"
    max_new_tokens: int = 192
    temperature: float | None = None
    seed: int = 0

    def sampling(self, job: Job) -> dict[str, Any]:
        """Sampling settings of a prompt; empty is greedy."""
        if self.temperature is None:
            return job.sampling
        return {"temperature": self.temperature} if self.temperature else {}


class Arm(Protocol):
    """A way to write answers."""

    @property
    def label(self) -> str:
        """What rows call it."""
        ...

    @property
    def engine(self) -> str:
        """Whose loop writes."""
        ...

    def begin_round(self) -> None:
        """Forget tokens (memories, pools), keep beliefs."""
        ...

    def run(self, request: Request, answer: Answer) -> None:
        """Write one answer into ``answer``: ids, steps or arrivals, seconds."""
        ...

    def close(self) -> None: ...


@dataclass
class OurArm:
    """Drafters through our loop; ``none`` is plain decoding.

    Parameters
    ----------
    label
        The drafters as typed.
    setup
        Model, tokenizer and target that all arms share.
    planner
        As typed.
    """

    label: str
    setup: Setup
    planner: str
    engine = "draftwood"
    _chosen: Planner = field(init=False)
    _round: Setup = field(init=False)

    def __post_init__(self) -> None:
        self._chosen = load_planner(self.planner)
        self.begin_round()

    def begin_round(self) -> None:
        # Drafters made anew hold no memory of the round before; the planner, and with it the beliefs, stays.
        self._round = Setup(self.setup.model, self.setup.tokenizer, self.label, self._chosen)

    def run(self, request: Request, answer: Answer) -> None:
        answer.drafters, answer.planner = self._round.names, self.planner
        ids, steps = answer.output_ids, answer.steps
        started = perf_counter()
        with self._round.open([request]) as rows:
            emissions = write(self._round.target, self._chosen, rows)
            ids += next(emissions).tokens
            first = last = perf_counter()
            answer.prefill_s = first - started
            answer.finish_reason = rows[0].finish
            for emission in emissions:
                last = perf_counter()
                ids += emission.tokens
                answer.finish_reason = emission.finish
                if emission.step is not None:
                    steps.append(emission.step)
        answer.decode_s = last - first

    def close(self) -> None:
        """Nothing is held between answers."""


@dataclass
class PeerArm:
    """Somebody else's way, on the same weights."""

    peer: Peer

    @property
    def label(self) -> str:
        return self.peer.name

    @property
    def engine(self) -> str:
        return self.peer.engine

    def begin_round(self) -> None:
        """Nothing to forget: peers hold no token from one answer to the next."""

    def run(self, request: Request, answer: Answer) -> None:
        given = self.peer.answer(
            list(request.prompt), request.limit, end_ids=request.end_ids, sampling=request.sampling
        )
        answer.output_ids = given.ids
        answer.finish_reason = "eos" if given.ids and given.ids[-1] in request.end_ids else "length"
        start = given.arrivals[0][1] if given.arrivals else 0.0
        answer.arrivals = [[n, t - start] for n, t in given.arrivals]
        answer.prefill_s, answer.decode_s = given.prefill_s, given.decode_s
        answer.drafted, answer.accepted, answer.passes = given.drafted, given.accepted, given.passes

    def close(self) -> None:
        self.peer.close()


OnRun = Callable[[int, int, str], None]


class Bench:
    """Runs every arm on every prompt, round after round, and keeps each answer as soon as it is there.

    Arms are shuffled anew for every prompt and round, so that a machine that slows down favours nobody. What the
    writer holds already is not run again.

    Parameters
    ----------
    setup
        Model, tokenizer and target that all arms share.
    arms
        What is compared; the first should be ``none``.
    jobs
        The prompts.
    settings
        See `BenchSettings`.
    writer
        Where answers go.
    on_run
        Told (runs done, runs in all, what comes now) before each run.
    """

    def __init__(
        self,
        setup: Setup,
        arms: Sequence[Arm],
        jobs: Sequence[Job],
        settings: BenchSettings,
        writer: RowsWriter,
        on_run: OnRun = lambda _done, _all, _what: None,
    ) -> None:
        self._setup, self._arms, self._jobs, self._settings = setup, arms, jobs, settings
        self._writer, self._on_run = writer, on_run
        self._sensors = Sensors()
        self._requests = {(j.task, j.name): self._request(j) for j in jobs}

    def run(self, rounds: int) -> None:
        """Run what is missing of so many rounds.

        Raises
        ------
        PromptError, UsageError
            Before anything is run, for a prompt that cannot be written.
        RecordError
            If a row cannot be kept; the ones before it are.
        """
        done = {answer.key for answer in self._writer.rows.answers}
        plan = [entry for entry in self._plan(rounds) if entry[0] not in done]
        total = len(self._arms) * len(self._jobs) * rounds
        warm: set[str] = set()
        current = -1
        for count, (key, job, arm) in enumerate(plan):
            if key[3] != current:
                current = key[3]
                for each in self._arms:
                    each.begin_round()
            self._on_run(
                total - len(plan) + count, total, f"round {current + 1}: {job.task} {job.name}, {arm.label}"
            )
            if arm.label not in warm:
                self._warm(arm, job)
                warm.add(arm.label)
            self._writer.answer(self.answer(arm, job, current))

    def answer(self, arm: Arm, job: Job, number: int) -> Answer:
        """Run one arm on one prompt once."""
        request = dataclasses.replace(self._requests[job.task, job.name], trace=number == 0)
        answer = Answer(
            self._writer.next_id, job.task, job.name, arm.label, arm.engine, number, limit=request.limit,
            prompt_ids=list(request.prompt), seed=request.sampling.seed, sampling=self._settings.sampling(job),
        )  # fmt: skip
        self._sensors.start()
        arm.run(request, answer)
        reading = self._sensors.read()
        answer.celsius = reading.temperature
        if arm.engine != "llama.cpp":  # it may start a server within the answer
            answer.joules, answer.cpu_share = reading.joules, reading.cpu_share
        if number == 0 and self._setup.tokenizer is not None:
            answer.pieces = token_texts(answer.output_ids, self._setup.tokenizer)
            answer.prompt_pieces = token_texts(answer.prompt_ids, self._setup.tokenizer)
        return answer

    def _plan(self, rounds: int) -> Iterator[tuple[tuple[str, str, str, int], Job, Arm]]:
        for number in range(rounds):
            for job in self._jobs:
                shuffle = random.Random(f"{self._settings.seed} {number} {job.task} {job.name}")
                for arm in shuffle.sample(self._arms, len(self._arms)):
                    yield (job.task, job.name, arm.label, number), job, arm

    def _request(self, job: Job) -> Request:
        settings = {"temperature": 0.0, **self._settings.sampling(job), "seed": self._settings.seed}
        try:
            ids = as_ids(job.prompt, self._setup.tokenizer)
            request = self._setup.request(ids, max_new_tokens=self._settings.max_new_tokens, **settings)
            request.check(self._setup.target.capabilities)
        except PromptError as error:
            raise PromptError(f"{job.task} {job.name}: {error}") from error
        return request

    def _warm(self, arm: Arm, job: Job) -> None:
        """Compile, allocate, page in: a few tokens that nobody times."""
        request = self._requests[job.task, job.name]
        short = dataclasses.replace(request, prompt=list(request.prompt)[:_WARM_PROMPT], limit=_WARM_TOKENS)
        arm.run(short, Answer(-1, job.task, job.name, arm.label))
        arm.begin_round()
