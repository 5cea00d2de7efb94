"""``draftwood profile``: what a pass over n tokens costs on this machine, as a table and a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from draftwood.cli import early, options, screen
from draftwood.errors import UsageError
from draftwood.measure.records.provenance import provenance

if TYPE_CHECKING:
    from draftwood.measure.profile.rows import Profile
    from draftwood.measure.records.records import Row


_SECONDS = 90.0  # as in measure.profile, whose import is slow; a test compares both


@options.shared
def profile(
    loading: options.Loading,
    sizes: Annotated[str | None, Option(metavar="N,N,...", help="Tokens per pass. [default: 1 to 128]")] = None,
    contexts: Annotated[
        str | None, Option(metavar="N,N,...", help="Tokens in the cache before the pass. [default: 128,512,2048]")
    ] = None,
    rounds: Annotated[
        int | None, Option(min=1, help="Passes of each size. [default: as many as --seconds allow]")
    ] = None,
    seconds: Annotated[float, Option(min=1, help="Most time for all passes together.")] = _SECONDS,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE.jsonl", help="Write the profile here.")
    ] = None,
    force: early.Force = False,
    as_json: options.Json = False,
) -> None:
    """Measure what a pass over n tokens costs here.

    Without --sizes, --contexts and --rounds the profile is also kept in the cache folder, where planners read it.
    """
    from draftwood.api.setup import Setup
    from draftwood.local.findings import profile_path, setting_of, threads_of
    from draftwood.measure.profile.rows import Profile, write_profile
    from draftwood.measure.profile.sweep import profile as measure

    asked = {"sizes": options.numbers(sizes, "--sizes"), "contexts": options.numbers(contexts, "--contexts")}
    if output is not None:
        if output.suffix == ".zst":
            raise UsageError(f"{output}: a profile is small and stays readable; name it FILE.jsonl")
        early.check_place(output, force)
    model, tokenizer = loading.load_model()
    settings, measured = loading.setting_of(model)._asdict(), Profile()
    with screen.progress(f"profiling {loading.model}") as bar, screen.CtrlC() as stop:
        measure(
            Setup(model, tokenizer, "none", "fixed:0").target, rounds=rounds, seconds=seconds, into=measured,
            on_progress=lambda what, share: bar(int(100 * share), 100, what),
            **{name: given for name, given in asked.items() if given},
        )  # fmt: skip
    if not measured.rounds:
        screen.say("interrupted before the first round was finished: nothing was measured", file=sys.stderr)
        raise typer.Exit(130)
    chosen = {"--sizes": sizes, "--contexts": contexts, "--rounds": rounds}
    reasons = [flag for flag, value in chosen.items() if value is not None] + ["Ctrl-C"] * stop.pressed
    doubt = measured.doubt(threads_of(settings) or 1)
    reasons += ["noise"] * bool(doubt)
    usual = profile_path(*(setting_of(model) or settings.values()))
    by_kind: dict[str, list[Row]] = {}
    for row in measured.rows():
        by_kind.setdefault(row["row"], []).append({k: v for k, v in row.items() if k != "row"})
    document = {**settings, "rounds": measured.rounds, **by_kind, "provenance": provenance(doubt=doubt or None)}
    try:
        screen.finish(
            document, lambda: _show(measured, settings, doubt), as_json=as_json, interrupted=stop.pressed
        )
    finally:  # what was measured is shown even where it cannot be written
        for place in [place for place, writes in ((usual, not reasons), (output, output)) if place and writes]:
            write_profile(place, measured, settings, doubt)
            screen.say(f"written: {place}", file=sys.stderr)
        if reasons:
            hint = "" if output is not None else "; -o FILE.jsonl keeps it"
            screen.say(f"not kept in the cache folder, because of {', '.join(reasons)}{hint}", file=sys.stderr)


def _show(measured: Profile, settings: dict[str, Any], doubt: str) -> None:
    """Print the median and its quartiles per context length, and what else was measured."""
    from draftwood.measure.profile.rows import spread

    to, lines = screen.console(), {context: measured.line(context) for context in measured.contexts}
    to.print("{model}, {dtype}, {threads} threads, {device}; ms a pass, quartiles in brackets".format(**settings))

    def cell(line: dict[int, list[float]], n: int) -> str:
        if n not in line:
            return ""
        found = {name: 1000 * seconds for name, seconds in spread(line[n]).items()}
        return f"{found['median_s']:.1f} ({found['q1_s']:.1f}-{found['q3_s']:.1f})"

    columns: dict[str, Callable[[int], str]] = {"tokens per pass": str}
    columns |= {f"context {context}": partial(cell, line) for context, line in lines.items()}
    screen.show_table(to, columns, sorted({n for line in lines.values() for n in line}), ())
    reading = ((tokens, spread(seconds)["median_s"]) for tokens, seconds in sorted(measured.prefill.items()))
    read = ", ".join(f"{n} tokens at {n / s:.0f} tokens/s" for n, s in reading)
    how = f"{measured.rounds} rounds, every size once per round in shuffled order; medians"
    to.print(f"{how}. Reading a prompt: {read}. {screen.MORE}")
    if doubt:
        to.print(f"NOISY: {doubt}, so these costs are too high: measure again on an idle machine")
