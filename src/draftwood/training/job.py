"""The whole of ``draftwood train-head``: text, states, training, file; each goes on where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from safetensors.torch import save_file

from draftwood.api.target import target_of
from draftwood.engines.transformers.head.load import usual_layers
from draftwood.engines.transformers.head.module import HeadModule
from draftwood.engines.transformers.head.weights import HeadWeights
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError, UsageError
from draftwood.training.begin import begun, frequent, parts_of
from draftwood.training.loss import Teacher
from draftwood.training.states import StateFiles, read_states
from draftwood.training.texts import SelfWriter, Text, append, of_files, read
from draftwood.training.train import Progress, Schedule, Training

_HELD_OUT = 32  # texts that the head is judged by and not trained on
_LEAST = 2 * _HELD_OUT  # texts

OnProgress = Callable[[str, float], bool]
"""``on_progress(what, share)``: what is done, and how much of it, 0 to 1; False to stop."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a head is made.

    Attributes
    ----------
    text_seconds, train_seconds
        For writing text, and for training.
    vocabulary
        Tokens that the head can say.
    layers
        Whose states it reads; empty: the usual ones.
    steps, rate, seed
        As in `Schedule`.
    files
        Further texts to train on.
    """

    text_seconds: float = 1800.0
    train_seconds: float = 1800.0
    vocabulary: int = 8192
    layers: tuple[int, ...] = ()
    steps: int = 4
    rate: float = 1e-3
    seed: int = 0
    files: tuple[Path, ...] = ()


class HeadJob:
    """Makes one head in a folder of its own, which is kept until the head's file is written.

    Parameters
    ----------
    model, tokenizer
        Of the target, a model of transformers.
    folder
        Where text, states and checkpoints lie.
    plan
        How it is made.
    """

    def __init__(self, model: Any, tokenizer: Any, folder: Path, plan: Plan) -> None:
        self._model, self._tokenizer, self._folder, self._plan = model, tokenizer, folder, plan
        parts_of(model)  # raises for a model of another kind
        target = target_of(model)
        if not isinstance(target, TransformersTarget) or not target.capabilities.hidden:
            raise CapabilityError("train-head needs a model of transformers that shows its hidden states")
        self._target = target
        self._layers = plan.layers or usual_layers(target)
        if outside := set(self._layers) - set(target.capabilities.hidden):
            raise UsageError(
                f"--states {sorted(outside)}: this model shows 0 to {max(target.capabilities.hidden)}"
            )
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, on_progress: OnProgress) -> tuple[HeadModule, list[int], Progress] | None:
        """Do all that is left to do; returns the head, its tokens and its figures, None where it was stopped."""
        given = of_files(self._plan.files, self._tokenizer)  # first, since it may refuse a file
        if not self._write(on_progress):
            return None
        texts = read(self._folder / "texts.jsonl") + given
        if len(texts) < _LEAST:
            raise UsageError(
                f"{len(texts)} texts are too few to train on: give more time with --minutes, or --text"
            )
        parts = {"held-out": texts[:_HELD_OUT], "train": texts[_HELD_OUT:]}
        files = {}
        for name, some in parts.items():
            found = self._read(name, some, on_progress)
            if found is None:
                return None
            files[name] = found
        return self._train(texts, files["train"], files["held-out"], on_progress)

    def _write(self, on_progress: OnProgress) -> bool:
        """Let the model write text until its time is over."""
        place, note = self._folder / "texts.jsonl", self._folder / "written.json"
        done = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
        whole, before, first = self._plan.text_seconds, float(done.get("seconds", 0)), int(done.get("batches", 0))
        if before >= whole:
            return True
        tokens = sum(len(text.ids) - text.start for text in read(place))
        started = monotonic()
        writer = SelfWriter(self._model, self._tokenizer, seed=self._plan.seed)
        for number, some in enumerate(writer.texts(first), first + 1):
            append(place, some)
            tokens += sum(len(text.ids) - text.start for text in some)
            seconds = before + monotonic() - started
            note.write_text(json.dumps({"seconds": seconds, "batches": number}), encoding="utf-8")
            if not on_progress(f"writing text: {tokens} tokens", seconds / whole):
                return False
            if seconds >= whole:
                break
        return True

    def _read(self, name: str, texts: Sequence[Text], on_progress: OnProgress) -> list[Path] | None:
        """Read the states of texts that have none yet; returns the files of them."""
        layers = "-".join(map(str, self._layers))
        files = StateFiles(self._folder / f"states-of-{layers}" / name)
        for number in range(files.texts, len(texts)):
            files.add(read_states(self._target, texts[number], self._layers))
            if not on_progress("reading the model's states", number / len(texts)):
                return None
        files.flush()
        return files.files()

    def _train(
        self, texts: Sequence[Text], files: Sequence[Path], held_out: Sequence[Path], on_progress: OnProgress
    ) -> tuple[HeadModule, list[int], Progress] | None:
        plan, target = self._plan, self._target
        embedding, rows = target.token_tables()
        if rows is None:
            raise CapabilityError("the model's own scores of tokens were released: load it anew")
        ids = frequent(texts, min(plan.vocabulary, len(embedding)), len(embedding))
        torch.manual_seed(plan.seed)
        module = begun(target, self._model, self._layers, "").to(embedding.device)
        teacher = Teacher(embedding, rows, target.final_norm(), torch.tensor(ids, device=embedding.device))
        judged = [window for path in held_out for window in StateFiles.windows(path)]
        schedule = Schedule(plan.train_seconds, plan.steps, plan.rate, seed=plan.seed)
        training = Training(module, teacher, files, judged, schedule, self._folder / "checkpoint.pt")
        stopped = False

        def told(progress: Progress) -> bool:
            nonlocal stopped
            said = f"training: loss {progress.loss:.3f}"
            if progress.agreement:
                shares = " ".join(f"{100 * share:.0f}" for share in progress.agreement)
                said += f", agreement {shares} %, {progress.expected_tokens:.2f} tokens per pass"
            stopped = not on_progress(said, progress.seconds / plan.train_seconds)
            return not stopped

        progress = training.run(told)
        return None if stopped else (module, ids, progress)


def write_head(path: Path, module: HeadModule, ids: Sequence[int], about: dict[str, str]) -> None:
    """Write a head's file, completely or not at all; ``about`` joins its header."""
    weights = HeadWeights(module.shape, module.tensors(ids, torch.bfloat16))
    beside = path.with_name(f".{path.name}.part")
    beside.touch()
    usual = beside.stat().st_mode
    save_file(dict(weights.tensors), beside, metadata={**weights.header(), **about})
    beside.chmod(usual)  # safetensors leaves its file readable by its owner alone
    beside.replace(path)
