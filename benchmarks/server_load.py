"""How much servers write for 1 to 64 clients at once, in turns: ours with drafts, without, and others' own.

    python benchmarks/server_load.py -o server-load.jsonl [--arms drafted plain llama.cpp] [--clients 1 4 16 64]

Each client sends the next prompt of one list of the built-in kinds and reads the whole stream: every arm gets the
same prompts in the same order, and goes on with them in its next turn. Where the machine's pace changes, many
short turns say more than few long ones. All prompts were read before by each server, which may keep what it has
read: so turns compare writing, and an arm that gets further has not more to read. Clients that still read when the
time is over are waited for, and their tokens count. Tokens are counted by tokenizing the texts, for all arms
alike. The file gets a line per turn. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import httpx2 as httpx

from draftwood.local.find import gguf_file
from draftwood.measure.records.provenance import provenance
from draftwood.models.load import load
from draftwood.tasks import KINDS, prompts

_START_SECONDS = 180
_PREFIX_MIB = 2048  # of ours: else who has read what is a matter of luck when prompts come again in turn
ARMS = ("drafted", "plain")
MOST_TOKENS = 64
EACH = 2  # prompts of each kind: servers keep what they have read of so many


@dataclass(frozen=True)
class Arm:
    """A running server: its address, the name of its model, and the key that it asks for."""

    url: str
    model: str
    key: str = ""


def start(arm: str, model: str, gguf: str, stack: ExitStack) -> Arm:
    """Start the server that an arm is named by; it ends with ``stack``.

    ``drafted``, ``plain``: ours on transformers; ``gguf-drafted``, ``gguf-plain``: ours on llama.cpp;
    ``cpu-drafted``, ``cpu-plain``: ours on our own engine; ``llama.cpp``, ``transformers``,
    ``transformers-batching``: the others' own, on the same weights.
    """
    if arm == "llama.cpp":
        return _llama_cpp(gguf, stack)
    if arm.startswith("transformers"):
        return _transformers(model, stack, batching=arm.endswith("batching"))
    engines = {"gguf": ("llama.cpp", gguf), "cpu": ("cpu", gguf)}
    engine, served = engines.get(arm.partition("-")[0], ("transformers", model))
    drafters = "default" if arm.endswith("drafted") else "none"
    command = ["draftwood", "serve", "--model", served, "--engine", engine, "--port", "0", "--name", "served",
               "--drafters", drafters, "--prefix-cache-mib", str(_PREFIX_MIB)]  # fmt: skip
    process = _process(command, stack, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return Arm(process.stdout.readline().split()[2].rstrip(","), "served")


def _process(command: list[str], stack: ExitStack, **pipes: int) -> subprocess.Popen[str]:
    process = stack.enter_context(subprocess.Popen([sys.executable, "-m", *command], text=True, **pipes))  # type: ignore[call-overload]
    stack.callback(process.kill)
    return process


def _llama_cpp(gguf: str, stack: ExitStack) -> Arm:
    process = _process(
        ["draftwood.engines.llama_cpp.peers"], stack, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    slots = 4  # of 4,096 tokens; further clients wait
    told = {"path": gguf, "method": "none", "context": slots * 4096, "threads": os.cpu_count(), "key": "benchmark",
            "parallel": slots}  # fmt: skip
    print(json.dumps(told), file=process.stdin, flush=True)
    return Arm(process.stdout.readline().strip(), "served", "benchmark")


def _transformers(folder: str, stack: ExitStack, *, batching: bool) -> Arm:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["transformers.cli.transformers", "serve", folder, "--host", "127.0.0.1", "--port", str(port),
               "--device", "cpu", *(["--continuous-batching"] if batching else [])]  # fmt: skip
    _process(command, stack, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        try:
            httpx.get(f"{url}/health", timeout=5).raise_for_status()
            return Arm(url, folder)
        except httpx.HTTPError:
            time.sleep(0.5)
    raise SystemExit("transformers serve does not answer")


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
    for prompt in (prompt for kind in KINDS for prompt in prompts(kind)):
        if prompt.messages:
            found.setdefault(prompt.task, []).append([dict(message) for message in prompt.messages])
    return [some[number] for number in range(EACH) for some in found.values()]


async def ask(client: httpx.AsyncClient, arm: Arm, messages: Any, most: int = MOST_TOKENS) -> tuple[str, float]:
    """Read one answer; returns its text, and the seconds to the first piece of it."""
    body = {"model": arm.model, "messages": messages, "max_tokens": most, "temperature": 0, "stream": True}
    headers = {"Authorization": f"Bearer {arm.key}"} if arm.key else {}
    began, first, pieces = time.perf_counter(), 0.0, []
    url = f"{arm.url}/v1/chat/completions"
    async with client.stream("POST", url, json=body, headers=headers) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:]).get("choices", ()):
                if text := choice["delta"].get("content"):
                    first = first or time.perf_counter() - began
                    pieces.append(text)
    return "".join(pieces), first


def _limits(clients: int) -> httpx.Limits:
    """No connection is kept: llama.cpp's server closes kept ones while they are being used."""
    return httpx.Limits(max_connections=clients, max_keepalive_connections=0)


async def read_all(arm: Arm) -> None:
    """Have all prompts read, one after another."""
    async with httpx.AsyncClient(timeout=600, limits=_limits(1)) as http:
        for messages in chats():
            await ask(http, arm, messages, 2)


async def turn(
    name: str, arm: Arm, prompts: Iterator[Any], clients: int, round_: int, seconds: float, tokenizer: Any
) -> Turn:
    """Let so many clients ask for so long."""
    found = list[tuple[str, float]]()
    end = time.perf_counter() + seconds

    async def client(http: httpx.AsyncClient) -> None:
        while time.perf_counter() < end:
            found.append(await ask(http, arm, next(prompts)))

    began = time.perf_counter()
    async with httpx.AsyncClient(timeout=600, limits=_limits(clients)) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    took = time.perf_counter() - began
    tokens = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text, _ in found)
    return Turn(name, clients, round_, len(found), tokens, took, median(first for _, first in found))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--arms", nargs="+", default=ARMS, help="see `start`")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args(arguments)
    model, tokenizer = load(given.model, engine="transformers")
    folder = str(model.config._name_or_path)
    del model
    with ExitStack() as stack, given.output.open("w", encoding="utf-8") as file:
        settings = {"model": given.model, "seconds": given.seconds, "max_new_tokens": MOST_TOKENS}
        made = provenance(model=given.model, dtype="float32")
        print(json.dumps({"row": "header", "settings": settings, "provenance": made}), file=file, flush=True)
        gguf = str(gguf_file(given.model))
        running = {name: start(name, folder, gguf, stack) for name in given.arms}
        for name, arm in running.items():  # kernels are loaded, threads are started
            asyncio.run(read_all(arm))
            asyncio.run(turn(name, arm, cycle(chats()), 2, -1, 5.0, tokenizer))
        for clients in given.clients:
            lists = {name: cycle(chats()) for name in running}
            for round_ in range(given.rounds):
                for name in list(running)[:: 1 - 2 * (round_ % 2)]:
                    try:
                        found = asyncio.run(
                            turn(name, running[name], lists[name], clients, round_, given.seconds, tokenizer)
                        )
                    except httpx.HTTPError as error:  # the others' turns count all the same
                        print(f"{clients:3} clients, {name:22} failed: {error}", flush=True)
                        continue
                    print(json.dumps({"row": "turn", **asdict(found)}), file=file, flush=True)
                    print(f"{clients:3} clients, {name:22} {found.tokens / found.seconds:7.1f} tokens/s, "
                          f"first token after {found.first_token_s:.2f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
