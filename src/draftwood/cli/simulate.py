"""``draftwood simulate``: what drafting would have done for recorded answers, without a model."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from draftwood.cli import early, measuring, options, screen
from draftwood.cli.screen import number, percent
from draftwood.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftwood.measure.records.records import Answer
    from draftwood.measure.records.traces import Trace
    from draftwood.planning.cost_curve import CostCurve

Traces = Annotated[list[Path], Argument(metavar="TRACE...", help="Recorded answers, as probe --trace writes.")]
Draft = Annotated[list[int] | None, Option(min=0, metavar="N", help="Draft nodes per pass; may be given again.")]
Planner = Annotated[
    str | None,
    Option(
        help="Instead of --draft: fixed:16, off, goodput+backoff. [default: goodput where passes have a cost, "
        "else fixed:16]"
    ),
]
Batch = Annotated[int, Option(min=1, metavar="N", help="Answers of a task that share each pass.")]
Uncalibrated = Annotated[
    bool, Option("--uncalibrated", help="Hide the cost of passes from planners, which then learn it.")
]
Tokenizer = Annotated[
    str | None, Option(metavar="MODEL", help="Model or folder whose tokenizer reads traces of text.")
]
Profile = Annotated[
    Path | None,
    Option(
        metavar="FILE|MODEL", help="Cost of a pass, from draftwood profile, or of a model that was profiled here."
    ),
]
Output = Annotated[
    Path | None, Option("--output", "-o", metavar="RECORDS.jsonl[.zst]", help="Write every replayed step here.")
]
Cost = Annotated[
    str | None, Option(metavar="N=MS,N=MS", help="Cost of a pass in milliseconds: 1=31,4=30,16=53,64=151.")
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
    planners = [f"fixed:{n}" for n in draft or ()] or [planner or default]
    early.check_rows(output, "simulate")
    _refuse_planners(planners, curve)
    known = options.load_tokenizer(tokenizer) if tokenizer is not None else None
    found = [trace for path in traces for trace in read_traces(path, known)]
    run = _Run(found, planners, batch)
    with screen.progress() as bar, screen.CtrlC() as stop:
        run.replay(drafters, known, curve, bar, uncalibrated=uncalibrated)
    tasks = dict.fromkeys(trace.task for trace in found)
    rows = [row for task in tasks for row in run.rows(task)]
    totals = [row | {"task": "all"} for row in run.rows(None)]
    if output is not None:
        timed = {"cost": cost, "profile": str(profile) if profile else None, "uncalibrated": uncalibrated}
        run.write(output, timed)
    shown = rows if len({row["task"] for row in rows}) == 1 else [*rows, *totals]
    document = {"rows": rows, "totals": totals, "interrupted": stop.pressed}
    screen.finish(document, lambda: _show(shown, curve is not None), as_json=as_json, interrupted=stop.pressed)


_UNTIMED = "fixed:16"  # the default where passes have no cost, so that goodput has nothing to weigh


def _refuse_planners(planners: list[str], curve: CostCurve | None) -> None:
    """Refuse unknown planners, and those that weigh time where no pass takes any."""
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
    from draftwood.models.find import begins_like_gguf
    from draftwood.models.findings import newest_profile
    from draftwood.planning.cost_curve import CostCurve

    if profile is not None and cost is not None:
        raise UsageError("--profile and --cost both say what a pass costs: give one of them")
    if profile is None:
        return CostCurve.parse(cost) if cost is not None else None
    measured = profile.is_file() and not begins_like_gguf(profile)  # else a model's name, folder or GGUF file
    known = profile if measured else newest_profile(str(profile))
    if known is None:
        raise UsageError(
            f"the profile {profile} cannot be read: there is no such file, and none was kept of a model of "
            f"this name. Run draftwood profile -m {profile} (without --sizes, --contexts, --rounds and "
            "--no-pack), or give the file that its -o wrote"
        )
    return CostCurve.load(known)


class _Run:
    """Arms x planners over the traces; what was replayed survives an interrupt."""

    def __init__(self, traces: list[Trace], planners: list[str], batch: int) -> None:
        self._traces, self._planners, self._batch = traces, planners, batch
        self._found: dict[tuple[str, str], list[Answer]] = {}
        self._plain: list[Answer] = []

    def replay(
        self, drafters: str, tokenizer: Any, curve: CostCurve | None, bar: Any, *, uncalibrated: bool
    ) -> None:
        """Replay everything, first plain decoding where passes have a cost."""
        from draftwood.api.prompts import decoder
        from draftwood.drafters.load import arms
        from draftwood.measure.simulate import simulate

        settings: dict[str, Any] = {"batch": self._batch}
        if tokenizer is not None:
            settings |= {"vocab_size": len(tokenizer), "decode": decoder(tokenizer)}
        labels = [label for label, _ in arms(drafters)]
        if curve is not None:
            settings |= {"cost": curve.seconds, "curve": None if uncalibrated else curve}

        def answers(label: str, planner: str) -> Iterator[Answer]:
            for done, answer in enumerate(simulate(self._traces, label, planner, **settings), 1):
                bar(done, len(self._traces), f"{label}, {planner}")
                yield answer

        if curve is not None:
            self._plain = list(answers("none", "fixed:0"))
        for planner, label in product(self._planners, labels):
            found = self._found[label, planner] = []
            found.extend(answers(label, planner))  # as they come: an interrupt loses none

    def write(self, path: Path, timed: dict[str, Any]) -> None:
        """Write every replayed answer with its steps; ``timed`` are the settings that say what passes cost."""
        from draftwood.measure.records.lines import whole_file
        from draftwood.measure.records.provenance import provenance
        from draftwood.measure.records.records import header
        from draftwood.measure.records.writer import RecordsWriter

        with whole_file(path) as beside:
            settings = {"planners": self._planners, "batch": self._batch, **timed}
            writer = RecordsWriter(beside, header("simulate", settings, provenance()), wait=None)
            for (label, planner), answers in self._found.items():
                for answer in answers:
                    answer.arm = f"{label} {planner}" if len(self._planners) > 1 else label
                    answer.id = writer.next_id
                    writer.answer(answer)
            writer.close()

    def rows(self, task: str | None) -> list[dict[str, Any]]:
        """Return one row per arm and planner over the answers of a task; None is all tasks."""
        from draftwood.measure.simulate import row

        rows = []
        for (label, planner), answers in self._found.items():
            chosen = [a for a in answers if task in (None, a.task)]
            if chosen:
                names = {(a.task, a.name) for a in chosen}
                plain = [a for a in self._plain if (a.task, a.name) in names]
                named = {"drafter": label, "draft": _nodes(planner), "batch": self._batch}
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
