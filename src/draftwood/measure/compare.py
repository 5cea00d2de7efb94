"""Times plain against drafted decoding of one prompt: rounds alternate in one process, medians are compared."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from draftwood.api.generation import Generation
from draftwood.api.prompts import Prompt, as_ids
from draftwood.api.setup import DrafterSpec, Setup
from draftwood.api.stream import Stream, stream
from draftwood.api.text import Piece
from draftwood.api.user_texts import detached
from draftwood.decoding.sequence import common_prefix
from draftwood.errors import UsageError
from draftwood.local.findings import watch
from draftwood.measure.ties import first_difference

ARMS = ("drafted", "plain")
_WARM_PROMPT, _WARM_TOKENS = 16, 4


@dataclass(slots=True)
class PlainAndDrafted:
    """Results of the rounds so far; after an interrupt the last answer of an arm may be unfinished. Figures are
    None before a round is finished; seconds are of rounds while the machine was quiet, of all where none was."""

    plain: list[Generation] = field(default_factory=list)  # one answer per round
    drafted: list[Generation] = field(default_factory=list)
    # Where greedy texts differ: the model's best score minus its second best at that place.
    margin: float | None = None
    # Round -> what other programs took of the machine, where they left too few cores to one of its arms.
    busy: dict[int, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Rounds that both arms have finished."""
        return min(len(_finished(self.plain)), len(_finished(self.drafted)))

    @property
    def plain_seconds(self) -> float | None:
        """Median decode seconds of plain decoding, reading the prompt excluded."""
        return self._seconds(self.plain)

    @property
    def drafted_seconds(self) -> float | None:
        return self._seconds(self.drafted)

    @property
    def quiet(self) -> list[int]:
        """The finished rounds while the machine was quiet."""
        return [number for number in range(self.rounds) if number not in self.busy]

    def _seconds(self, answers: list[Generation]) -> float | None:
        done = [answers[number] for number in self.quiet] or _finished(answers)
        return median(sum(s.seconds for s in g.steps) for g in done) if done else None

    @property
    def speedup(self) -> float | None:
        """Plain seconds / drafted seconds; None where there was no step or no quiet round, too. Texts that a lossy
        rule has changed are compared per token."""
        plain, drafted = self.plain_seconds, self.drafted_seconds
        if not plain or not drafted or not self.quiet:
            return None
        lengths = (len(self.plain[0].ids), len(self.drafted[0].ids)) if self.lossy else (1, 1)
        return plain / drafted * lengths[1] / lengths[0]

    @property
    def most_speedup(self) -> float | None:
        """Tokens per pass of the drafted answer, which the speedup cannot be above."""
        return self.drafted[0].stats.mean_acceptance_length if self.rounds else None

    @property
    def identical(self) -> bool | None:
        return self.differing() is None if self.rounds else None

    @property
    def lossy(self) -> str:
        """The rule by which the drafted texts were written, where it may change them; else empty."""
        return next((g.rule for g in self.drafted if g.lossy), "")

    @property
    def parted_at(self) -> int | None:
        """Index of the first new token that differs; None where nothing does."""
        other = self.differing()
        return None if other is None else common_prefix(_finished(self.plain)[0].ids, other)

    def differing(self) -> list[int] | None:
        """Return the first finished text that differs from the first plain one, or None."""
        done = [*_finished(self.plain), *_finished(self.drafted)]
        return next((g.ids for g in done if g.ids != done[0].ids), None)


def compare(
    model: Any, prompt: Prompt, *, rounds: int = 2, into: PlainAndDrafted | None = None,
    on_round: Callable[[str, int], None] = lambda _arm, _round: None,
    on_piece: Callable[[Piece], None] = lambda _piece: None, **settings: Any,
) -> PlainAndDrafted:  # fmt: skip
    """Write one answer with and without drafting, by turns, after a few untimed tokens. Drafted begins the first
    round, plain the next, and so on, so that a machine that slows down or speeds up favours neither.

    ``into`` is filled while the rounds go on, so that an interrupt loses nothing. ``on_round`` is called before
    each run with the arm (``"plain"`` or ``"drafted"``) and the round, ``on_piece`` with the pieces of the first
    drafted run. Settings are those of `draftwood.generate`; both arms get the same seed, and a ``rule``
    is the drafted arm's. A memory file is read again for every run and never saved. Raises what `generate` raises,
    and `UsageError` for less than one round.
    """
    if rounds < 1:
        raise UsageError(f"rounds is {rounds}: it must be at least 1")
    result, arms = PlainAndDrafted() if into is None else into, _Arms(model, prompt, settings)
    for number in range(rounds):
        for arm in ARMS if number % 2 == 0 else reversed(ARMS):
            on_round(arm, number)
            with arms.run(arm) as answer, arms.watched(result):
                getattr(result, arm).append(answer.generation)
                for piece in answer:
                    if (arm, number) == ("drafted", 0):
                        on_piece(piece)
    result.margin = arms.margin(result)
    return result


def race(
    model: Any, prompt: Prompt, *, into: PlainAndDrafted, on_piece: Callable[[str, Piece], None], **settings: Any
) -> None:
    """Write one answer with and without drafting at once: the next pass is always that of the arm whose passes
    have taken less time so far, so each is as far as it would be alone. What `compare` says holds here, too;
    ``on_piece`` takes the arm and each of its pieces, between passes.
    """
    arms = _Arms(model, prompt, settings)
    with arms.run("drafted") as drafted, arms.run("plain") as plain, arms.watched(into):
        running = {"drafted": drafted, "plain": plain}
        for arm, answer in running.items():
            getattr(into, arm).append(answer.generation)
        while running:
            arm = min(running, key=lambda arm: sum(step.seconds for step in running[arm].generation.steps))
            if (piece := next(running[arm], None)) is None:
                del running[arm]
            else:
                on_piece(arm, piece)
    into.margin = arms.margin(into)


class _Arms:
    """Runs of one prompt with and without drafting, with one seed, after a few untimed tokens of each."""

    def __init__(self, model: Any, prompt: Prompt, settings: dict[str, Any]) -> None:
        self._drafters = settings.get("drafters", "default")
        self.setup = Setup.of(model, settings, "batch_size")
        if settings.get("seed") is None:
            settings["seed"] = secrets.randbits(32)
        self.settings = settings
        self.ids = as_ids(prompt, self.setup.tokenizer)
        for arm in ARMS:
            for _ in self.run(arm, self.ids[:_WARM_PROMPT], max_new_tokens=_WARM_TOKENS):
                pass

    @contextmanager
    def watched(self, result: PlainAndDrafted) -> Iterator[None]:
        """Note for the last round that was begun whether other programs leave too few cores to this block."""
        busy = watch(self.setup.model)
        yield
        if said := busy():
            result.busy[max(len(result.plain), len(result.drafted)) - 1] = said

    def run(self, arm: str, ids: list[int] | None = None, **changed: Any) -> Stream:
        """Begin an answer; drafters have seen no text of an earlier run."""
        setup, sources = self.setup, self.setup.texts
        how: dict[str, Any] = {"drafters": "none", "planner": "off"}
        if arm != "plain":
            fresh: DrafterSpec = ()
            if setup.drafters:
                made = Setup(setup.model, setup.tokenizer, self._drafters, setup.planner, sources)
                fresh = detached(made.predicting(sources.prediction) or made.drafters)
            how = {"drafters": fresh, "planner": setup.planner, "rule": setup.rule}
        text = self.ids if ids is None else ids
        return stream(setup.model, text, tokenizer=setup.tokenizer, **self.settings | how | changed)

    def margin(self, result: PlainAndDrafted) -> float | None:
        """Return the margin where the texts differ; None unless the raw scores alone decided."""
        other, request = result.differing(), self.setup.request(self.ids, **self.settings)
        raw = request.sampling.greedy and request.sampling.repetition_penalty == 1 and not request.processors
        if other is None or self.setup.rule.lossy or not raw:
            return None
        parted = first_difference(self.setup.target, self.ids, result.plain[0].ids, other)
        return parted.margin if parted else None


def _finished(answers: list[Generation]) -> list[Generation]:
    return [g for g in answers if g.finish_reason is not None]
