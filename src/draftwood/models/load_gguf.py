"""Load a model and its tokenizer by our own engine or llama.cpp; torch and transformers are not needed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from draftwood.errors import LARGEST, CapabilityError, UnsupportedModelError, UsageError, VocabularyError, number
from draftwood.models.engine import CPU, LLAMA_CPP, is_installed

_LOG = logging.getLogger("draftwood")


def load_gguf(
    path: Path, dtype: str | None, device: str | None, *, engine: str, is_free: bool, threads: int | None,
    gpu_layers: int, exact: bool | None, weights: str | None, report: Callable[[int, int], None] | None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return target and tokenizer of a GGUF file, or of a folder for our own engine.

    `UsageError` for settings that only transformers has. ``dtype`` and ``device`` None were left open; ``weights``
    is what floats become. ``is_free``: llama.cpp may run what our own engine does not.
    """
    _check(path, dtype, device, gpu_layers, exact)
    if engine == CPU:
        from draftwood.engines.cpu.weights import opened

        source = opened(path)  # what is no model or writes no text is none for llama.cpp either
        try:
            return _load_cpu(path, source, threads, weights or dtype, report)
        except UnsupportedModelError as error:
            _give_over(error, is_free and path.is_file() and weights is None)
    from draftwood.engines.llama_cpp.library import takes_layers
    from draftwood.engines.llama_cpp.target import LlamaTarget
    from draftwood.engines.llama_cpp.tokenizer import LlamaTokenizer

    if gpu_layers > 0 and not takes_layers():
        raise CapabilityError(
            "this llama.cpp was built for the processor alone: leave gpu_layers out, or install one built "
            "for your graphics card"
        )
    target = LlamaTarget(path, threads=threads, gpu_layers=gpu_layers if device is None else 0, exact=exact)
    return target, LlamaTokenizer(target.weights)


def _check(path: Path, dtype: str | None, device: str | None, gpu_layers: int, exact: bool | None) -> None:
    said = "gpu_layers is {}: give a number of layers, or -1 for as many as fit"
    number(gpu_layers, -1, LARGEST, said, whole=True)
    if exact not in (None, True, False):
        raise UsageError(f"exact is {exact!r:.80}: give True, False, or None to leave it to the engine")
    if path.is_dir():
        if device not in (None, "cpu") or exact is False or gpu_layers > 0:
            raise UsageError(
                "the engine cpu computes on the processor alone, exactly: leave device, gpu_layers and exact out"
            )
        return
    if dtype is not None:
        raise UsageError(f"{path.name} is a GGUF file, which keeps its own number format: leave dtype out")
    if device not in (None, "cpu"):
        raise UsageError(f"{path.name} is a GGUF file: say by gpu_layers, not device, what a card computes")
    if device is not None and gpu_layers > 0:
        raise UsageError(f"device cpu leaves no layers for a card, and gpu_layers is {gpu_layers}: choose")


def _load_cpu(
    path: Path, source: Any, threads: int | None, becomes: str | None, report: Callable[[int, int], None] | None
) -> tuple[Any, Any]:
    """Return target and tokenizer, which is made while the weights are packed."""
    from draftwood.engines.cpu.target import CpuTarget

    made = list[Any]()
    target = CpuTarget(
        source, threads=threads, report=report, becomes=None if becomes == "auto" else becomes,
        beside=lambda: made.append(_tokenizer(path, source)),
    )  # fmt: skip
    (tokenizer,) = made
    if not path.is_dir():
        source.end_ids = tokenizer.end_ids  # else it would read the vocabulary once more
    else:
        check_vocabulary(path, tokenizer, target.capabilities.vocab_size)
    return target, tokenizer


def check_vocabulary(place: Path | str, tokenizer: Any, size: int) -> None:
    """Raise `VocabularyError` where a model's tokenizer knows more tokens than the model, which has ``size``."""
    if len(tokenizer) > size:
        raise VocabularyError(
            f"the tokenizer of {place} knows {len(tokenizer)} tokens and the model {size}: they do not belong "
            "together; take both from one place"
        )


def _tokenizer(path: Path, source: Any) -> Any:
    from draftwood.engines.tokens.tokenizer import GgufTokenizer, HubTokenizer

    return HubTokenizer(path) if path.is_dir() else GgufTokenizer(source.metadata)


def _give_over(error: UnsupportedModelError, is_free: bool) -> None:
    """Let llama.cpp run a model, where the choice was left open and it is installed; else raise the error."""
    if not (is_free and is_installed(LLAMA_CPP)):
        raise error
    _LOG.warning("%s", error)


def load_gguf_tokenizer(path: Path, *, engine: str, is_free: bool) -> Any:
    """Return the tokenizer of a GGUF file or a folder, whose weights are not read."""
    if path.is_dir():
        return _tokenizer(path, None)
    if engine == CPU:
        from draftwood.engines.files.gguf_file import GgufFile

        try:
            return _tokenizer(path, GgufFile(path))
        except UnsupportedModelError as error:
            _give_over(error, is_free)
    from draftwood.engines.llama_cpp.tokenizer import LlamaTokenizer
    from draftwood.engines.llama_cpp.weights import LlamaWeights

    return LlamaTokenizer(LlamaWeights(path, vocabulary_only=True))
