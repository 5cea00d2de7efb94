"""Seconds that the proposer takes per step inside vLLM, without vLLM: rows of long texts that copy themselves.

    python benchmarks/vllm_propose.py [--rows 1 8 32 64] [--lengths 1000 8000 32000] [--drafters ngram]

Texts are pieces of the built-in prompts' texts in any order; each step adds the tokens that a model would have
accepted. Between two steps it sleeps as long as a pass would take: so the planner plans, and caches get cold.
Prints the median and the fastest tenth, in microseconds of processor time per step and per row.
"""

from __future__ import annotations

import argparse
from time import sleep, thread_time
from types import SimpleNamespace

import numpy as np

from draftwood.engines.vllm import Proposer, proposer
from draftwood.tasks import all_prompts

K, STEPS = 16, 200


def words() -> np.ndarray:
    """The words of all prompts, as if each were a token."""
    texts = [prompt.text or " ".join(str(m["content"]) for m in prompt.messages) for prompt in all_prompts(6)]
    known: dict[str, int] = {}
    return np.array(
        [known.setdefault(word, len(known)) for text in texts for word in text.split()], dtype=np.int32
    )


def times(
    rows: int, length: int, drafters: str, planner: str, passes: tuple[float, float]
) -> tuple[list[float], list[int]]:
    """Seconds of each step, and tokens drafted; ``passes``: seconds of a pass, and of each drafted token more."""
    rng, source = np.random.default_rng(0), words()
    room = length + (K + 1) * 2 * STEPS
    ids = np.zeros((rows, room), dtype=np.int32)
    for row in range(rows):
        pieces = []
        while sum(map(len, pieces)) < room:
            start = rng.integers(0, len(source) - 400)
            pieces.append(source[start : start + rng.integers(5, 400)])
        ids[row] = np.concatenate(pieces)[:room]
    config = SimpleNamespace(
        additional_config={"draftwood": {"drafters": drafters, "planner": planner, "log_every": 0}},
        model_config=SimpleNamespace(max_model_len=room, tokenizer="", get_vocab_size=lambda: 1 << 20),
        speculative_config=SimpleNamespace(num_speculative_tokens=K),
        scheduler_config=SimpleNamespace(max_num_seqs=rows),
    )
    made = Proposer(config)
    ends = np.full(rows, length, dtype=np.int32)
    new = [[int(ids[row, length - 1])] for row in range(rows)]
    found, drafted = [], []
    for _ in range(STEPS + 40):
        began = thread_time()
        drafts = made.propose(new, ends, ids)
        found.append(thread_time() - began)
        drafted.append(sum(map(len, drafts)))
        sleep(passes[0] + passes[1] * drafted[-1])
        for row, draft in enumerate(drafts):
            right = 0
            while right < len(draft) and draft[right] == ids[row, ends[row] + right]:
                right += 1
            new[row] = ids[row, ends[row] : ends[row] + right + 1].tolist()
            ends[row] += right + 1
        if (ends > room - 2 * K).any():
            break
    return found[40:], drafted[40:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1000, 8000, 32000])
    parser.add_argument("--drafters", default="ngram")
    parser.add_argument("--planner", default="goodput")
    parser.add_argument("--pass-ms", type=float, nargs=2, default=(10.0, 0.02))
    given = parser.parse_args()
    proposer.installed = lambda: "0.32.0"
    for rows in given.rows:
        for length in given.lengths:
            passes = given.pass_ms[0] / 1000, given.pass_ms[1] / 1000
            found, drafted = times(rows, length, given.drafters, given.planner, passes)
            found = sorted(seconds for seconds, some in zip(found, drafted, strict=True) if some)
            share = len(found) / len(drafted)
            middle, fast = 1e6 * found[len(found) // 2], 1e6 * found[len(found) // 10]
            print(f"{rows} rows of {length}: {middle:.0f} us a step ({fast:.0f}), {middle / rows:.1f} us a row; "
                  f"{share:.0%} of the steps drafted, {sum(drafted) / len(found):.0f} tokens each")  # fmt: skip


if __name__ == "__main__":
    main()
