"""``draftwood demo``: three answers of a real model, plainly and drafted at once, one step of it, the speedups."""

from __future__ import annotations

import math
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Self

import typer

from draftwood.cli import measuring, options, screen
from draftwood.cli.answering import AnswerWriter, faster, print_flow, recorded, sameness, shares
from draftwood.cli.given import Given, Loaded
from draftwood.measure.wording import IMPOSSIBLE, count, number, ratio

if TYPE_CHECKING:
    from draftwood.api.generation import Generation
    from draftwood.api.text import Piece
    from draftwood.measure.compare import PlainAndDrafted
    from draftwood.tasks import Prompt

_QUESTION = '"Correct the grammar: she go to school every days."'
COMPARED = f"generate {_QUESTION} --compare"
STEP = f"explain --live {_QUESTION} --step 2"
TABLE = "bench --tasks code-edit,grammar,chat --limit 1"
"""Commands that show each part for other texts, each to follow `program`."""

_MODEL = "smollm2"
_CHOSEN = {"code-edit": "csv.Sniffer.sniff", "grammar": "meeting", "chat": "list-or-tuple"}
_SHOWN_LINES = 4
_NARROW, _ROOMY, _GAP = 60, 35, 2  # least columns of a terminal for two texts; of a long head; between texts
_FRAME = 0.05  # seconds
_PAYS, _FEW = 1.1, 0.25  # below this speedup the demo says why; so few passes with a draft are nothing to copy


@dataclass
class _Raced:
    """One prompt's answers, and llama.cpp's without drafts, one before and one after."""

    kind: str
    answers: PlainAndDrafted
    runs: list[Generation] = field(default_factory=list)
    busy: str = ""  # what other programs took, where they left llama.cpp too few cores

    @property
    def llama(self) -> float | None:
        """Tokens per second of llama.cpp; None where it did not run."""
        return mean(run.stats.tokens_per_second for run in self.runs) if self.runs else None

    @property
    def apart(self) -> str:
        """Say why the speed of llama.cpp cannot be compared with ours; nothing where it can."""
        from draftwood.measure.profile.rows import UNSTEADY, spread

        if busy := self.busy or next(iter(self.answers.busy.values()), ""):
            return busy
        if passes := [step.score_s for run in self.runs for step in run.steps]:
            found = spread(passes)
            if found["q3_s"] > UNSTEADY * found["q1_s"]:
                return "equal passes of it took unequal times"
        return ""

    def speed(self, arm: str) -> float:
        answers: list[Generation] = getattr(self.answers, arm)
        return answers[0].stats.tokens_per_second


@options.shared
def demo(engines: options.Engines, max_new_tokens: measuring.MaxNewTokens = 96) -> None:
    """Show three answers with and without drafts, and the speedups.

    Where llama.cpp is installed, its speed without drafts on the same file stands beside them.
    """
    from draftwood.models.engine import choose
    from draftwood.tasks import prompts

    engine, _ = choose(_MODEL, engines.engine)
    how = {**asdict(engines), "engine": engine, "planner": options.PLANNER_DEFAULT}
    loaded = Given(model=_MODEL, max_new_tokens=max_new_tokens, temperature=0.0, **how).load()
    done: list[_Raced] = []
    with screen.CtrlC() as stop:
        other = _llama(loaded.given)
        _head(f"{_MODEL} on the engine {engine}, plainly and with drafts at once", COMPARED, engines)
        screen.console().print("the texts take turns, pass by pass: next is the one that has taken less time")
        for kind, name in _CHOSEN.items():
            _show(next(p for p in prompts(kind) if p.name == name), loaded, other, done)
        _show_step(loaded, done, engines)
    if done:
        _head("the table, worst kind first", TABLE, engines)
        _show_table(done)
    if stop.pressed:
        raise typer.Exit(130)


def program() -> str:
    """Return how a user calls us: by our name where the system finds it, else as this process was called."""
    if shutil.which("draftwood"):
        return "draftwood"
    return sys.argv[0] if Path(sys.argv[0]).name == "draftwood" else f"{sys.executable} -m draftwood"


def _head(what: str, command: str, engines: options.Engines) -> None:
    """Print the head of a part: what it shows, and the command that shows it for other texts."""
    from rich.text import Text

    to = screen.console()
    to.print(f"\n── {what}", style="bold")
    chosen = f" --engine {engines.engine}" if engines.engine else ""
    to.print(Text(f"   {program()} {command}{chosen}", "dim"))  # in one line, to be copied


def _llama(given: Given) -> Loaded | None:
    """Load the same file for llama.cpp with its fastest settings; None without llama.cpp or our own engine."""
    from draftwood.models.engine import CPU, LLAMA_CPP, is_installed

    if given.engine != CPU or not is_installed(LLAMA_CPP):
        return None
    return replace(given, engine=LLAMA_CPP, exact=False, drafters="none", planner="off").load()


def _run_llama(other: Loaded | None, content: Any, one: _Raced, most: int) -> None:
    """Let llama.cpp write the same, plainly; we have so many threads."""
    from draftwood.api.stream import generate
    from draftwood.local.findings import watch

    if other is not None:
        with screen.Status("llama.cpp writes the same, plainly …"):
            busy = watch(other.model)
            one.runs.append(generate(other.model, content, **other.keywords))
        threads = other.given.setting_of(other.model).threads
        one.busy = one.busy or busy() or "it runs on one thread, as the machine was busy" * (threads < most)


def _show(prompt: Prompt, loaded: Loaded, other: Loaded | None, done: list[_Raced]) -> None:
    """Show a prompt, shortened, its answer as it is written, and how fast that was; it is added to ``done``."""
    from rich.text import Text

    from draftwood.measure.compare import PlainAndDrafted, race

    lines = prompt.messages[-1]["content"].strip().splitlines()
    shown = "\n".join(lines[:_SHOWN_LINES]) + (" …" if len(lines) > _SHOWN_LINES else "")
    to, content = screen.console(), list(prompt.messages)
    to.print(Text(f"\n{prompt.task}: {shown}\n", "bold"))
    one, threads = _Raced(prompt.task, PlainAndDrafted()), loaded.given.setting_of(loaded.model).threads
    _run_llama(other, content, one, threads)
    with _Beside(loaded, one) as beside:
        race(loaded.model, content, into=one.answers, on_piece=beside.piece, trace=True, **loaded.keywords)
    done.append(one)
    _run_llama(other, content, one, threads)
    drafted = one.answers.drafted[0]
    print_flow(to, shares(drafted.sources, loaded.names, colour=to.color_system is not None), ", ")
    speeds = f"{one.speed('drafted'):.0f} tokens/s drafted, {one.speed('plain'):.0f} plain"
    speeds += "" if one.llama is None else f", {one.llama:.0f} llama.cpp plain"
    speeds += f" (not comparable, since {one.apart})" if one.runs and one.apart and one.answers.quiet else ""
    times = faster(one.answers) + " as plain" * bool(one.answers.speedup)
    print_flow(to, [speeds, times, sameness(one.answers)], " · ")
    if (one.answers.speedup or _PAYS) < _PAYS:
        to.print(_why(loaded, one))


def _why(loaded: Loaded, one: _Raced) -> str:
    """Say from what was measured why drafts do not pay."""
    from draftwood.api.target import target_of

    rates, times = one.answers.drafted[0].stats, target_of(loaded.model).pass_times()
    share, right = 100 * rates.draft_coverage, 100 * rates.acceptance_rate
    said = f"nothing to copy: only {share:.0f} % of the passes had a draft"
    if rates.draft_coverage > _FEW:
        said = f"the copies were wrong: {right:.0f} % of the drafted tokens were right"
    eight = next((n for n in sorted(times) if n >= 8 and 1 in times), None)
    return said + (f"; a pass of {eight} tokens costs {times[eight] / times[1]:.1f} of one here" if eight else "")


class _Beside:
    """Shows two answers as they are written: on a wide terminal beside each other, else the drafted one alone.

    What was written stays, also where the block is left by an interrupt.
    """

    def __init__(self, loaded: Loaded, one: _Raced) -> None:
        from rich.live import Live
        from rich.text import Text

        self._to, self._one, self._drawn = screen.console(), one, 0.0
        self._styles, self._writer = screen.styles(loaded.names), AnswerWriter(loaded.names)
        self._texts = {"plain": Text(), "drafted": Text()}
        # Drawn between passes alone: a thread that draws would take time from what is measured.
        wide = self._to.is_terminal and not self._to.is_dumb_terminal and self._to.width >= _NARROW
        self._live = Live(console=self._to, auto_refresh=False, transient=True) if wide else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._to.print(self._table(), soft_wrap=False)
        self._writer.line()

    def piece(self, arm: str, piece: Piece) -> None:
        """Show a piece of an arm's text."""
        if self._live is None:
            if arm == "drafted":
                self._writer.piece(piece)
            return
        self._texts[arm].append(piece.text, self._styles.get(piece.source, ""))
        if (now := time.monotonic()) > self._drawn + _FRAME:
            self._live.update(self._table(self._to.height - 3), refresh=True)
            self._drawn = now

    def _table(self, most: int = 0) -> Any:
        """Return both texts, or of each as many last lines as fit."""
        from rich.table import Table
        from rich.text import Text

        width = (self._to.width - _GAP) // 2
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
        for arm in self._texts:
            said = arm
            if answer := next(iter(getattr(self._one.answers, arm)), None):
                said += f": {self._one.speed(arm):.0f} tokens/s"
                said += f", {count(answer.stats.passes, 'pass', 'passes')}" * (width > _ROOMY)
            table.add_column(said, width=width, no_wrap=True)
        table.add_row(*(Text("\n").join(list(t.wrap(self._to, width))[-most:]) for t in self._texts.values()))
        return table


def _show_step(loaded: Loaded, done: list[_Raced], engines: options.Engines) -> None:
    """Show the step that accepted most."""
    from draftwood.cli import explain_tables
    from draftwood.measure.report.steps import steps_of

    steps = [(one, at, step) for one in done for at, step in enumerate(one.answers.drafted[0].steps)]
    if not steps:
        return
    one, at, _ = max(steps, key=lambda each: (each[2].accepted, each[2].drafted))
    _head(f"one step of {one.kind}: what was drafted and accepted", STEP, engines)
    record = recorded(loaded, one.answers.drafted[0])
    found, to = steps_of(record)[at], screen.console()
    to.print()
    explain_tables.show_head(to, found)
    explain_tables.show_tree(to, found, record, screen.shower(loaded.tokenizer))


_APART = {
    "busy": "busy: other programs left too few cores, so nothing is compared: try again while nothing else runs",
    "~": "~: not comparable, since the machine was busy, or equal passes took unequal times",
}


def _show_table(done: list[_Raced]) -> None:
    """Print the table, worst kind first, and the means."""
    from draftwood.measure.bench.table import geometric_mean

    rows = sorted(done, key=lambda one: one.answers.speedup or math.inf)
    to = screen.console()
    to.print()
    noted = screen.show_table(
        to,
        {
            "kind": lambda r: r.kind,
            "speedup": lambda r: ratio(r.answers.speedup, r.answers.most_speedup) or "busy" * bool(r.answers.busy),
            "tokens per pass": lambda r: number(r.answers.drafted[0].stats.mean_acceptance_length),
            "drafted tokens/s": lambda r: number(r.speed("drafted"), 0),
            "plain tokens/s": lambda r: number(r.speed("plain"), 0),
            "llama.cpp tokens/s": lambda r: number(r.llama, 0) + "~" * bool(r.runs and r.apart),
        },
        rows,
        ("kind",),
        {"?": IMPOSSIBLE, **_APART},
    )
    told = [one for one in rows if one.answers.speedup]
    if not told:
        to.print(f"\nnothing to compare{noted}")
        return
    drafted, plain = (geometric_mean(one.speed(arm) for one in told) or 0.0 for arm in ("drafted", "plain"))
    said = f"geometric mean of {count(len(told), 'kind')}: {drafted:.0f} tokens/s"
    said += f", {drafted / plain:.2f} times plain decoding ({plain:.0f})"
    if beside := [(one.speed("drafted") / one.llama, one.llama) for one in told if one.llama and not one.apart]:
        times, llama = (geometric_mean(values) or 0.0 for values in zip(*beside, strict=True))
        of = f" of {count(len(beside), 'kind')}" * (len(beside) < len(told))
        said += f", {times:.2f} times llama.cpp's ({llama:.0f}){of}"
    if drafted < plain:
        said += "; drafts slow these texts down here: --drafters none leaves them out"
    to.print(f"\n{said}{noted}")
