"""The block for further tokens that comes with a model's file (MTP), as the weights of a head.

A pair is the state h at a token, after the model's last norm, and the token t that follows. ``x = eh_proj @
(norm(embedding of t), norm(h))`` goes through one layer like the model's own, which has keys and values of its
own. The norm of what comes out scores the token after t, and is the state of the next pair. DeepSeek-AI, 2024
(arXiv 2412.19437), section 2.2.
"""

from __future__ import annotations

from dataclasses import replace

from draftwood.engines.cpu.blocks.embedding import add_embedding
from draftwood.engines.cpu.blocks.norm import NORM, add_norm
from draftwood.engines.cpu.blocks.product import add_product
from draftwood.engines.cpu.blocks.scores import add_scores
from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.code.rounding import GROUP_RECORD
from draftwood.engines.cpu.head.weights import HeadProgram
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Inputs, Program, floats, records
from draftwood.engines.cpu.weights import Weights
from draftwood.engines.files.formats import GROUP, TILE, padded

LEAST_SCORED = 1 << 14
"""Fewest tokens that are scored, the first ones of the vocabulary, if it has so many. BPE numbers tokens by how
often they were needed: of a vocabulary of 152,000 the first 16,384 are 86 to 89 % of answers, 32,768 93 to 94 %,
65,536 98 %. Such a choice: arXiv 2502.14856."""


class MtpWeights:
    """The weights of a model's block for further tokens.

    ``scored`` is how many tokens it scores: so many that this takes about as long as the layer.
    """

    def __init__(self, target: Weights) -> None:
        assert target.next_layer is not None
        self._layer, self._factors = target.next_layer, target.factors
        self._embedding = self._layer.embedding or target.embedding
        output = self._layer.output or target.output
        shape, matrices = self._layer.shape, [self._layer.fuse, *self._of_layer]
        weights = sum(one.outputs * one.inputs * (shape.used if one.expert_bytes else 1) for one in matrices)
        self.scored = min(output.outputs, max(LEAST_SCORED, weights // shape.width))
        self._output = _first(output, self.scored)

    def program(self, kernels: Kernels) -> HeadProgram:
        """Return the program of its passes, which read states of pairs and leave those of the next ones there."""
        shape = replace(self._layer.shape, vocabulary=self.scored, max_positions=1 << 24, suppressed=())
        width = shape.width
        program = Program(shape, kernels, self._factors, self._output.tiles * TILE)
        token, state = floats(width), floats(width)
        add_embedding(program, self._embedding, token, shape.embedding_scale)
        both = Inputs(floats(2 * width), records(2 * width))
        after = Inputs(both.plain[:, width:], both.rounded[:, padded(width) // GROUP * GROUP_RECORD :])
        vectors = self._layer.vectors
        add_norm(program, NORM, token, vectors["nextn.enorm"], y=both.plain, out=both.rounded)
        add_norm(program, NORM, state, vectors["nextn.hnorm"], y=after.plain, out=after.rounded, joined=True)
        add_product(program, self._layer.fuse, both, program.x)
        for block in self._layer.blocks:
            block.build(program)
        last_norm = vectors["nextn.shared_head_norm"]
        add_norm(program, NORM, program.x, last_norm, y=state, out=None)
        add_scores(program, self._output, last_norm)
        program.finish()
        return HeadProgram(program, state, state)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that one of its passes reads, without the embedding."""
        return sum(matrix.packed.nbytes for matrix in (self._layer.fuse, self._output, *self._of_layer))

    @property
    def _of_layer(self) -> list[Matrix]:
        return [matrix for block in self._layer.blocks for matrix in block.matrices.values()]


def _first(matrix: Matrix, outputs: int) -> Matrix:
    """Return the first rows of a matrix, which share its memory."""
    return replace(matrix, packed=matrix.packed[: -(-outputs // TILE)], outputs=outputs)
