"""A head's file: safetensors in the layout of public EAGLE-3 drafts, with what draftwood must know in its header.

Tensors, of width ``w`` (the target's), with ``q`` and ``kv`` numbers in all query and key-value heads, ``m`` in
the feed-forward part and ``v`` tokens: ``fc.weight`` [w, 3w], ``midlayer.input_layernorm.weight`` [w] (of
embeddings), ``midlayer.hidden_norm.weight`` [w], ``midlayer.self_attn.{q,k,v}_proj.weight`` [q or kv, 2w],
``midlayer.self_attn.o_proj.weight`` [w, q], ``midlayer.post_attention_layernorm.weight`` [w],
``midlayer.mlp.{gate,up}_proj.weight`` [m, w], ``midlayer.mlp.down_proj.weight`` [w, m], ``norm.weight`` [w],
``d2t`` int64[v] (what is added to a place in the head's vocabulary to get the token's id) and ``lm_head.weight``
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

from draftwood.engines.cpu.gguf_types import read_floats
from draftwood.engines.cpu.hub_model import metadata_of, tensors_of
from draftwood.engines.mapped_file import MappedFile
from draftwood.errors import DraftwoodError, ModelError
from draftwood.files.foreign import json_object

FORMAT = "draftwood-head-1"
"""Value of ``format`` in the header of our own files."""

_KINDS = {"F64": np.float64, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8,
          "BOOL": np.bool_}  # fmt: skip
_LAYER = "midlayer."
_PRODUCTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_NAMES = (
    "fc.weight", "norm.weight",
    *(f"{_LAYER}{name}.weight" for name in (
        "input_layernorm", "hidden_norm", "post_attention_layernorm", *_PRODUCTS,
        "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
    )),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What a head's tensors do not tell.

    Attributes
    ----------
    width
        Of the target's hidden states.
    layers
        Whose states it reads, as `draftwood.contracts.Capabilities.hidden` numbers them.
    target_layers, target_vocab
        Layers and vocabulary of the target that it was made for.
    dim
        Numbers in each of its attention heads.
    eps
        Of its norms.
    theta
        Base of its rotary positions.
    """

    width: int
    layers: tuple[int, ...]
    target_layers: int
    target_vocab: int
    dim: int
    eps: float
    theta: float


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """A head as its file has it.

    Attributes
    ----------
    shape
        What its tensors do not tell.
    tensors
        By name: arrays of numpy, float32 where a file had fewer bits; of a head that was just trained, of torch.
    target
        `embedding_fingerprint` of the model that it was trained for; empty for public files.
    """

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
    """Read a head's file: ours, or a public one with its ``config.json`` in the same folder.

    Raises `ModelError` for a file that is missing, cut, or no head.
    """
    if path.is_dir():
        path = path / "model.safetensors"
    header, found = read_arrays(path)
    tensors = {name.removeprefix("model."): tensor for name, tensor in found.items()}
    tensors = {name.replace("layers.0.", _LAYER): tensor for name, tensor in tensors.items()}
    if missing := [name for name in _NAMES if name not in tensors]:
        raise ModelError(f"{path} is no head of draftwood or EAGLE-3: it lacks {missing[0]}")
    shape = _own_shape(path, header) if header.get("format") == FORMAT else _public_shape(path)
    tensors = {name: tensors[name] for name in (*_NAMES, "d2t", "lm_head.weight") if name in tensors}
    weights = HeadWeights(shape, tensors, header.get("target", ""))
    _check(path, weights)
    if not all(bool(np.isfinite(one).all()) for one in tensors.values() if one.dtype.kind == "f"):
        raise ModelError(f"{path} holds numbers that are not finite: it is damaged")
    return weights


def read_arrays(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Return the header and the tensors of a file of safetensors; floats become float32.

    Raises `ModelError` where it is missing or cut.
    """
    if not path.is_file():
        raise ModelError(f"there is no head at {path}: make one with draftwood train head MODEL -o {path.name}")
    try:
        file = MappedFile(path)
        found = {name: _array(one.kind, one.data, one.shape) for name, one in tensors_of(file).items()}
        return metadata_of(file), found
    except (DraftwoodError, KeyError) as error:
        raise ModelError(f"{path} cannot be read as head ({error}): is it cut, or of another kind?") from error


def _array(kind: str, raw: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the numbers of a tensor as a copy."""
    found = raw.view(_KINDS[kind]).copy() if kind in _KINDS else read_floats(kind, raw)
    return found.reshape(shape)


def _own_shape(path: Path, header: Mapping[str, str]) -> HeadShape:
    try:
        known = json_object(header["shape"], "the shape", ValueError)
        return HeadShape(**{**known, "layers": tuple(known["layers"])})
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the header of {path} is damaged ({error}): train or fetch the head again") from error


def _public_shape(path: Path) -> HeadShape:
    """Return the shape of a public EAGLE-3 file."""
    place = path.with_name("config.json")
    try:
        config = json_object(place.read_bytes(), str(place), ValueError)
        width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        depth = int(config.get("target_num_hidden_layers") or 0)
        states = config.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids") or config.get("aux_layers")
        theta = float(config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta") or 10000.0)
        return HeadShape(
            width=width, layers=tuple(int(layer) for layer in states or ()), target_layers=depth,
            target_vocab=int(config["vocab_size"]), dim=int(config.get("head_dim") or width // heads),
            eps=float(config.get("rms_norm_eps", 1e-6)), theta=theta,
        )  # fmt: skip
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(
            f"{path} has no header of draftwood's, and {place} does not say its shape ({error}): put the head's "
            "config.json beside it"
        ) from error


def _check(path: Path, weights: HeadWeights) -> None:
    """Raise `ModelError` where the tensors do not fit together."""
    width, dim, tensors = weights.shape.width, weights.shape.dim, weights.tensors
    queries, keys = (len(tensors[f"{_LAYER}self_attn.{name}_proj.weight"]) for name in "qk")
    inner = len(tensors[f"{_LAYER}mlp.gate_proj.weight"])
    several = tensors["fc.weight"].shape[-1] // max(1, width)
    expected = {
        "fc.weight": (width, several * width),
        f"{_LAYER}self_attn.q_proj.weight": (queries, 2 * width),
        f"{_LAYER}self_attn.k_proj.weight": (keys, 2 * width),
        f"{_LAYER}self_attn.v_proj.weight": (keys, 2 * width),
        f"{_LAYER}self_attn.o_proj.weight": (width, queries),
        f"{_LAYER}mlp.gate_proj.weight": (inner, width),
        f"{_LAYER}mlp.up_proj.weight": (inner, width),
        f"{_LAYER}mlp.down_proj.weight": (width, inner),
        "norm.weight": (width,),
        f"{_LAYER}input_layernorm.weight": (width,),
        f"{_LAYER}hidden_norm.weight": (width,),
        f"{_LAYER}post_attention_layernorm.weight": (width,),
    }
    if "lm_head.weight" in tensors:
        expected["lm_head.weight"] = (len(weights.ids()), width)
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise ModelError(f"{path}: {name} is {list(tensors[name].shape)}, not {list(shape)}: it is damaged")
    if dim % 2 or queries % dim or keys % dim or (queries // dim) % (keys // dim):
        raise ModelError(f"{path}: {queries} and {keys} numbers are no whole heads of {dim}: it is damaged")
    ids = weights.ids()
    if not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= weights.shape.target_vocab:
        raise ModelError(f"{path}: its tokens are outside the target's vocabulary: it is damaged")
