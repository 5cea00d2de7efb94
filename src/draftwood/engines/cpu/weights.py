"""A model's weights in memory: the blocks of its layers, what comes before and after them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.blocks.attention import Attention
from draftwood.engines.cpu.blocks.attention_and_mamba import AttentionAndMamba
from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.delta_net import DeltaNet
from draftwood.engines.cpu.blocks.dense_and_experts import DenseAndExperts
from draftwood.engines.cpu.blocks.embedding import add_embedding
from draftwood.engines.cpu.blocks.experts import Experts
from draftwood.engines.cpu.blocks.gated_unit import GatedUnit
from draftwood.engines.cpu.blocks.latent_attention import LatentAttention
from draftwood.engines.cpu.blocks.layer_input import HUB_NAMES, TABLE, LayerInput, LayerInputs
from draftwood.engines.cpu.blocks.mamba import Mamba
from draftwood.engines.cpu.blocks.norm import add_kept_states, norm_names
from draftwood.engines.cpu.blocks.scores import add_scores
from draftwood.engines.cpu.blocks.short_convolution import ShortConvolution
from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.packing import Matrix, packing
from draftwood.engines.cpu.program import Program, Vector
from draftwood.engines.cpu.tensors import LayerTensors, Tensors
from draftwood.engines.files.families import Family
from draftwood.engines.files.formats import TILE
from draftwood.engines.files.gguf_file import GgufFile, check_writes
from draftwood.engines.files.gguf_types import growth
from draftwood.engines.files.hub_model import HubModel, are_alike, read_folder
from draftwood.engines.files.shape_reading import shape_of
from draftwood.engines.files.shapes import Shape
from draftwood.errors import ModelError, UnsupportedModelError, UsageError
from draftwood.local.machine import cores, free_memory

BLOCKS: dict[str, type[Block]] = {
    "attention": Attention, "latent_attention": LatentAttention, "short_convolution": ShortConvolution,
    "delta_net": DeltaNet, "mamba": Mamba, "attention_and_mamba": AttentionAndMamba,
    "gated_unit": GatedUnit, "experts": Experts, "dense_and_experts": DenseAndExperts, "layer_input": LayerInput,
}  # fmt: skip
"""By the names in rows of `draftwood.engines.files.families.FAMILIES`."""
_LOG = logging.getLogger("draftwood.engine")  # the command line shows what it says
_MUCH = 1.2  # times a file's size: from here on a line says how much memory; types of 1 to 3 bits take 1.2 to 2.1
Report = Callable[[int, int], None]  # takes bytes that are packed, and bytes in all

_ENDS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.embedding_norm": "token_embd_norm",
    "model.final_layernorm": "output_norm", "model.embeddings": "token_embd", "model.norm_f": "output_norm",
    "lm_head": "output", **HUB_NAMES,
}  # fmt: skip
NEXT = {
    "mtp.fc": "nextn.eh_proj", "mtp.pre_fc_norm_embedding": "nextn.enorm", "mtp.pre_fc_norm_hidden": "nextn.hnorm",
    "mtp.norm": "nextn.shared_head_norm",
}  # fmt: skip
"""GGUF's names of what a block for further tokens has beside a layer, by the hub's."""
_NEXT_OF_DEEPSEEK = {
    "eh_proj": "nextn.eh_proj", "enorm": "nextn.enorm", "hnorm": "nextn.hnorm",
    "shared_head.norm": "nextn.shared_head_norm", "shared_head.head": "nextn.shared_head_head",
    "embed_tokens": "nextn.embed_tokens",
}  # fmt: skip
_NEEDLESS = ("attn_rot_embd",)  # tensors of a layer that files may have but no pass reads


def hub_names(family: Family) -> dict[str, str]:
    """Return GGUF's names of a family's tensors by transformers'; ``#`` is the number of a layer or of an expert.

    Names have no ``.weight`` or ``.bias``, unless transformers' name has no such ending.
    """
    names = norm_names(family) | NEXT | _NEXT_OF_DEEPSEEK
    for block in (*family.mixers, *family.units, *family.ends):
        names |= BLOCKS[block].hub_names
    return _ENDS | {f"model.layers.#.{theirs}": f"blk.#.{name}" for theirs, name in names.items()}


def opened(path: Path) -> GgufFile | HubModel:
    """Return a GGUF file, or a folder that transformers reads.

    Raises what these raise, and `check_writes`.
    """
    if path.is_dir():
        return read_folder(path, hub_names)
    file = GgufFile(path)
    check_writes(path, file.metadata.get)
    if any(".nextn." in name for name in file.tensors) and not any(
        name.startswith("blk.0.") for name in file.tensors
    ):
        raise UnsupportedModelError(
            f"{path} holds only a model's block for further tokens (MTP): name the model's own file"
        )
    return file


class NextLayer(NamedTuple):
    """The block for further tokens of a file: see `draftwood.engines.cpu.head.mtp`.

    ``fuse`` is the matrix [width, 2 * width] for embedding and state; ``embedding`` and ``output`` are its own,
    if it has them. ``vectors`` are norms, by GGUF's names.
    """

    shape: Shape  # of a model of this layer alone
    blocks: list[Block]
    fuse: Matrix
    vectors: dict[str, Vector]
    embedding: Matrix | None
    output: Matrix | None


class Weights:
    """The weights of a GGUF file, or of a folder that transformers reads, filled in by `packed`.

    ``source`` is the path of either, or what was opened already; ``report`` takes bytes that are packed, and bytes
    in all. Matrices of floats become ``"int4"`` (embedding and scores ``"int8"``), ``"int8"``, ``"bfloat16"`` or
    ``"float16"``, or stay as they are (``becomes`` None).

    ``embedding`` and ``output`` are [vocabulary, width], the same one where the file has no second; ``layers`` are
    the blocks of each layer. ``factors`` divide frequencies of rotary positions. ``next_layer`` is the block for
    further tokens, None where the file has none. ``needed`` are bytes of memory for all, ``turned`` those by which
    matrices grow that become floats.

    Raises `UnsupportedModelError` for models or types that this engine does not run, `ModelError` for files whose
    tensors do not fit together, `UsageError` where there are no floats that could become ``becomes``.
    """

    def __init__(
        self, source: Path | GgufFile | HubModel, kernels: Kernels, report: Report | None = None,
        becomes: str | None = None,
    ) -> None:  # fmt: skip
        self.file = opened(source) if isinstance(source, Path) else source
        self.path = self.file.path
        tensors = self._tensors = Tensors(self.file, kernels, becomes)
        shape = self.shape = shape_of(self.file.metadata, prod(tensors.tensor("token_embd.weight").shape[:1]))
        self._report, self._done = report or (lambda _done, _all: None), 0
        self._check_becomes(becomes)
        self._check_memory()
        embedding = tensors.tensor("token_embd.weight", shape.vocabulary, shape.width)
        self.embedding = self.output = tensors.matrix(embedding, shape.vocabulary)
        if "output.weight" in self.file.tensors:
            output = tensors.tensor("output.weight", shape.vocabulary, shape.width)
            self.output = tensors.matrix(output, shape.vocabulary)
        self._layer_inputs = LayerInputs.load(tensors, shape) if shape.layer_input else None
        self.layers: list[list[Block]] = []
        for layer, names in enumerate(shape.blocks):
            of_layer = LayerTensors(tensors, layer, shape)
            self.layers.append([BLOCKS[name].load(of_layer, shape, layer) for name in names])
        self.last_norm = tensors.vector(f"{shape.family.last_norm}.weight", shape.width)
        self.factors = self._factors()
        self.next_layer = self._next_layer() if shape.next_layers and not shape.family.single else None
        self._refuse_unknown()

    def _check_becomes(self, becomes: str | None) -> None:
        every = self.file.tensors.values()
        if becomes in ("int4", "int8") and not any(self._tensors.kind(one) != one.kind for one in every):
            raise UsageError(f"{self.path} has no floats that could become {becomes}: leave weights out")

    def _check_memory(self) -> None:
        stays = [one.known.nbytes for name, one in self.file.tensors.items() if name == TABLE]
        every = self.file.tensors.values()
        size = self.file.size - sum(stays)
        self.turned = self._turned()
        need = self.needed = size + self.turned + sum(growth(one, self._tensors.kind(one)) for one in every)
        more = f", {(need - size) / 1e9:.1f} GB more than the file" if need > _MUCH * size else ""
        free = free_memory(swap=True)
        if free is not None and need > free:
            raise ModelError(
                f"{self.path} needs {need / 1e9:.1f} GB of memory{more}, and {free / 1e9:.1f} GB are free: take a "
                "smaller file, or end other programs"
            )
        if more:
            _LOG.info("%s takes %.1f GB of memory%s", self.path.name, need / 1e9, more)

    def _turned(self) -> int:
        """Return by how many bytes older files of latent attention grow: the keys' part becomes floats."""
        own, found = self.shape.latent, 0.0
        for name, one in self.file.tensors.items():
            if own.rank and name.endswith(".attn_kv_b.weight"):
                kept = one.known.nbytes + growth(one, self._tensors.kind(one))
                found += own.still / (own.still + own.value) * (4 * prod(one.shape) - kept)
        return round(found)

    def _refuse_unknown(self) -> None:
        """Raise `UnsupportedModelError` for a tensor that no block has asked for: a pass would leave it out."""
        further = range(self.shape.layers, self.shape.layers + self.shape.next_layers)
        passed = tuple(f"blk.{layer}." for layer in further) if self.shape.family.single else ()
        for name in self.file.tensors:
            if name.startswith(passed) or set(name.split(".")) & set(_NEEDLESS):
                continue
            if name not in self._tensors.read:
                raise UnsupportedModelError(
                    f"the CPU engine does not know the tensor {name} of {self.path.name}: take another engine"
                )

    def _factors(self) -> Vector | None:
        """Return the factors for texts of the lengths that the file allows: see `Shape.is_long`."""
        found = {}
        for name in ("rope_freqs", "rope_factors_long", "rope_factors_short"):
            if f"{name}.weight" in self.file.tensors:
                pairs = self.shape.rotary(local=False) // 2
                factors = found[name] = self._tensors.vector(f"{name}.weight", pairs)[:pairs]
                if not np.all(np.isfinite(factors) & (factors > 0)):
                    raise ModelError(
                        f"{name}.weight in {self.path} has factors that are not positive: get the file again"
                    )
        lengths = "long" if self.shape.is_long else "short"
        return found.get("rope_freqs", found.get(f"rope_factors_{lengths}"))

    def _next_layer(self) -> NextLayer:
        """Find the first block for further tokens; models that have several were trained with one."""
        shape, layer = self.shape, self.shape.layers
        tensors, own = LayerTensors(self._tensors, layer, shape), {}
        size, every = (shape.vocabulary, shape.width), self.file.tensors
        output = "output.weight" if "output.weight" in every else "token_embd.weight"
        for name, models in (("embed_tokens", "token_embd.weight"), ("shared_head_head", output)):
            found = every.get(f"blk.{layer}.nextn.{name}.weight")
            if are_alike(found, every[models]):  # published folders have them twice
                tensors.pass_over(f"nextn.{name}")
            elif found is not None:
                own[name] = tensors.part(f"nextn.{name}", size)
        alone = replace(
            shape, blocks=((shape.family.mixers[0], shape.blocks[-1][1]),),
            sizes=(replace(shape.attention, source=0),), windows=(0,), turning=(True,),
        )  # fmt: skip
        vectors = {name: tensors.vector(name, shape.width) for name in ("nextn.enorm", "nextn.hnorm")}
        last = "nextn.shared_head_norm"
        vectors[last] = tensors.vector(last, shape.width) if last in tensors else self.last_norm
        return NextLayer(
            alone, [BLOCKS[name].load(tensors, alone, 0) for name in alone.blocks[0]],
            tensors.part("nextn.eh_proj", (shape.width, 2 * shape.width)), vectors, own.get("embed_tokens"),
            own.get("shared_head_head"),
        )  # fmt: skip

    @contextmanager
    def packed(self) -> Iterator[None]:
        """Run a block while threads fill the matrices in; until its end they hold zeros.

        `ModelError` where the file was written to meanwhile.
        """
        parts = self._tensors.parts
        every = sum(part.tiles.nbytes for part in parts)

        def count(size: int) -> None:
            self._done += size
            self._report(self._done, every)

        with packing(parts, min(8, cores()), count):
            yield
        parts.clear()
        self.file.check_unchanged()
        if not self.file.files:  # a model in memory
            self._tensors.forget()

    def program(self, kernels: Kernels) -> Program:
        """Return the program of a pass."""
        shape = self.shape
        program = Program(shape, kernels, self.factors, self.output.tiles * TILE)
        add_embedding(program, self.embedding, program.x, shape.embedding_scale)
        if self._layer_inputs is not None:
            self._layer_inputs.add(program)
        for number, blocks in enumerate(self.layers):
            add_kept_states(program, number)
            with program.layer(number):
                for block in blocks:
                    block.build(program)
        add_kept_states(program, shape.layers, self.last_norm)
        add_scores(program, self.output, self.last_norm)
        program.finish()
        return program

    @property
    def matrices(self) -> list[dict[str, Matrix]]:
        """The matrices of each layer by GGUF's names."""
        return [{name: one for block in blocks for name, one in block.matrices.items()} for blocks in self.layers]

    @property
    def vectors(self) -> list[dict[str, Vector]]:
        """The vectors of each layer by GGUF's names."""
        return [{name: one for block in blocks for name, one in block.vectors.items()} for blocks in self.layers]

    @property
    def kind(self) -> str:
        """The type of the first layer's last matrix of a unit, as it is kept in memory."""
        return next(one["ffn_down"].kind for one in self.matrices if "ffn_down" in one)

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices, each once."""
        every = [self.embedding, self.output]
        if self._layer_inputs is not None:
            every.append(self._layer_inputs.matrix)
        every += (one for layer in self.matrices for one in layer.values())
        return sum({id(matrix): matrix.packed.nbytes for matrix in every}.values())

    def floats(self, matrix: Matrix, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return a matrix as its file has it, as `Tensors.floats`."""
        return self._tensors.floats(matrix, rows)
