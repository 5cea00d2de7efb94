"""Convert a GGUF file to an ordinary transformers folder, keeping every value exactly."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from draftwood.engines.transformers.quiet import quiet_transformers
from draftwood.local.catalogue import CatalogueModel

STEPS = 3  # number of steps that :func:`convert` reports


def convert(model: CatalogueModel, folder: Path, tick: Callable[[int], None]) -> None:
    """Add config, float32 weights and tokenizer to a GGUF file's folder; ``tick`` receives each of `STEPS`."""
    with quiet_transformers():
        _write_tokenizer(model, folder)
        tick(1)
        loaded = _read_weights(folder, model.gguf)
        tick(2)
        _write_weights(loaded, folder)
        tick(3)


def _write_tokenizer(model: CatalogueModel, folder: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=model.gguf, local_files_only=True)
    if model.single_digits:
        # A run of spaces before a number is one token only if digits are split off first.
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.save_pretrained(folder)
    _tidy_tokenizer_config(folder / "tokenizer_config.json")


def _tidy_tokenizer_config(path: Path) -> None:
    """Name the general tokenizer class: a model's own would take seconds to rebuild 262,144 tokens in Python."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for argument in ("is_local", "local_files_only"):  # of the call that loaded it
        config.pop(argument, None)
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_weights(folder: Path, gguf: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    how = {"dtype": torch.float32, "local_files_only": True}
    hidden = StringIO()
    try:
        with redirect_stderr(hidden):  # one progress bar of transformers goes by no setting
            return AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, **how)
    except BaseException:  # whatever was said before may tell why
        sys.stderr.write(hidden.getvalue())
        raise


def _write_weights(loaded: Any, folder: Path) -> None:
    """Save through a new model: transformers takes the loaded one for quantised and refuses to save it."""
    import torch

    settings = loaded.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    with torch.device("meta"):  # allocates nothing: the weights are assigned below
        fresh = type(loaded)(type(loaded.config).from_dict(settings))
    fresh.load_state_dict(loaded.state_dict(), assign=True)
    fresh.tie_weights()
    fresh.generation_config = loaded.generation_config
    fresh.save_pretrained(folder)
    # safetensors leaves its file readable by its owner alone; a shared cache folder needs the usual rights.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")
