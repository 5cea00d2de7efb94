"""What a command does before the first token: what it imports, and what it shows while weights are loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "llama_cpp", "xllamacpp", "gguf", "scipy", "numba", "huggingface_hub", "vllm"}
NEEDLESS = {
    "draftwood.drafters.recycling.drafter", "draftwood.drafters.corpus.drafter", "draftwood.planning.fixed",
    "draftwood.engines.cpu.head", "draftwood.drafters.cascade", "draftwood.serve",
    "draftwood.cli.bench", "draftwood.cli.serve", "draftwood.measure.compare",
}  # fmt: skip
"""What other verbs, drafters and planners need."""


def imported(code: str) -> set[str]:
    """Return the modules that a new process has after running this."""
    script = f"{code}\nimport sys\nprint('modules', *sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_nothing_of_it():
    assert {name for name in imported("import draftwood") if name.startswith("draftwood.")} == set()


def test_the_main_job_imports_what_it_needs(tiny_gguf):
    code = (
        "from draftwood.cli.main import run\n"
        f"assert run(['generate', 'a b a b a b', '-m', {str(tiny_gguf('llama', 'Q4_0'))!r}, "
        "'--max-new-tokens', '8', '--no-learned']) == 0"
    )
    imported(code)  # whose kernels are not on disk yet compiles them by numba
    found = imported(code)
    assert found & HEAVY == set()
    assert found & NEEDLESS == set()


@pytest.mark.parametrize("verb", ["generate", "corpus"])
def test_a_verb_does_not_import_the_others(verb):
    found = imported(f"from draftwood.cli.main import run\nrun(['{verb}', '--help'])")
    verbs = {f"draftwood.cli.{name}" for name in ("generate", "bench", "serve", "simulate", "corpus")}
    assert found & verbs == {f"draftwood.cli.{verb}"}


def test_how_much_is_loaded_is_shown_on_a_terminal(draftwood, tiny_gguf):
    path = str(tiny_gguf("llama", "Q4_0"))
    arguments = ("generate", "a", "-m", path, "--max-new-tokens", "1", "--no-learned")
    on_terminal = draftwood(*arguments, terminal=True)
    assert "100 %" in on_terminal.err
    on_pipe = draftwood(*arguments)
    assert "loading" not in on_pipe.err
