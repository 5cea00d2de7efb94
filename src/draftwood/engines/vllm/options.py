"""Options as users give them to vLLM: ``--additional-config '{"draftwood": {...}}'``, or in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from draftwood.errors import UnknownNameError, UsageError

PREFIX = "DRAFTWOOD_VLLM_"
_OTHERS = frozenset({"ANY_VERSION"})  # read elsewhere


@dataclass(frozen=True)
class Options:
    """What may be set.

    Attributes
    ----------
    drafters
        As ``--drafters`` of the command line; drafters that need more of a model than its tokens are refused.
    planner
        ``goodput`` (drafts as much as pays, possibly nothing), ``fixed:16``, ``threshold`` or ``off``.
    memory
        File of earlier answers, shared by all requests of a worker. All users draft from each other's answers,
        unless namespaces are on.
    corpus
        Files that ``draftwood corpus build`` has made, several separated by ``:``.
    texts
        Most tokens of all texts that are followed, at about 80 bytes each; further requests are not drafted for.
    requests
        Whether to look into vLLM for what it does not tell: the names of requests, and what clients send with them
        (predictions, and whose memory they use). Private to each version of vLLM.
    log_every
        Seconds between two lines of counts in the log; 0: none.
    """

    drafters: str = "ngram"
    planner: str = "goodput"
    memory: str = ""
    corpus: str = ""
    texts: int = 8_000_000
    requests: bool = False
    log_every: float = 60.0

    @classmethod
    def read(cls, additional_config: Any, environment: Mapping[str, str] = os.environ) -> Options:
        """Return the options of a configuration, then of the environment; raises `UsageError` for a wrong one."""
        found: dict[str, Any] = {}
        for name, value in environment.items():
            if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in _OTHERS:
                key = name.removeprefix(PREFIX).lower()
                if key not in _KINDS:
                    raise UnknownNameError("environment variable", name, _variables())
                found[key] = _of_text(name, value, _KINDS[key])
        given = additional_config.get("draftwood", {}) if isinstance(additional_config, Mapping) else {}
        if not isinstance(given, Mapping):
            raise UsageError(
                f"the options of draftwood are an object like {{'planner': 'goodput'}}, not {given!r}"
            )
        for key, value in given.items():
            if key not in _KINDS:
                raise UnknownNameError("option of draftwood in --additional-config", key, _KINDS)
            found[key] = _of_json(key, value, _KINDS[key])
        options = replace(cls(), **found)
        if options.texts < 0 or not 0 <= options.log_every < float("inf"):
            raise UsageError("draftwood: texts and log_every must not be negative")
        return options


_KINDS: dict[str, type] = {field.name: type(field.default) for field in fields(Options)}


_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


def _variables() -> list[str]:
    return [PREFIX + name.upper() for name in (*_KINDS, *_OTHERS)]


def _of_text(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in _WORDS:
            raise UsageError(f"{name} must be 1 or 0, not {text!r}")
        return _WORDS[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{name} must be a {'whole ' if kind is int else ''}number, not {text!r}") from None


def _of_json(key: str, value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if key == "corpus" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return os.pathsep.join(value)
    if type(value) is not kind:
        wanted = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise UsageError(f"option {key!r} of draftwood in --additional-config must be {wanted}, not {value!r}")
    return value
