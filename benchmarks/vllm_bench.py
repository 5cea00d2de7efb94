"""draftwood inside vLLM beside vLLM's own speculators: the same texts, tokens per pass, speed by clients.

    python benchmarks/vllm_bench.py answers -o vllm.jsonl --model FOLDER    # texts and tokens per pass, by kind
    python benchmarks/vllm_bench.py load -o vllm.jsonl --model FOLDER       # tokens per second by clients
    python benchmarks/vllm_bench.py soak -o vllm.jsonl --model FOLDER       # a small cache, so preemption
    python benchmarks/vllm_bench.py table vllm.jsonl

Runs in an environment with vLLM (`make test-vllm` makes one; ``suffix`` needs arctic-inference besides). FOLDER is
a model that vLLM loads, such as the one that ``draftwood fetch smollm2`` has unpacked. One engine runs at a time;
each is started anew per arm and round. Rows are written as they come; what a file has is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from draftwood.tasks import prompts

KINDS = ("code-edit", "grammar", "summary", "web-qa", "chat")
OURS = {"method": "custom_class", "model": "draftwood.engines.vllm.Proposer"}
ARMS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "plain": (None, {}),
    "ngram": ({"method": "ngram"}, {}),
    "ngram-2-4": ({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}, {}),
    "suffix": ({"method": "suffix"}, {}),
    "suffix-alone": ({"method": "suffix", "suffix_decoding_max_cached_requests": 0}, {}),
    "draftwood": (OURS, {}),
    "draftwood-fixed": (OURS, {"planner": "fixed:128"}),
    "draftwood-memory": (OURS, {"drafters": "ngram+memory"}),
    "draftwood-memory-fixed": (OURS, {"drafters": "ngram+memory", "planner": "fixed:128"}),
}
"""What vLLM is told: its speculative configuration, and our options.

``suffix`` remembers the answers of other requests and copies from them, as ``draftwood-memory`` does;
``suffix-alone`` and ``draftwood`` do not. Under ``load`` prompts come again, so only like is compared with like.
"""

COUNTERS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


class Engine:
    """One vLLM engine, asked by so many clients at once."""

    def __init__(self, arm: str, model: str, k: int, **given: Any) -> None:
        from vllm import LLM

        speculative, options = ARMS[arm]
        if speculative is not None:
            given["speculative_config"] = {**speculative, "num_speculative_tokens": k}
        if options:
            given["additional_config"] = {"draftwood": options}
        self._llm = LLM(
            model=model, dtype="float32", enforce_eager=True, disable_log_stats=False, enable_prefix_caching=False,
            **{"max_model_len": 4096, **given},
        )  # fmt: skip
        self._number = self.passes = 0

    def close(self) -> None:
        """End the engine's processes; vLLM leaves some, which Python would wait for."""
        self._llm.llm_engine.engine_core.shutdown()

    def counters(self) -> dict[str, int]:
        """vLLM's counts of drafts, and of preemptions."""
        found = dict.fromkeys((*COUNTERS, "preemptions"), 0)
        for metric in self._llm.get_metrics():
            name = metric.name.removeprefix("vllm:spec_decode_").removeprefix("vllm:num_")
            if name in found:
                found[name] += int(metric.value)
        return found

    def ids(self, prompt: Any) -> list[int]:
        tokenizer = self._llm.get_tokenizer()
        if not prompt.messages:
            return tokenizer.encode(prompt.text)
        chat = [dict(message) for message in prompt.messages]
        return tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)

    def write(
        self, texts: Sequence[list[int]], params: Sequence[Any], clients: int
    ) -> Iterator[tuple[int, list[int]]]:
        """Give number and tokens of each answer as it ends; so many are written at once.

        Afterwards ``passes`` is how many passes wrote all but the first token of each, which comes with the
        prompt. vLLM's counters cannot say it: they count accepted tokens behind the end of an answer, too.
        """
        engine, waiting, running = self._llm.llm_engine, list(range(len(texts)))[::-1], {}
        self.passes = -len(texts)
        while waiting or running:
            while waiting and len(running) < clients:
                at, name = waiting.pop(), str(self._number)
                self._number += 1
                engine.add_request(name, {"prompt_token_ids": texts[at]}, params[at])
                running[name] = at
            for output in engine.step():
                self.passes += 1
                if output.finished:  # vLLM puts its own mark behind our name
                    name = output.request_id.split("-")[0]
                    yield running.pop(name), list(output.outputs[0].token_ids)


def sampling(tokens: int, temperature: float, seed: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=temperature, max_tokens=tokens, seed=seed if temperature else None)


class Rows:
    """A file of rows, and what it has already."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        self.every = [json.loads(line) for line in lines]

    def has(self, **what: Any) -> bool:
        return any(all(row.get(key) == value for key, value in what.items()) for row in self.every)

    def add(self, **row: Any) -> None:
        self.every.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def answers(given: argparse.Namespace, arm: str) -> None:
    """Write the answers of one arm, kind by kind."""
    rows = Rows(given.output)
    missing = [
        (kind, temperature)
        for temperature in given.temperatures
        for kind in given.kinds
        if not rows.has(row="kind", arm=arm, kind=kind, temperature=temperature, k=given.k)
    ]
    if not missing:
        return
    engine = Engine(arm, given.model, given.k, max_num_seqs=given.at_once)
    list(engine.write([[1, 2, 3]], [sampling(8, 0.0, 0)], 1))
    for kind, temperature in missing:
        some = prompts(kind, given.prompts)
        texts = [engine.ids(prompt) for prompt in some]
        params = [sampling(given.tokens, temperature, seed) for seed in range(len(some))]
        before, began, written = engine.counters(), time.perf_counter(), 0
        for at, ids in engine.write(texts, params, given.at_once):
            written += len(ids)
            rows.add(
                row="answer", arm=arm, kind=kind, temperature=temperature, k=given.k, name=some[at].name, ids=ids
            )
        seconds, after = time.perf_counter() - began, engine.counters()
        counts = {name: after[name] - before[name] for name in after}
        rows.add(row="kind", arm=arm, kind=kind, temperature=temperature, k=given.k, texts=len(some),
                 tokens=written, passes=engine.passes, seconds=round(seconds, 2), **counts)  # fmt: skip
    engine.close()


def load(given: argparse.Namespace, arm: str) -> None:
    """Measure one arm once at each number of clients."""
    rows, number = Rows(given.output), given.round
    missing = [n for n in given.clients if not rows.has(row="load", arm=arm, clients=n, round=number, k=given.k)]
    if not missing:
        return
    engine = Engine(arm, given.model, given.k, max_num_seqs=max(given.clients))
    by_kind = [[engine.ids(prompt) for prompt in prompts(kind, 12)] for kind in KINDS]
    texts = [some[i] for i in range(12) for some in by_kind]
    params = [sampling(given.tokens, 0.0, 0)] * len(texts)
    list(engine.write(texts[:8], params[:8], 8))  # warm, and what a planner learns first
    for clients in missing:
        some = [texts[(number * 7 + i) % len(texts)] for i in range(max(10, 2 * clients))]
        before, began, written = engine.counters(), time.perf_counter(), 0
        for _, ids in engine.write(some, params * 2, clients):
            written += len(ids)
        seconds, after = time.perf_counter() - began, engine.counters()
        counts = {name: after[name] - before[name] for name in after}
        rows.add(row="load", arm=arm, clients=clients, round=number, k=given.k, tokens=written,
                 seconds=round(seconds, 3), **counts)  # fmt: skip
    engine.close()


def soak(given: argparse.Namespace, arm: str) -> None:
    """Write mixed answers with a cache so small that requests are thrown out; a row a minute."""
    rows = Rows(given.output)
    longest = 2048  # the cache must hold one text of this length
    engine = Engine(
        arm, given.model, given.k, max_num_seqs=16, num_gpu_blocks_override=given.blocks, max_model_len=longest
    )
    texts = [engine.ids(prompt) for kind in KINDS for prompt in prompts(kind, 12)]
    texts = [text for text in texts if len(text) < longest - 300]
    began = said = time.perf_counter()
    written = finished = passes = 0
    while time.perf_counter() - began < 60 * given.minutes:
        order = [texts[(passes * 13 + 29 * i) % len(texts)] for i in range(32)]
        params = [sampling(64 + 37 * i % 200, 0.7 * (i % 2), i) for i in range(32)]
        passes += 1
        for _, ids in engine.write(order, params, 16):
            written, finished = written + len(ids), finished + 1
        if time.perf_counter() - said > 60 or passes == 1:
            said = time.perf_counter()
            rows.add(row="soak", arm=arm, minutes=round((said - began) / 60, 1), texts=finished, tokens=written,
                     worker_mb=_worker_megabytes(), **engine.counters())  # fmt: skip
    engine.close()


def _worker_megabytes() -> int:
    """Memory of the largest process of the engine."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            said = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except (OSError, ValueError):
            continue
        if "VLLM" in said["Name"] and "VmRSS" in said:
            most = max(most, int(said["VmRSS"].split()[0]) >> 10)
    return most


def table(path: str) -> None:
    """Print what a file says."""
    rows = Rows(path).every
    texts = {
        (r["arm"], r["kind"], r["temperature"], r["k"], r["name"]): r["ids"] for r in rows if r["row"] == "answer"
    }
    print("kind | arm | K | temperature | tokens per pass | accepted / drafted | texts as plain's")
    for r in (row for row in rows if row["row"] == "kind"):
        key = (r["kind"], r["temperature"])
        own = {
            name: ids for (arm, *rest, name), ids in texts.items() if arm == r["arm"] and rest == [*key, r["k"]]
        }
        plain = {
            name: ids for (arm, kind, t, _, name), ids in texts.items() if arm == "plain" and (kind, t) == key
        }
        same = sum(plain.get(name) == ids for name, ids in own.items())
        decoded = r["tokens"] - r["texts"]  # the first token of each comes with the prompt
        said = f"{r['num_accepted_tokens']} / {r['num_draft_tokens']}"
        print(
            f"{r['kind']} | {r['arm']} | {r['k']} | {r['temperature']} | {decoded / r['passes']:.3f} | {said} | "
            f"{same} of {len(own)}"
        )
    loads: dict[tuple[int, str], list[float]] = {}
    for r in (row for row in rows if row["row"] == "load"):
        loads.setdefault((r["clients"], r["arm"]), []).append(r["tokens"] / r["seconds"])
    print("\nclients | arm | tokens per second (geometric mean of rounds) | times plain")
    for (clients, arm), some in sorted(loads.items()):
        mean = math.exp(sum(map(math.log, some)) / len(some))
        plain = loads.get((clients, "plain"), some)
        ratio = mean / math.exp(sum(map(math.log, plain)) / len(plain))
        print(f"{clients} | {arm} | {mean:.1f} ({', '.join(f'{x:.1f}' for x in some)}) | {ratio:.3f}")
    for r in (row for row in rows if row["row"] == "soak"):
        print({name: value for name, value in r.items() if name != "row"})


def _run(job: Any, given: argparse.Namespace, arm: str) -> None:
    job(given, arm)
    sys.stdout.flush()
    os._exit(0)  # vLLM's threads would keep the process


def in_a_process(job: Any, given: argparse.Namespace, arm: str) -> None:
    """Run one arm in a process of its own, so that nothing of its engine is left."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(job, given, arm))
    process.start()
    process.join()
    if process.exitcode:
        print(f"{arm} ended with {process.exitcode}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("answers", "load", "soak", "table"))
    parser.add_argument("path", nargs="?", help="for table: the file")
    parser.add_argument("-o", "--output", default="vllm.jsonl")
    parser.add_argument("--model", help="a folder that vLLM loads")
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("-k", type=int, default=16, help="num_speculative_tokens")
    parser.add_argument("--prompts", type=int, default=12, help="of each kind")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0])
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--blocks", type=int, default=24, help="cache blocks of 128 tokens, in a soak")
    given = parser.parse_args()
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if given.what == "table":
        table(given.path or given.output)
    elif given.what == "answers":
        for arm in given.arms or ["plain", "draftwood-fixed", "ngram", "ngram-2-4", "suffix", "draftwood"]:
            in_a_process(answers, given, arm)
    elif given.what == "soak":
        in_a_process(soak, given, (given.arms or ["draftwood-memory"])[0])
    else:
        for number in range(given.rounds):
            given.round = number
            arms = given.arms or ["plain", "ngram", "suffix", "draftwood"]
            for arm in arms if number % 2 == 0 else arms[::-1]:
                in_a_process(load, given, arm)


if __name__ == "__main__":
    main()
