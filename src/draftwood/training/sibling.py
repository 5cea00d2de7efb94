"""Trains a sibling: a model of a few of another's layers, which drafts for it (``draftwood train sibling``)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from draftwood.errors import CapabilityError, ModelError, UsageError
from draftwood.training.job import TrainingJob
from draftwood.training.loss import Loss, Result, Teacher, Windows, cross_entropy


class SiblingJob(TrainingJob):
    """Makes a sibling: `Trained.module` is a `SiblingModule`, in float32."""

    command = "train sibling"
    of_transformers = True

    def chosen_layers(self) -> tuple[int, ...]:
        if not isinstance(self.model, nn.Module):
            raise CapabilityError("train sibling needs a model of transformers: take --engine transformers")
        layers_of(self.model)
        n_layers = self.target.layers
        layers = self.plan.layers or usual_layers(n_layers)
        wrong = not all(0 <= layer < n_layers for layer in layers)
        if wrong or list(layers) != sorted(set(layers)) or len(layers) >= n_layers:
            raise UsageError(
                f"--layers {list(layers)}: name fewer than {n_layers} layers of the model, 0 to {n_layers - 1}, "
                "ascending"
            )
        return layers

    @property
    def read_layers(self) -> tuple[int, ...]:
        return ()

    def begin(self, teacher: Teacher) -> tuple[SiblingModule, Loss, int]:
        module = SiblingModule(sibling_of(self.model, self.layers))
        return module, lambda batch, _: loss_of(module, teacher, batch), 1


class SiblingModule(nn.Module):
    """A model of transformers (`sibling_of`), of which all but the embedding and the scoring rows is trained."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        for table in (model.get_input_embeddings(), model.get_output_embeddings()):
            table.weight.requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return what is scored, [batch, tokens, width], of texts int64[batch, tokens]."""
        states: Tensor = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        return states


def loss_of(module: SiblingModule, teacher: Teacher, batch: Windows) -> Result:
    """Return the mean cross-entropy of a sibling's scores against the target's."""
    wanted = teacher.distribution(batch.last).flatten(0, 1)
    normed = module(batch.ids).flatten(0, 1).to(teacher.rows.dtype)
    entropy, found = cross_entropy(normed, teacher.rows, wanted)
    loss = entropy / len(normed)
    agreement = (found == wanted.argmax(-1)).double().mean()
    return Result(loss, float(loss.detach()), agreement[None].detach(), batch.ids.numel())


def usual_layers(n_layers: int) -> tuple[int, ...]:
    """Return the layers of which a sibling is made: the first, one in the middle, and the last.

    Raises `UsageError` for a model of so few layers that a sibling would be as slow.
    """
    if n_layers < 4:
        raise UsageError(f"the model has {n_layers} layers: a sibling of it would be as slow; use other drafters")
    return (0, n_layers // 2, n_layers - 1)


def layers_of(model: Any) -> str:
    """Return the name of the list of a model's layers; raises `CapabilityError` where there is none."""
    count = model.config.get_text_config().num_hidden_layers
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return str(name)
    raise CapabilityError("train sibling needs a model that is a list of layers: this one is built otherwise")


def sibling_of(model: Any, layers: Sequence[int]) -> Any:
    """Return a model like this one with these of its layers alone, in float32, on its device.

    Raises `CapabilityError` for a model whose layers are not found.
    """
    place = layers_of(model)
    config = type(model.config).from_dict(_plain(model.config))
    text = config.get_text_config()
    text.num_hidden_layers = len(layers)
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[: len(layers)]  # by place, as engines that know no names count them
    config.dtype = torch.float32
    device = model.get_input_embeddings().weight.device
    fresh = type(model)(config).to(device, torch.float32)
    missing, unknown = fresh.load_state_dict(_renumbered(model.state_dict(), place, layers), strict=False)
    if unknown or set(missing) - set(getattr(fresh, "_tied_weights_keys", None) or ()):
        raise CapabilityError(
            "train sibling does not know how the weights of this model are laid out: train a head for it"
        )
    fresh.tie_weights()
    fresh.generation_config = model.generation_config
    return fresh.eval()  # no dropout: it learns from few texts once or twice


def _renumbered(state: Mapping[str, Tensor], place: str, layers: Sequence[int]) -> dict[str, Tensor]:
    """Return the weights of a model without its other layers, the layers numbered anew."""
    number, new = re.compile(rf"^{re.escape(place)}\.(\d+)\."), {old: str(at) for at, old in enumerate(layers)}
    kept = {}
    for name, value in state.items():
        found = number.match(name)
        if found is None:
            kept[name] = value
        elif (old := int(found[1])) in new:
            kept[f"{place}.{new[old]}.{name[found.end() :]}"] = value
    return kept


def _plain(config: Any) -> dict[str, Any]:
    """Return the settings of a model whose weights are numbers, whatever file they came from."""
    settings: dict[str, Any] = config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    return settings


def write_folder(path: Path, sibling: Any, tokenizer: Any, dtype: Any, about: Mapping[str, str]) -> None:
    """Write a sibling's folder, completely or not at all; a former one is replaced.

    ``about`` goes to ``made.json`` in it. Raises `ModelError` if it cannot be written.
    """
    beside, old = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        sibling.to(dtype).save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        lines = ",\n".join(f'  "{name}": {value}' for name, value in about.items())  # the values are JSON already
        (beside / "made.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        shutil.copymode(beside / "config.json", beside / "model.safetensors")
        with suppress(FileNotFoundError):
            path.rename(old)
        beside.rename(path)
    except OSError as error:
        if old.exists() and not path.exists():
            old.rename(path)
        raise ModelError(f"{path} cannot be written ({error.strerror}): choose another place") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
