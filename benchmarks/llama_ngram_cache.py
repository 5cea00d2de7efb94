"""Does ``ngram-cache:faithful=true`` draft what llama.cpp drafts? Beside its own server, request by request.

    python benchmarks/llama_ngram_cache.py [--requests 9] [--static FILE] [--dynamic FILE] [--model smollm2]

Needs ``pip install "draftwood[llama]"`` and the model. llama.cpp answers prompts of ``results/bench.jsonl.zst``,
one after the other, on one thread and in one slot; our drafter follows its tokens. Compared are the numbers of
tokens drafted and accepted that the server reports. Files are of the format that ``draftwood cache create --format
llama`` writes.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from pathlib import Path
from typing import Any

from draftwood.drafters.llama_cpp.ngram_cache import NgramCacheDrafter
from draftwood.measure.records.traces import read_traces
from draftwood.models import gguf_file

CONTEXT, LIMIT = 2048, 64
RECORDED = Path(__file__).parent / "results" / "bench.jsonl.zst"


def serve(model: str, static: str | None, dynamic: str | None) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(gguf_file(model))
    params.n_ctx, params.n_parallel, params.verbosity, params.fit_params = CONTEXT, 1, 0, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more would spin where others work
    params.cache_ram_mib = params.n_ctx_checkpoints = 0
    kinds = xllamacpp.common_speculative_type
    params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_CACHE]
    if static is not None:
        params.speculative.ngram_cache.lookup_cache_static = static
    if dynamic is not None:
        params.speculative.ngram_cache.lookup_cache_dynamic = dynamic
    return xllamacpp.Server(params)


def answer(server: Any, prompt: list[int]) -> tuple[list[int], int, int]:
    """Tokens of the answer, and how many of them the server drafted and accepted."""
    asked = {"prompt": prompt, "n_predict": LIMIT, "temperature": 0, "return_tokens": True, "cache_prompt": False}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.listening_address}/completion", json.dumps(asked).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        told = json.load(reply)
    timings = told["timings"]
    return told["tokens"], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)


def follow(drafter: NgramCacheDrafter, prompt: list[int], tokens: list[int]) -> tuple[int, int]:
    """How many tokens our drafter drafts on the way, and how many are right."""
    session = drafter.open(prompt, None)
    session.extend(tokens[:1])
    done, drafted, accepted = 1, 0, 0
    while done < len(tokens):
        cap = min(CONTEXT - len(prompt) - done - 2, LIMIT - done - 1)
        draft = session.draft(max(cap, 0), 0, drafter.prior).tokens.tolist()
        right = 0
        while right < len(draft) and tokens[done + right : done + right + 1] == draft[right : right + 1]:
            right += 1
        drafted, accepted = drafted + len(draft), accepted + right
        if right and done + right == len(tokens) < LIMIT:  # the server does not count an end of sequence
            accepted -= 1
        session.extend(tokens[done : done + right + 1])
        done += right + 1
    session.close()
    return drafted, accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=9)
    parser.add_argument("--static")
    parser.add_argument("--dynamic")
    parser.add_argument("--model", default="smollm2")
    given = parser.parse_args()
    drafter = NgramCacheDrafter(static=given.static, dynamic=given.dynamic, faithful=True)
    server = serve(given.model, given.static, given.dynamic)
    for trace in read_traces(RECORDED)[: given.requests]:
        tokens, *theirs = answer(server, trace.prompt_ids)
        ours = list(follow(drafter, trace.prompt_ids, tokens))
        row = {"task": trace.task, "tokens": len(tokens), "llama.cpp": theirs, "faithful": ours}
        print(json.dumps(row | {"equal": ours == theirs}), flush=True)


if __name__ == "__main__":
    main()
