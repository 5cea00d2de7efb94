"""``draftwood profile``: what a pass over n tokens costs on this machine, as a table and a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from draftwood.cli import early, options, screen
from draftwood.errors import UsageError
from draftwood.measure.records.provenance import provenance

if TYPE_CHECKING:
    from rich.table import Table

    from draftwood.measure.profile.rows import Profile
    from draftwood.models.findings import Setting

Numbers = Annotated[str | None, Option(metavar="N,N,...", help="Tokens per pass. [default: 1 to 128]")]
Contexts = Annotated[
    str | None, Option(metavar="N,N,...", help="Tokens in the cache before the pass. [default: 128,512,2048]")
]
Rounds = Annotated[int | None, Option(min=1, help="Passes of each kind. [default: as many as --seconds allow]")]
Seconds = Annotated[float, Option(min=1, help="Time for all rounds together.")]
Output = Annotated[Path | None, Option("--output", "-o", metavar="FILE.jsonl", help="Write the profile here.")]
Plot = Annotated[Path | None, Option(hidden=True)]  # of earlier versions
EarlyExit = Annotated[
    bool, Option("--early-exit", help="Instead, show how often the model's first layers are right (early-exit).")
]

_WIDE = 100
_SECONDS = 90.0  # as in measure.profile, whose import is slow; a test compares both


@options.shared
def profile(
    loading: options.Loading,
    sizes: Numbers = None,
    contexts: Contexts = None,
    rounds: Rounds = None,
    seconds: Seconds = _SECONDS,
    output: Output = None,
    plot: Plot = None,
    early_exit: EarlyExit = False,
    force: early.Force = False,
    as_json: options.Json = False,
) -> None:
    """Measure what a pass over n tokens costs here.

    Planners read the file; without --sizes, --contexts, --rounds, --no-pack it is also kept in the cache folder.
    With --early-exit, show instead how often the model's first layers say the model's own next token.
    """
    if plot is not None:
        raise UsageError("profile draws no pictures any more: draftwood report draws the curves of what -o wrote")
    if early_exit:
        given = {"--sizes": sizes, "--contexts": contexts, "--rounds": rounds, "-o": output}
        if named := [flag for flag, value in given.items() if value is not None]:
            raise UsageError(f"--early-exit tries layers, and {named[0]} is for the cost of passes: leave one out")
        _early_exit(loading, as_json)
        return
    asked = {"sizes": _numbers("--sizes", sizes), "contexts": _numbers("--contexts", contexts)}
    if output is not None:
        early.check_readable(output)
        early.check_place(output, force)
    loaded, tokenizer = loading.load_model()
    run = _Run(loading.setting_of(loaded), loaded, tokenizer)
    with screen.CtrlC() as stop:
        run.measure({k: v for k, v in asked.items() if v}, rounds, seconds)
    if not run.measured.rounds:
        screen.say("interrupted before the first round was finished: nothing was measured", file=sys.stderr)
        raise typer.Exit(130)
    chosen = {"--sizes": sizes, "--contexts": contexts, "--rounds": rounds, "--no-pack": not loading.pack or None}
    partial = [flag for flag, value in chosen.items() if value is not None] + ["Ctrl-C"] * stop.pressed
    run.write(output, into_cache=not partial)
    if partial:
        hint = "" if output is not None else "; with -o FILE.jsonl it is kept for simulate --profile FILE.jsonl"
        screen.say(f"not kept in the cache folder, because of {', '.join(partial)}{hint}", file=sys.stderr)
    screen.finish(run.document(), run.show, as_json=as_json, interrupted=stop.pressed)


class _Run:
    """A profile under way, and where it goes."""

    def __init__(self, setting: Setting, model: Any, tokenizer: Any) -> None:
        from draftwood.api.setup import Setup
        from draftwood.measure.profile.rows import Profile

        self._model, self._target = model, Setup(model, tokenizer, "none", "fixed:0").target
        self._settings = setting._asdict()
        self._title = "{model}, {dtype}, {threads} threads on {device}".format(**self._settings)
        self.measured = Profile()

    def measure(self, asked: dict[str, Any], rounds: int | None, seconds: float) -> None:
        from draftwood.measure.profile.sweep import profile as measure

        with screen.progress(f"profiling {self._settings['model']}") as bar:
            measure(
                self._target, model=self._model, rounds=rounds, seconds=seconds,
                threads=self._settings["threads"], into=self.measured,
                on_progress=lambda what, share: bar(int(100 * share), 100, what), **asked,
            )  # fmt: skip

    def show(self) -> None:
        """Print the table and what else was measured."""
        to = screen.console()
        to.print(self._title)
        to.print(_table(self.measured, ratios=to.width >= _WIDE), soft_wrap=False)
        for line in _sentences(self.measured, self._settings["threads"]):
            to.print(line)

    def document(self) -> dict[str, Any]:
        """Return what ``--json`` prints: the records of a file, by kind."""
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for row in self.measured.rows():
            by_kind.setdefault(row["row"], []).append({k: v for k, v in row.items() if k != "row"})
        return {**self._settings, "rounds": self.measured.rounds, **by_kind, "provenance": provenance()}

    def write(self, output: Path | None, *, into_cache: bool) -> None:
        """Write the files, and say where they are."""
        from draftwood.measure.profile.rows import write_profile
        from draftwood.models.findings import profile_path, setting_of

        files = [] if output is None else [output]
        if into_cache:
            files.append(profile_path(*(setting_of(self._model) or self._settings.values())))
        for place in files:
            write_profile(place, self.measured, self._settings)
            screen.say(f"written: {place}", file=sys.stderr)


def _early_exit(loading: options.Loading, as_json: bool) -> None:
    """Show how often the first layers of a model agree with the whole."""
    from draftwood.api.setup import Setup
    from draftwood.measure.profile.early_exit import agreement_by_depth

    loading = loading.for_transformers()
    model, tokenizer = loading.load_model()
    with screen.progress(f"trying the layers of {loading.model}") as bar:
        shares, tokens = agreement_by_depth(
            Setup(model, tokenizer, "none", "fixed:0"), on_token=lambda done, whole: bar(done, whole, "writing")
        )
    table = screen.table("layers", "agreement")
    for layers, share in enumerate(shares, 1):
        table.add_row(str(layers), screen.percent(share))

    def show() -> None:
        screen.console().print(table, soft_wrap=False)
        screen.say(f"on {tokens} tokens that the model wrote; use so many with --drafters early-exit:layers=N")

    found = {**loading.setting_of(model)._asdict(), "agreement": shares, "tokens": tokens}
    screen.finish({**found, "provenance": provenance()}, show, as_json=as_json)


def _table(measured: Profile, *, ratios: bool) -> Table:
    """Per context length the median and its quartiles, and how many passes over one token it amounts to."""
    from draftwood.measure.profile.rows import spread

    table = screen.table("tokens\nper pass")
    table.columns[0].justify = "right"
    lines = {context: measured.line(context) for context in measured.contexts}
    for context in lines:
        for header in ("\nms", f"context {context}\nquartiles", *["\n/ t(1)"] * ratios):
            table.add_column(header, justify="right")
    for n in sorted({n for line in lines.values() for n in line}):
        cells: list[str] = []
        for line in lines.values():
            found = spread(line[n]) if n in line else None
            cells.append(f"{1000 * found['median_s']:.1f}" if found else "")
            cells.append(f"{1000 * found['q1_s']:.1f}-{1000 * found['q3_s']:.1f}" if found else "")
            if ratios:
                one = spread(line[1])["median_s"] if 1 in line else None
                cells.append(f"{found['median_s'] / one:.2f}" if found and one else "")
        table.add_row(str(n), *cells)
    return table


def _sentences(measured: Profile, threads: int) -> Iterator[str]:
    from draftwood.measure.profile.rows import spread

    yield f"{measured.rounds} rounds, every size once per round in shuffled order; medians"
    reading = ((tokens, spread(seconds)["median_s"]) for tokens, seconds in sorted(measured.prefill.items()))
    yield "reading a prompt: " + ", ".join(f"{n} tokens at {n / s:.0f} tokens/s" for n, s in reading)
    if ratios := measured.tree_ratios():
        listed = ", ".join(f"{ratio:.2f} ({n} at {context})" for (context, n), ratio in ratios.items())
        yield f"a bushy tree / a chain as wide (tokens at context): {listed}"
    if measured.memory is not None:
        said = f"memory: this machine reads {measured.memory / 1e9:.1f} GB/s with {threads} threads"
        if measured.memory_share is not None and measured.pass_bytes is not None:
            said += (
                f"; a pass over 1 token reads {measured.pass_bytes / 1e9:.2f} GB of weights "
                f"at {100 * measured.memory_share:.0f} % of that speed"
            )
        yield said


def _numbers(flag: str, given: str | None) -> list[int] | None:
    if given is None:
        return None
    try:
        return [int(piece) for piece in given.split(",")]
    except ValueError as error:
        raise UsageError(f"{flag} {given!r} is no list of whole numbers: write it as 1,4,16") from error
