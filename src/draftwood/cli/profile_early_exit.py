"""``draftwood profile --early-exit``: which of a model's layers draft best for it, as table and file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from draftwood.cli import early, options, screen
from draftwood.errors import CapabilityError, UsageError
from draftwood.measure.records.provenance import provenance

if TYPE_CHECKING:
    from draftwood.measure.profile.early_exit import Findings
    from draftwood.models.findings import Setting


def refuse(given: Mapping[str, Any]) -> None:
    """Refuse, by UsageError, flags that say how the cost of passes is measured."""
    if named := [flag for flag, value in given.items() if value is not None]:
        raise UsageError(f"--early-exit searches layers, and {named[0]} is for the cost of passes: leave one out")


def profile(
    loading: options.Loading, layers: Sequence[str], seconds: float, output: Path | None,
    *, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Search, show and keep the layers that draft best; after Ctrl-C nothing is kept."""
    from draftwood.api.setup import Setup
    from draftwood.measure.profile.early_exit import search_layers, write_findings
    from draftwood.models.early_exit_place import early_exit_path
    from draftwood.models.findings import setting_of

    early.check_readable(output)
    if output is not None:
        early.check_place(output, force)
    loading = loading.for_transformers()
    _refuse_others(loading)
    model, tokenizer = loading.load_model()
    setup = Setup(model, tokenizer, "none", "fixed:0")
    found: Findings | None = None
    with screen.progress(f"searching layers of {loading.model}") as bar, screen.CtrlC() as stop:
        found = search_layers(
            setup, asked=layers, seconds=seconds,
            on_progress=lambda what, share: bar(int(100 * share), 100, what),
        )  # fmt: skip
    if found is None or stop.pressed:
        screen.say("interrupted before the search was finished: nothing was kept", file=sys.stderr)
        raise typer.Exit(130)
    setting = loading.setting_of(model)
    places = [] if output is None else [output]
    if loading.pack:
        places.append(early_exit_path(setting_of(model) or setting))
    for place in places:
        write_findings(place, found, setting)
        screen.say(f"written: {place}", file=sys.stderr)
    if not loading.pack:
        screen.say("not kept in the cache folder, because of --no-pack", file=sys.stderr)
    screen.finish(_document(found, setting), lambda: _show(found, setting, loading.pack), as_json=as_json)


def _refuse_others(loading: options.Loading) -> None:
    from draftwood.models.engine import TRANSFORMERS, choose

    chosen = choose(loading.model, loading.engine)[0]
    if chosen != TRANSFORMERS:
        raise CapabilityError(
            f"early-exit works on models of transformers only, and {chosen} runs {loading.model}: name another "
            "model, or give --engine transformers where its folder has weights for it"
        )


def _document(found: Findings, setting: Setting) -> dict[str, Any]:
    """Return what ``--json`` prints: the records of the file."""
    rows = list(found.rows())
    choices = [{k: v for k, v in row.items() if k != "row"} for row in rows if row["row"] == "choice"]
    single = {row["row"]: {k: v for k, v in row.items() if k != "row"} for row in rows if row["row"] != "choice"}
    return {
        **setting._asdict(),
        "layers": found.n_layers,
        "choices": choices,
        **single,
        "provenance": provenance(),
    }


def _show(found: Findings, setting: Setting, is_kept: bool) -> None:
    to = screen.console()
    to.print(
        "{model}, {dtype}, {threads} threads on {device}".format(**setting._asdict())
        + f": {found.n_layers} layers"
    )
    table = screen.table(
        "layers", "of them", "agreement", "draft pass", "chain", "tokens/cycle", "expected speed-up"
    )
    for one in found.judged:
        table.add_row(
            one.text, str(len(one.layers)), screen.percent(one.agreement), screen.number(one.pass_cost),
            str(one.length), screen.number(one.tokens), screen.number(one.speedup),
        )  # fmt: skip
    to.print(table, soft_wrap=False)
    to.print(
        f"agreement: its first draft token is the model's own, of {found.tokens[1]} tokens of other answers than "
        f"the {found.tokens[0]} that {found.tried} choices were tried on; draft pass: in plain passes of the model"
    )
    best = found.best
    if found.pays:
        use = f"early-exit runs layers {best.text} of this model from now on, unless you name others"
        to.print(use if is_kept else f"the best: early-exit:layers={best.text}")
    else:
        to.print(
            f"no choice of layers pays on this model: the best, {best.text}, is expected to be {best.speedup:.2f} "
            "times as fast as plain decoding; use other drafters"
        )
