"""The limits that a container sets on this process: Linux control groups of versions 1 and 2, nested ones too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
_NO_LIMIT = 1 << 60  # version 1 writes a number about 2 ** 63 where there is none


def processors(root: Path = _ROOT) -> float | None:
    """Return how many processors' time this process may use; None without a limit."""
    quotas = [_quota(group) for group in _groups(root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def memory(root: Path = _ROOT) -> int | None:
    """Return how many bytes this process may take in all; None without a limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_left(root: Path = _ROOT) -> int | None:
    """Return how many of these bytes are still free; what caches hold of files counts as free."""
    return min((max(0, limit - used) for limit, used in _memory(root)), default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the groups that hold this process, from the innermost to the outermost."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        mounts = (names, controller) if names else ("", "unified")
        for mount in dict.fromkeys(mounts):
            top = root / "sys/fs/cgroup" / mount
            inner = top / path.strip("/")
            # Within a container the path may be the host's, which is not seen there: its top is the group then.
            yield from (place for place in (inner, *inner.parents) if place.is_relative_to(top) and place.is_dir())


def _quota(group: Path) -> float | None:
    words = _words(group / "cpu.max") or [
        *_words(group / "cpu.cfs_quota_us"),
        *_words(group / "cpu.cfs_period_us"),
    ]
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not int(words[1]):  # "max", -1
        return None
    return int(words[0]) / int(words[1])


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and use of each group that has a limit."""
    for group in _groups(root, "memory"):
        for limit, used, files in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, taken = (_words(group / name) for name in (limit, used))
            if most and most[0].isdecimal() and int(most[0]) < _NO_LIMIT and taken and taken[0].isdecimal():
                stat = _words(group / "memory.stat")
                cached = int(stat[stat.index(files) + 1]) if files in stat[:-1] else 0
                yield int(most[0]), int(taken[0]) - cached


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
