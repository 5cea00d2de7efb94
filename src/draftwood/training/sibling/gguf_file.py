"""Writes a sibling as a GGUF file, which takes its settings and its tokenizer from the target's.

How an architecture's weights are laid out in a GGUF file (some are reordered, some are stored with 1 added) is
found out by comparing the target's own weights with those in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import CapabilityError, ModelError
from draftwood.files.paths import whole_file
from draftwood.models.gguf_copy import begin_copy
from draftwood.training.sibling.module import layers_of

Array = NDArray[np.float32]
Layout = Callable[[Array], Array]

_LIKE = 0.8  # least likeness of a weight to its counterpart in the file, which may be rounded to a few bits
_BLOCK = 32  # weights that share a scale in Q8_0


def write_gguf(path: Path, sibling: Any, layers: Sequence[int], target: Any, template: Path) -> None:
    """Write a sibling, completely or not at all; matrices in Q8_0.

    Parameters
    ----------
    path
        Where it goes.
    sibling, layers
        The model, and of which layers of the target it is made.
    target
        The model of transformers that it drafts for.
    template
        A GGUF file of the target.

    Raises
    ------
    CapabilityError
        For a file of another model, and one whose layout is not understood.
    ModelError
        If a file cannot be read or written.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(template)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{template} cannot be read ({error}): name a whole GGUF file of the model") from error
    found = _Layouts(reader, target)
    tensors = list(_tensors(reader, found, sibling, layers))
    with whole_file(path, error=ModelError) as beside:
        _write(beside, reader, tensors, len(layers), found.n_layers)


class _Layouts:
    """Which tensor of the target each of a GGUF file is, and how its numbers are laid out there."""

    def __init__(self, reader: Any, target: Any) -> None:
        from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

        self._name = str(reader.fields["general.architecture"].contents())
        kinds = {name: kind for kind, name in MODEL_ARCH_NAMES.items()}
        config = target.config.get_text_config()
        self.n_layers, self._config = config.num_hidden_layers, config
        self.place, self._state = layers_of(target), target.state_dict()
        names = get_tensor_name_map(kinds[self._name], self.n_layers)
        self.by_file = {}
        for name in self._state:
            of_file = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if of_file is not None:
                self.by_file[of_file] = name
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}

    def layout(self, of_file: str) -> Layout:
        """Return how the target's tensor becomes this one of the file; `CapabilityError` where none fits."""
        ours, theirs = _array(self._state[self.by_file[of_file]]), _floats(self._tensors[of_file])
        likeness = {layout: _likeness(layout(ours), theirs) for layout in self._candidates(ours)}
        best = max(likeness, key=likeness.__getitem__)
        if likeness[best] < _LIKE:
            raise CapabilityError(
                f"the weights of {of_file} in the GGUF file are not those of the model: name a file of this model"
            )
        return best

    def _candidates(self, ours: Array) -> Iterator[Layout]:
        yield _same
        yield _plus_one
        heads = int(self._config.num_attention_heads)
        kv_heads = int(getattr(self._config, "num_key_value_heads", None) or heads)
        for count in {heads, kv_heads}:
            if not len(ours) % (2 * count):
                yield _Interleaved(count)


def _same(x: Array) -> Array:
    return x


def _plus_one(x: Array) -> Array:
    return x + 1


class _Interleaved:
    """Rows of each head, two halves of rotary pairs, taken by turns."""

    def __init__(self, heads: int) -> None:
        self._heads = heads

    def __call__(self, x: Array) -> Array:
        return x.reshape(self._heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def _likeness(x: Array, y: Array) -> float:
    """Return 1 where arrays are equal, less their difference as a share of the second; 0 for other shapes."""
    if x.shape != y.shape:
        return 0.0
    return 1.0 - float(np.linalg.norm(x - y) / max(float(np.linalg.norm(y)), 1e-12))


def _array(tensor: Any) -> Array:
    found: Array = tensor.detach().float().cpu().numpy()
    return found


def _floats(tensor: Any) -> Array:
    from gguf import quants

    return np.asarray(quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)


def _tensors(
    reader: Any, layouts: _Layouts, sibling: Any, layers: Sequence[int]
) -> Iterator[tuple[str, Any, NDArray[Any] | None]]:
    """Yield names of the sibling's tensors, the file's that each is like, and its numbers; None: the file's."""
    new = {old: at for at, old in enumerate(layers)}
    state, place = sibling.state_dict(), layouts.place
    tables = {id(one.weight) for one in (sibling.get_input_embeddings(), sibling.get_output_embeddings())}
    kept = {name for name, value in sibling.state_dict(keep_vars=True).items() if id(value) in tables}
    for tensor in reader.tensors:
        name = layouts.by_file.get(tensor.name)
        if name is None or name in kept:
            if not tensor.name.startswith("blk."):
                yield tensor.name, tensor, None
                continue
            raise CapabilityError(
                f"{tensor.name} of the GGUF file is none of the model's weights: name another file"
            )
        if not name.startswith(f"{place}."):
            yield tensor.name, tensor, layouts.layout(tensor.name)(_array(state[name]))
            continue
        old, _, rest = name.removeprefix(f"{place}.").partition(".")
        if int(old) in new:
            numbers = _array(state[f"{place}.{new[int(old)]}.{rest}"])
            to = tensor.name.replace(f"blk.{old}.", f"blk.{new[int(old)]}.", 1)
            yield to, tensor, layouts.layout(tensor.name)(numbers)


def _write(to: Path, reader: Any, tensors: Sequence[tuple[str, Any, Any]], layers: int, before: int) -> None:
    from gguf import GGMLQuantizationType, LlamaFileType, quants

    name = str(reader.fields["general.architecture"].contents())
    changed: dict[str, Any] = {f"{name}.block_count": layers}
    for key, field in reader.fields.items():
        value = field.contents()
        if key.startswith(f"{name}.") and isinstance(value, list) and len(value) == before:
            changed[key] = value[:layers]  # by place, as the sibling's own settings
    if "general.name" in reader.fields:
        changed["general.name"] = f"{reader.fields['general.name'].contents()} sibling"
    writer = begin_copy(to, reader, changed=changed)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    for tensor, like, numbers in tensors:
        if numbers is None:
            shape = [int(n) for n in reversed(like.shape)]
            data = np.asarray(like.data).reshape(-1).view(np.uint8)
            writer.add_tensor(
                tensor, data.reshape(_bytes_shape(shape, like.tensor_type)), raw_dtype=like.tensor_type
            )
        elif numbers.ndim > 1 and not numbers.shape[-1] % _BLOCK:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor, quants.quantize(np.ascontiguousarray(numbers), kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor, np.ascontiguousarray(numbers))
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _bytes_shape(shape: Sequence[int], kind: Any) -> tuple[int, ...]:
    from gguf import quant_shape_to_byte_shape

    return tuple(quant_shape_to_byte_shape(list(shape), kind))
