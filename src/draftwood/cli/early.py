"""Checks made before a model is loaded, so that a mistake is told within a second."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draftwood.errors import PromptError

_TEMPLATE = 512
"""Bytes that a chat template may put around a prompt, generously."""


def check_sampling(settings: Mapping[str, Any]) -> None:
    """Refuse, by UsageError, sampling settings that no model could follow; None leaves one to the model."""
    from draftwood.contracts import Sampling
    from draftwood.verify.sampling import check_sampling as check

    given = {name: settings.get(name) for name in Sampling.__dataclass_fields__}
    check(Sampling(**{name: value for name, value in given.items() if value is not None}))


def check_stop(stop: Sequence[str] | None) -> None:
    """Refuse empty stop strings."""
    from draftwood.decoding.stopping import StopStrings

    if stop:
        StopStrings(stop, lambda _: "")


def check_lengths(model: str, prompts: Mapping[str, str]) -> None:
    """Refuse a prompt that leaves the model no room for an answer, its weights unread; ``prompts`` are by name.

    The tokenizer is loaded only for prompts of about as many bytes as the model takes tokens. Models that do not
    say their length in ``config.json`` are left to the check that follows loading. Raises PromptError, and what
    `draftwood.models.find` raises.
    """
    from draftwood.models import load_tokenizer

    most = _positions(model)
    if most is None:
        return
    long = {name: text for name, text in prompts.items() if len(text.encode()) + _TEMPLATE >= most}
    tokenizer: Any = load_tokenizer(model) if long else None
    for name, text in long.items():
        tokens = len(tokenizer(text, verbose=False)["input_ids"])
        if tokens >= most:
            said = f"the prompt has {tokens} tokens, the model takes {most} with its answer: shorten the prompt"
            raise PromptError(f"{name}: {said}" if name else said)


def _positions(model: str) -> int | None:
    """Tokens that a model's text may have; None where its folder does not say so."""
    from draftwood.models import find

    place = find(model)
    if not isinstance(place, Path):
        return None
    try:
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # loading says what is wrong with it
    parts = (config, config.get("text_config") or {})
    known = [part.get(name) for part in parts for name in ("max_position_embeddings", "n_positions")]
    return next((length for length in known if isinstance(length, int) and length > 0), None)
