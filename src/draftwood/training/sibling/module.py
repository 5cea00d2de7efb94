"""A model of a few of another one's layers, to be trained to foretell what that one says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from draftwood.errors import CapabilityError


class SiblingModule(nn.Module):
    """A model of transformers of which all but the embedding and the scoring rows is trained.

    Parameters
    ----------
    model
        As `sibling_of` makes it.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        for table in (model.get_input_embeddings(), model.get_output_embeddings()):
            table.weight.requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return what is scored, [batch, tokens, width], of texts int64[batch, tokens]."""
        states: Tensor = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        return states


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
    number = re.compile(rf"^{re.escape(place)}\.(\d+)\.")
    new = {old: str(at) for at, old in enumerate(layers)}
    state = {}
    for name, value in model.state_dict().items():
        found = number.match(name)
        if found is None:
            state[name] = value
        elif (old := int(found[1])) in new:
            state[f"{place}.{new[old]}.{name[found.end() :]}"] = value
    missing, unknown = fresh.load_state_dict(state, strict=False)
    if unknown or set(missing) - set(getattr(fresh, "_tied_weights_keys", None) or ()):
        raise CapabilityError(
            "distil does not know how the weights of this model are laid out: train a head for it"
        )
    fresh.tie_weights()
    fresh.generation_config = model.generation_config
    return fresh.eval()  # no dropout: it learns from few texts once or twice


def layers_of(model: Any) -> str:
    """Return the name of the list of a model's layers; raises `CapabilityError` where there is none."""
    count = model.config.get_text_config().num_hidden_layers
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return str(name)
    raise CapabilityError("distil needs a model that is a list of layers: this one is built otherwise")


def _plain(config: Any) -> dict[str, Any]:
    """Return the settings of a model whose weights are numbers, whatever file they came from."""
    settings: dict[str, Any] = config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    return settings
