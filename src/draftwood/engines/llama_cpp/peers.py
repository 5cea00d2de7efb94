"""llama.cpp's own ways to write: plain and its n-gram speculators, through its server in another process.
Its route ``/completion`` alone takes token ids. Times are its own; streaming each token costs a percent or two."""

from __future__ import annotations

import http.client
import importlib.util
import json
import secrets
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from draftwood.contracts import Sampling
from draftwood.engines.peer import PANGRAM, PeerAnswer, PeerName
from draftwood.errors import ModelError, UsageError, VocabularyError
from draftwood.local.find import gguf_file

_SMALLEST = 2048  # tokens of context that a server has at least; a longer text gets a new one of twice the size

_WITH_MEMORY = ("ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
"""Methods that keep something from one answer to the next: each answer gets a new server, or a prompt that comes
again would find its own answer there."""


class LlamaCppPeer:
    """One server of llama.cpp, a `Peer`, on a free local port, closed to everyone without its key.

    It has a process of its own: in one with torch both would share an OpenMP runtime, which slows both by half.

    The ids of ``tokenizer``, of transformers, must be the GGUF file's; ``threads`` None leaves the number to
    llama.cpp. Raises `UsageError` if xllamacpp or the file is missing.
    """

    engine = "llama.cpp"

    def __init__(self, name: PeerName, tokenizer: Any, model_name: str, threads: int | None) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise UsageError('peers of llama.cpp need xllamacpp: run pip install "draftwood[llama]"')
        self.name = name.name
        self._method, self._tokenizer, self._threads = name.method, tokenizer, threads
        self._path, self._key = str(gguf_file(model_name)), secrets.token_hex()
        self._process: subprocess.Popen[str] | None = None
        self.context, self._address = 0, ""

    def answer(self, ids: Sequence[int], limit: int, *, end_ids: frozenset[int], sampling: Sampling) -> PeerAnswer:
        request = {"prompt": list(ids), "n_predict": limit, **_settings_of(self.name, sampling)}
        told = self._ask(request | {"stream": True, "timings_per_token": True})
        answer = _streamed(told)
        if len(answer.ids) < told[-1]["tokens_predicted"]:
            # A stream omits tokens that end inside a character, though it counts them: ask again without one.
            whole = self._ask(request)[-1]
            answer.ids, answer.text = whole["tokens"], whole["content"]
        return _cut(answer, end_ids)

    def _ask(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        need = len(request["prompt"]) + request["n_predict"] + 8
        if self._process is None or self.context < need:
            self.start(max(_SMALLEST, 1 << (need - 1).bit_length()))
            theirs = self.post("/tokenize", {"content": PANGRAM})[0]["tokens"]
            if theirs != self._tokenizer(PANGRAM, add_special_tokens=False)["input_ids"]:
                raise VocabularyError(f"{self._path} has another vocabulary than the model: give its own")
        try:
            return self.post("/completion", request)
        finally:
            if self._method in _WITH_MEMORY:
                self.close()

    def start(self, context: int) -> None:
        """Start a server for texts of so many tokens, in place of the one before."""
        self.close()
        told = {"path": self._path, "method": self._method, "context": context, "threads": self._threads}
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "draftwood.engines.llama_cpp.peers"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,  # a Ctrl-C is ours to answer
        )  # fmt: skip
        assert process.stdout is not None
        print(json.dumps(told | {"key": self._key}), file=process.stdin, flush=True)
        self.context, self._address = context, process.stdout.readline().strip()
        if not self._address:
            self.close()
            raise ModelError(f"llama.cpp cannot load {self._path}: see whether its own tools can")

    def close(self) -> None:
        """Stop the server; its memory is free at once."""
        process, self._process = self._process, None
        if process is not None:
            with process:  # closes its pipes and waits for it
                process.kill()

    def post(self, route: str, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answer, or the events of a stream, which are parsed after the last so as to slow no pass."""
        connection = http.client.HTTPConnection(self._address.removeprefix("http://"))
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            connection.request("POST", route, json.dumps(request), headers)
            response = connection.getresponse()
            body = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ModelError(f"llama.cpp's server broke off ({error!r}): close the peer and ask again") from error
        finally:
            connection.close()
        lines = body.split("\n") if request.get("stream") and response.status == 200 else [f"data: {body}"]
        told = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
        if not told or "error" in told[-1]:
            said = told[-1]["error"]["message"] if told else "it said nothing"
            raise ModelError(f"llama.cpp gave no answer ({said}): see whether its own tools can read {self._path}")
        return told


def _settings_of(name: str, sampling: Sampling) -> dict[str, Any]:
    """All settings that the text depends on: no samplers but those asked for, and no cached prompt."""
    if sampling.repetition_penalty != 1:
        raise UsageError(f"{name} has no repetition penalty over the whole text: leave it out, or the peer")
    asked = {"top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p}
    limits = {} if sampling.greedy else {key: value for key, value in asked.items() if value is not None}
    return {
        "temperature": sampling.temperature, **limits, "samplers": ["temperature", *limits], "mirostat": 0,
        "seed": sampling.seed % (1 << 32), "cache_prompt": False, "return_tokens": True,
    }  # fmt: skip


def _streamed(told: list[dict[str, Any]]) -> PeerAnswer:
    """Read a stream, whose last event repeats the timings; tokens of one pass have the same time."""
    timings = told[-1]["timings"]
    there = {event["timings"]["predicted_n"]: event["timings"]["predicted_ms"] for event in reversed(told)}
    passes = {ms: count for count, ms in sorted(there.items())}
    arrivals = [(count, (timings["prompt_ms"] + ms) / 1e3) for ms, count in passes.items()]
    return PeerAnswer(
        [token for event in told for token in event["tokens"]], arrivals, arrivals[0][1],
        arrivals[-1][1] - arrivals[0][1], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0),
        len(passes) - 1, "".join(event["content"] for event in told),
    )  # fmt: skip


def _cut(answer: PeerAnswer, end_ids: frozenset[int]) -> PeerAnswer:
    """End the answer at the first of ``end_ids``: the GGUF file may not know it as an end token."""
    kept = next((i + 1 for i, token in enumerate(answer.ids) if token in end_ids), len(answer.ids))
    if kept == len(answer.ids):
        return answer
    arrivals = [(count, time) for count, time in answer.arrivals if count < kept]
    arrivals.append((kept, next(time for count, time in answer.arrivals if count >= kept)))
    decode_s = arrivals[-1][1] - arrivals[0][1]
    return PeerAnswer(answer.ids[:kept], arrivals, answer.prefill_s, decode_s)


def main() -> None:
    """Start the server that standard input describes."""
    import xllamacpp  # type: ignore[import-untyped]  # ships no types

    told = json.loads(sys.stdin.readline())
    params = xllamacpp.CommonParams()
    params.model.path = told["path"]
    params.n_ctx, params.n_parallel = told["context"], told.get("parallel", 1)
    params.verbosity = 0  # silent
    params.fit_params = False  # would try sizes of its own
    params.cache_ram_mib = params.n_ctx_checkpoints = 0  # nothing of former prompts is kept
    if told["threads"] is not None:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = told["threads"]
    kind = told["method"].replace("-", "_").upper() or "NONE"
    kinds = xllamacpp.common_speculative_type
    params.speculative.types = [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    params.api_keys = [told["key"]]
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()  # until the process that asked is gone


if __name__ == "__main__":
    main()
