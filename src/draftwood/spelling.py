"""What names stand for, and options as users type them after a name (``name:key=value``)."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from draftwood.errors import UnknownNameError, UsageError

SCALARS = frozenset({int, float, bool, str, NoneType})
"""Types of options; parameters of other types can only be given in Python."""

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Imported(UserDict[str, Any]):
    """What names stand for, given as ``module:attribute``; each is imported when it is first looked up."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = self[name] = getattr(import_module(module), attribute)
        return found


def split(text: str, separator: str) -> list[str]:
    """Return the pieces between separators that stand outside double quotes, stripped, with their quotes.

    Raises `UsageError` where a quote is not closed.
    """
    return [piece.strip() for piece in translated(text, separator, "\0").split("\0")]


def translated(text: str, old: str, new: str) -> str:
    """Replace each character of ``old`` by that of ``new``, but not within double quotes.

    Raises `UsageError` where a quote is not closed.
    """
    pieces = text.split('"')
    if len(pieces) % 2 == 0:
        raise UsageError(f"a double quote is missing in {text!r}: write one before and one behind the value")
    pieces[::2] = (piece.translate(str.maketrans(old, new)) for piece in pieces[::2])
    return '"'.join(pieces)


def unquoted(text: str) -> str:
    """Return a value without the double quotes around it, if it has any."""
    inner = text[1:-1]
    return inner if text == f'"{inner}"' and '"' not in inner else text


def read_options(owner: str, options: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Return options written as ``key=value``, values as text; one in double quotes without them.

    Raises `UnknownNameError` for one that its ``owner`` (``"drafter 'ngram'"``) does not have, and `UsageError`
    for one without a value or given twice.
    """
    found: dict[str, str] = {}
    for option in options:
        key, equals, text = (piece.strip() for piece in option.partition("="))
        if not equals:
            raise UsageError(f"options of {owner} are written key=value, not {option!r}")
        if key not in known:
            raise UnknownNameError(f"option of {owner}", key, known)
        if key in found:
            raise UsageError(f"option {key!r} of {owner} is given twice")
        found[key] = unquoted(text)
    return found


def scalar_parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of ``make`` that users can type."""
    every = inspect.signature(make, eval_str=True).parameters
    return {key: p for key, p in every.items() if set(kinds(p.annotation)) <= SCALARS}


def arguments(kind: str, name: str, make: Callable[..., Any], options: Iterable[str]) -> dict[str, Any]:
    """Turn options as typed into keyword arguments of ``make``, of the types in its signature.

    Raises `UnknownNameError` or `UsageError` for unknown and missing options and for values of the wrong type.
    """
    parameters, owner = scalar_parameters(make), f"{kind} {name!r}"
    found = {
        key: value_of(f"option {key!r} of {owner}", text, parameters[key].annotation)
        for key, text in read_options(owner, options, parameters).items()
    }
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in found]
    if missing:
        raise UsageError(f"{owner} needs its option {missing[0]!r}: write {name}:{missing[0]}=...")
    return found


def kinds(annotation: Any) -> tuple[Any, ...]:
    """Return the types that an annotation allows."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def value_of(what: str, text: str, wanted: Any) -> Any:
    """Return text as a value of the ``wanted`` type; other text raises `UsageError`, which calls it ``what``."""
    allowed = kinds(wanted)
    if text == "none" and NoneType in allowed:
        return None
    kind = next(k for k in allowed if k is not NoneType)
    try:
        return _WORDS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        expected = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, str(kind))
        raise UsageError(f"{what} must be {expected}, not {text!r}") from None
