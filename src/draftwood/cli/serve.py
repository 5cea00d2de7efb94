"""``draftwood serve``: the OpenAI API of one model."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from draftwood.cli import options, screen
from draftwood.cli.given import DraftingFlags
from draftwood.cli.opening import opening
from draftwood.cli.options import Loading
from draftwood.errors import ModelError, UsageError
from draftwood.files.paths import named
from draftwood.local.catalogue import CATALOGUE
from draftwood.local.machine import free_memory, threads_given
from draftwood.local.neighbours import name_of
from draftwood.measure.wording import clean
from draftwood.models.engine import first_line

if TYPE_CHECKING:
    from draftwood.api.setup import Setup
    from draftwood.serve.app import Settings

KEYS = "DRAFTWOOD_API_KEY"
_SOCKETS = 8192
_GIB = 1 << 30
_UNKNOWN, _MOST_PREFIXES = _GIB // 2, 16 * _GIB
"""Bytes for what was read of ended texts where free memory is not known, and at most."""
_PART = re.compile(r"-\d{5}-of-\d{5}$")  # of a model in several files
_LOG = logging.getLogger("draftwood.server")
_NO_MEMORY = ("out of memory", "not enough memory", "allocate", "alloc_failed", "can't start new thread")


@dataclass(frozen=True)
class _Serving(Loading, DraftingFlags):
    """What is served, and what drafts."""


@options.shared
def serve(
    given: _Serving,
    host: Annotated[
        str, Option(help="Address to listen on; 0.0.0.0 listens on every network of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    name: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="The model's name in the API. [default: what --model says; of a path the file's name]",
        ),
    ] = None,
    alias: Annotated[
        list[str] | None,
        Option(
            "--alias",
            "-a",
            metavar="NAME",
            help="A further name of the model, which lists of models have. May be given again.",
        ),
    ] = None,
    strict_model: Annotated[
        bool, Option("--strict-model", help="Refuse requests for other names; else any name is served.")
    ] = False,
    api_key: Annotated[
        list[str] | None,
        Option(
            metavar="KEY",
            help=f"Serve only clients that send this key. May be given again. [default: ${KEYS}, else everybody]",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        Option(
            metavar="NAME", help="A further host name that requests may ask for; * allows any. May be given again."
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        Option(
            metavar="ORIGIN",
            help="Let pages of this site, such as https://example.org, ask from a browser; * lets all. May be "
            "given again. [default: no other site's]",
        ),
    ] = None,
    max_running: Annotated[
        int,
        Option("--max-running", "-np", "--parallel", min=1, help="Most texts that are written at the same time."),
    ] = 16,
    max_waiting: Annotated[
        int, Option("--max-waiting", min=0, help="Most texts that wait; more get status 429.")
    ] = 64,
    prefix_cache_mib: Annotated[
        int | None,
        Option(
            "--prefix-cache-mib",
            min=0,
            help="Most memory for what was read of ended texts, so that a next turn need not read it; 0 "
            "keeps nothing. [default: a quarter of what is free, at most 16384]",
        ),
    ] = None,
    prefix_cache_dir: Annotated[
        Path | None,
        Option(
            "--prefix-cache-dir",
            metavar="DIR",
            file_okay=False,
            help="Keep what was read of ended texts in this folder, too, so that it is there after a restart: "
            "whoever can read its files can learn the texts. [default: nowhere]",
        ),
    ] = None,
    prefix_cache_disk_gib: Annotated[
        int, Option("--prefix-cache-disk-gib", min=1, help="Most that is kept in --prefix-cache-dir.")
    ] = 20,
    max_seconds: Annotated[
        float | None,
        Option("--max-seconds", min=0.001, help="End a text that takes longer than this. [default: no limit]"),
    ] = None,
    special_tokens: Annotated[
        bool,
        Option(help="Read names of control tokens in messages as these tokens: only for clients that you trust."),
    ] = False,
    reasoning: Annotated[
        Literal["on", "off", "auto"],
        Option(
            help="Whether the model thinks before it answers, where requests do not say; auto: as its template "
            "has it."
        ),
    ] = "auto",
    reasoning_budget: Annotated[
        int,
        Option(
            "--reasoning-budget", min=-1, help="Most tokens of a thought, where requests do not say; -1: no limit."
        ),
    ] = -1,
    pooling: Annotated[
        Literal["mean", "last"],
        Option(
            help="What embeddings are made of: the mean of the states of all tokens of a text, or the last one's, "
            "for models that were trained so."
        ),
    ] = "mean",
    pass_unknown_calls: Annotated[
        bool,
        Option(
            "--pass-unknown-calls",
            help="Calls of functions that were not offered reach clients as calls; else they are text.",
        ),
    ] = False,
    strict_parts: Annotated[
        bool,
        Option(
            "--strict-parts", help="Refuse images and other parts that are no text, instead of leaving them out."
        ),
    ] = False,
    log_format: Annotated[
        Literal["text", "json"],
        Option(help="How a request is logged, on standard error: a line, or a JSON object."),
    ] = "text",
    quiet: Annotated[bool, Option("--quiet", "-q", help="Log no requests, only what goes wrong.")] = False,
) -> None:
    """Serve a model by the OpenAI API, with a page to try it on."""
    try:
        from draftwood.serve.app import Settings
        from draftwood.serve.cors import usable_origin
        from draftwood.serve.guards import hosts_of, listed_keys, usable_keys
        from draftwood.serve.thinking import ThinkingDefault
    except ModuleNotFoundError as error:
        raise UsageError(f"the server needs {error.name}: pip install 'draftwood[serve]'") from error

    keys = usable_keys(api_key) if api_key else listed_keys(os.environ.get(KEYS, ""))
    if given.prediction:
        raise UsageError("--prediction is for one answer: clients of a server send their own, as 'prediction'")
    if prefix_cache_dir is not None and prefix_cache_mib == 0:
        raise UsageError("what --prefix-cache-dir keeps is read into memory: give --prefix-cache-mib more than 0")
    from draftwood.cli.main import WARNINGS

    WARNINGS.as_json = log_format == "json"
    names = given.check()
    if threads_given(2) < 2:
        raise ModelError("the server needs threads, and none is to be had: allow more processes (ulimit -u)")
    with _listening(host, port) as listening:
        setup = _prepared(given, names)
        # Raises where the model has settings that cannot be followed.
        usual = setup.request([0], served=True, chat=True)
        settings = Settings(
            clean(name or _name_of(given.model)), max_running, max_waiting, keys=tuple(keys),
            prefix_bytes=prefix_bytes(setup) if prefix_cache_mib is None else prefix_cache_mib << 20,
            prefix_folder=prefix_cache_dir and named(prefix_cache_dir),
            prefix_disk_bytes=prefix_cache_disk_gib * _GIB,
            most_seconds=max_seconds, warms_up=True,
            special_tokens=special_tokens, strict_parts=strict_parts, pooling=pooling,
            pass_unknown_calls=pass_unknown_calls, thinking=ThinkingDefault(
                {"on": True, "off": False}.get(reasoning), None if reasoning_budget < 0 else reasoning_budget),
            origins=list(map(usable_origin, cors or ())), hosts=(*hosts_of(host), *(allowed_host or ())),
            aliases=[clean(one) for one in alias or ()], strict_model=strict_model,
            former="" if name else given.model, logs_requests=not quiet,
        )  # fmt: skip
        if not quiet:
            _LOG.info(opening(setup.model, setup.names, usual.sampling.temperature))
        _say(listening, settings, setup)
        run(setup, settings, listening)


def _name_of(model: str) -> str:
    """Return a model's name in the API: of a path its file's, which tells clients of no folders; of a file of
    Ollama's, named by its checksum, what the model calls itself."""
    place = Path(model).expanduser()
    if model in CATALOGUE or not place.exists():
        return model
    name = name_of(place)
    if name.startswith("sha256-"):
        from draftwood.engines.files.gguf_file import GgufFile

        name = "-".join(str(GgufFile(place).metadata.get("general.name", name)).split())
    return _PART.sub("", name.removesuffix(".gguf"))


def prefix_bytes(setup: Setup) -> int:
    """Return how much memory is for what was read of ended texts: a quarter of what the loaded model leaves."""
    free = free_memory()
    if free is None or getattr(setup.target.device, "type", "cpu") != "cpu":  # a graphics card's own is small
        return _UNKNOWN
    return min(_MOST_PREFIXES, free // 4)


def _prepared(given: _Serving, names: list[str]) -> Setup:
    """Return the model and what drafts for it, ready; `ModelError` in one sentence where memory is short."""
    from draftwood.api.setup import Setup
    from draftwood.api.user_texts import UserTexts

    try:
        model, tokenizer = given.load_model(release="quantized-self" not in names)
        with screen.busy(f"preparing {given.model}"):
            setup = Setup(model, tokenizer, given.drafters, given.planner, UserTexts(**given.sources), given.rule)
            setup.refresh()
    except (MemoryError, OSError, RuntimeError, ModelError) as error:
        first = error.__cause__ if isinstance(error.__cause__, Exception) else error
        if not isinstance(first, MemoryError) and not any(sign in str(first).lower() for sign in _NO_MEMORY):
            raise
        said = f"{given.model} does not fit into the memory that is free ({first_line(first)})"
        weights = "" if "cuda" in str(first).lower() else " or --weights int4"  # which are for CPUs
        raise ModelError(f"{said}: choose a smaller model{weights}, or end other programs") from error
    return setup


def run(setup: Setup, settings: Settings, listening: socket.socket) -> None:
    """Serve until the process is told to stop; texts under way are finished within the settings' time."""
    from draftwood.serve.app import make_app
    from draftwood.serve.guards import PatientServer

    _allow_connections()
    server = PatientServer(make_app(setup, settings), settings.stop_seconds, _LOG.info)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again once it has ended
        server.run(sockets=[listening])


def _allow_connections() -> None:
    """Let this process have more sockets than the 256 or 1,024 that many systems allow by default."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit; others may forbid it
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _SOCKETS if hard == resource.RLIM_INFINITY else min(_SOCKETS, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this address; `UsageError` where that cannot be."""
    if not host.strip():  # which the system reads as 0.0.0.0
        raise UsageError(
            "--host is empty: leave it out to serve this machine alone, or say 0.0.0.0 for all networks"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # IPPROTO_TCP is named, else asyncio does not set TCP_NODELAY and small packets wait for 40 ms.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(2048)
    except (OSError, TypeError) as error:  # TypeError: a name that cannot be encoded
        found.close()
        said = f"cannot listen on {host}, port {port} ({getattr(error, 'strerror', None) or error})"
        raise UsageError(f"{said}: choose another --port or --host") from error
    return found


def _say(listening: socket.socket, settings: Settings, setup: Setup) -> None:
    """Say where the server is and what it does, and warn where other machines can reach it."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    drafting = "+".join(setup.names) or "none, plain decoding"
    screen.say(f"{settings.model} at http://{shown}:{port}, API under /v1; drafters: {drafting}; Ctrl-C stops it")
    disk = "" if settings.prefix_folder is None else f" and {settings.prefix_disk_bytes // _GIB} GiB of disk"
    screen.say(f"what was read of texts is kept in up to {settings.prefix_bytes / _GIB:.1f} GiB of memory{disk}")
    sys.stdout.flush()
    if not settings.keys and not ip_address(host).is_loopback:
        note = "note: everybody who reaches this address may use the model: --api-key asks for a key"
        screen.say(note, file=sys.stderr)
