"""What every training begins with: text of the model, and its hidden states."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from draftwood.api.target import target_of
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError, ModelError, UsageError
from draftwood.training.loss import Teacher
from draftwood.training.states import StateFiles, Window, read_states, scores_by_rows
from draftwood.training.texts import SelfWriter, Text, append, of_earlier_run, of_files, read

_HELD_OUT = slice(0, 256, 8)  # of the written texts: what is trained is judged by these and not trained on them
_LEAST = 32  # texts

OnProgress = Callable[[str, float], bool]
"""``on_progress(what, share)``: what is done, and how much of it, 0 to 1; False to stop."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is trained on.

    Attributes
    ----------
    ids
        The tokens that are judged by, ascending: the most frequent ones of the texts.
    teacher
        The target's side of training.
    files
        Of states to train on.
    held_out
        Windows to judge by.
    """

    ids: list[int]
    teacher: Teacher
    files: list[Path]
    held_out: list[Window]


class Gatherer:
    """Writes and reads texts of a model in a folder.

    Making the object writes nothing, and raises `CapabilityError`, `ModelError` or `UsageError` for a model or
    texts of which nothing can be trained. The parameters are those of `draftwood.training.job.Plan` and `Job`.
    """

    def __init__(
        self, model: Any, tokenizer: Any, folder: Path, command: str, *,
        seconds: float, vocabulary: int, seed: int, files: Sequence[Path], written: Path | None,
    ) -> None:  # fmt: skip
        self._model, self._tokenizer, self._folder = model, tokenizer, folder
        self._seconds, self._vocabulary, self._seed = seconds, vocabulary, seed
        target = target_of(model)
        if not isinstance(target, TransformersTarget) or not target.capabilities.hidden:
            raise CapabilityError(f"{command} needs a model of transformers that shows its hidden states")
        if target.token_tables()[1] is None:
            raise CapabilityError("the model's own scores of tokens were released: load it anew")
        if not scores_by_rows(target):
            raise CapabilityError(
                f"{command} needs a model that scores tokens by one product with its states: this one does more"
            )
        self.target = target
        self._given = of_files(files, tokenizer)
        self._written = None if written is None else of_earlier_run(written, target.capabilities.vocab_size)

    def gather(self, layers: Sequence[int], on_progress: OnProgress) -> Gathered | None:
        """Do all that is left to do, with the states of these layers; None where it was stopped.

        Raises `ModelError` where the disk is full: what was written before is kept.
        """
        try:
            if self._written is None and not self._write(on_progress):
                return None
        except OSError as error:
            raise ModelError(
                f"{self._folder} cannot be written ({error.strerror}): make room, and the same command goes on"
            ) from error
        written = read(self._folder / "texts.jsonl") if self._written is None else self._written
        if len(written) < _LEAST:
            raise UsageError(f"{len(written)} texts are too few to train on: give more time with --minutes")
        held_out = range(len(written))[_HELD_OUT]
        trained = [text for number, text in enumerate(written) if number not in held_out]
        # What is read stays in its place when a longer run adds text.
        parts = {"held-out": written[_HELD_OUT], "train": self._given + trained}
        files = {}
        for name, some in parts.items():
            found = self._read(name, some, layers, on_progress)
            if found is None:
                return None
            files[name] = found
        embedding, rows = self.target.token_tables()
        assert rows is not None
        ids = frequent(self._given + written, min(self._vocabulary, len(embedding)), len(embedding))
        teacher = Teacher(embedding, rows, torch.tensor(ids, device=embedding.device))
        windows = [window for path in files["held-out"] for window in StateFiles.windows(path)]
        return Gathered(ids, teacher, files["train"], windows)

    def _write(self, on_progress: OnProgress) -> bool:
        """Let the model write text until its time is over."""
        self._folder.mkdir(parents=True, exist_ok=True)
        place, note = self._folder / "texts.jsonl", self._folder / "written.json"
        done = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
        whole, before, first = self._seconds, float(done.get("seconds", 0)), int(done.get("batches", 0))
        if before >= whole:
            return True
        tokens = sum(len(text.ids) - text.start for text in read(place))
        started = monotonic()
        writer = SelfWriter(self._model, self._tokenizer, seed=self._seed)
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

    def _read(
        self, name: str, texts: Sequence[Text], layers: Sequence[int], on_progress: OnProgress
    ) -> list[Path] | None:
        """Read the states of texts that have none yet; returns the files of them."""
        numbers = "-".join(map(str, layers))
        files = StateFiles(self._folder / f"states-of-{numbers}" / name)
        for number in range(files.texts, len(texts)):
            files.add(read_states(self.target, texts[number], layers))
            if not on_progress("reading the model's states", number / len(texts)):
                return None
        files.flush()
        return files.files()


def frequent(texts: Sequence[Text], size: int, vocab: int) -> list[int]:
    """Return the ``size`` most frequent tokens of what was written, ascending; low ids fill up what is missing."""
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(text.ids[text.start :])
    chosen = [token for token, _ in counts.most_common(size)]
    taken = set(chosen)
    chosen += [token for token in range(vocab) if token not in taken][: max(0, size - len(chosen))]
    return sorted(chosen)
