"""Read the texts and tables of the workloads from the files in ``data/``."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def sections(name: str) -> tuple[tuple[str, str], ...]:
    """Return the sections of ``data/NAME.txt`` as pairs of name and text, in their order."""
    parts = re.split(r"^=== (.+)\n", _read(f"{name}.txt"), flags=re.MULTILINE)
    return tuple((head, text.strip()) for head, text in zip(parts[1::2], parts[2::2], strict=True))


@cache
def table(name: str) -> Any:
    """Return what ``data/NAME.json`` holds; callers share it and must not change it."""
    return json.loads(_read(f"{name}.json"))


def _read(name: str) -> str:
    return files("draftwood.tasks").joinpath("data", name).read_text(encoding="utf-8")
