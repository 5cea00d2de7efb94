"""Checks what was given as model, tokenizer and number, before anything is done with it."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from draftwood.errors import UnsupportedModelError, UsageError


def check_model(model: Any) -> None:
    """Raise an error for what is plainly no model; whether it is one that draftwood can run is checked later."""
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
    """Raise `UsageError` for what cannot turn text into ids and back; None (no tokenizer) is allowed."""
    if tokenizer is None:
        return
    is_class = isinstance(tokenizer, type)
    if is_class or not (callable(tokenizer) and hasattr(tokenizer, "decode") and hasattr(tokenizer, "__len__")):
        name = f"the class {tokenizer.__name__}" if is_class else f"a {type(tokenizer).__name__}"
        raise UsageError(
            f"tokenizer is {name}: give a tokenizer of transformers, as in model, tokenizer = draftwood.load(...)"
        )


def check_whole(name: str, value: Any) -> int:
    """Return the value as int; `UsageError` if it is not a whole number above 0."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.80}: it must be a whole number")
    if value < 1:
        raise UsageError(f"{name} is {value}: it must be at least 1")
    return int(value)
