"""Record what smollm2 answers to the bench's prompts, in halves: to learn priors from, and to test them on.

    python benchmarks/answers.py LEARN.jsonl TEST.jsonl

Greedy, 192 tokens, looped tails cut off (a loop is trivial to draft). Prompts go to the two files by turns.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import draftwood
from draftwood import tasks
from draftwood.api.prompts import as_prompts
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.traces import Trace, write_traces

KINDS = ("code-edit", "grammar", "summary", "web-qa", "chat", "structured", "completion", "agent")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learn", type=Path)
    parser.add_argument("test", type=Path)
    args = parser.parse_args()
    model, tokenizer = draftwood.load("smollm2")
    halves: tuple[list[Trace], list[Trace]] = ([], [])
    for kind in KINDS:
        prompts = tasks.prompts(kind)[:24]
        contents = [prompt.content for prompt in prompts]
        answers = draftwood.generate(model, contents, tokenizer=tokenizer, max_new_tokens=192)
        _, read = as_prompts(contents, tokenizer)
        kept = 0
        for prompt, ids, answer in zip(prompts, read, answers, strict=True):
            written = answer.ids[: tasks.looped_tail(answer.ids)]
            if len(written) > 8:
                halves[kept % 2].append(Trace(kind, prompt.name, list(map(int, ids)), written))
                kept += 1
        print(kind, flush=True)
    for path, traces in zip((args.learn, args.test), halves, strict=True):
        write_traces(path, traces, provenance(), tokenizer)


if __name__ == "__main__":
    main()
