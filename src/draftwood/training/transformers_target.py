"""What a training needs of a model of transformers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from draftwood.engines.heads.weights import HeadShape
from draftwood.engines.transformers.lean_parts import read_parts
from draftwood.errors import CapabilityError
from draftwood.training.head_module import HeadModule
from draftwood.training.target import TrainingTarget


class TransformersTrainingTarget(TrainingTarget):
    """A target of the engine transformers and its model. Only for Llama-like models its last layer is known."""

    def __init__(self, target: Any, model: Any) -> None:
        self.target, self._model, self.device = target, model, target.device
        self._embedding, rows = target.token_tables()
        if rows is None:
            raise CapabilityError("the model's own scores of tokens were released: load it anew")
        self._rows: Tensor = rows

    def embedded(self, ids: Tensor) -> Tensor:
        return self._embedding[ids]

    def scoring_rows(self, ids: Tensor) -> Tensor:
        return self._rows[ids]

    def head(self, layers: tuple[int, ...]) -> HeadModule:
        config, (vocabulary, width) = self._model.config.get_text_config(), self._embedding.shape
        heads = int(config.num_attention_heads)
        kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        dim = int(getattr(config, "head_dim", None) or width // heads)
        inner = getattr(config, "intermediate_size", None)
        eps = float(getattr(config, "rms_norm_eps", None) or 1e-6)
        theta = float((getattr(config, "rope_parameters", None) or {}).get("rope_theta") or 10000.0)
        shape = HeadShape(width, layers, self.layers, vocabulary, dim, eps, theta)
        return HeadModule(shape, heads, kv_heads, inner if isinstance(inner, int) else 4 * width)

    def last_layer(self) -> dict[str, Tensor]:
        parts = read_parts(self._model)
        if parts is None:
            return {}
        last = parts.layers[-1]
        attention, mlp = "midlayer.self_attn", "midlayer.mlp"
        found = {
            f"{attention}.q_proj": last.q.weight, f"{attention}.k_proj": last.k.weight,
            f"{attention}.v_proj": last.v.weight, f"{attention}.o_proj": last.o.weight,
            f"{mlp}.gate_proj": last.gate.weight, f"{mlp}.up_proj": last.up.weight,
            f"{mlp}.down_proj": last.down.weight, "midlayer.hidden_norm": last.first_norm[0],
            "midlayer.post_attention_layernorm": last.second_norm[0], "norm": parts.norm[0],
        }  # fmt: skip
        return {f"{name}.weight": values for name, values in found.items()}
