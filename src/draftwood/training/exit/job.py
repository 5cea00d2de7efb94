"""The whole of ``draftwood train-exit``: exits behind several layers are trained side by side, and one is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from draftwood.engines.transformers.exit.load import fitted
from draftwood.engines.transformers.exit.module import ExitModule
from draftwood.engines.transformers.exit.weights import ExitShape, ExitWeights
from draftwood.engines.transformers.lean_parts import read_parts
from draftwood.engines.transformers.self_draft import decoder_of
from draftwood.engines.transformers.trained_files import embedding_fingerprint
from draftwood.errors import ModelError, UsageError
from draftwood.files.paths import whole_file
from draftwood.training.exit.choice import Choice, judged
from draftwood.training.gather import Gathered, Gatherer
from draftwood.training.loss import Batch, Result, Teacher, cross_entropy
from draftwood.training.plan import OnProgress, Plan
from draftwood.training.run import percentages, train
from draftwood.training.train import Progress, Schedule

_PLACES = (0.1, 1 / 6, 0.25, 1 / 3, 0.5)  # where exits are tried, as shares of the layers
_SMALL = 0.005  # standard deviation of what is added to the states at first
_CONTEXT = 256  # tokens of the text behind which passes are timed


@dataclass(frozen=True, slots=True)
class Exit:
    """What `ExitJob` made: the exit that pays best, and what all that were tried are worth, the best first."""

    module: ExitModule
    ids: list[int]
    choices: list[Choice]
    progress: Progress


class ExitJob:
    """Makes one exit in a folder of its own; parameters and errors are those of `HeadJob`.

    Also raises `CapabilityError` for models whose layers draftwood does not run itself.
    """

    def __init__(self, model: Any, tokenizer: Any, folder: Path, plan: Plan) -> None:
        self._model, self._folder, self._plan = model, folder, plan
        self._gatherer = Gatherer(model, tokenizer, folder, plan, "train-exit")
        n_layers = decoder_of(self._gatherer.target).n_layers
        self._exits = tuple(sorted(set(plan.layers))) or usual_exits(n_layers)
        if outside := [layers for layers in self._exits if not 0 < layers < n_layers]:
            raise UsageError(f"--layers {outside}: an exit lies behind 1 to {n_layers - 1} layers of this model")

    def run(self, on_progress: OnProgress) -> Exit | None:
        """Do all that is left to do; None where it was stopped. Raises as `HeadJob.run`."""
        gathered = self._gatherer.gather(self._exits, on_progress)
        if gathered is None:
            return None
        torch.manual_seed(self._plan.seed)
        modules = self._begun().to(gathered.teacher.embedding.device)
        schedule = Schedule(self._plan.train_seconds, 1, self._plan.rate, seed=self._plan.seed)
        names = " ".join(map(str, self._exits))

        def loss(batch: Batch, _: int) -> Result:
            return loss_of(modules, gathered.teacher, batch)

        def described(progress: Progress) -> str:
            return f"behind {names} layers agreement {percentages(progress)}"

        progress = train(modules, loss, gathered, schedule, self._folder, on_progress, described)
        if progress is None:
            return None
        choices = self._choices(modules, gathered, progress)
        chosen = modules[self._exits.index(choices[0].layers)]
        assert isinstance(chosen, ExitModule)
        return Exit(chosen, gathered.ids, choices, progress)

    def _begun(self) -> nn.ModuleList:
        """Return exits that score as the model's own norm does, at first."""
        target = self._gatherer.target
        parts = read_parts(self._model)
        assert parts is not None, "a model that has a decoder has parts"
        weight, eps = parts.norm
        vocab, width = target.token_tables()[0].shape
        made = []
        for layers in self._exits:
            module = ExitModule(ExitShape(width, layers, target.n_layers, vocab, eps), width)
            with torch.no_grad():
                module.final_norm.weight.copy_(weight)
                module.down_proj.weight.normal_(std=_SMALL)
            made.append(module)
        return nn.ModuleList(made)

    def _choices(self, modules: nn.ModuleList, gathered: Gathered, progress: Progress) -> list[Choice]:
        target = self._gatherer.target
        exits = {}
        for layers, module in zip(self._exits, modules, strict=True):
            assert isinstance(module, ExitModule)
            exits[layers] = fitted(target, weights_of(module, gathered.ids))
        context = gathered.held_out[0].ids[:_CONTEXT].tolist()
        return judged(target, exits, progress.agreement, context)


def usual_exits(n_layers: int) -> tuple[int, ...]:
    """Return behind how many layers exits are tried; raises `UsageError` for a model of one layer."""
    if n_layers < 2:
        raise UsageError("the model has one layer, so it has none to leave out: use other drafters")
    return tuple(sorted({min(n_layers - 1, max(1, round(share * n_layers))) for share in _PLACES}))


def loss_of(modules: nn.ModuleList, teacher: Teacher, batch: Batch) -> Result:
    """Return the mean cross-entropy of exits whose states stand side by side in a batch, in this order."""
    wanted = teacher.distribution(batch.last).flatten(0, 1)
    best = wanted.argmax(-1)
    losses, agreement = [], []
    for module, states in zip(modules, batch.states.chunk(len(modules), -1), strict=True):
        normed = module(states).flatten(0, 1).to(teacher.rows.dtype)
        entropy, found = cross_entropy(normed, teacher.rows, wanted)
        losses.append(entropy / len(normed))
        agreement.append((found == best).double().mean())
    loss = torch.stack(losses)
    return Result(loss.sum(), float(loss.detach().min()), torch.stack(agreement).detach(), batch.ids.numel())


def weights_of(module: ExitModule, ids: Sequence[int], target: str = "") -> ExitWeights:
    """Return an exit as its file has it, in bfloat16."""
    return ExitWeights(module.shape, module.tensors(ids, torch.bfloat16), target)


def write_exit(path: Path, made: Exit, embedding: torch.Tensor, about: dict[str, str]) -> None:
    """Write an exit's file, completely or not at all; ``embedding`` and ``about`` as for `write_head`."""
    weights = weights_of(made.module, made.ids, embedding_fingerprint(embedding))
    with whole_file(path, error=ModelError) as beside:
        beside.write_bytes(save(dict(weights.tensors), {**weights.header(), **about}))
