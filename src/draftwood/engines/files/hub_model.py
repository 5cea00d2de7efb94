"""A model as transformers has it, under the names that `weights` knows from GGUF files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.engines.files.families import Family
from draftwood.engines.files.gguf_file import Tensor, damaged, stored
from draftwood.engines.files.gguf_types import read_floats
from draftwood.engines.files.hub_experts import as_gguf_has_them, upright
from draftwood.engines.files.hub_settings import settings_of, text_settings
from draftwood.engines.files.open_file import OpenFile
from draftwood.errors import ModelError, ModelNotFoundError
from draftwood.files.foreign import json_object
from draftwood.files.paths import content

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_NEEDLESS = re.compile(
    r"rotary_emb\.inv_freq$"
    r"|^(model\.)?(visual|vision_(tower|embedder)|audio_tower|embed_(vision|audio)|multi_modal_projector)\."
)
"""Tensors that no pass over text reads."""


_READ = ("block_count", "embedding_length", "moe_latent_size")
"""Sizes by which tensors are told apart."""
Names = Callable[[Family], Mapping[str, str]]
"""Returns GGUF's names of a family's tensors by transformers': `draftwood.engines.cpu.weights.hub_names`."""


class HubModel:
    """A config.json, and tensors by transformers' names, as a `GgufFile`: with its attributes and methods.

    ``path`` is the folder, or the name of a model in memory; ``generation`` is its generation_config.json, without
    which transformers takes such settings from the config.json. Raises `UnsupportedModelError` for a model of no
    family of this engine, or a quantised one, and `ModelError` for settings that make no sense, or where
    ``lm_head`` is missing and the embedding is not used in its place.
    """

    halves = True

    def __init__(
        self, path: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], names: Names,
        files: Iterable[OpenFile] = (), generation: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.path, self.files, self._said = path, tuple(files), dict(config)
        family, self.metadata, factors, tied = settings_of(config)
        config = text_settings(config)
        known, tensors = names(family), _with_next_layer(tensors, self.metadata, family)
        layers, width, latent = (self.metadata.get(f"{family.architecture}.{name}", 0) for name in _READ)
        self.tensors = dict[str, Tensor]()
        for theirs, tensor in tensors.items():
            if not _NEEDLESS.search(theirs) and not _is_of_further_tokens(theirs, config, layers):
                name = _name_of(_of_text(theirs), known)
                if name in self.tensors:
                    raise ModelError(f"the weights in {path} have {name} twice: get them again")
                self.tensors[name] = _as_in_gguf(name, tensor, family)
        if not tied and "output.weight" not in self.tensors:
            raise ModelError(f"the weights in {path} are incomplete (lm_head.weight is missing): get them again")
        if tied and are_alike(*map(self.tensors.get, ("output.weight", "token_embd.weight"))):
            del self.tensors["output.weight"]  # where they differ, transformers takes both, too
        if family.turned:
            self.tensors = as_gguf_has_them(self.tensors)
        else:
            self.tensors = upright(self.tensors, latent or width)
        for name, values in factors.items():
            self.tensors[f"{name}.weight"] = _floats(f"{name}.weight", values)
        self.size = sum(tensor.known.nbytes for tensor in self.tensors.values())
        self.defaults = dict(config if generation is None else generation)
        self.metadata["tokenizer.ggml.suppress_tokens"] = self.defaults.get("suppress_tokens")
        if (ends := self.defaults.get("eos_token_id")) is None:
            ends = config.get("eos_token_id")
        every = ends if isinstance(ends, list) else [] if ends is None else [ends]
        if not all(type(token) is int for token in every):
            raise ModelError(f"the settings in {path} say that an answer ends with {ends!r:.40}: get them again")
        self.end_ids = frozenset(every)

    def check_unchanged(self) -> None:
        for file in self.files:
            file.check_unchanged()

    def digest(self) -> str:
        """Return a digest of weights and settings, as of `GgufFile`."""
        if not self.files:
            return ""
        said = hashlib.blake2b(json.dumps(self._said, sort_keys=True, default=str).encode(), digest_size=16)
        return " ".join([said.hexdigest(), *(f"{file.digest():x}" for file in self.files)])


def read_folder(folder: Path, names: Names) -> HubModel:
    """Open the weights of a folder; raises what `HubModel` and `tensors_of` raise."""
    config = read_json(folder / "config.json")
    settings_of(config)  # before any weights are looked for
    place = folder / "generation_config.json"
    generation = read_json(place) if place.is_file() else None
    files, tensors = weights_of(folder)
    return HubModel(folder, config, tensors, names, files, generation)


def _with_next_layer(
    tensors: Mapping[str, Tensor], metadata: dict[str, Any], family: Family
) -> Mapping[str, Tensor]:
    """Let a block for further tokens (MTP) be a layer after the last one, as in GGUF files, and say so.

    Folders of DeepSeek-V3 and its like have it there.
    """
    count = f"{family.architecture}.block_count"
    layer = f"model.layers.{metadata[count]}."
    if not {"mtp.fc.weight", f"{layer}eh_proj.weight"} & tensors.keys():
        return tensors
    metadata |= {count: metadata[count] + 1, f"{family.architecture}.nextn_predict_layers": 1}
    return {
        layer + name.removeprefix("mtp.layers.0.") if name.startswith("mtp.") else name: tensor
        for name, tensor in tensors.items()
    }


def _is_of_further_tokens(name: str, config: Mapping[str, Any], layers: int) -> bool:
    """Whether a tensor belongs to a block for further tokens (MTP) after the ``layers`` that are read."""
    if not config.get("num_nextn_predict_layers"):
        return False
    found = re.match(r"model\.layers\.(\d+)\.", name)
    return name.startswith("mtp.") or (found is not None and int(found[1]) >= layers)


def _of_text(name: str) -> str:
    """Return a tensor's name in a model of texts alone, which may be one part of several, called in two ways."""
    name = name.removeprefix("language_model.").replace("model.language_model.", "model.", 1)
    return re.sub(r"^backbone\.", "model.", name)


def _as_in_gguf(name: str, tensor: Tensor, family: Family) -> Tensor:
    """Return a tensor as GGUF files have it."""
    if family.adds_one and name.endswith("norm.weight") and not name.endswith("ssm_norm.weight"):
        return _floats(name, 1 + read_floats(tensor.kind, tensor.data))
    if name.endswith(".ssm_a"):  # in float64, whose last bits differ between machines, not those of the result
        return _floats(name, -np.exp(read_floats(tensor.kind, tensor.data).astype(np.float64)))
    return Tensor(name, tensor.kind, tensor.shape, tensor._data)


def are_alike(first: Tensor | None, second: Tensor | None) -> bool:
    """Return whether two matrices have the same bytes; of one in memory under two names none are read."""
    if first is None or second is None or (first.kind, first.shape) != (second.kind, second.shape):
        return False
    raw = first.known, second.known
    if all(isinstance(one, np.ndarray) for one in raw) and np.shares_memory(*raw):
        return True
    rows = prod(first.shape[:-1])
    step = max(1, _AT_ONCE * rows // raw[0].nbytes)
    parts = (slice(row, row + step) for row in range(0, rows, step))
    return all(np.array_equal(first.rows(part), second.rows(part)) for part in parts)


def _floats(name: str, values: np.ndarray[Any, Any]) -> Tensor:
    return Tensor(name, "F32", values.shape, np.ascontiguousarray(values, np.float32).view(np.uint8))


def _name_of(name: str, known: Mapping[str, str]) -> str:
    """Return GGUF's name of a tensor; where there is none its own, which `weights` then refuses."""
    part, _, ending = name.rpartition(".")
    if ending not in ("weight", "bias"):
        part, ending = name, ""
    found = known.get(_NUMBER.sub("#", part))
    if found is None:
        return name
    for number in _NUMBER.findall(part):
        found = found.replace("#", number, 1)
    return f"{found}.{ending}" if ending else found


_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
_MOST_AXES = 8  # of a tensor
_AT_ONCE = 1 << 24  # bytes of each that are compared at a time
_LONGEST = 100_000_000  # bytes of a header, as the format says
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def weights_of(folder: Path) -> tuple[list[OpenFile], dict[str, Tensor]]:
    """Return the files with a folder's weights, and their tensors by the names that they have there.

    Raises `ModelNotFoundError` where there are none or a part is missing, `ModelError` for damaged ones.
    """
    files: list[OpenFile] = []
    found: dict[str, Tensor] = {}
    wanted = parts_of(folder)
    for name in sorted(set(wanted.values())):
        try:
            file = OpenFile(folder / name)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(f"{folder / name}, a part of the weights, is missing: get it too") from error
        files.append(file)
        found |= tensors_of(file)
    missing = [name for name in wanted if name and name not in found]
    if missing:
        raise ModelError(f"the weights in {folder} are incomplete ({missing[0]} is missing): get them again")
    return files, found


def parts_of(folder: Path) -> dict[str, str]:
    """Return the file of each tensor by its name; of weights in one file, that file under an empty name."""
    if (folder / _SINGLE).is_file():
        return {"": _SINGLE}
    if (folder / _INDEX).is_file():
        parts = read_json(folder / _INDEX).get("weight_map")
        named = isinstance(parts, dict) and all(isinstance(n, str) and Path(n).name == n for n in parts.values())
        if named and parts:
            return parts
        raise ModelError(f"{folder / _INDEX} does not say which file has which weights: get it again")
    single = [path.name for path in folder.glob("*.safetensors")]
    if len(single) == 1:
        return {"": single[0]}
    raise ModelNotFoundError(f"{folder} has no {_SINGLE}, which the engine cpu reads: take transformers")


def tensors_of(file: OpenFile) -> dict[str, Tensor]:
    """Return the tensors of one file; raises `ModelError` where it contradicts itself."""
    start, header = _header(file)
    return {name: _tensor(file, start, name, said) for name, said in header.items() if name != "__metadata__"}


def metadata_of(file: OpenFile) -> dict[str, str]:
    """Return the ``__metadata__`` of a file's header; raises as `tensors_of`."""
    said = _header(file)[1].get("__metadata__", {})
    return {str(name): str(value) for name, value in said.items()} if isinstance(said, dict) else {}


def _header(file: OpenFile) -> tuple[int, dict[str, Any]]:
    """Return where the tensors begin, and the header."""
    size = int.from_bytes(file.read(0, min(file.size, 8)).tobytes(), "little")
    start = 8 + size
    if size > _LONGEST or start > file.size:
        raise damaged(file.path, "its header does not fit into it")
    try:
        return start, json_object(file.read(8, size).tobytes(), "its header", ValueError)
    except ValueError as error:
        raise damaged(file.path, "its header is no JSON object") from error


def _tensor(file: OpenFile, start: int, name: str, said: Any) -> Tensor:
    try:
        kind, shape, (low, high) = said["dtype"], tuple(said["shape"]), said["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise damaged(file.path, f"it does not say where the tensor {name!r} lies") from None
    numbers = (*shape, low, high)
    if (
        not isinstance(kind, str)
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)
        or not all(shape)
        or len(shape) > _MOST_AXES
    ):
        raise damaged(file.path, f"the tensor {name!r} is of an impossible shape")
    if kind not in _BYTES:
        return Tensor(name, f"type {kind}", shape, None)
    if high - low != prod(shape) * _BYTES[kind]:
        raise damaged(file.path, f"the tensor {name!r} has another size")
    return stored(file, name, kind, shape, start + low, (1, _BYTES[kind]))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises `ModelNotFoundError` or `ModelError`."""
    try:
        raw = content(path)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"there is no {path}: name a folder with a whole model") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error}): get it again") from error
    return json_object(raw, str(path), ModelError)
