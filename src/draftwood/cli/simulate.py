"""``draftwood simulate``: what drafting would have done for recorded answers, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftwood.cli import measuring, options, places, screen
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from draftwood.measure.records.records import Answer
    from draftwood.measure.records.traces import Trace
    from draftwood.planning.cost_curve import CostCurve

Traces = Annotated[
    list[Path], typer.Argument(metavar="TRACE...", help="Recorded answers, as probe --trace writes.")
]
Draft = Annotated[
    list[int] | None, typer.Option(min=0, metavar="N", help="Draft nodes per pass; may be given again.")
]
Planner = Annotated[
    str | None,
    typer.Option(
        help="Instead of --draft: fixed:16, off, goodput+backoff. [default: goodput where passes have a cost, "
        "else fixed:16]"
    ),
]
Batch = Annotated[int, typer.Option(min=1, metavar="N", help="So many answers of a task share each pass.")]
Uncalibrated = Annotated[
    bool, typer.Option("--uncalibrated", help="Let planners find out what passes cost, as without a profile.")
]
Tokenizer = Annotated[
    str | None, typer.Option(metavar="MODEL", help="Model or folder whose tokenizer reads traces of text.")
]
Profile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|MODEL", help="Cost of a pass, from draftwood profile, or of a model that was profiled here."
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="ROWS.jsonl[.zst]", help="Write every replayed step here.")
]
Cost = Annotated[
    str | None, typer.Option(metavar="N=MS,N=MS", help="Cost of a pass in milliseconds: 1=31,4=30,16=53,64=151.")
]


def simulate(
    traces: Traces,
    draft: Draft = None,
    drafters: measuring.Arms = options.DRAFTERS_DEFAULT,
    planner: Planner = None,
    tokenizer: Tokenizer = None,
    profile: Profile = None,
    cost: Cost = None,
    batch: Batch = 1,
    uncalibrated: Uncalibrated = False,
    output: Output = None,
    as_json: options.Json = False,
) -> None:
    """Replay recorded answers and count the passes that drafting would have taken."""
    from draftwood.measure.records.traces import read_traces

    if planner is not None and draft:
        raise UsageError("--draft N means --planner fixed:N: give one of them")
    curve = _curve(profile, cost)
    if uncalibrated and curve is None:
        raise UsageError("--uncalibrated hides what passes cost: say that with --cost or --profile")
    default = _UNTIMED if curve is None else options.PLANNER_DEFAULT
    names = [f"fixed:{n}" for n in draft or ()] or [planner or default]
    planners = {name: _nodes(name) for name in names}
    places.check_rows(output, "simulate")
    _refuse_planners(planners, curve)
    known = _tokenizer(tokenizer)
    found = [trace for path in traces for trace in read_traces(path, known)]
    run = _Run(found, planners, drafters, curve, known, batch, uncalibrated)
    with screen.progress() as bar:
        interrupted = run.run(bar)
    rows, totals = run.rows(), run.totals()
    if as_json:
        print(json.dumps({"rows": rows, "totals": totals, "interrupted": interrupted}))
    else:
        _show(rows if len({row["task"] for row in rows}) == 1 else [*rows, *totals], curve is not None)
    if output is not None:
        run.write(
            output, {"cost": cost, "profile": str(profile) if profile else None, "uncalibrated": uncalibrated}
        )
    if interrupted:
        raise typer.Exit(130)


_UNTIMED = "fixed:16"
"""Where passes take no time there is nothing to weigh."""


def _refuse_planners(planners: Iterable[str], curve: CostCurve | None) -> None:
    """Names are checked before anything is read; a planner that goes by time needs passes that take some."""
    from draftwood.planning.goodput import GoodputPlanner
    from draftwood.planning.load import load

    for name in planners:
        if isinstance(load(name), GoodputPlanner) and curve is None:
            raise UsageError(
                f"planner {name!r} goes by what passes cost: say it with --cost or --profile, or take {_UNTIMED}"
            )


def _nodes(planner: str) -> int | None:
    """Draft nodes of a fixed planner; None of others."""
    name, _, nodes = planner.partition(":")
    return int(nodes) if name == "fixed" and nodes.isdecimal() else None


def _curve(profile: Path | None, cost: str | None) -> CostCurve | None:
    from draftwood.models.profile_place import newest_profile
    from draftwood.planning.cost_curve import CostCurve

    if profile is not None and cost is not None:
        raise UsageError("--profile and --cost both say what a pass costs: give one of them")
    if profile is not None:
        known = profile if profile.is_file() else newest_profile(str(profile))
        if known is None:
            raise UsageError(
                f"the profile {profile} cannot be read: there is no such file, and none was kept of a model of "
                f"this name. Run draftwood profile -m {profile} (without --sizes, --contexts, --rounds and "
                "--no-pack), or give the file that its -o wrote"
            )
        return CostCurve.load(known)
    return CostCurve.parse(cost) if cost is not None else None


def _tokenizer(name: str | None) -> Any:
    if name is None:
        return None
    from draftwood.models import load_tokenizer

    with screen.busy(f"loading the tokenizer of {name}"):
        return load_tokenizer(name)


class _Run:
    """Arms x planners over the traces."""

    def __init__(
        self, traces: list[Trace], planners: dict[str, int | None], drafters: str, curve: CostCurve | None,
        tokenizer: Any, batch: int, uncalibrated: bool,
    ) -> None:  # fmt: skip
        from draftwood.api.prompts import decoder
        from draftwood.drafters.load import arms

        self._traces, self._planners, self._batch = traces, planners, batch
        self._labels = [label for label, _ in arms(drafters)]
        self._settings: dict[str, Any] = {"batch": batch}
        if curve is not None:
            self._settings |= {"cost": curve.seconds, "curve": None if uncalibrated else curve}
        if tokenizer is not None:
            self._settings |= {"vocab_size": len(tokenizer), "decode": decoder(tokenizer)}
        self._found: dict[tuple[str, str], list[Answer]] = {}
        self._plain: list[Answer] = []

    def run(self, bar: Any) -> bool:
        """Replay everything; returns whether it was interrupted."""
        try:
            if "cost" in self._settings:
                self._plain = list(self._replay("none", "fixed:0", bar))
            for planner in self._planners:
                for label in self._labels:
                    answers = self._found[label, planner] = []
                    answers.extend(self._replay(label, planner, bar))  # as they come: an interrupt loses none
        except KeyboardInterrupt:
            return True
        return False

    def write(self, path: Path, timed: dict[str, Any]) -> None:
        """Write every replayed answer with its steps; an arm is named with its planner where there are several.

        ``timed`` are the settings that say what passes cost.
        """
        from draftwood.measure.records.lines import whole_file
        from draftwood.measure.records.provenance import provenance
        from draftwood.measure.records.records import header
        from draftwood.measure.records.writer import RecordsWriter

        with whole_file(path) as beside:
            settings = {"planners": list(self._planners), "batch": self._batch, **timed}
            writer = RecordsWriter(beside, header("simulate", settings, provenance()), wait=None)
            for (label, planner), answers in self._found.items():
                for answer in answers:
                    answer.arm = f"{label} {planner}" if len(self._planners) > 1 else label
                    answer.id = writer.next_id
                    writer.answer(answer)
            writer.close()

    def _replay(self, label: str, planner: str, bar: Any) -> Any:
        from draftwood.measure.simulate import simulate as replay

        answers = replay(self._traces, label, planner, **self._settings)
        for number, answer in enumerate(answers):
            bar(number + 1, len(self._traces), f"{label}, {planner}")
            yield answer

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per task, arm and planner."""
        tasks = dict.fromkeys(trace.task for trace in self._traces)
        return [row for task in tasks for row in self._rows(task)]

    def totals(self) -> list[dict[str, Any]]:
        """Return one row per arm and planner over all tasks."""
        return [row | {"task": "all"} for row in self._rows(None)]

    def _rows(self, task: str | None) -> list[dict[str, Any]]:
        from draftwood.measure.simulate import row

        rows = []
        for (label, planner), answers in self._found.items():
            chosen = [a for a in answers if task in (None, a.task)]
            if chosen:
                names = {(a.task, a.name) for a in chosen}
                plain = [a for a in self._plain if (a.task, a.name) in names]
                named = {"drafter": label, "draft": self._planners[planner], "batch": self._batch}
                rows.append(row(chosen, plain or None) | named)
        return rows


def _show(rows: list[dict[str, Any]], timed: bool) -> None:
    columns = ["planner", "generated", "verifier passes", "ideal speedup", "without looped tails", "accept. rate",
               "coverage", "drafting us/step"] + ["predicted speedup"] * timed  # fmt: skip
    table = screen.table("task", "drafter", *columns)
    table.columns[1].justify = "left"
    for row in rows:
        cells = [row["task"], row["drafter"], row["planner"], str(row["generated"]), str(row["verifier_passes"])]
        cells += [number(row[name]) for name in ("ideal_speedup", "mean_acceptance_length_unlooped")]
        cells += [percent(row["acceptance_rate"]), percent(row["draft_coverage"])]
        cells += [number(row["drafting_us_per_step"], 0)]
        table.add_row(*cells, *([number(row["predicted_speedup"])] if timed else []))
    to = screen.console()
    to.print(table, soft_wrap=False)
    to.print(
        "generated: tokens that decoding wrote, the one that reading the prompt pays for left out; ideal speedup: "
        "generated / verifier passes, as if a wide pass cost no more than a narrow one."
    )
