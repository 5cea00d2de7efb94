"""A head's file: safetensors in the layout of public EAGLE-3 drafts, with what draftwood must know in its header.

Tensors, of width ``w`` (the target's), with queries of ``q`` numbers, keys and values of ``kv``, a feed-forward
part of ``m`` and ``v`` tokens: ``fc.weight`` [w, fw] for ``f`` layers, ``midlayer.input_layernorm.weight``
[w] (of embeddings), ``midlayer.hidden_norm.weight`` [w], ``midlayer.self_attn.{q,k,v}_proj.weight`` [q or kv, 2w],
``midlayer.self_attn.o_proj.weight`` [w, q], ``midlayer.post_attention_layernorm.weight`` [w],
``midlayer.mlp.{gate,up}_proj.weight`` [m, w], ``midlayer.mlp.down_proj.weight`` [w, m], ``norm.weight`` [w],
``d2t`` int64[v] (what is added to an id of the head's vocabulary to get the target's) and ``lm_head.weight``
[v, w]; without the last the target's own rows are used, without both its whole vocabulary. Public files come with
a ``config.json``. Source: Li and others, "EAGLE-3", arXiv 2503.01840, and how vLLM and SGLang read its files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.gguf_types import read_floats
from draftwood.engines.files.hub_model import metadata_of, tensors_of
from draftwood.engines.files.open_file import OpenFile
from draftwood.errors import DraftwoodError, ModelError
from draftwood.files.foreign import json_object
from draftwood.files.paths import content

FORMAT = "draftwood-head-1"
"""Value of ``format`` in the header of our own files."""

_KINDS = {"F64": np.float64, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8,
          "BOOL": np.bool_}  # fmt: skip
_LAYER = "midlayer."
_SHAPES = {
    "fc": "wf", "norm": "w", **{_LAYER + name: letters for name, letters in {
        "input_layernorm": "w", "hidden_norm": "w", "post_attention_layernorm": "w", "self_attn.q_proj": "qp",
        "self_attn.k_proj": "kp", "self_attn.v_proj": "kp", "self_attn.o_proj": "wq", "mlp.gate_proj": "mw",
        "mlp.up_proj": "mw", "mlp.down_proj": "wm",
    }.items()},
}  # fmt: skip
"""The sizes of each weight: w is the width, p twice and f some times that; q, k and m are as in the file."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What a head's tensors do not tell."""

    width: int  # of the target's hidden states
    layers: tuple[int, ...]  # whose states it reads, as `draftwood.contracts.Capabilities.hidden` numbers them
    target_layers: int  # layers and vocabulary of the target that it was made for
    target_vocab: int
    dim: int  # numbers in each of its attention heads
    eps: float  # of its norms
    theta: float  # base of its rotary positions


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """A head as its file has it. ``tensors`` are arrays of numpy, float32 where a file had fewer bits; of a head
    that was just trained, of torch. ``target`` is the fingerprint of the model that it was trained for; empty for
    public files."""

    shape: HeadShape
    tensors: Mapping[str, Any]
    target: str = ""

    def ids(self) -> NDArray[np.int64]:
        """Return the token of each place in the head's vocabulary, int64[v]."""
        if "d2t" not in self.tensors:
            return np.arange(self.shape.target_vocab)
        offsets = np.asarray(self.tensors["d2t"]).astype(np.int64)
        return offsets + np.arange(len(offsets))

    def header(self) -> dict[str, str]:
        """Return what a file of our own says in its header."""
        return {"format": FORMAT, "shape": json.dumps(asdict(self.shape)), "target": self.target}


def read_head(path: Path) -> HeadWeights:
    """Read a head's file: ours, or a public one with its ``config.json`` in the same folder. Raises `ModelError`
    for a file that is missing, cut, or no head."""
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise ModelError(f"there is no head at {path}: make one with draftwood train head MODEL -o {path.name}")
    file = OpenFile(path)
    try:
        header = metadata_of(file)
        found = {name: _array(one.kind, one.data, one.shape) for name, one in tensors_of(file).items()}
    except (DraftwoodError, KeyError) as error:
        raise ModelError(
            f"{path} is cut off, damaged or no head: get it again, or make one with draftwood train head"
        ) from error
    tensors = {name.removeprefix("model.").replace("layers.0.", _LAYER): one for name, one in found.items()}
    names = [f"{name}.weight" for name in _SHAPES]
    if missing := [name for name in names if name not in tensors]:
        raise ModelError(f"{path} is no head of draftwood or EAGLE-3: it lacks {missing[0]}")
    shape = _own_shape(path, header) if header.get("format") == FORMAT else _public_shape(path)
    tensors = {name: tensors[name] for name in (*names, "d2t", "lm_head.weight") if name in tensors}
    weights = HeadWeights(shape, tensors, header.get("target", ""))
    _check(path, weights)
    return weights


def _array(kind: str, raw: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[Any]:
    found = raw.view(_KINDS[kind]) if kind in _KINDS else read_floats(kind, raw)
    return found.reshape(shape)


def _own_shape(path: Path, header: Mapping[str, str]) -> HeadShape:
    try:
        known = json_object(header["shape"], "the shape", ValueError)
        return HeadShape(**{**known, "layers": tuple(known["layers"])})
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the header of {path} is damaged: train or fetch the head again") from error


def _public_shape(path: Path) -> HeadShape:
    """Return the shape of a public EAGLE-3 file."""
    place = path.with_name("config.json")
    try:
        config = json_object(content(place), str(place), ValueError)
        if other := [name for name in ("norm_before_residual", "norm_before_fc") if config.get(name)]:
            raise ModelError(f"{path} has {other[0]}: draftwood reads no such heads, so train one of its own")
        width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        depth = int(config.get("target_num_hidden_layers") or 0)
        named = "eagle_aux_hidden_state_layer_ids"
        states = config.get(named) or config.get("eagle_config", {}).get(named) or config.get("aux_layers") or ()
        shift = int(1 in states[:1])  # these number outputs of layers (sglang, pull request 25454)
        theta = float(config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta") or 10000.0)
        return HeadShape(
            width=width, layers=tuple(int(layer) + shift for layer in states), target_layers=depth,
            target_vocab=int(config["vocab_size"]), dim=int(config.get("head_dim") or width // heads),
            eps=float(config.get("rms_norm_eps", 1e-6)), theta=theta,
        )  # fmt: skip
    except (OSError, ArithmeticError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(
            f"{path} has no header of draftwood's, and {place} does not say its shape: put the head's config.json "
            "beside it"
        ) from error


def _check(path: Path, weights: HeadWeights) -> None:
    """Raise `ModelError` where the tensors do not fit together."""
    width, dim, tensors = weights.shape.width, weights.shape.dim, weights.tensors
    if any(tensors[f"{name}.weight"].ndim != len(letters) for name, letters in _SHAPES.items()):
        raise ModelError(f"{path} has weights of other dimensions than a head's: it is damaged")
    q, k = (len(tensors[f"{_LAYER}self_attn.{name}_proj.weight"]) for name in "qk")
    sizes = {"w": width, "p": 2 * width, "q": q, "k": k, "m": len(tensors[f"{_LAYER}mlp.gate_proj.weight"])}
    sizes["f"] = tensors["fc.weight"].shape[-1] // max(1, width) * width
    expected = {f"{name}.weight": tuple(sizes[of] for of in letters) for name, letters in _SHAPES.items()}
    ids = weights.ids()
    if "lm_head.weight" in tensors:
        expected["lm_head.weight"] = (len(ids), width)
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise ModelError(f"{path}: {name} is {list(tensors[name].shape)}, not {list(shape)}: it is damaged")
    if dim < 2 or dim % 2 or not k or q % dim or k % dim or (q // dim) % (k // dim):
        raise ModelError(f"{path}: {q} and {k} numbers are no whole heads of {dim}: it is damaged")
    if not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= weights.shape.target_vocab:
        raise ModelError(f"{path}: its tokens are outside the target's vocabulary: it is damaged")
    if not all(bool(np.isfinite(one).all()) for one in tensors.values() if one.dtype.kind == "f"):
        raise ModelError(f"{path} holds numbers that are not finite: it is damaged")
