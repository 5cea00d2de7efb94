"""``python benchmarks/busy_cores.py``: what passes of the CPU engine take while another program keeps a core busy.

Prints medians, means and slow ones in milliseconds, with one thread and with two, by turns; first as the machine
is, then beside a process that only counts. The last column is the mean as a multiple of one thread's.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from draftwood.engines.cpu.target import CpuTarget
from draftwood.models.find import gguf_file
from draftwood.tree import TokenTree

BLOCKS, PASSES = 6, 12
"""Turns, and passes of each; the first two of a turn are not counted."""
WIDTHS = (1, 8, 128)


def times(target: CpuTarget, width: int) -> dict[int, list[float]]:
    """Seconds of passes over a root and a chain, ``width`` tokens in all, by number of threads."""
    ((session, _),) = target.open([[1, 2, 3, 4, 5]])
    tree = TokenTree.build(list(range(10, 9 + width)))
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(BLOCKS):
        for threads, seconds in found.items():
            target.model.threads = threads
            for number in range(PASSES):
                begun = time.perf_counter()
                target.score([(session, 9, tree)])
                if number >= 2:
                    seconds.append(time.perf_counter() - begun)
    session.close()
    return found


def tell(name: str, found: dict[int, list[float]]) -> None:
    alone = statistics.fmean(found[1])
    for threads, seconds in found.items():
        mean, slow = statistics.fmean(seconds), sorted(seconds)[len(seconds) * 9 // 10]
        print(
            f"  {name}, {threads} threads: {1e3 * statistics.median(seconds):7.2f} median, "
            f"{1e3 * mean:7.2f} mean, {1e3 * slow:7.2f} slow, x {mean / alone:.2f}"
        )


def main() -> None:
    """Measure and print."""
    target = CpuTarget(Path(sys.argv[1]) if len(sys.argv) > 1 else gguf_file("smollm2"))
    for width in WIDTHS:
        print(f"{width} tokens")
        tell("as it is", times(target, width))
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            try:
                time.sleep(0.3)
                tell("busy core", times(target, width))
            finally:
                other.kill()


if __name__ == "__main__":
    main()
