"""Servers to compare: ours with and without drafts, on either engine, llama.cpp's and transformers' own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

import httpx2 as httpx

_START_SECONDS = 180
_PREFIX_MIB = 2048  # of ours: else who has read what is a matter of luck when prompts come again in turn


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
