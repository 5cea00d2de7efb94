"""Minutes of clients that behave well and badly; at the end every request must be accounted for.

    python benchmarks/server_soak.py [--model smollm2] [--minutes 10] [--clients 12]

Clients read whole answers, read slowly, go away in the middle or at once, or send nonsense. Then the server must
be idle, its counts must be those of the clients, and its memory must be level: printed at each tenth of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import httpx2 as httpx
import psutil
from server_load import chats

BODIES = (b"", b"{", b"[]", b'{"messages": 3}', b'{"messages": [], "n": -1}', b"\xff")


class Soak:
    """What clients did, and what they got."""

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.random, self.done = f"{url}/v1/chat/completions", random.Random(seed), Counter[str]()
        self.chats = chats()

    async def client(self, http: httpx.AsyncClient, end: float) -> None:
        """Behave in one way after another until the time is over."""
        ways = (self.read, self.read, self.read_slowly, self.leave, self.leave_at_once, self.talk_nonsense)
        while time.monotonic() < end:
            way = self.random.choice(ways)
            with suppress(httpx.TimeoutException):
                status = await way(http)
                self.done[f"{way.__name__} {status}"] += 1

    def body(self) -> dict[str, object]:
        """Return a request: of any kind, streamed or not, at any temperature."""
        return {
            "messages": self.random.choice(self.chats), "max_tokens": self.random.choice((8, 32, 64)),
            "temperature": self.random.choice((0, 0.7)), "stream": True, "user": str(self.random.randrange(4)),
        }  # fmt: skip

    async def read(self, http: httpx.AsyncClient) -> int:
        """Read a whole answer, streamed or not."""
        body = self.body() | {"stream": self.random.random() < 0.5, "n": self.random.choice((1, 1, 2))}
        return (await http.post(self.url, json=body)).status_code

    async def read_slowly(self, http: httpx.AsyncClient) -> int:
        """Wait before each piece."""
        async with http.stream("POST", self.url, json=self.body()) as answer:
            async for _ in answer.aiter_bytes():
                await asyncio.sleep(0.1)
            return answer.status_code

    async def leave(self, http: httpx.AsyncClient) -> int:
        """Go away after a few pieces."""
        async with http.stream("POST", self.url, json=self.body()) as answer:
            pieces = answer.aiter_bytes()
            with suppress(StopAsyncIteration):
                for _ in range(self.random.randrange(4)):
                    await anext(pieces)
            return answer.status_code

    async def leave_at_once(self, http: httpx.AsyncClient) -> int:
        """Do not wait for an answer."""
        with suppress(httpx.TimeoutException):
            body = self.body() | {"stream": False}
            return (await http.post(self.url, json=body, timeout=0.05)).status_code
        return 0

    async def talk_nonsense(self, http: httpx.AsyncClient) -> int:
        """Send what is no request."""
        headers = {"content-type": "application/json"}
        return (await http.post(self.url, content=self.random.choice(BODIES), headers=headers)).status_code


async def soak(url: str, process: psutil.Process, minutes: float, clients: int) -> None:
    """Run the clients, and print what they did and what the server says of it."""
    work, begun = Soak(url, 0), time.monotonic()
    async with httpx.AsyncClient(timeout=300, limits=httpx.Limits(max_connections=2 * clients)) as http:
        tasks = [asyncio.create_task(work.client(http, begun + 60 * minutes)) for _ in range(clients)]
        for tenth in range(10):
            await asyncio.sleep(max(0.0, begun + 6 * minutes * (tenth + 1) - time.monotonic()))
            print(f"{tenth + 1}/10: {process.memory_info().rss >> 20} MiB, {sum(work.done.values())} requests",
                  flush=True)  # fmt: skip
        await asyncio.gather(*tasks)
        for _ in range(600):
            health = (await http.get(f"{url}/health")).json()
            if health["running"] == health["waiting"] == 0:
                break
            await asyncio.sleep(0.1)
        metrics = (await http.get(f"{url}/metrics")).text
    print(dict(sorted(work.done.items())))
    print(f"running {health['running']}, waiting {health['waiting']}")
    for line in metrics.splitlines():
        if line.startswith(
            ("vllm:request_success_total", "draftwood:refused", "vllm:time_to_first_token_seconds_count")
        ):
            print(line)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=12)
    given = parser.parse_args(arguments)
    command = [sys.executable, "-m", "draftwood", "serve", "--model", given.model, "--port", "0",
               "--prefix-cache-mib", "128"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[2].rstrip(",")
            asyncio.run(soak(url, psutil.Process(process.pid), given.minutes, given.clients))
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
