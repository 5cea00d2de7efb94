"""Renders the templates of the page; all values are escaped."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.explain.why import count
from draftwood.measure.report.markup import clean, number, percent, place


def render(values: dict[str, Any]) -> str:
    """Return the page as HTML, from the variables of the templates; `UsageError` if jinja2 is not installed."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise UsageError('a report needs jinja2: run pip install "draftwood[measure]"') from error

    def shown(value: Any) -> Any:
        if value is None:
            return ""
        return value if isinstance(value, Markup) else clean(str(value))

    environment = Environment(
        autoescape=True, finalize=shown, loader=FunctionLoader(lambda name: _read(f"templates/{name}")),
        lstrip_blocks=True, trim_blocks=True, undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters.update(count=count, number=number, percent=percent, place=place)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    script = _read("page.js")
    own = {
        "style": Markup(_read("page.css")),
        "script": Markup(script),
        "hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return environment.get_template("page.html.j2").render(own | values)


def _read(name: str) -> str:
    return files("draftwood.measure.report").joinpath(name).read_text(encoding="utf-8")
