"""Searches which of a model's layers draft best for it: the first E, or any subset of them.

A choice is scored by its expected speed-up over plain decoding: expected tokens of a cycle over its cost, at the
best chain length. The costs are measured (`draft_costs`); the tokens follow from how often the choice foretells
the model's own next token, which one pass over whole answers tells.

The search for subsets looks at those that change the hidden states least, one of each size (`shortlist`), and at
those that are left when all layers are dropped one by one, each time the one whose loss costs least agreement. The
best of all is then changed step by step: a layer or two neighbours less, or a layer more, while that helps.
Sources: Zhang and others, "Draft & Verify", arXiv 2309.08168 (layer skipping, and that its layers can be
searched); Chen and others, "CLaSp", arXiv 2505.24196 (dynamic programming over hidden states); Elhoushi and
others, "LayerSkip", arXiv 2404.16710 (first layers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.profile.draft_costs import LONGEST, ROUNDS, DraftCosts, measure_costs
from draftwood.measure.profile.own_texts import TOKENS, own_texts
from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.models.early_exit_place import FORMAT, VERB, weights_stamp
from draftwood.models.findings import Setting

SECONDS = 90.0  # that reading the model's answers and searching may take before the best choices are compared
PAYS = 1.02  # an expected speed-up above this counts as one: smaller ones cannot be told from 1
_EXITS, _SUBSETS = 2, 3  # choices of each kind that are judged
_GAIN = 1e-6

Layers = tuple[int, ...]
Progress = Callable[[str, float], None]  # called with what is done now and the share of all work that is done


@dataclass(frozen=True, slots=True)
class Judged:
    """A choice of layers, judged on answers that it was not searched on.

    Attributes
    ----------
    layers
        Ascending, from 0.
    text
        The same as ``early-exit:layers=`` takes it.
    agreement
        Share of positions where its first draft token is the model's own.
    pass_cost
        Of a draft pass, in plain passes.
    length
        The chain length that pays best.
    tokens
        Tokens per cycle at this length, the model's own one included.
    speedup
        How many times as fast as plain decoding it is expected to be.
    """

    layers: Layers
    text: str
    agreement: float
    pass_cost: float
    length: int
    tokens: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What `search_layers` found, the best choice first."""

    n_layers: int
    judged: tuple[Judged, ...]
    costs: DraftCosts
    tokens: tuple[int, int]  # of the answers that were searched on, and of those that judged
    tried: int  # choices

    @property
    def best(self) -> Judged:
        return self.judged[0]

    @property
    def pays(self) -> bool:
        """Whether the best choice is expected to be faster than plain decoding."""
        return self.best.speedup > PAYS

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the records of its file, without the header; no text, and no token of one."""
        for one in self.judged:
            yield {"row": "choice", **asdict(one)}
        yield {"row": "best", **asdict(self.best), "pays": self.pays}
        yield {"row": "costs", **asdict(self.costs)}
        yield {"row": "search", "searched_on": self.tokens[0], "judged_on": self.tokens[1], "tried": self.tried}


def write_findings(path: Path, found: Findings, setting: Setting) -> None:
    """Write findings completely or not at all; raises `RecordError` if they cannot be written."""
    settings = {**setting._asdict(), "layers": found.n_layers, "stamp": weights_stamp(setting)}
    first = {"row": "header", "format": FORMAT, "verb": VERB, "settings": settings, "provenance": provenance()}
    write_whole(path, [first, *found.rows()])


def search_layers(
    setup: Any, *, asked: Sequence[str] = (), seconds: float = SECONDS, tokens: int = TOKENS, rounds: int = ROUNDS,
    costs: DraftCosts | None = None, on_progress: Progress = lambda _what, _share: None,
) -> Findings:  # fmt: skip
    """Search the layers of a model (a `Setup`) that pay best as its draft; ``asked`` are judged, too.

    ``seconds`` end the step-by-step search; ``costs`` are measured unless they are given.

    Raises
    ------
    CapabilityError
        For models whose layers draftwood does not run itself.
    UsageError
        For layers that the model does not have, and models of one layer.
    """
    from draftwood.engines.self_draft import read_layers
    from draftwood.engines.transformers.partial_passes import PartialPasses
    from draftwood.engines.transformers.self_draft import decoder_of

    n_layers = decoder_of(setup.target).n_layers
    if n_layers < 2:
        raise UsageError("the model has one layer, so it has none to leave out: use other drafters")
    wanted = [read_layers(text, n_layers) for text in (*asked, "")]  # the last one is what is run by default
    first, second = own_texts(setup, tokens, lambda done, whole: on_progress("writing", 0.2 * done / whole))
    if costs is None:
        longest = max((*first, *second), key=lambda text: len(text.prompt))
        costs = measure_costs(
            setup.target, [*longest.prompt, *longest.answer], rounds=rounds,
            on_round=lambda done: on_progress("timing passes", 0.2 + 0.15 * done / rounds),
        )  # fmt: skip
    search = _Search(PartialPasses(setup.target, first), costs, perf_counter() + seconds, on_progress)
    chosen = [*search.best_exits(), *search.best_subsets(), *wanted]
    passes, judged = PartialPasses(setup.target, second), []
    for number, layers in enumerate(unlike := list(dict.fromkeys(chosen))):
        on_progress("judging", 0.8 + 0.2 * number / len(unlike))
        judged.append(judge(passes, layers, costs))
    judged.sort(key=lambda one: (-one.speedup, len(one.layers)))
    return Findings(n_layers, tuple(judged), costs, (search.rows, passes.rows), search.tried)


class _Search:
    """Choices of layers and their expected speed-up on one set of answers."""

    def __init__(self, passes: Any, costs: DraftCosts, until: float, on_progress: Progress) -> None:
        self._passes, self._costs, self._until, self._say = passes, costs, until, on_progress
        self._all = range(passes.n_layers)
        self._known: dict[Layers, float] = {}  # expected speed-up
        self._agreement: dict[Layers, float] = {}

    @property
    def rows(self) -> int:
        """Tokens that are searched on."""
        return int(self._passes.rows)

    @property
    def tried(self) -> int:
        """Choices that were tried."""
        return len(self._known)

    def best_exits(self) -> list[Layers]:
        """Return the best first layers."""
        for count in self._all[1:]:
            self._say("first layers", 0.35 + 0.1 * count / len(self._all))
            self._note(tuple(range(count)), self._passes.exit_matches(count))
        return self._best(self._known, _EXITS)

    def best_subsets(self) -> list[Layers]:
        """Return the best subsets that a search from the likeliest ones has come upon."""
        listed = self._passes.shortlist(lambda done: self._say("subsets", 0.45 + 0.15 * done / len(self._all)))
        for layers in listed:
            self._value(layers)
        self._drop_one_by_one()
        best = max(self._known, key=self._value)
        while (better := self._best_step(best)) is not None:
            best = better
        return self._best((layers for layers in self._known if layers != tuple(range(len(layers)))), _SUBSETS)

    def _drop_one_by_one(self) -> None:
        """Drop the layer without which most agreement is left, as long as fewer layers could still be better.

        A layer is tried again only if the agreement that was left without it before, when more layers were run, is
        above what is left without another one now: agreement hardly grows with fewer layers (lazy evaluation;
        Minoux, "Accelerated greedy algorithms for maximizing submodular set functions", 1978).
        """
        layers, left = tuple(self._all), dict.fromkeys(self._all, 1.0)
        while len(layers) > 1:
            best, most = -1, -1.0
            for layer in sorted(layers, key=left.__getitem__, reverse=True):
                if left[layer] <= most or perf_counter() >= self._until:
                    break
                self._say("dropping layers", 0.6 + 0.1 * (1 - len(layers) / len(self._all)))
                rest = tuple(one for one in layers if one != layer)
                self._value(rest)
                left[layer] = self._agreement[rest]
                if left[layer] > most:
                    best, most = layer, left[layer]
            if best < 0 or expected(most, 1, self._costs) <= max(self._known.values()):
                return
            layers = tuple(one for one in layers if one != best)

    def _best_step(self, layers: Layers) -> Layers | None:
        """Return the best choice one step away; None where none is better, or the time is up."""
        best, started = layers, perf_counter()
        for other in steps(layers, len(self._all)):
            if perf_counter() >= self._until:
                break
            left = (self._until - perf_counter()) / max(1e-9, self._until - started)
            self._say("changing the best", 0.7 + 0.1 * (1 - left))
            best = max(best, other, key=self._value)
        return best if self._value(best) > self._value(layers) + _GAIN else None

    def _value(self, layers: Layers) -> float:
        if layers not in self._known:
            self._note(layers, self._passes.matches(layers)[0])
        return self._known[layers]

    def _note(self, layers: Layers, matches: Any) -> None:
        self._agreement[layers] = agreement = float(matches.mean())
        self._known[layers] = expected(agreement, len(layers), self._costs)

    def _best(self, some: Iterable[Layers], most: int) -> list[Layers]:
        return sorted(some, key=lambda layers: (-self._known[layers], len(layers)))[:most]


def steps(layers: Layers, n_layers: int) -> Iterator[Layers]:
    """Yield the choices one step away: a layer less, two that follow each other less, or a layer more."""
    gone = [(layer,) for layer in layers] + list(pairwise(layers))
    for out in gone:
        if rest := tuple(layer for layer in layers if layer not in out):
            yield rest
    if len(layers) + 1 < n_layers:
        for layer in sorted(set(range(n_layers)) - set(layers)):
            yield tuple(sorted((*layers, layer)))


def expected(agreement: float, layers: int, costs: DraftCosts) -> float:
    """Return the expected speed-up at the best chain length, if each draft token is right with this chance where
    those before it are. Source: Leviathan and others, arXiv 2211.17192, theorem 3.8."""
    tokens, best = 1.0, 0.0
    for length in range(1, LONGEST + 1):
        tokens += agreement**length
        best = max(best, tokens / costs.cycle(layers, length))
    return best


def judge(passes: Any, layers: Layers, costs: DraftCosts) -> Judged:
    """Return what a choice of layers is worth on answers, with agreement as it is behind drafted tokens."""
    from draftwood.engines.self_draft import write_layers

    matches = passes.matches(layers, LONGEST)
    found = {n: tokens_per_cycle(matches, passes.lengths, n) for n in range(1, LONGEST + 1)}
    speedups = {n: tokens / costs.cycle(len(layers), n) for n, tokens in found.items()}
    length = max(speedups, key=speedups.__getitem__)
    return Judged(
        layers, write_layers(layers), float(matches[0].mean()), costs.draft(len(layers)), length, found[length],
        speedups[length],
    )  # fmt: skip


def tokens_per_cycle(matches: Any, lengths: Sequence[int], length: int) -> float:
    """Return how many tokens a cycle gives if texts are written with chains of so many draft tokens.

    ``matches`` bool[depth, rows] says where the d-th token drafted is right, ``lengths`` how many rows each text
    has.
    """
    cycles, first = 0, 0
    for rows in lengths:
        row, end = first, first + rows
        while row < end:
            right = 0
            while right < length and row + right < end and matches[right, row + right]:
                right += 1
            row += right + 1
            cycles += 1
        first = end
    return first / cycles
