"""How much faster the server answers with ``prediction``: code edits, a word changed in every tenth line.

    python benchmarks/server_prediction.py -o server-prediction.jsonl [--model smollm2] [--prompts 8] [--rounds 3]

The prediction is the server's own plain answer with a word changed in every tenth line. Three ways in turns: plain
(a server with ``--drafters none``), drafted, and drafted with the prediction. Every text must be the plain one.
Seconds are those of whole requests; both servers have read the prompts before. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import httpx2 as httpx
from server_arms import Arm, start

from draftwood.measure.records.provenance import provenance
from draftwood.models import load
from draftwood.tasks import all_prompts

_TASK = "code-edit"
_EVERY = 10  # lines, of which one is changed
_WAYS = ("plain", "drafted", "predicted")


def changed(text: str) -> str:
    """Return a text with its first word changed in every tenth line that has one, at least in one."""
    lines = text.splitlines(keepends=True)
    with_words = [number for number, line in enumerate(lines) if re.search(r"\w", line)]
    for number in with_words[_EVERY // 2 :: _EVERY] or with_words[:1]:
        lines[number] = re.sub(r"\w+", lambda word: word[0] + "_old", lines[number], count=1)
    return "".join(lines)


def ask(
    client: httpx.Client, arm: Arm, messages: Any, most: int, prediction: str | None
) -> tuple[str, int, float]:
    """Return an answer, its tokens, and the seconds that it took."""
    body = {"model": arm.model, "messages": messages, "max_tokens": most, "temperature": 0}
    if prediction is not None:
        body["prediction"] = {"type": "content", "content": prediction}
    began = time.perf_counter()
    answer = client.post(f"{arm.url}/v1/chat/completions", json=body).raise_for_status().json()
    seconds = time.perf_counter() - began
    return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"], seconds


def measure(
    client: httpx.Client, arms: dict[str, Arm], messages: Any, most: int, rounds: int
) -> list[dict[str, Any]]:
    """Return a row per round: the tokens, and the seconds of each way."""
    truth, tokens, _ = ask(client, arms["plain"], messages, most, None)
    ask(client, arms["drafted"], messages, most, None)
    expected, rows = changed(truth), []
    for number in range(rounds):
        row: dict[str, Any] = {"tokens": tokens, "lines": len(truth.splitlines())}
        for way in _WAYS if number % 2 else reversed(_WAYS):
            arm = arms["plain" if way == "plain" else "drafted"]
            text, _, row[way] = ask(client, arm, messages, most, expected if way == "predicted" else None)
            if text != truth:
                raise SystemExit(f"the {way} answer is another text")
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--most", type=int, default=256, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    model, _ = load(given.model, engine="transformers")
    folder = str(model.config._name_or_path)
    del model
    prompts = [prompt for prompt in all_prompts() if prompt.task == _TASK and prompt.messages][: given.prompts]
    rows = list[dict[str, Any]]()
    with ExitStack() as stack, given.output.open("w") as file, httpx.Client(timeout=600) as client:
        made = {"row": "header", "most": given.most, "provenance": provenance(model=given.model, dtype="float32")}
        print(json.dumps(made), file=file, flush=True)
        arms = {name: start(name, folder, "", stack) for name in ("plain", "drafted")}
        for prompt in prompts:
            for row in measure(client, arms, [dict(m) for m in prompt.messages or ()], given.most, given.rounds):
                rows.append({"prompt": prompt.name, **row})
                print(json.dumps({"row": "answer", **rows[-1]}), file=file, flush=True)
            mine = [row for row in rows if row["prompt"] == prompt.name]
            said = ", ".join(f"{way} {median(row['plain'] / row[way] for row in mine):.2f}" for way in _WAYS[1:])
            print(
                f"{prompt.name}: {mine[0]['tokens']} tokens, {mine[0]['lines']} lines; times plain: {said}",
                flush=True,
            )
    for way in _WAYS[1:]:
        ratios = [row["plain"] / row[way] for row in rows]
        print(f"{way}: {geometric_mean(ratios):.2f} times plain ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
