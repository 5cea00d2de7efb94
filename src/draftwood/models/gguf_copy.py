"""Begins a GGUF file that has another one's settings and tokenizer."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any


def begin_copy(
    to: Path, reader: Any, left_out: Container[str] = (), changed: Mapping[str, Any] | None = None
) -> Any:
    """Return a `GGUFWriter` with all settings of a ``reader`` but the type of the file and those ``left_out``.

    ``changed`` has new values of some of them, of the same kind.
    """
    from gguf import GGUFValueType, GGUFWriter

    writer = GGUFWriter(to, str(reader.fields["general.architecture"].contents()))
    changed = changed or {}
    for field in reader.fields.values():
        name = field.name
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type") or name in left_out:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, changed.get(name, field.contents()), kind, sub_type=inner)
    return writer
