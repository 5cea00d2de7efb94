"""Claude Code itself, where it is installed: a session of ten turns in which it runs tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import pairwise
from typing import Any

import pytest

from tests.serve.conftest import running
from tests.serve.scripted import scripted
from tests.serve.session import call, tokenizer_of_bytes, toy

CLAUDE = shutil.which("claude")
TURNS = [
    [call("Bash", command="echo one > a.txt; cat a.txt", description="write"), "Written: é \U0001f333"],
    [call("Read", file_path="FOLDER/a.txt"), "Read."],
    [
        f"Both. {call('Read', file_path='FOLDER/a.txt')}\n{call('Bash', command='ls no', description='fail')}",
        "No.",
    ],
    [call("Edit", file_path="FOLDER/a.txt", old_string="one", new_string="two"), "Edited."],
    [f"<think>\nWhat is there?\n</think>\n\n{call('Bash', command='cat a.txt', description='see')}", "Two."],
    *([f"Turn {number}."] for number in range(6, 11)),
]


def writing(folder: Any, prompts: list[list[int]]) -> Any:
    """A set-up that gives the answers one after another; what it is asked is added to ``prompts``."""
    tokenizer = tokenizer_of_bytes()
    answers = [text.replace("FOLDER", str(folder)) for turn in TURNS for text in turn]
    begin = tokenizer.convert_tokens_to_ids("<assistant>")

    def answer(prompt: Any) -> list[int]:
        prompts.append(list(prompt))
        return [*tokenizer(answers[prompts[-1].count(begin) - 1])["input_ids"], tokenizer.eos_token_id]

    return scripted(toy(sharpness=0.0, positions=1 << 20), answer, margin=99.0)


@pytest.mark.slow
@pytest.mark.skipif(CLAUDE is None, reason="Claude Code is not here (npm i -g @anthropic-ai/claude-code)")
def test_a_session_of_ten_turns_with_tools_reads_nothing_twice(tmp_path):
    prompts: list[list[int]] = []
    said = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    folder = tmp_path / "project"
    folder.mkdir()
    with running(writing(folder, prompts)) as server:
        told = {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_AUTH_TOKEN": "none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "PATH": os.environ["PATH"]}  # fmt: skip
        with subprocess.Popen(
            [str(CLAUDE), *said, "--allowedTools", "Bash,Read,Edit"], cwd=folder, env=told, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as claude:  # fmt: skip
            results = [asked(claude, f"turn {number}") for number in range(1, 11)]
            claude.communicate(timeout=30)
        assert claude.returncode == 0
    assert results == [turn[-1] for turn in TURNS]
    assert (folder / "a.txt").read_text() == "two\n"
    for before, after in pairwise(prompts):
        assert after[: len(before)] == before


def asked(claude: Any, text: str) -> str:
    """Say something to Claude Code; returns what it answers at last."""
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    claude.stdin.write(json.dumps({"type": "user", "message": message}) + "\n")
    claude.stdin.flush()
    told = map(json.loads, claude.stdout)
    return next(one["result"] for one in told if one["type"] == "result")
