"""What a model's files say before it is loaded: which engine runs it, what it reads, how much memory it needs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftwood.engines.files.gguf_file import GgufFile, Tensor
from draftwood.engines.files.gguf_types import growth, kind_of
from draftwood.engines.files.hub_model import HubModel, weights_of
from draftwood.engines.files.shapes import Shape
from draftwood.errors import DraftwoodError, ModelError, UnsupportedModelError, UsageError
from draftwood.local.find import find
from draftwood.local.hub_names import HubName
from draftwood.local.neighbours import any_copy, name_of
from draftwood.models.engine import CPU, FASTEST, LLAMA_CPP, TRANSFORMERS, choose, is_installed

if TYPE_CHECKING:
    from draftwood.engines.cpu.weights import Weights

_OF_EXPERTS = re.compile(r"blk\.\d+\.ffn_(gate|up|down|gate_up)(_exps|\.\d+)\.weight")
_LAYER = re.compile(r"blk\.(\d+)\.")
_ROWS_IN_FILE = "per_layer_token_embd.weight"  # of which a token reads one row, from the file


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a model will need and can do.

    ``engine`` runs it, None if none here does; ``reason``: why not our own, or why none. ``weights`` counts
    numbers, ``kind`` is the type that most of them have. ``needed`` are bytes of weights in memory, ``read`` those
    of them that a token reads, ``context`` those that each token of a text takes, ``states`` those of a text's
    states, one that passes read and one that they write, 0 without recurrent layers; each place before its end
    that a text can go back to takes half as much; ``longest``: tokens that a text can have. None where
    this is not known.
    """

    model: str
    weights: int
    kind: str
    engine: str | None
    reason: str | None
    needed: int
    read: int | None
    context: int | None
    states: int | None
    longest: int | None


def forecast(name: str | os.PathLike[str]) -> Forecast:
    """Look at a GGUF file or a folder.

    Raises `UsageError` for a name of the hub of which nothing is here, and as `find`; `ModelError` for files that
    are damaged.
    """
    place = find(name)
    if isinstance(place, HubName):
        if (copy := any_copy(place)) is None:
            raise UsageError(f"{name} is a name of the hub: run draftwood pull {name}, which brings it")
        place = copy
    engine, source = choose(place, FASTEST, device="cpu")
    assert isinstance(source, Path)
    runs, reason, weights, file = _choice(engine, source)
    metadata = {} if file is None else file.metadata
    tensors = _tensors(source) if file is None else file.tensors
    kinds = Counter[str]()
    for one in tensors.values():
        kinds[one.kind] += prod(one.shape)
    return Forecast(
        str(metadata.get("general.architecture", name_of(source))), kinds.total(),
        max(kinds, key=kinds.__getitem__, default=""), runs, reason,
        weights.needed if weights else sum(_size(one) for one in tensors.values() if one.name != _ROWS_IN_FILE),
        None if file is None else _read(tensors, metadata) + (weights.turned if weights else 0),
        _context(weights.shape) if weights else None,
        _states(weights.shape) if weights else None,
        _whole(metadata, "context_length") or None,
    )  # fmt: skip


def read_of(weights: Weights) -> int:
    """Return how many bytes of loaded weights a token reads, as `Forecast.read`."""
    return _read(weights.file.tensors, weights.file.metadata) + weights.turned


def _choice(
    engine: str, source: Path
) -> tuple[str | None, str | None, Weights | None, GgufFile | HubModel | None]:
    """Return what `Forecast` has as ``engine`` and ``reason``, the weights as planned, and the file or folder."""
    chosen, weights = engine if is_installed(engine) else None, None
    try:
        file = _opened(source)
        if engine == CPU:
            weights = _planned(file)
    except (DraftwoodError, MemoryError) as error:
        if engine == CPU:
            chosen = _other(source) if isinstance(error, UnsupportedModelError) else None
        return chosen, str(error), None, None if source.is_dir() else GgufFile(source)
    return chosen, None, weights, file


def _tensors(folder: Path) -> Mapping[str, Tensor]:
    """Return the tensors of a folder, none where they are kept in a way that transformers alone reads."""
    try:
        return weights_of(folder)[1]
    except ModelError:
        return {}


def _opened(source: Path) -> GgufFile | HubModel:
    from draftwood.engines.cpu.weights import opened

    return opened(source)


def _other(source: Path) -> str | None:
    """Return the engine that may run what our own does not."""
    other = TRANSFORMERS if source.is_dir() else LLAMA_CPP
    return other if is_installed(other) else None


def _planned(file: GgufFile | HubModel) -> Weights:
    """Return weights as our own engine would load them, which are not read, nor is anything compiled.

    Raises what it would raise.
    """
    from draftwood.engines.cpu.code.instructions import chosen
    from draftwood.engines.cpu.code.kernels import NotCompiled
    from draftwood.engines.cpu.weights import Weights
    from draftwood.engines.files.vocabulary import FileVocabulary
    from draftwood.engines.tokens.tokenizer import HubTokenizer

    if isinstance(file, GgufFile):
        FileVocabulary(file.metadata)
    else:
        HubTokenizer(file.path)
    return Weights(file, NotCompiled(chosen()))


def _context(shape: Shape) -> int:
    """Return how many bytes our own engine keeps of each token."""
    owners = {one.source: one for one in shape.sizes if one.kv_heads}
    return sum(one.cell_bytes for one in owners.values())


def _states(shape: Shape) -> int:
    """Return how many bytes our own engine keeps of a text in states."""
    from draftwood.engines.cpu.blocks.delta_walk import state_sizes

    if not shape.states.heads:
        return 0
    layers = sum(any("mamba" in name or name == "delta_net" for name in names) for names in shape.blocks)
    _, size = state_sizes(shape)
    return 2 * 4 * layers * size


def _size(tensor: Tensor) -> int:
    """Return the bytes of a tensor in memory, 0 for one of an unknown type."""
    try:
        return tensor.known.nbytes + growth(tensor, kind_of(tensor, None))
    except UnsupportedModelError:
        return 0


def _read(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> int:
    """Return how many bytes of weights a token reads: of experts those that it chooses, of tables a row."""
    used, experts = (_whole(metadata, f"expert_{name}") or 1 for name in ("used_count", "count"))
    layers, ahead = (_whole(metadata, name) for name in ("block_count", "nextn_predict_layers"))
    tables = (_ROWS_IN_FILE, "token_embd.weight") if "output.weight" in tensors else (_ROWS_IN_FILE,)
    found = 0.0
    for name, tensor in tensors.items():
        layer = _LAYER.match(name)
        if name not in tables and not (layer and ahead and int(layer[1]) >= layers - ahead):
            found += _size(tensor) * (min(1, used / experts) if _OF_EXPERTS.fullmatch(name) else 1)
    return round(found)


def _whole(metadata: Mapping[str, Any], name: str) -> int:
    """Return a number of a file, 0 for what is no whole number from 1 on: `Forecast.reason` says what is wrong."""
    found = metadata.get(f"{metadata.get('general.architecture')}.{name}")
    return found if isinstance(found, int) and found > 0 else 0
