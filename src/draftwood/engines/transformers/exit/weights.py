"""An exit's file: safetensors, with what draftwood must know in its header.

Tensors, of width ``w`` (the target's), inner width ``m`` and ``v`` tokens: ``norm.weight`` [w],
``gate_proj.weight`` and ``up_proj.weight`` [m, w], ``down_proj.weight`` [w, m], ``final_norm.weight`` [w], and
``d2t`` int64[v] (what is added to a place in the exit's vocabulary to get the token's id). The rows that score
tokens are the target's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from draftwood.engines.trained import check_ids, check_shapes
from draftwood.engines.transformers.trained_files import check_finite, ids_of, read_tensors
from draftwood.errors import ModelError
from draftwood.files.foreign import json_object

FORMAT = "draftwood-exit-1"
"""Value of ``format`` in the header."""

_NAMES = ("norm", "gate_proj", "up_proj", "down_proj", "final_norm")


@dataclass(frozen=True, slots=True)
class ExitShape:
    """What an exit's tensors do not tell.

    Attributes
    ----------
    width
        Of the target's hidden states.
    layers
        How many of the target's first layers run before it.
    target_layers, target_vocab
        Layers and vocabulary of the target.
    eps
        Of its norms.
    """

    width: int
    layers: int
    target_layers: int
    target_vocab: int
    eps: float


@dataclass(frozen=True, slots=True, eq=False)
class ExitWeights:
    """An exit as its file has it: shape, tensors by name, and `embedding_fingerprint` of its target."""

    shape: ExitShape
    tensors: Mapping[str, Tensor]
    target: str = ""

    def ids(self) -> Tensor:
        """Return the token of each place in the exit's vocabulary, int64[v]."""
        return ids_of(self.tensors, self.shape.target_vocab)

    def header(self) -> dict[str, str]:
        """Return what the file says in its header."""
        return {"format": FORMAT, "shape": json.dumps(asdict(self.shape)), "target": self.target}


def read_exit(path: Path) -> ExitWeights:
    """Read an exit's file; raises `ModelError` for one that is missing, cut, damaged, or no exit."""
    header, tensors = read_tensors(path, "exit", "train-exit")
    if header.get("format") != FORMAT or "d2t" not in tensors:
        raise ModelError(f"{path} is no exit of draftwood: make one with draftwood train-exit")
    try:
        shape = ExitShape(**json_object(header["shape"], "the shape", ValueError))
        inner = len(tensors["gate_proj.weight"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the header of {path} is damaged ({error}): train the exit again") from error
    if missing := [name for name in _NAMES if f"{name}.weight" not in tensors]:
        raise ModelError(f"{path} is no exit of draftwood: it lacks {missing[0]}")
    width = shape.width
    expected = {
        "norm.weight": (width,),
        "gate_proj.weight": (inner, width),
        "up_proj.weight": (inner, width),
        "down_proj.weight": (width, inner),
        "final_norm.weight": (width,),
    }
    check_shapes(path, tensors, expected)
    check_finite(path, tensors)
    weights = ExitWeights(shape, tensors, header.get("target", ""))
    check_ids(path, weights.ids(), shape.target_vocab)
    return weights
