"""GGUF files that Ollama keeps, found by its own command: where its store has them changes between versions."""

from __future__ import annotations

import re
from pathlib import Path

from draftwood.errors import ModelNotFoundError, UnsupportedModelError, UsageError

OLLAMA = "ollama:"
_NAME = re.compile(r"\w[\w./:@-]*")
_LINE = r"^{}\s+(.+?)\s*$"
_FROM, _ADAPTER = (re.compile(_LINE.format(word), re.MULTILINE | re.IGNORECASE) for word in ("FROM", "ADAPTER"))
_QUOTED = re.compile(r'""".*?"""', re.DOTALL)  # templates and licences, whose lines are no instructions
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # what its progress display writes to a pipe, too
_SECONDS = 30


def ollama_file(name: str) -> Path:
    """Return the GGUF file of a model that Ollama has, named as ``ollama:llama3.2:1b``.

    ``ollama show --modelfile`` names it in a line ``FROM /path``; Ollama must be running. Raises `UsageError` for
    what cannot be a name, `ModelNotFoundError` where Ollama is missing or names no file of this machine,
    `UnsupportedModelError` for a model of more than one file.
    """
    model = name.removeprefix(OLLAMA)
    if not _NAME.fullmatch(model):
        raise UsageError(f"{name!r:.80} names no model of Ollama: write it as {OLLAMA}llama3.2:1b")
    modelfile = _QUOTED.sub("", _modelfile(model))
    files, adapters = _FROM.findall(modelfile), _ADAPTER.findall(modelfile)
    if adapters or len(files) > 1:
        more = "an ADAPTER" if adapters else f"{len(files)} files (FROM)"
        raise UnsupportedModelError(
            f"Ollama's {model} has {more}, and draftwood reads models of one file: merge them, and name that"
        )
    file = Path(files[0].strip('"')) if files else None
    if file is None or not file.is_absolute():
        raise ModelNotFoundError(
            f"Ollama has {model} in no GGUF file of this machine: name a model that it has downloaded"
        )
    if not file.is_file():
        raise ModelNotFoundError(
            f"Ollama says that {model} is {file}, which cannot be seen from here: name a file that can, or run "
            "Ollama on this machine"
        )
    return file


def _modelfile(model: str) -> str:
    import subprocess

    command = ["ollama", "show", "--modelfile", model]
    try:
        ran = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS)
    except FileNotFoundError as error:
        raise ModelNotFoundError(
            f"{OLLAMA}{model} is looked up with the command ollama, which is not here: install it, or name the "
            "GGUF file"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelNotFoundError(
            f"Ollama gave no answer about {model} ({error}): see that it runs, or name the GGUF file"
        ) from error
    if ran.returncode != 0:
        lines = [line.strip() for line in _ESCAPE.sub("", ran.stderr).splitlines() if line.strip()]
        why = lines[-1].removeprefix("Error: ").rstrip(".") if lines else f"status {ran.returncode}"
        raise ModelNotFoundError(f"Ollama does not give {model} ({why}): ollama list shows what it has")
    return ran.stdout
