"""Writes a sibling as a folder of transformers, with the target's tokenizer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from draftwood.errors import ModelError


def write_folder(path: Path, sibling: Any, tokenizer: Any, dtype: Any, about: Mapping[str, str]) -> None:
    """Write a sibling's folder, completely or not at all; a former one is replaced.

    ``about`` goes to ``made.json`` in it. Raises `ModelError` if it cannot be written.
    """
    beside, old = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        sibling.to(dtype).save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        lines = ",\n".join(f'  "{name}": {value}' for name, value in about.items())  # the values are JSON already
        (beside / "made.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        shutil.copymode(beside / "config.json", beside / "model.safetensors")
        with suppress(FileNotFoundError):
            path.rename(old)
        beside.rename(path)
    except OSError as error:
        if old.exists() and not path.exists():
            old.rename(path)
        raise ModelError(f"{path} cannot be written ({error.strerror}): choose another place") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
