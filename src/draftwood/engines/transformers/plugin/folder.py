"""What ``custom_generate/generate.py`` of a model folder does: the model's own ``generate`` with our callable."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any


def call_generate(model: Any, inputs: Sequence[Any], settings: dict[str, Any], make: Callable[..., Any]) -> Any:
    """Call the ``generate`` of the model's class, in whose place the folder's code was called, with the caller's
    ``inputs`` and ``settings``. ``make`` makes the callable from ``streamer``, ``tokenizer`` and ``stop_strings``,
    which ``generate`` would not hand on. A ``custom_generate`` of the caller's own runs instead of ours."""
    generate = type(model).generate  # not model.generate, which has called us
    positional = [
        p.name for p in inspect.signature(generate).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    settings = dict(zip(positional[1:], inputs, strict=False)) | settings
    if settings.get("custom_generate") is not None:
        return generate(model, **settings)
    # ``generate`` refuses stop strings with a callable, wherever they are set.
    config, of_model = settings.get("generation_config"), getattr(model.generation_config, "stop_strings", None)
    of_config = getattr(config, "stop_strings", None)
    stop = settings.pop("stop_strings", None) or of_config or of_model
    if of_config is not None:
        settings["generation_config"] = copy.copy(config)
        settings["generation_config"].stop_strings = None
    if of_model is not None:  # it fills what a given config leaves open; an argument overrides both
        settings["stop_strings"] = None
    kept = {name: settings.pop(name, None) for name in ("streamer", "tokenizer")}
    return generate(model, **settings | {"custom_generate": make(**kept, stop_strings=stop)})
