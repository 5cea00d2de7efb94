"""Codex itself, where it is installed, with the lines that the page for clients has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import running
from tests.serve.scripted import scripted
from tests.serve.session import call, tokenizer_of_bytes, toy

CODEX = shutil.which("codex")
ROOT = Path(__file__).parents[2]
KITCHEN = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    kind, given = asked["method"], asked.get("params", {})
    answer = {}
    if kind == "initialize":
        about = {"name": "kitchen", "version": "1"}
        answer = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    elif kind == "tools/list":
        thing = {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}
        about = {"name": "weigh", "description": "Weigh.", "annotations": {"readOnlyHint": True}}
        answer = {"tools": [{**about, "inputSchema": thing}]}
    elif kind == "tools/call":
        answer = {"content": [{"type": "text", "text": "42 grams: " + given["arguments"]["thing"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""
ANSWERS = [
    f"I look.\n{call('exec_command', cmd='echo one > a.txt; cat a.txt', login=False)}",
    call("mcp__kitchen__weigh", thing="a pear </tool_call> é"),
    "All is done: \U0001f333.",
]


def writing(answers: list[str], prompts: list[str]) -> Any:
    """A set-up that gives the answers one after another; one that ends with ``FAIL`` fails there."""
    tokenizer = tokenizer_of_bytes()

    def answer(prompt: Any) -> list[int]:
        prompts.append(tokenizer.decode(prompt))
        text = answers[min(len(prompts), len(answers)) - 1]
        end = 1 << 30 if text.endswith("FAIL") else tokenizer.eos_token_id
        return [*tokenizer(text.removesuffix("FAIL"))["input_ids"], end]

    return scripted(toy(sharpness=0.0, positions=1 << 20), answer, margin=99.0)


def asked(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Ask Codex for something in a folder, with the lines of the page and an MCP server."""
    page = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
    lines = page.partition("```toml\n")[2].partition("```")[0].replace("http://127.0.0.1:8000", url)
    lines = re.sub(r"/path/to/(\w+\.json)", rf"{ROOT}/examples/\1", lines)
    home, kitchen = folder / "home", folder / "kitchen.py"
    home.mkdir()
    kitchen.write_text(KITCHEN)
    server = f'[mcp_servers.kitchen]\ncommand = "{sys.executable}"\nargs = ["{kitchen}"]\n'
    (home / "config.toml").write_text(f"{lines}\n{server}")
    return subprocess.run(
        [str(CODEX), "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "go on"],
        cwd=folder, env={"CODEX_HOME": str(home), "HOME": str(home), "PATH": os.environ["PATH"]}, text=True,
        capture_output=True, timeout=100, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


needs_codex = pytest.mark.skipif(CODEX is None, reason="Codex is not here (npm i -g @openai/codex)")


@pytest.mark.slow
@needs_codex
def test_a_session_runs_commands_and_functions_of_an_mcp_server(tmp_path):
    prompts: list[str] = []
    with running(writing(ANSWERS, prompts)) as server:
        found = asked(tmp_path, server.url)
    assert found.stdout.strip() == ANSWERS[-1]
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert "42 grams: a pear </tool_call> é" in prompts[-1]
    assert "etadata" not in found.stderr


@pytest.mark.slow
@needs_codex
def test_what_has_failed_is_told_once(tmp_path):
    prompts: list[str] = []
    with running(writing(["I beginFAIL"], prompts)) as server:
        found = asked(tmp_path, server.url)
    assert "the server failed on this request" in found.stderr
    assert len(prompts) == 1
