"""llama.cpp's own server as a process: reads a line of settings, writes its address, serves until input ends."""

from __future__ import annotations

import json
import sys


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
    sys.stdin.read()  # until whoever asked is gone


if __name__ == "__main__":
    main()
