"""Where figures come from: what a header line says about command, versions, machine and load."""

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

from draftwood.models.machine import processor

_PACKAGES = ("numpy", "numba", "torch", "transformers", "xllamacpp")


def provenance(**facts: Any) -> dict[str, Any]:
    """Return a JSON-ready account of this run.

    Parameters
    ----------
    **facts
        What only the caller knows, for example model, dtype, device, threads; None is left out.
    """
    torch = sys.modules.get("torch")  # asked only where it is loaded anyway
    found = {
        "command": _command(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "draftwood": _version("draftwood"),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: v for name in _PACKAGES if (v := _version(name))},
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability() if torch else None,
        "threads": torch.get_num_threads() if torch else None,
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }
    return {name: value for name, value in (found | facts).items() if value is not None}


def _command() -> str:
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the checkout that this code runs from, marked where files differ from it."""
    here = Path(__file__).parents[2]
    git = ["git", "-C", str(here)]
    try:
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True)
        if tracked.returncode:
            return None
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        dirty = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", str(here)], capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+changes" if dirty.returncode else "")
