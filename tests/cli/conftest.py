"""A tiny random model in a folder, and the command line run in this process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPECIAL = ("<end>", "<system>", "<user>", "<assistant>")
LETTERS = [chr(c) for c in range(32, 127)] + ["\n"]


def save_tiny(folder: Path, template: str | None, more: Sequence[str] = ()) -> Path:
    """A Llama of two layers with a token per letter, and control tokens; it never ends by itself.

    Its weights are pickled, which transformers alone reads.
    """
    import torch
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import BPE
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(BPE({letter: i for i, letter in enumerate(LETTERS)}, [], unk_token="?"))
    words.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<end>", additional_special_tokens=[*SPECIAL[1:], *more]
    )
    tokenizer.chat_template = template
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, initializer_range=0.5,
        eos_token_id=None, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[len(LETTERS) :] = 0  # special tokens are never the best: they vanish from the text
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "tiny", TEMPLATE))


@pytest.fixture(scope="session")
def tiny_without_template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "bare", None))


@dataclass
class Ran:
    """What a command left behind."""

    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed with ``--json``."""
        return json.loads(self.out)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


Draftwood = Callable[..., Ran]


@pytest.fixture
def draftwood(monkeypatch: pytest.MonkeyPatch) -> Draftwood:
    """Run a command of words, paths and numbers, which must end with the exit ``code``.

    ``stdin`` is what is piped in, ``terminal`` makes both outputs terminals.
    """
    from draftwood.cli.main import run

    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: object, code: int = 0, stdin: bytes = b"", terminal: bool = False) -> Ran:
        out, err = (Terminal() if terminal else io.StringIO() for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            found = run(list(map(str, arguments)))
        assert found == code, err.getvalue()
        return Ran(out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Press Ctrl-C during a pass: in the one with this number, counted from now."""
    from draftwood.engines.transformers.target import TransformersTarget

    def arm(number: int) -> None:
        score, left = TransformersTarget.score, [number]

        def interrupted(self: Any, requests: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return score(self, requests)

        monkeypatch.setattr(TransformersTarget, "score", interrupted)

    return arm


@pytest.fixture
def short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and short texts to train on, by a clock that is six times too fast: a test takes a second."""
    for clock in ("draftwood.training.job.monotonic", "draftwood.training.train.monotonic"):
        monkeypatch.setattr(clock, lambda: 6 * monotonic())
    monkeypatch.setattr("draftwood.training.texts.BATCH", 40)
    monkeypatch.setattr("draftwood.training.texts._REQUEST", 12)
    monkeypatch.setattr("draftwood.training.texts._ANSWER", 24)


@pytest.fixture
def refused(draftwood):
    """Run a command that must print nothing but an error; returns what it said."""

    def call(*arguments, code=2, stdin=b""):
        ran = draftwood(*arguments, code=code, stdin=stdin)
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert ran.err.count("\n") <= 2  # the second names --help
        return ran.err

    return call


@pytest.fixture
def unloaded(refused, monkeypatch):
    """Run a command that must be refused before it loads a model; returns what it said."""

    def loaded(*_):
        raise AssertionError("a model was read")

    monkeypatch.setattr(import_module("draftwood.models.load"), "_read", loaded)
    return refused
