"""Renders the chat template of a GGUF file as transformers renders its own: a jinja program, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from draftwood.errors import CapabilityError, ModelError

_REASONING = ("reasoning_content", "thinking", "reasoning")  # names that a message's reasoning goes by


def render(template: str, messages: Iterable[Mapping[str, Any]], **values: Any) -> str:
    """Return the text that a template makes of chat messages and of ``values``; it sees plain copies of them.

    Raises `ModelError` for a template that cannot be read or that reaches out of its sandbox, `CapabilityError`
    without jinja2, and whatever the template raises when it refuses the messages.
    """
    try:
        from jinja2.exceptions import SecurityError, TemplateSyntaxError
    except ImportError as error:
        raise CapabilityError('chat templates need jinja2: run pip install "jinja2>=3.1.6"') from error
    given = json.loads(json.dumps({**values, "messages": [_message(message) for message in messages]}))
    try:
        return _compiled(template).render(given)
    except TemplateSyntaxError as error:
        raise _unusable(f"cannot be read (line {error.lineno}: {error.message})") from error
    except SecurityError as error:
        raise _unusable(f"does what it may not do ({str(error).rstrip('.')})") from error


def _unusable(why: str) -> ModelError:
    return ModelError(f"the model's chat template {why}: give plain text (without --chat), or take another file")


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without empty fields, its reasoning under the names that templates read."""
    kept = {key: value for key, value in message.items() if value is not None}
    reasoning = next((kept[name] for name in _REASONING if name in kept), None)
    return kept if reasoning is None else {"thinking": reasoning, **kept, "reasoning_content": reasoning}


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what an assistant wrote, for training: its content alone is rendered."""

        tags = {"generation"}  # noqa: RUF012 - as declared there

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            content = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(content).set_lineno(line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = _tojson
    sandbox.globals |= {"raise_exception": raise_exception, "strftime_now": _strftime_now}
    return sandbox.from_string(template)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """Jinja's own would escape for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
