"""How much a server writes for 1 to 64 clients at once, with drafts and without, in turns.

    python benchmarks/server_load.py -o server-load.jsonl [--model smollm2] [--clients 1 4 16 64] [--seconds 40]

Starts two servers, `draftwood serve` as it is and with ``--drafters none``, and asks them in turns: each client
sends a prompt of the built-in kinds, reads the whole stream, and sends the next one. Clients that still read
when the time is over are waited for, and their tokens count. The file gets a line per turn. Leave the
machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx2 as httpx

from draftwood.measure.records.provenance import provenance
from draftwood.tasks import all_prompts

ARMS = {"drafted": "default", "plain": "none"}
MOST_TOKENS = 64


@dataclass(frozen=True)
class Turn:
    """One arm at one number of clients: tokens in all, and seconds to the first one of each text."""

    arm: str
    clients: int
    round: int
    texts: int
    tokens: int
    seconds: float
    first_token_s: float


def chats() -> list[list[dict[str, Any]]]:
    """Prompts of all kinds, taken in turns."""
    found: dict[str, list[Any]] = {}
    for prompt in all_prompts():
        if prompt.messages:
            found.setdefault(prompt.task, []).append([dict(message) for message in prompt.messages])
    shortest = min(len(some) for some in found.values())
    return [some[number] for number in range(shortest) for some in found.values()]


def start(arm: str, model: str, stack: ExitStack) -> str:
    """Start a server; returns its address."""
    command = [sys.executable, "-m", "draftwood", "serve", "--model", model, "--port", "0", "--name", "served",
               "--drafters", ARMS[arm], "--engine", "transformers"]  # fmt: skip
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.terminate)
    assert process.stdout is not None
    return process.stdout.readline().split()[2].rstrip(",")


async def ask(client: httpx.AsyncClient, url: str, messages: Any) -> tuple[int, float]:
    """Read one answer; returns its tokens, and the seconds to the first one."""
    body = {"messages": messages, "max_tokens": MOST_TOKENS, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    began, first, tokens = time.perf_counter(), 0.0, 0
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if '"content":"' in line and '"content":""' not in line:
                first = first or time.perf_counter() - began
            if '"usage":' in line:
                tokens = json.loads(line[6:])["usage"]["completion_tokens"]
    return tokens, first


async def turn(arm: str, url: str, clients: int, round_: int, seconds: float) -> Turn:
    """Let so many clients ask for so long."""
    prompts, found = chats(), []
    end = time.perf_counter() + seconds

    async def client(number: int, http: httpx.AsyncClient) -> None:
        place = number
        while time.perf_counter() < end:
            found.append(await ask(http, url, prompts[place % len(prompts)]))
            place += clients

    began = time.perf_counter()
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(timeout=600, limits=limits) as http:
        await asyncio.gather(*(client(number, http) for number in range(clients)))
    took = time.perf_counter() - began
    tokens = sum(count for count, _ in found)
    return Turn(arm, clients, round_, len(found), tokens, took, median(first for _, first in found))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args(arguments)
    with ExitStack() as stack, given.output.open("w", encoding="utf-8") as file:
        settings = {"model": given.model, "seconds": given.seconds, "max_new_tokens": MOST_TOKENS}
        head = {
            "row": "header",
            "settings": settings,
            "provenance": provenance(model=given.model, dtype="float32"),
        }
        print(json.dumps(head), file=file, flush=True)
        urls = {arm: start(arm, given.model, stack) for arm in ARMS}
        for arm in ARMS:  # kernels are loaded, threads are started
            asyncio.run(turn(arm, urls[arm], 2, -1, 5.0))
        for clients in given.clients:
            for round_ in range(given.rounds):
                for arm in list(ARMS)[:: 1 - 2 * (round_ % 2)]:
                    found = asyncio.run(turn(arm, urls[arm], clients, round_, given.seconds))
                    print(json.dumps({"row": "turn", **asdict(found)}), file=file, flush=True)
                    print(f"{clients:3} clients, {arm:8} {found.tokens / found.seconds:7.1f} tokens/s, "
                          f"first token after {found.first_token_s:.2f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
