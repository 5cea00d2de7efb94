"""What the server adds to `draftwood.stream`: to the first piece of text, and to each step, in turns.

    python benchmarks/server_overhead.py [--model smollm2] [--times 20]

Server and client run in this process, over a socket, on one kept connection. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

import httpx2 as httpx
import uvicorn

import draftwood
from draftwood.api.setup import Setup
from draftwood.cli.serve import _listening
from draftwood.serve.app import Settings, make_app

_CHAT = [{"role": "user", "content": "Write a short letter to a friend about a walk by the river."}]
_TOKENS = 48


@contextmanager
def serving(setup: Any, model: str) -> Iterator[str]:
    """Serve in a thread; yields the address."""
    listening = _listening("127.0.0.1", 0)
    app = make_app(setup, Settings(model, prefix_bytes=0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def asked(client: httpx.Client, url: str) -> tuple[float, float]:
    """Return the seconds to the first piece of text, and those behind it, of an answer of the server."""
    body = {"messages": _CHAT, "max_tokens": _TOKENS, "temperature": 0, "stream": True, "ignore_eos": True}
    began, first = time.perf_counter(), 0.0
    with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        for line in answer.iter_lines():
            if (
                not first
                and line.startswith("data: {")
                and json.loads(line[6:])["choices"][0]["delta"].get("content")
            ):
                first = time.perf_counter()
    return first - began, time.perf_counter() - first


def streamed(model: Any, tokenizer: Any, drafters: str) -> tuple[float, float]:
    """Return the same of `draftwood.stream`."""
    began, first = time.perf_counter(), 0.0
    settings = {"max_new_tokens": _TOKENS, "temperature": 0.0}
    for _ in draftwood.stream(model, _CHAT, tokenizer=tokenizer, drafters=drafters, planner="fixed:4", **settings):
        first = first or time.perf_counter()
    return first - began, time.perf_counter() - first


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args(arguments)
    model, tokenizer = draftwood.load(given.model)
    setup = Setup(model, tokenizer, "ngram", "fixed:4")
    with serving(setup, given.model) as url, httpx.Client(timeout=120) as client:
        rows = [(asked(client, url), streamed(model, tokenizer, "ngram")) for _ in range(given.times + 2)]
    steps = len(draftwood.generate(model, _CHAT, tokenizer=tokenizer, drafters="ngram", planner="fixed:4",
                                   max_new_tokens=_TOKENS, temperature=0.0).steps)  # fmt: skip
    kept = rows[2:]
    for place, name, share in ((0, "first piece", 1), (1, f"each of {steps} steps behind it", steps)):
        ours, plain = (median(row[side][place] for row in kept) for side in (0, 1))
        extras = [1e3 * (row[0][place] - row[1][place]) / share for row in kept]
        low, middle, high = quantiles(extras, n=4)
        print(f"{name}: server {1e3 * ours / share:.2f} ms, stream {1e3 * plain / share:.2f} ms, "
              f"median difference {middle:.3f} ms (quartiles {low:.3f}, {high:.3f})")  # fmt: skip


if __name__ == "__main__":
    main()
