"""Contract checks: an `AssertionError` or `DraftwoodError` says what a drafter or target does wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from draftwood.contracts import Drafter, DraftSession, Positions, Sampling, Scores, Target, Watch
from draftwood.decoding.loop import decode
from draftwood.decoding.request import Request
from draftwood.planning.fixed import FixedPlanner
from draftwood.step import Step
from draftwood.testing.targets import ToyTarget
from draftwood.tree import NO_CLAIM, TokenTree
from draftwood.verify.exact import SampleAndMatch


def run(
    target: Target,
    drafters: Sequence[Drafter],
    prompt: Sequence[int],
    *,
    limit: int = 40,
    nodes: int = 8,
    sampling: Sampling | None = None,
) -> tuple[list[int], list[Step]]:
    """Decode one request; returns the new tokens and the steps."""
    request = Request(prompt, limit, sampling or Sampling())
    emissions = list(decode(target, drafters, FixedPlanner(nodes), SampleAndMatch(), [request]))
    tokens = [token for emission in emissions for token in emission.tokens]
    return tokens, [emission.step for emission in emissions if emission.step is not None]


def check_drafter(drafter: Drafter, *, vocab_size: int = 8, prompt: Sequence[int] = (1, 2, 3, 1, 2)) -> None:
    """Check a drafter on a toy target of ``vocab_size`` tokens; an `AssertionError` says what it does wrong."""
    assert isinstance(drafter.name, str), "a drafter has a name"
    assert drafter.name, "a drafter's name is not empty"
    prior = drafter.prior
    assert prior.dtype == np.float32, "prior is float32"
    assert prior.ndim == 1, "prior is one-dimensional"
    assert ((prior >= 0) & (prior <= 1)).all(), "priors are probabilities"
    needs = drafter.needs
    assert min(needs.top_k, needs.lookahead_nodes) >= 0, "needs are not negative"
    assert needs.top_k or not needs.prompt, "with needs.prompt, needs.top_k says how many tokens"
    _check_session(drafter, vocab_size, prompt)
    if drafter.batches:
        assert type(drafter).draft_many is not Drafter.draft_many, "with batches, draft_many() is written"
        _check_many(drafter, prompt)
    for sampling in (Sampling(), Sampling(temperature=1.0, seed=3)):
        target = ToyTarget(vocab_size=vocab_size, order=2)
        plain, _ = run(target, [], prompt, sampling=sampling)
        for nodes in (0, 1, 5, 16):
            drafted, steps = run(target, [drafter], prompt, nodes=nodes, sampling=sampling)
            assert drafted == plain, f"the text changed with {nodes} nodes: the drafter saw or leaked something"
            assert not any(s.by_source[0].failed for s in steps), "the drafter raised or broke the contract"
        assert target.open_sessions == 0, "every session was closed"


def _check_many(drafter: Any, prompt: Sequence[int]) -> None:
    """Check that sessions which are asked together propose what each would alone."""
    nodes, rates = (7, 1, 3), np.array(drafter.prior)
    sessions = [drafter.open(list(prompt)[:end], None) for end in (len(prompt), 0, len(prompt) // 2)]
    alone = [session.draft(some, 0, rates) for session, some in zip(sessions, nodes, strict=True)]
    together = drafter.draft_many(sessions, nodes, (0,) * len(nodes), rates)
    assert len(together) == len(sessions), "draft_many() returns one tree per session"
    for one, other in zip(together, alone, strict=True):
        for column in ("tokens", "parents", "evidence", "lookahead"):
            same = getattr(one, column).tolist() == getattr(other, column).tolist()
            assert same, "draft_many() proposes for each session what its draft() proposes"
    for session in sessions:
        session.close()


def _check_session(drafter: Drafter, vocab_size: int, prompt: Sequence[int]) -> None:
    session = drafter.open(list(prompt), None)
    if drafter.needs.prompt:
        _observe(session, drafter, vocab_size, prompt)

    def draft(which: DraftSession, nodes: int) -> list[int]:
        return _draft(which, drafter, nodes, vocab_size)

    for nodes in (0, 1, 7):
        draft(session, nodes)
    again = draft(session, 7)
    assert draft(session, 7) == again, "drafting twice without news proposes the same"
    _check_saved(session, drafter, prompt, lambda which: draft(which, 7))
    assert draft(session, 7) == again, "save() leaves a session as it was, and so does a session that resumes"
    other = drafter.open(list(prompt), None)
    if drafter.needs.prompt:
        _observe(other, drafter, vocab_size, prompt, shift=1)
    other.extend([0, 1, 0, 1, 0])
    draft(other, 7)
    assert draft(session, 7) == again, "what a session reads does not reach others"
    session.extend([0, 1, 0, 1, 0])
    session.truncate(len(prompt))
    assert draft(session, 7) == again, "after truncate() a session proposes as before"
    other.close()
    session.close()
    session.close()


def _check_saved(
    session: Any, drafter: Drafter, prompt: Sequence[int], draft: Callable[[DraftSession], object]
) -> None:
    """Check that other sessions of the drafter can go on from what one has learnt of its text."""
    saved = session.save()
    if saved is None:
        return
    assert saved.nbytes >= 0, "what save() returns knows its bytes"
    for length in (len(prompt), len(prompt) // 2):
        other: Any = drafter.open([*prompt[:length], 0, 1], None)
        other.resume(saved, length)
        draft(other)
        other.extend([1, 0, 0])
        draft(other)
        other.close()


def _draft(session: Any, drafter: Drafter, nodes: int, vocab_size: int) -> list[int]:
    """Return the tokens of a draft, after those that it adds to a base tree if it needs one."""
    tree = session.draft(nodes, drafter.needs.lookahead_nodes, drafter.prior)
    _check_tree(tree, drafter, nodes, vocab_size)
    assert not len(tree) or tree.evidence.min() >= 0, "evidence indexes the prior"
    if not drafter.needs.base_tree:
        return [int(t) for t in tree.tokens]
    base_tree = TokenTree.build([1, 0, 2, 1], [-1, 0, -1, 2], belief=[0.7, 0.6, 0.4, 0.4])
    joined = session.branch(base_tree, nodes, drafter.needs.lookahead_nodes, drafter.prior)
    _check_tree(joined, drafter, nodes, vocab_size)
    there = {tuple(base_tree.tokens[base_tree.path(i)].tolist()) for i in range(len(base_tree))}
    for node in np.flatnonzero(joined.evidence < 0).tolist():
        assert joined.evidence[node] == NO_CLAIM, "evidence indexes the prior, or is NO_CLAIM"
        text = tuple(joined.tokens[joined.path(node)].tolist())
        assert text in there, "nodes with NO_CLAIM are those of the base tree"
    return [int(t) for t in (*joined.tokens, *tree.tokens)]


def _check_tree(tree: TokenTree, drafter: Drafter, nodes: int, vocab_size: int) -> None:
    tree.check_integrity(vocab_size)
    drafts, most = len(tree) - tree.n_lookahead, drafter.needs.lookahead_nodes
    assert drafts <= nodes, f"asked for {nodes} nodes, proposed {drafts}"
    assert len(tree) <= nodes + most, f"asked for {most} lookahead nodes, proposed {tree.n_lookahead}"
    assert not len(tree) or tree.evidence.max() < len(drafter.prior), "evidence indexes the prior"
    if tree.is_grown:
        rates = np.where(tree.evidence == NO_CLAIM, np.float32(0), drafter.prior[tree.evidence])
        assert tree.belief.tolist() == rates.tolist(), "a grown tree's beliefs are the accept rates"
        computed = replace(tree).path_belief
        assert np.allclose(tree.path_belief, computed, rtol=1e-5), "a node is reached as often as its path says"


def _observe(session: Any, drafter: Drafter, vocab_size: int, prompt: Sequence[int], *, shift: int = 0) -> None:
    """Show a session the best tokens after each of the prompt's tokens; ``shift`` makes them other tokens."""
    k = drafter.needs.top_k

    def show(positions: Positions, scores: Scores) -> None:
        ids, probabilities = scores.top_k(k)
        session.observe(int(positions[0]), (ids + shift) % vocab_size, probabilities)

    for opened, _ in ToyTarget(vocab_size=vocab_size, order=2).open([list(prompt)], watch=[Watch(show)]):
        opened.close()


def check_target(target: Target, *, prompt: Sequence[int] = (1, 2, 3), tolerance: float = 1e-4) -> None:
    """Check a target: trees give the scores of chains, and `keep` and `truncate` keep the cache right.

    ``tolerance`` bounds the difference of raw scores between a wide and a narrow pass.
    """
    can = target.capabilities
    vocab = can.vocab_size
    assert max(prompt) < vocab, "the prompt lies in the vocabulary"
    tokens = [t % vocab for t in (4, 5, 6, 7)]
    if can.rollback == "none":
        tree = TokenTree.empty()
    elif can.trees:
        tree = TokenTree.build(tokens, [-1, 0, -1, 2])
    else:
        tree = TokenTree.build(tokens)
    ((session, _),) = target.open([list(prompt)], reserve=8)
    root = tokens[0]
    (scores,) = target.score([(session, root, tree)])
    for node in range(-1, len(tree)):
        path = tree.path(node)
        text = [*prompt, root, *tree.tokens[path].tolist()]
        ((fresh, truth),) = target.open([text])
        gap = _gap(scores, 1 + node, truth)
        assert gap <= tolerance, f"node {node} scores differ from its own chain's by {gap}"
        fresh.close()
    kept = tree.path(len(tree) - 1)
    session.keep(kept)
    text = [*prompt, root, *tree.tokens[kept].tolist()]
    assert session.length == len(text), "after keep() the cache holds root and path"
    _check_settled(target, session, text, tolerance)
    if can.rollback != "none":
        _cut(target, session, list(prompt))
        _check_settled(target, session, list(prompt), tolerance)
        _cut(target, session, list(prompt))
        _check_prefix(target, session, list(prompt), tolerance)
    session.close()
    session.close()


def _cut(target: Target, session: Any, text: list[int]) -> None:
    """Cut what a session holds to a text that it begins with."""
    session.truncate(len(text))
    assert session.length <= len(text), "truncate() cuts to the length, or to less"
    _read_on(target, session, text)


def _read_on(target: Any, session: Any, text: list[int]) -> None:
    """Let a session read what it lacks of a text."""
    if session.length < len(text):
        target.extend([(session, text[session.length :])])


def _check_prefix(target: Any, session: Any, text: list[int], tolerance: float) -> None:
    """Check that sessions which begin with what another one has read go on as if they had read it."""
    prefix = target.save(session)
    if prefix is None:
        return
    assert list(prefix.ids) == text, "save() knows the committed text"
    assert prefix.nbytes > 0, "what save() returns knows its bytes"
    for length in (len(text), 1, len(text)):  # what was saved serves several sessions
        resumed = target.resume(prefix, length, reserve=4)
        assert resumed.length <= length, "resume() commits as many tokens as it is asked for, or fewer"
        _read_on(target, resumed, text[:length])
        _check_settled(target, resumed, text[:length], tolerance)
        resumed.close()
    _check_settled(target, session, text, tolerance)


def _check_settled(target: Target, session: Any, text: list[int], tolerance: float) -> None:
    """Check that a session goes on, by one token, as a new one that reads the text does."""
    ((fresh, _),) = target.open([text])
    after, truth = target.extend([(session, [text[0]]), (fresh, [text[0]])])
    gap = _gap(after, 0, truth)
    assert gap <= tolerance, f"the cache differs from a fresh reading: scores differ by {gap}"
    fresh.close()


def _gap(scores: Scores, row: int, truth: Scores) -> float:
    """Return by how much a row of raw scores differs from the first row of others."""
    gap: float = np.abs(scores.numpy(scores.raw(row)) - truth.numpy(truth.raw(0))).max()
    return gap
