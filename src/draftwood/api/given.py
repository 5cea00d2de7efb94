"""Checks of what was given as model, tokenizer and number, before anything is done with it."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from draftwood.errors import UnsupportedModelError, UsageError


def check_model(model: Any) -> None:
    """Refuse what is plainly no model; what kind of model it is comes later.

    Raises
    ------
    UsageError
        For a tokenizer, a tuple, a class, None.
    UnsupportedModelError
        For objects that are neither a model of transformers nor a `Target`.
    """
    if isinstance(model, type):
        raise UsageError(f"model is the class {model.__name__}: give an object of it, or a model's name")
    if hasattr(model, "capabilities"):
        return
    if model is None or isinstance(model, list | tuple):
        raise UsageError(
            f"model is {'None' if model is None else f'a {type(model).__name__}'}: give one model, as in "
            "model, tokenizer = draftwood.load(...)"
        )
    if callable(getattr(model, "decode", None)) and not hasattr(model, "forward"):
        raise UsageError(
            f"a tokenizer ({type(model).__name__}) was given as the model: give the model first, and tokenizer="
        )
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        raise UnsupportedModelError(
            f"{type(model).__name__} is no model of transformers and no Target: give one, or a model's name"
        )


def check_tokenizer_kind(tokenizer: Any) -> None:
    """Raise `UsageError` for what cannot turn text into ids and back; None is no tokenizer."""
    if tokenizer is None:
        return
    kind = isinstance(tokenizer, type)
    if kind or not (callable(tokenizer) and hasattr(tokenizer, "decode") and hasattr(tokenizer, "__len__")):
        name = tokenizer.__name__ if kind else type(tokenizer).__name__
        raise UsageError(
            f"tokenizer is {'the class ' if kind else 'a '}{name}: give a tokenizer of transformers, as in "
            "model, tokenizer = draftwood.load(...)"
        )


def check_whole(name: str, value: Any) -> int:
    """Return a whole number from 1 on.

    Raises
    ------
    UsageError
        For anything else.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.80}: it must be a whole number")
    if value < 1:
        raise UsageError(f"{name} is {value}: it must be at least 1")
    return int(value)
