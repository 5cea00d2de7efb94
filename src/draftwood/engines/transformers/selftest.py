"""Tries a target on a few tokens before it is used: its scores must be those of the model's own forward over the
whole text. transformers does not declare whether attention can follow a tree, or a cache be rolled back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.contracts import Target
from draftwood.engines.transformers.shadow import shadow
from draftwood.tree import TokenTree

log = logging.getLogger("draftwood")

T = TypeVar("T", bound=Target)

ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-3}
"""How far scores less their mean may differ, as a share of the largest; a token wrongly seen: tens of per cent."""
_HALF = 0.1  # the same for half precision, which moves a whole row up or down by as much: no probability feels it

_CONTEXT = 11
_SIZE = 24


def agreeing(
    make: Callable[[], T], model: Any, known: Callable[[T], bool] = lambda _: False, *, brief: bool = False
) -> tuple[T | None, str]:
    """Make a target and try it; None, and the reason, where its scores are not the model's or it raises. A target
    that is ``known`` to be right is not tried. ``brief`` compares only the last node's scores of each pass."""
    try:
        target = make()
        if known(target) or _agrees(target, _Own(model, brief=brief)):
            return target, ""
        reason = "its scores differ"
    except Exception as error:  # whatever a model's code raises when it is run in a way it was not written for
        reason = f"{type(error).__name__}: {error}"
    log.debug("a way to run %s fails: %s", type(model).__name__, reason)
    return None, reason


def _agrees(target: Target, own: _Own) -> bool:
    """Try a fresh target on a small text: read, score a tree (or a chain), keep one branch, score, cut, score."""
    ids: list[int] = np.random.default_rng(0).integers(0, target.capabilities.vocab_size, _SIZE).tolist()
    a, b, c, d, e = ids[_CONTEXT + 1 : _CONTEXT + 6]
    text, root = ids[:_CONTEXT], ids[_CONTEXT]
    able, tree, other = target.capabilities, TokenTree.build([a, b, c]), TokenTree.build([d, e])
    if able.rollback == "none":
        tree = other = TokenTree.empty()
    elif able.trees:
        tree, other = TokenTree.build([a, b, c], [-1, 0, -1]), TokenTree.build([d, e], [-1, -1])
    ((session, first),) = target.open([text], reserve=8)
    try:
        if not (own.brief or own.says(text, first, 0)) or not _scored(target, session, text, root, tree, own):
            return False
        # Not the first branch, or only the first node of a chain, so that something must be taken back.
        kept = [] if not len(tree) else [2] if able.trees else [0]
        session.keep(kept)
        text = [*text, root, *tree.tokens[kept].tolist()]
        if not _scored(target, session, text, d, other, own):
            return False
        session.keep([])
        if able.rollback == "none":
            text = [*text, d]
        else:
            session.truncate(_CONTEXT)
            text = text[:_CONTEXT]
        if not _scored(target, session, text, e, TokenTree.empty(), own):
            return False
    finally:
        session.close()
    return not able.batch or _together(target, ids, tree, own)


def _together(target: Target, ids: list[int], tree: TokenTree, own: _Own) -> bool:
    """Try two texts of different lengths in one pass."""
    texts = [ids[:4], ids[4:_CONTEXT]]
    opened = target.open(texts)
    try:
        passes = [(session, ids[_CONTEXT], tree) for session, _ in opened]
        said = [own.brief or own.says(text, first, 0) for text, (_, first) in zip(texts, opened, strict=True)]
        for text, scores in zip(texts, target.score(passes), strict=True):
            said.append(_right([*text, ids[_CONTEXT]], scores, tree, own))
        return all(said)
    finally:
        for session, _ in opened:
            session.close()


def _scored(target: Target, session: Any, text: list[int], root: int, tree: TokenTree, own: _Own) -> bool:
    return _right([*text, root], target.score([(session, root, tree)])[0], tree, own)


def _right(text: list[int], scores: Any, tree: TokenTree, own: _Own) -> bool:
    """True if the scores of a pass are the model's own, at its root (the last token of the text) and nodes."""
    nodes = range(len(tree) - 1 if own.brief else -1, len(tree))
    return all(own.says([*text, *tree.tokens[tree.path(node)].tolist()], scores, 1 + node) for node in nodes)


class _Own:
    """The model's own scores of whole texts."""

    def __init__(self, model: Any, *, brief: bool) -> None:
        self.brief = brief
        self._model = shadow(model, attention=None)
        self._device = model.get_input_embeddings().weight.device
        self._rounding = ROUNDING.get(model.get_input_embeddings().weight.dtype, _HALF)
        self._known: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def says(self, text: Sequence[int], scores: Any, row: int) -> bool:
        """True if a target's scores of this row are the model's own after this text."""
        ours, own = (some - some.mean() for some in (scores.numpy(scores.raw(row)), self.after(text)))
        return bool(np.abs(ours - own).max() <= self._rounding * np.abs(own).max())

    @torch.inference_mode()
    def after(self, text: Sequence[int]) -> NDArray[np.float32]:
        """Scores float32[vocab] of what follows."""
        key = tuple(text)
        if key not in self._known:
            logits = self._model(input_ids=torch.tensor([key], device=self._device), use_cache=False).logits
            self._known[key] = logits[0, -1].float().cpu().numpy()
        return self._known[key]
