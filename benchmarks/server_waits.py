"""How long short prompts wait for a first token while a long one is read, in passes over its chunks.

    python benchmarks/server_waits.py [--model smollm2] [--tokens 4000] [--times 3]

Runs the server's worker in this process. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from draftwood.api.prompts import render
from draftwood.api.setup import Setup
from draftwood.decoding.arrivals import CHUNK
from draftwood.serve.inbox import Job
from draftwood.serve.worker import Worker

_SHORT = [{"role": "user", "content": "Name three rivers."}]


class Timed:
    """A target that notes when it reads chunks."""

    def __init__(self, target: Any) -> None:
        self._target, self.chunks = target, list[tuple[float, float]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def _timed(self, tokens: int, call: Any) -> Any:
        began = time.perf_counter()
        found = call()
        if tokens == CHUNK:
            self.chunks.append((began, time.perf_counter()))
        return found

    def open(self, prompts: Any, **options: Any) -> Any:
        return self._timed(sum(map(len, prompts)), lambda: self._target.open(prompts, **options))

    def extend(self, texts: Any, watch: Any = None) -> Any:
        return self._timed(sum(len(ids) for _, ids in texts), lambda: self._target.extend(texts, watch))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args(arguments)
    setup = Setup(given.model, None, "default", "goodput")
    setup.refresh()
    setup.target = timed = Timed(setup.target)
    worker = Worker(setup, 16, 64)
    worker.start()
    short = render(_SHORT, setup.tokenizer)
    long = [int(token) for token in setup.tokenizer("The river rises in the hills. " * given.tokens)["input_ids"]]

    def ask(ids: Sequence[int], tokens: int) -> Job:
        job = Job(setup.request(ids, max_new_tokens=tokens, temperature=0), lambda _: None)
        worker.submit([job])
        return job

    def wait(job: Job) -> None:
        while job.ended is None:
            time.sleep(0.005)

    wait(ask(short, 8))  # kernels
    waits, shares = [], []
    for number in range(given.times):
        timed.chunks.clear()
        slow, quick = ask([5 + number, *long[: given.tokens - 1]], 1), list[Job]()
        while slow.ended is None:
            quick.append(ask(short, 1))
            wait(quick[-1])
            time.sleep(0.15)
        for job in quick:
            assert job.first is not None
            seconds = job.first - job.arrived
            beside = [end - began for began, end in timed.chunks if began < job.first and end > job.arrived]
            waits.append(seconds)
            if beside:
                shares.append(seconds / max(beside))
    worker.stop(10)
    print(f"{len(waits)} first tokens: median {median(waits):.2f} s, worst {max(waits):.2f} s; "
          f"in passes over the chunk beside: median {median(shares):.2f}, worst {max(shares):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
