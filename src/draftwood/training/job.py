"""The whole of ``draftwood train-head``: text, states, training, file; each goes on where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from safetensors.torch import save

from draftwood.api.target import target_of
from draftwood.engines.transformers.head.load import usual_layers
from draftwood.engines.transformers.head.module import HeadModule
from draftwood.engines.transformers.head.weights import HeadWeights, embedding_fingerprint
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError, ModelError, UsageError
from draftwood.files.paths import whole_file
from draftwood.training.begin import begun, frequent
from draftwood.training.loss import Teacher
from draftwood.training.states import StateFiles, read_states, scores_by_rows
from draftwood.training.texts import SelfWriter, Text, append, of_files, read
from draftwood.training.train import Progress, Schedule, Training

_HELD_OUT = slice(0, 256, 8)  # of the written texts: the head is judged by these and not trained on them
_LEAST = 32  # texts

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

    Making the object writes nothing, and raises `CapabilityError`, `ModelError` or `UsageError` for a model, texts
    or layers of which no head can be made.

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
        target = target_of(model)
        if not isinstance(target, TransformersTarget) or not target.capabilities.hidden:
            raise CapabilityError("train-head needs a model of transformers that shows its hidden states")
        if target.token_tables()[1] is None:
            raise CapabilityError("the model's own scores of tokens were released: load it anew")
        if not scores_by_rows(target):
            raise CapabilityError(
                "train-head needs a model that scores tokens by one product with its states: this one does more"
            )
        self._target = target
        self._layers = plan.layers or usual_layers(target)
        if outside := set(self._layers) - set(target.capabilities.hidden):
            raise UsageError(
                f"--states {sorted(outside)}: this model shows 0 to {max(target.capabilities.hidden)}"
            )
        self._given = of_files(plan.files, tokenizer)

    def run(self, on_progress: OnProgress) -> tuple[HeadModule, list[int], Progress] | None:
        """Do all that is left to do; returns the head, its tokens and its figures, None where it was stopped.

        Raises `ModelError` where the disk is full or the loss is no number: what was written before is kept.
        """
        try:
            if not self._write(on_progress):
                return None
        except OSError as error:
            raise ModelError(
                f"{self._folder} cannot be written ({error.strerror}): make room, and the same command goes on"
            ) from error
        written = read(self._folder / "texts.jsonl")
        if len(written) < _LEAST:
            raise UsageError(f"{len(written)} texts are too few to train on: give more time with --minutes")
        held_out = range(len(written))[_HELD_OUT]
        trained = [text for number, text in enumerate(written) if number not in held_out]
        # What is read stays in its place when a longer run adds text.
        parts = {"held-out": written[_HELD_OUT], "train": self._given + trained}
        files = {}
        for name, some in parts.items():
            found = self._read(name, some, on_progress)
            if found is None:
                return None
            files[name] = found
        return self._train(self._given + written, files["train"], files["held-out"], on_progress)

    def _write(self, on_progress: OnProgress) -> bool:
        """Let the model write text until its time is over."""
        self._folder.mkdir(parents=True, exist_ok=True)
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
        assert rows is not None
        ids = frequent(texts, min(plan.vocabulary, len(embedding)), len(embedding))
        torch.manual_seed(plan.seed)
        module = begun(target, self._model, self._layers).to(embedding.device)
        teacher = Teacher(embedding, rows, torch.tensor(ids, device=embedding.device))
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


def write_head(
    path: Path, module: HeadModule, ids: Sequence[int], embedding: torch.Tensor, about: dict[str, str]
) -> None:
    """Write a head's file, completely or not at all.

    ``embedding`` is the model's, [vocab, width], and ``about`` joins the header.
    """
    weights = HeadWeights(module.shape, module.tensors(ids, torch.bfloat16), embedding_fingerprint(embedding))
    with whole_file(path, error=ModelError) as beside:
        beside.write_bytes(save(dict(weights.tensors), {**weights.header(), **about}))
