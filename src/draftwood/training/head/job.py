"""The whole of ``draftwood train-head``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from draftwood.engines.heads.weights import HeadWeights
from draftwood.engines.transformers.head.load import usual_layers
from draftwood.engines.transformers.head.module import HeadModule
from draftwood.engines.transformers.trained_files import embedding_fingerprint
from draftwood.errors import ModelError, UsageError
from draftwood.files.paths import whole_file
from draftwood.training.gather import Gatherer
from draftwood.training.head.begin import begun
from draftwood.training.head.loss import loss_of
from draftwood.training.plan import OnProgress, Plan
from draftwood.training.run import percentages, train
from draftwood.training.train import Progress, Schedule


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
        self._model, self._folder, self._plan = model, folder, plan
        self._gatherer = Gatherer(model, tokenizer, folder, plan, "train-head")
        target = self._gatherer.target
        self._layers = plan.layers or usual_layers(target)
        if outside := set(self._layers) - set(target.capabilities.hidden):
            raise UsageError(
                f"--states {sorted(outside)}: this model shows 0 to {max(target.capabilities.hidden)}"
            )

    def run(self, on_progress: OnProgress) -> tuple[HeadModule, list[int], Progress] | None:
        """Do all that is left to do; returns the head, its tokens and its figures, None where it was stopped.

        Raises `ModelError` where the disk is full or the loss is no number: what was written before is kept.
        """
        gathered = self._gatherer.gather(self._layers, on_progress)
        if gathered is None:
            return None
        plan = self._plan
        torch.manual_seed(plan.seed)
        module = begun(self._gatherer.target, self._model, self._layers).to(gathered.teacher.embedding.device)
        schedule = Schedule(plan.train_seconds, plan.steps, plan.rate, seed=plan.seed)
        loss = partial(loss_of, module, gathered.teacher)
        progress = train(module, loss, gathered, schedule, self._folder, on_progress, _described)
        return None if progress is None else (module, gathered.ids, progress)


def _described(progress: Progress) -> str:
    return f"agreement {percentages(progress)}, {progress.expected_tokens:.2f} tokens per pass"


def write_head(
    path: Path, module: HeadModule, ids: Sequence[int], embedding: torch.Tensor, about: dict[str, str]
) -> None:
    """Write a head's file, completely or not at all.

    ``embedding`` is the model's, [vocab, width], and ``about`` joins the header.
    """
    weights = HeadWeights(module.shape, module.tensors(ids, torch.bfloat16), embedding_fingerprint(embedding))
    with whole_file(path, error=ModelError) as beside:
        beside.write_bytes(save(dict(weights.tensors), {**weights.header(), **about}))
