"""Runs `draftwood` as its command does and writes when each stage of its start ended, for `starts.py`.

    python benchmarks/starts_stages.py STAGES.json generate "Once upon a time" ...

Stages are functions of draftwood that are watched from outside, without importing a module earlier than the
command does: each is wrapped right after its module was imported. Times are `time.monotonic()`.
"""

from __future__ import annotations

import atexit
import json
import sys
from collections.abc import Callable
from functools import wraps
from importlib.machinery import PathFinder
from pathlib import Path
from time import monotonic
from typing import Any

ENDS: dict[str, float] = {"python": monotonic()}
"""When each stage ended for the first time."""

WATCHED = {
    "draftwood.models.load": {"_read": "model read"},
    "draftwood.models.load_gguf": {"load_gguf": "model read"},
    "draftwood.engines.transformers.lean": {"lean": "packed"},
    "draftwood.engines.transformers.shared": {"open_target": "tried"},
    "draftwood.api.setup": {"Setup.__init__": "set up"},
    "draftwood.decoding.opening": {"open_sequences": "prompt read"},
    "draftwood.cli.render": {"Writer.piece": "first token"},
}
"""Functions, and the name of the stage that each ends."""
IMPORTED = {
    "draftwood.cli.main": "our imports",
    "torch": "torch",
    "transformers": "transformers",
    "numba": "numba",
}
"""Modules whose import ends a stage."""


def ended(stage: str) -> None:
    """Note the end of a stage, if it is the first."""
    ENDS.setdefault(stage, monotonic())


class Finder:
    """Finds the watched modules as Python does, and watches their functions once they are imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's own specification, with a loader that reports."""
        if name not in WATCHED and name not in IMPORTED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                for function, stage in WATCHED.get(name, {}).items():
                    watch(module, function, stage)
                if name in IMPORTED:
                    ended(IMPORTED[name])

            loader.exec_module = exec_module
        return spec


def watch(module: Any, function: str, stage: str) -> None:
    """Wrap a function of a module, or a method, so that its return ends a stage."""
    *owners, name = function.split(".")
    owner = getattr(module, owners[0]) if owners else module
    inner: Callable[..., Any] = getattr(owner, name)

    @wraps(inner)
    def outer(*args: Any, **keywords: Any) -> Any:
        found = inner(*args, **keywords)
        ended(stage)
        return found

    setattr(owner, name, outer)


def main() -> None:
    place = Path(sys.argv.pop(1))
    atexit.register(lambda: place.write_text(json.dumps(ENDS), encoding="ascii"))
    sys.meta_path.insert(0, Finder())
    from draftwood.cli.main import main as command

    sys.argv[0] = "draftwood"
    command()


if __name__ == "__main__":
    main()
