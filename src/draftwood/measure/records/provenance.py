"""Provenance of measurements: command, versions, commit, machine and load."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from draftwood.local.machine import allowed, processor

_PACKAGES = ("numpy", "numba", "torch", "transformers", "xllamacpp", "llama_cpp_python")


def provenance(**facts: Any) -> dict[str, Any]:
    """Return the provenance of this run, JSON-ready, with ``facts`` that only the caller knows; None is left
    out. Instructions are those of our own engine where it ran, else torch's."""
    torch = sys.modules.get("torch")  # importing it would take seconds
    own = sys.modules.get("draftwood.engines.cpu.code.instructions")
    theirs = torch.backends.cpu.get_cpu_capability() if torch else None
    found = {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "draftwood": package_version("draftwood"),
        "commit": _commit(), "python": platform.python_version(),
        "packages": {name: v for name in _PACKAGES if (v := package_version(name))},
        "system": f"{platform.system()} {platform.release()}", "processor": processor(),
        "cores": len(allowed()), "instructions": own.chosen().name if own else theirs,
        "threads": torch.get_num_threads() if torch else None,
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }  # fmt: skip
    return {name: value for name, value in (found | facts).items() if value is not None}


def package_version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the checkout that this code runs from, with ``+changes`` if files differ from it."""
    here = str(Path(__file__).parents[2])
    commands = ("ls-files --error-unmatch __init__.py", "rev-parse --short=12 HEAD", "diff --quiet HEAD -- .")
    try:
        known, head, differs = (
            subprocess.run(["git", "-C", here, *one.split()], capture_output=True, text=True) for one in commands
        )
    except OSError:
        return None
    if known.returncode or head.returncode:
        return None
    return head.stdout.strip() + ("+changes" if differs.returncode else "")
