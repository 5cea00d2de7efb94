"""``python benchmarks/busy_cores.py``: what passes of the CPU engine take while another program keeps a core busy.

Prints medians, and slow ones, in milliseconds: with one thread, with two, and with two beside a process that only
counts; and how much longer than with one thread the last takes.
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

PASSES = 60
WIDTHS = (1, 8)


def times(target: CpuTarget, threads: int, width: int) -> list[float]:
    """Seconds of passes over a root and a chain, ``width`` tokens in all."""
    target.model.threads = threads
    ((session, _),) = target.open([[1, 2, 3, 4, 5]])
    tree = TokenTree.build(list(range(10, 9 + width)))
    found = []
    for _ in range(PASSES):
        begun = time.perf_counter()
        target.score([(session, 9, tree)])
        found.append(time.perf_counter() - begun)
    session.close()
    return found[PASSES // 6 :]


def told(name: str, found: list[float], alone: float) -> float:
    median, slow = statistics.median(found), sorted(found)[len(found) * 9 // 10]
    mean = statistics.fmean(found)
    print(f"  {name:22} {1e3 * median:7.2f} median {1e3 * mean:7.2f} mean {1e3 * slow:7.2f} slow", end="")
    print(f"   x {mean / (alone or mean):.2f}")
    return mean


def main() -> None:
    """Measure and print."""
    target = CpuTarget(Path(sys.argv[1]) if len(sys.argv) > 1 else gguf_file("smollm2"))
    for width in WIDTHS:
        print(f"{width} tokens")
        alone = told("1 thread", times(target, 1, width), 0)
        told("2 threads", times(target, 2, width), alone)
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            try:
                time.sleep(0.3)
                told("1 thread, busy core", times(target, 1, width), alone)
                told("2 threads, busy core", times(target, 2, width), alone)
            finally:
                other.kill()


if __name__ == "__main__":
    main()
