"""``draftwood export-custom-generate``: make whatever calls ``model.generate`` on a model folder draft."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from draftwood.cli import options, screen
from draftwood.errors import ModelNotFoundError, UsageError

Folder = Annotated[Path, Argument(help="A model's folder, with its config.json.")]
Force = Annotated[bool, Option("--force", help="Replace a custom_generate/generate.py that is there.")]

_CODE = '''\
"""Makes model.generate draft with draftwood; the text stays the model's own.

Written by `draftwood export-custom-generate`. transformers runs it where code of this folder is trusted.
"""

from draftwood.api.decode_with import generate_with


def generate(*inputs, model, **settings):
    return generate_with(model, *inputs, drafters={drafters!r}, planner={planner!r}, **settings)
'''


def export_custom_generate(
    folder: Folder,
    drafters: options.Drafters = options.DRAFTERS_DEFAULT,
    planner: options.PlannerName = options.PLANNER_DEFAULT,
    force: Force = False,
) -> None:
    """Write custom_generate/generate.py into a model's folder, so that model.generate drafts."""
    from draftwood.drafters.load import load as load_drafters
    from draftwood.measure.records.lines import whole_file
    from draftwood.planning.load import load as load_planner

    load_drafters(drafters)
    load_planner(planner)
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"{folder} holds no config.json: give the folder of a model")
    code = folder / "custom_generate" / "generate.py"
    if code.exists() and not force:
        raise UsageError(f"{code} is there already: --force replaces it")
    made = not code.parent.exists()
    try:
        code.parent.mkdir(exist_ok=True)
        with whole_file(code) as beside:
            beside.write_text(_CODE.format(drafters=drafters, planner=planner), encoding="utf-8")
    except BaseException:
        if made and code.parent.exists():
            code.parent.rmdir()
        raise
    screen.say(code)
