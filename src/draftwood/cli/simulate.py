"""``draftwood simulate``: what drafting would have done for answers, recorded or written now."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import early, measuring, options, screen, simulate_live
from draftwood.cli.screen import percent
from draftwood.errors import UsageError
from draftwood.measure.wording import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from draftwood.measure.records.records import Answer
    from draftwood.measure.records.traces import Trace
    from draftwood.planning.cost_curve import CostCurve

Traces = Annotated[
    list[Path] | None,
    Argument(metavar="[TRACE...]", help="Recorded answers, as --trace or bench -o write."),
]
Live = Annotated[
    bool,
    Option("--live", help="Instead of TRACE: let a model answer plainly, and count what copying offers."),
]
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


@options.shared
def simulate(
    call: typer.Context,
    loading: options.Loading,
    asked: simulate_live.LiveFlags,
    traces: Traces = None,
    live: Live = False,
    draft: Draft = None,
    drafters: measuring.Arms = options.DRAFTERS_DEFAULT,
    planner: Planner = None,
    tokenizer: Tokenizer = None,
    profile: Profile = None,
    cost: Cost = None,
    batch: Batch = 1,
    uncalibrated: Uncalibrated = False,
    output: Output = None,
    wide: measuring.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Replay answers and count the passes that drafting takes.

    They are recorded ones, or with --live those that a model writes now, plainly.
    """
    _check_sides(call, traces, live)
    if planner is not None and draft:
        raise UsageError("--draft N means --planner fixed:N: give one of them")
    curve = _curve(profile, cost)
    if uncalibrated and curve is None:
        raise UsageError("--uncalibrated hides what passes cost: say that with --cost or --profile")
    default = _UNTIMED if curve is None else options.PLANNER_DEFAULT
    planners = [f"fixed:{n}" for n in draft or ()] or [planner or default]
    early.check_rows(output, "simulate")
    _refuse_planners(planners, curve)
    probed = simulate_live.write(loading, asked, quiet=as_json) if live else None
    known = probed.tokenizer if probed else options.load_tokenizer(tokenizer) if tokenizer is not None else None
    run = _Run(probed.traces if probed else _read(traces or (), known), planners, batch)
    with screen.progress() as bar, screen.CtrlC() as stop:
        run.replay(drafters, known, curve, bar, uncalibrated=uncalibrated)
    rows, totals = run.tables()
    if output is not None:
        timed = {"cost": cost, "profile": str(profile) if profile else None, "uncalibrated": uncalibrated}
        run.write(output, timed)
    interrupted = stop.pressed or bool(probed and probed.interrupted)
    document = {"rows": rows, "totals": totals, "interrupted": interrupted}
    if probed:
        document["probe"] = probed.document()

    def show() -> None:
        to = screen.console()
        if probed:
            simulate_live.show(to, probed.document(), wide=wide)
        _show(to, rows if len({row["task"] for row in rows}) == 1 else [*rows, *totals], wide=wide)

    screen.finish(document, show, as_json=as_json, interrupted=interrupted)


_OF_TRACES = ("traces", "tokenizer")
_OF_BOTH = ("live", "draft", "drafters", "planner", "profile", "cost", "batch", "uncalibrated", "output", "wide",
            "as_json")  # fmt: skip


def _check_sides(call: typer.Context, traces: Sequence[Path] | None, live: bool) -> None:
    """Refuse flags of recorded answers with --live, and those of --live without it."""
    if bool(traces) == live:
        raise UsageError(
            "simulate takes recorded answers, or with --live a model that writes them: give one of them"
        )
    for parameter in call.command.params:
        name = parameter.name or ""
        if name in _OF_BOTH or not options.was_given(call, name) or (name in _OF_TRACES) == (not live):
            continue
        raise UsageError(f"{parameter.opts[0]} is for {'recorded answers' if live else '--live'}: leave it out")


def _read(paths: Sequence[Path], tokenizer: Any) -> list[Trace]:
    from draftwood.measure.records.traces import read_traces

    return [trace for path in paths for trace in read_traces(path, tokenizer)]


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
        from draftwood.drafters.load import arms
        from draftwood.measure.simulate import simulate

        settings: dict[str, Any] = {"batch": self._batch}
        if tokenizer is not None:
            settings["vocab_size"] = len(tokenizer)
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

    def tables(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rows of every task, and those of all tasks together."""
        rows = [row for task in dict.fromkeys(trace.task for trace in self._traces) for row in self.rows(task)]
        return rows, [row | {"task": "all"} for row in self.rows(None)]

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


def _show(to: Console, rows: list[dict[str, Any]], *, wide: bool) -> None:
    several = len({row["planner"] for row in rows}) > 1
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "task": lambda r: r["task"],
        "drafter": lambda r: f"{r['drafter']} {r['planner']}" if several else r["drafter"],
        "tokens": lambda r: str(r["generated"]),
        "passes": lambda r: str(r["verifier_passes"]),
        "ideal speedup": lambda r: number(r["ideal_speedup"]),
        "predicted speedup": lambda r: number(r["predicted_speedup"]),
        "acceptance rate": lambda r: percent(r["acceptance_rate"]),
        "draft coverage": lambda r: percent(r["draft_coverage"]),
        "without looped tails": lambda r: number(r["mean_acceptance_length_unlooped"]),
        "drafting us/step": lambda r: number(r["drafting_us_per_step"], 0),
        "planner": lambda r: r["planner"],
    }
    measuring.show_table(to, columns, rows, left=2, wide=wide)
    to.print(
        "tokens: those that decoding wrote, without the one that reading the prompt gives; ideal speedup: tokens "
        "/ passes, as if a wide pass cost no more than a narrow one."
    )
