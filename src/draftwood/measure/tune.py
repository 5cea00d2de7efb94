"""Learning beforehand what planners else learn in use: what passes cost, how often sources are right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from draftwood.api.learned import fresh, planner_of
from draftwood.api.setup import DrafterSpec, Setup
from draftwood.contracts import Drafter, Planner
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.decoding.request import Request
from draftwood.measure.prompt_files import Job
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.planning.load import load as load_planner
from draftwood.verify.exact import SampleAndMatch

PLAIN = 4
"""So many prompts, evenly spread, are also written plainly, in turns: what drafting gains while it learns."""

_WARM_PROMPT, _WARM_TOKENS = 16, 4
_ENOUGH = 20.0  # labels from which a class says something


@dataclass(frozen=True, slots=True)
class Source:
    """What was learnt of one source.

    Attributes
    ----------
    name
        Of the drafter.
    greedy
        Whether the texts were.
    labels
        Proposals that were seen to be right or wrong, older ones counting less.
    expected, right
        Share that was right: by the prior, and as it came.
    best
        (class, share right, labels) of the likeliest evidence classes with enough labels.
    """

    name: str
    greedy: bool
    labels: float
    expected: float
    right: float
    best: tuple[tuple[int, float, float], ...]


@dataclass(slots=True)
class Tuning:
    """What was learnt, and what it was learnt from; filled prompt by prompt.

    Attributes
    ----------
    learned
        To be written by `draftwood.planning.learned_file.write_tuned`.
    before
        The curve that it began with; None without a profile.
    prompts, tokens, seconds
        Drafted answers, and what they took; reading prompts excepted.
    both
        Prompts that were written plainly as well.
    plain_seconds, drafted_seconds
        Of these.
    context
        Longest text, in tokens.
    """

    learned: Learned = field(default_factory=Learned)
    before: CostCurve | None = None
    prompts: int = 0
    tokens: int = 0
    seconds: float = 0.0
    both: int = 0
    plain_seconds: float = 0.0
    drafted_seconds: float = 0.0
    context: int = 0
    drafters: tuple[Drafter, ...] = ()

    @property
    def speedup(self) -> float | None:
        """Plain seconds / drafted seconds where both were measured."""
        return self.plain_seconds / self.drafted_seconds if self.plain_seconds and self.drafted_seconds else None

    @property
    def tokens_per_second(self) -> float | None:
        """Of the drafted answers."""
        return self.tokens / self.seconds if self.seconds else None

    def sources(self) -> list[Source]:
        """Return what was learnt of each source, in the order of the set."""
        found = []
        for drafter in self.drafters:
            for greedy in (True, False):
                rates = self.learned.beliefs.rates(drafter, greedy=greedy)
                hits, totals = rates.hits, rates.totals
                if labels := float(totals.sum()):
                    known = [k for k in range(len(totals)) if totals[k] >= _ENOUGH]
                    best = sorted(((k, float(hits[k] / totals[k]), float(totals[k])) for k in known), key=_share)
                    expected, right = float(drafter.prior @ totals) / labels, float(hits.sum()) / labels
                    found.append(Source(drafter.name, greedy, labels, expected, right, tuple(best[-1:-4:-1])))
        return found


def tune(
    model: Any,
    jobs: Sequence[Job],
    *,
    tokenizer: Any = None,
    drafters: DrafterSpec = "default",
    planner: str = DEFAULT_PLANNER,
    max_new_tokens: int = 128,
    temperature: float | None = None,
    seed: int = 0,
    into: Tuning | None = None,
    on_prompt: Callable[[int, Job], None] = lambda _number, _job: None,
) -> Tuning:
    """Write an answer to each prompt, and keep what the planner learns from it.

    Parameters
    ----------
    model, tokenizer, drafters
        As in `draftwood.generate`.
    jobs
        The prompts.
    planner
        As typed; ``goodput:tuned=FILE`` goes on with a file.
    max_new_tokens, temperature, seed
        Of every answer; without a temperature what the prompt says, else greedy.
    into
        Filled while prompts are written, so that an interrupt loses nothing.
    on_prompt
        Told number and prompt before each is written.

    Raises
    ------
    PromptError, UsageError
        For a prompt that cannot be written, before the first is.
    """
    found = Tuning() if into is None else into
    setup = Setup(model, tokenizer, drafters, planner)
    found.learned, found.drafters = fresh(setup.model), setup.drafters
    setup.planner = planner_of(planner, found.learned, setup.tokenizer)
    found.before = found.learned.curve
    own = {} if temperature is None else {"temperature": temperature}
    requests = [
        job.request(
            setup, max_new_tokens=max_new_tokens, **({"temperature": 0.0, **job.sampling} | own), seed=seed
        )
        for job in jobs
    ]
    _warm(setup, requests)
    both = {len(jobs) * k // PLAIN for k in range(PLAIN)}
    for number, (job, request) in enumerate(zip(jobs, requests, strict=True)):
        on_prompt(number, job)
        plainly = number in both
        first = _written(setup, (), request, load_planner("off"))[1] if plainly and found.both % 2 else None
        tokens, seconds = _written(setup, setup.drafters, request, setup.planner)
        found.prompts, found.tokens, found.seconds = (
            found.prompts + 1,
            found.tokens + tokens,
            found.seconds + seconds,
        )
        found.context = max(found.context, len(request.prompt) + tokens)
        if plainly:
            found.plain_seconds += _written(setup, (), request, load_planner("off"))[1] if first is None else first
            found.drafted_seconds += seconds
            found.both += 1
    return found


def _written(setup: Setup, drafters: Sequence[Drafter], request: Request, planner: Planner) -> tuple[int, float]:
    """Write one answer; returns tokens and seconds of its passes."""
    tokens = 0
    with open_sequences(setup.target, drafters, [request], SampleAndMatch()) as rows:
        emissions = decode_sequences(setup.target, planner, rows)
        next(emissions)
        started = perf_counter()
        for emission in emissions:
            tokens += len(emission.tokens)
        return tokens, perf_counter() - started


def _warm(setup: Setup, requests: Sequence[Request]) -> None:
    """Compile, allocate, page in: a few tokens that teach nobody."""
    for request in requests[:1]:
        short = dataclasses.replace(request, prompt=list(request.prompt)[:_WARM_PROMPT], limit=_WARM_TOKENS)
        _written(setup, setup.drafters, short, load_planner("fixed:16"))
        _written(setup, (), short, load_planner("off"))


def _share(known: tuple[int, float, float]) -> tuple[float, float]:
    return known[1:]
