"""Runs one vLLM engine in a process of its own: ``python vllm_job.py JOB.json`` writes what it wrote beside it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

COUNTERS = (
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
    "num_preemptions",
)


def main(path: str) -> None:
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    llm = LLM(dtype="float32", enforce_eager=True, disable_log_stats=False, **job["engine"])
    params = [SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **one}) for one in job["sampling"]]
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in job["prompts"]]
    texts = [list(answer.outputs[0].token_ids) for answer in llm.generate(prompts, params, use_tqdm=False)]
    counts = {metric.name.removeprefix("vllm:"): getattr(metric, "value", None) for metric in llm.get_metrics()}
    found = {"texts": texts, **{name: counts.get(name, 0) for name in COUNTERS}}
    Path(path).with_suffix(".out").write_text(json.dumps(found), encoding="utf-8")
    llm.llm_engine.engine_core.shutdown()
    sys.stdout.flush()
    os._exit(0)  # vLLM's threads would keep the process


if __name__ == "__main__":
    main(sys.argv[1])
