"""Trains a head (``draftwood train head``): text of the model, its states, and updates, in a folder."""

from __future__ import annotations

import errno
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isclose
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from draftwood.api.target import target_of
from draftwood.contracts import Target
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.heads.fitting import usual
from draftwood.engines.heads.weights import HeadWeights, read_head
from draftwood.errors import CapabilityError, DraftwoodError, ModelError, UsageError
from draftwood.files.paths import whole_file
from draftwood.training.head import Trained, begun, loss_of
from draftwood.training.head_module import HeadModule
from draftwood.training.loss import Teacher
from draftwood.training.states import StateFiles, read_states, scores_by_rows
from draftwood.training.target import CpuTrainingTarget, TrainingTarget
from draftwood.training.texts import SelfWriter, Text, append, of_earlier_run, of_files, read
from draftwood.training.train import Progress, Schedule, Training

_LOG = logging.getLogger("draftwood")

_HELD_OUT = slice(0, 256, 8)  # of the written texts: a head is judged by these and not trained on them
_LEAST = 16  # texts: what is left of one batch, even of a slow model
_SPARE = 0.02  # of the time, for what comes after training: a checkpoint and the head's file
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DISK = 8 << 30  # bytes of states that are kept at a time; a night's would fill a small disk

OnProgress = Callable[[str, float], bool]
"""``on_progress(what, share)``: what is done, and how much of it, 0 to 1; False to stop."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How a head is trained for a model."""

    text_seconds: float = 1800.0  # for loading, writing text and reading its states
    train_seconds: float = 1800.0
    vocabulary: int = 8192  # tokens that the head can say
    layers: tuple[int, ...] = ()  # whose states the head reads; empty: the usual ones
    steps: int = 4  # tokens in a row that it is trained to predict
    rate: float = 1e-3  # highest learning rate
    seed: int = 0  # of texts and of their order
    files: tuple[Path, ...] = ()  # further texts to train on
    written: Path | None = None  # texts that an earlier run has written, instead of new ones
    start: Path | None = None  # a head to begin with, instead of the model's last layer


class HeadJob:
    """Trains one head for a model, in a folder of its own, which the caller removes.

    Making the object writes nothing, and raises `CapabilityError`, `ModelError` or `UsageError` for a model, texts
    or layers of which no head can be made.
    """

    _start: HeadWeights | None = None

    def __init__(self, model: Any, tokenizer: Any, folder: Path, plan: TrainingPlan) -> None:
        self.plan, self._model, self._tokenizer, self._folder = plan, model, tokenizer, folder
        self._began = monotonic()
        self.target = training_target(model)
        if not scores_by_rows(self.target):
            needed = "train head needs a model that scores tokens by one product with its states"
            raise CapabilityError(f"{needed}: this one does more")
        self._given = of_files(plan.files, tokenizer)
        path, size = plan.written, self.target.vocabulary
        self._written = some = None if path is None else of_earlier_run(path, size, tokenizer)
        if some is not None and len(some) < _LEAST:
            raise UsageError(f"{path} has {len(some)} texts, too few to train on: leave it out")
        self.layers = self._chosen_layers()

    def _chosen_layers(self) -> tuple[int, ...]:
        """Return the layers of the plan or of its head, or the usual ones; `UsageError` for impossible ones."""
        layers, shown = self.plan.layers or usual(self.target.layers), self.target.target.capabilities.hidden
        if (path := self.plan.start) is not None:
            self._start = start = read_head(path)
            layers = start.shape.layers or usual(self.target.layers)
            module = self.target.head(layers)
            sizes = {name: tuple(value.shape) for name, value in module.named_parameters()}
            known = replace(start.shape, layers=layers, target_layers=self.target.layers, eps=module.shape.eps)
            is_near = isclose(start.shape.eps, known.eps, rel_tol=1e-6)  # of a GGUF file in float32
            fits = is_near and known == module.shape
            if not fits or sizes != {name: start.tensors[name].shape for name in sizes}:
                raise UsageError(f"--from {path}: that head was made for another model: leave it out")
            if self.plan.layers not in ((), layers):
                raise UsageError(f"--from {path}: that head reads the layers {layers}: leave --states out")
        if outside := set(layers) - set(shown):
            raise UsageError(f"--states {sorted(outside)}: this model shows 0 to {max(shown)}")
        return layers

    def begin(self) -> HeadModule:
        """Return the head to train, as the plan begins it."""
        module = begun(self.target, self.layers)
        if self._start is not None:
            with torch.no_grad():
                for name, own in module.named_parameters():
                    own.copy_(torch.from_numpy(self._start.tensors[name]))
        return module.to(self.target.device)

    def run(self, on_progress: OnProgress, spent: float = 0.0) -> Trained | None:
        """Do all that is left to do; None where it was stopped. ``spent`` is the seconds that loading took: what
        takes longer than its share of the plan's time shortens what comes after it.

        Raises as `resumable`, and `ModelError` where the loss is no number.
        """
        self._began = monotonic() - spent
        with resumable(self._folder):
            if self._written is None and not self._write(on_progress):
                return None
            written = read(self._folder / "texts.jsonl") if self._written is None else self._written
            if len(written) < _LEAST:
                raise UsageError(f"{len(written)} texts are too few to train on: give more time with --minutes")
            held_out = range(len(written))[_HELD_OUT]
            trained = [text for number, text in enumerate(written) if number not in held_out]
            # What is read stays in its place when a longer run adds text.
            judging = self._read("held-out", written[_HELD_OUT], on_progress)
            if judging is None:
                return None
            vocabulary = self.target.vocabulary
            ids = frequent(self._given + written, min(self.plan.vocabulary, vocabulary), vocabulary)
            with _torch_threads(self.target.threads):
                return self._train(self._given + trained, ids, judging, on_progress)

    def _train(
        self, texts: Sequence[Text], ids: list[int], judging: Sequence[Path], on_progress: OnProgress
    ) -> Trained | None:
        """Train on texts, in sections whose states fit into `_DISK`; ``judging``: files of held-out states."""
        plan = self.plan
        rows = self.target.scoring_rows(torch.tensor(ids, device=self.target.device))
        torch.manual_seed(plan.seed)
        module = self.begin()
        loss = partial(loss_of, module, Teacher(self.target.embedded, rows))
        schedule = Schedule(plan.train_seconds, plan.steps, plan.rate, seed=plan.seed)
        windows = [window for path in judging for window in StateFiles.windows(path)]
        training = Training(module, loss, windows, schedule, self._folder / "checkpoint.pt")
        stopped = False

        def told(progress: Progress) -> bool:
            nonlocal stopped
            stopped = not on_progress(str(progress), progress.seconds / training.schedule.seconds)
            return not stopped

        each = sum(part.nbytes for part in windows[0]) / len(windows[0].ids)
        sections = list(_sections(texts, int(_DISK / each)))
        on_progress("judging the head as it begins", 0.0)
        started = monotonic()
        training.agreement()
        judging_s, half = monotonic() - started, self._began + plan.text_seconds
        for number, section in enumerate(sections, 1):
            name, is_last = f"train-{number}", number == len(sections)
            if training.progress.seconds < training.until(number, sections) or is_last:  # else a run trained on it
                files = self._read(name, section, on_progress, half if number == 1 else inf)
                if files is None:
                    return None
                left = half + (1 - _SPARE) * plan.train_seconds - judging_s - monotonic()
                training.end_within(max(left, _SPARE * plan.train_seconds))
                training.run(files, told, training.until(number, sections))
                if stopped:
                    return None
            if not is_last:
                self._states(name).remove()
        return Trained(module, ids, training.progress, self.target.target.fingerprint)

    def _write(self, on_progress: OnProgress) -> bool:
        """Let the model write text until its time, and that for reading it, is over; False: it was stopped."""
        self._folder.mkdir(parents=True, exist_ok=True)
        place, note = self._folder / "texts.jsonl", self._folder / "written.json"
        done = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
        before, first = float(done.get("seconds", 0)), int(done.get("batches", 0))
        texts, whole = read(place), self.plan.text_seconds
        if before >= whole and len(texts) >= _LEAST:
            return True
        spent = _Spent(self._began - before, self._reading_seconds())
        tokens = _written_tokens(texts)
        self._cut_given(0.5 * whole / spent.each)
        spent.set_aside(self._given)

        def told(more: int = 0) -> bool:
            return on_progress(f"writing text: {tokens + more:,} tokens", spent.seconds(more) / whole)

        def over(more: int) -> bool:
            told(more)
            return spent.seconds(more) >= whole

        writer = SelfWriter(self._model, self._tokenizer, seed=self.plan.seed, over=over)
        for number, some in enumerate(writer.texts(first), first + 1):
            append(place, some)  # the note follows at once, lest Ctrl-C come between them
            spent.set_aside(some)
            with whole_file(note, error=ModelError) as beside:
                beside.write_text(json.dumps({"seconds": spent.seconds(), "batches": number}), encoding="utf-8")
            tokens += _written_tokens(some)
            texts += some
            if not told():
                return False
            if spent.seconds() >= whole and (len(texts) >= _LEAST or not some):  # a slow model writes longer
                break
        return True

    def _cut_given(self, tokens: float) -> None:
        """Keep of the given texts what has at most so many tokens, which a warning says."""
        if self._given:
            self._given, *rest = _sections(self._given, int(tokens))
            if rest:
                _LOG.warning("of the given texts the first %d pieces are read: give more time", len(self._given))

    def _reading_seconds(self) -> float:
        """Return how long the states of a token take to be read: once in vain, as the first time is longer."""
        text = Text([1, 2, 3] * 32)
        for _ in range(2):
            started = monotonic()
            read_states(self.target.target, text, self.layers)
        return (monotonic() - started) / len(text.ids)

    def _read(
        self, name: str, texts: Sequence[Text], on_progress: OnProgress, until: float = inf
    ) -> list[Path] | None:
        """Read the states of texts that have none yet, not much longer than ``until``; returns the files of them,
        None where it was stopped."""
        files = self._states(name)
        for number in range(files.texts, len(texts)):
            if monotonic() > until and number >= _LEAST:
                _LOG.warning("half of the time is over: %d texts of %d are trained on", number, len(texts))
                break
            files.add(read_states(self.target.target, texts[number], self.layers))
            if not on_progress("reading the model's states", number / len(texts)):
                files.flush()
                return None
        files.flush()
        return files.files()

    def _states(self, name: str) -> StateFiles:
        return StateFiles(self._folder / f"states-of-{'-'.join(map(str, self.layers))}" / name)


@dataclass(slots=True)
class _Spent:
    """How much of the time for text is used up: what has passed, and what reading the texts' states will take."""

    began: float  # moves back with each text that is still to be read
    each: float  # seconds that the states of a token take

    def seconds(self, more: int = 0) -> float:
        """Return it, with ``more`` tokens that are being written."""
        return monotonic() - self.began + self.each * more

    def set_aside(self, texts: Sequence[Text]) -> None:
        """Count the time in which these will be read."""
        self.began -= self.each * sum(len(text.ids) for text in texts)


def _written_tokens(texts: Sequence[Text]) -> int:
    """Return how many tokens the model has written, without what it was asked."""
    return sum(len(text.ids) - text.start for text in texts)


@contextmanager
def resumable(place: Path) -> Iterator[None]:
    """Raise `ModelError` where a place cannot be used in a block, as on a full disk: what was written is kept."""
    try:
        yield
    except (OSError, DraftwoodError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        what = "make room" if cause.errno in _FULL else "mend that"
        said = f"{place} cannot be used ({cause.strerror or cause})"
        raise ModelError(f"{said}: {what}, and the same command goes on") from error


def training_target(model: Any) -> TrainingTarget:
    """Return what a training needs of a model; raises `CapabilityError` where it lacks it."""
    target = target_of(model)
    if isinstance(target, CpuTarget):
        return CpuTrainingTarget(target)
    if target.capabilities.hidden and not isinstance(model, Target):
        from draftwood.training.transformers_target import TransformersTrainingTarget

        return TransformersTrainingTarget(target, model)
    raise CapabilityError(
        "train head needs a model that shows its hidden states, which this engine does not: take --engine cpu or "
        "transformers"
    )


def _sections(texts: Sequence[Text], tokens: int) -> Iterator[list[Text]]:
    """Divide texts into parts of at most so many tokens; further texts change the last part alone."""
    kept: list[Text] = []
    left = tokens
    for text in texts:
        if kept and len(text.ids) > left:
            yield kept
            kept, left = [], tokens
        kept.append(text)
        left -= len(text.ids)
    yield kept


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[None]:
    """Let torch use as many threads as a model's passes in a block; None leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def frequent(texts: Sequence[Text], size: int, vocab: int) -> list[int]:
    """Return the ``size`` most frequent tokens of what was written, ascending; low ids fill up what is missing."""
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(text.ids[text.start :])
    chosen = [token for token, _ in counts.most_common(size)]
    taken = set(chosen)
    chosen += [token for token in range(vocab) if token not in taken][: max(0, size - len(chosen))]
    return sorted(chosen)
