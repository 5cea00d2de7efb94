"""A head on the CPU engine: nearly what training says, the same in passes of every shape, and texts intact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import draftwood
from draftwood.contracts import Prices, Sampling
from draftwood.drafters.head.drafter import HeadDrafter
from draftwood.engines.cpu.head.target import fitted
from draftwood.engines.cpu.head.weights import FUSE, KIND
from draftwood.engines.cpu.passes import PassRecord, Rows
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.formats import FORMATS
from draftwood.engines.files.gguf_types import dequantised, quantised, read_floats
from draftwood.engines.heads.fitting import shipped
from draftwood.engines.heads.weights import HeadShape, HeadWeights, read_head
from draftwood.engines.lent_scores import RowScores
from draftwood.engines.transformers.head import embedding_fingerprint
from draftwood.errors import CapabilityError, UsageError
from draftwood.training.head_module import HeadModule
from draftwood.tree import TokenTree
from draftwood.verify.noise import KeyedNoise
from tests.engines.tiny_gguf import LAYERS, VOCAB, WIDTH
from tests.helpers import check_texts_with_a_head, check_turns_with_a_head
from tests.toy_head import grow

TOKENS = 90  # of the head's vocabulary


def random_head(seed=0, layers=(0, 1), inner=96, width=WIDTH):
    """A head of random weights, in torch's arrays."""
    torch.manual_seed(seed)
    shape = HeadShape(width, layers, LAYERS, VOCAB, 16, 1e-5, 10000.0)
    module = HeadModule(shape, 4, 2, inner)
    for value in module.parameters():
        if value.dim() == 2:
            torch.nn.init.normal_(value, std=value.shape[1] ** -0.5)
    ids = sorted(np.random.default_rng(seed).permutation(VOCAB)[:TOKENS].tolist())
    return HeadWeights(shape, module.tensors(ids, torch.float32))


def as_kept(weights):
    """A head whose matrices are what the engine keeps of them, so that what differs is the arithmetic."""
    kept = {name: as_kept_matrix(value) if value.dim() == 2 else value for name, value in weights.tensors.items()}
    return replace(weights, tensors=kept)


def as_kept_matrix(matrix):
    return torch.from_numpy(dequantised(quantised(KIND, matrix.numpy()), FORMATS[KIND]))


def saved(path, weights):
    save_file(dict(weights.tensors), path, metadata=weights.header())
    return path


@pytest.fixture(scope="module")
def target(tiny_gguf):
    return CpuTarget(tiny_gguf("llama", "F32"), threads=2)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("head") / "head.safetensors", random_head())


@pytest.fixture(scope="module")
def head(target, file):
    return target.head(file)


def some_states(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(700, WIDTH)).astype(np.float32)[:count] for _ in range(2)]


def tokens_for(count, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB, count).tolist()


def check_says_what_training_does(head, weights, embedding, rows):
    """Ask that a head says nearly what `HeadModule` says: after pairs, some of which were not shown, and nodes."""
    module = HeadModule(weights.shape, 4, 2, len(weights.tensors["midlayer.mlp.gate_proj.weight"]))
    module.load_state_dict({name: value for name, value in weights.tensors.items() if name != "d2t"})
    attention, width = module.midlayer.self_attn, weights.shape.width
    positions, rng = [*range(10), *range(25, 55)], np.random.default_rng(0)

    def turned_at_positions(x, heads, turned=attention.turned):
        whole = x.new_zeros(1, positions[-1] + 1, x.shape[-1])
        whole[:, positions] = x
        return turned(whole, heads)[:, :, positions]

    attention.turned = turned_at_positions
    states = [rng.normal(size=(len(positions), width)).astype(np.float32) for _ in weights.shape.layers]
    tokens = rng.integers(0, len(embedding), len(positions)).tolist()
    with torch.inference_mode():
        made = module(torch.from_numpy(np.concatenate(states, -1))[None], embedding[tokens][None], 4)
        scores = [one[0, -1] @ rows[weights.ids()].T for one in made]
    for deep, expected in enumerate(scores):
        end, twin = len(positions) - deep, SteppedHead(head)
        after = twin.read(twin.open(), positions[:end], [[one[:end] for one in states]], tokens[:end])
        found = torch.from_numpy(after(tokens[end:]))
        assert (found.softmax(-1) - expected.softmax(-1)).abs().sum() / 2 < 0.05, "total variation"


def test_a_head_says_nearly_what_training_does(target):
    weights, tensors = as_kept(random_head()), target.model.weights.file.tensors
    embedding, rows = (
        torch.from_numpy(read_floats("F32", tensors[f"{name}.weight"].data)) for name in ("token_embd", "output")
    )
    check_says_what_training_does(fitted(target, weights), weights, embedding, rows)


def test_copies_and_cuts(head):
    """A text that was copied, or cut, drafts as one that was read anew."""
    states, drafter = some_states(120), HeadDrafter(target=head)
    text = tokens_for(122)

    def drafted(session, first):
        session.observe_hidden(first, {i: one[first:] for i, one in enumerate(states)})
        return nodes_of(session.draft(9, 0, drafter.prior))

    def begun(length):
        session = drafter.open(text[: length + 1], None)
        session.observe_hidden(0, {i: one[:length] for i, one in enumerate(states)})
        session.draft(9, 0, drafter.prior)
        return session

    true, session = drafted(drafter.open(text[:121], None), 0), begun(90)
    saved = session.save()
    session.truncate(51)
    assert session.reader.unread(51) == 0
    for first, length in ((90, 91), (44, 45), (5, 6)):
        twin = drafter.open(text[:121], None)
        twin.resume(saved, length)
        assert twin.reader.unread(length) == 0
        assert drafted(twin, first) == true
        twin.close()
    session.extend(text[51:121])
    assert drafted(session, 50) == true


def test_of_a_long_text_the_end_is_read_and_then_no_token_waits(head):
    drafter = HeadDrafter(target=head)
    session = drafter.open(tokens_for(301), None)
    session.observe_hidden(0, dict(enumerate(some_states(300))))
    for unread in (128, 0):
        assert session.reader.unread(301) == unread
        assert len(session.draft(4, 0, drafter.prior))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafters", ["head", "ngram+head"])
def test_texts_are_the_models_own(target, file, temperature, drafters, caplog):
    check_texts_with_a_head(target, file, drafters, temperature, caplog)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8)])
def test_turns_of_a_conversation_are_the_models_own(target, head, sampling, caplog):
    check_turns_with_a_head(target, head, sampling, caplog)


def test_calls_in_several_threads_get_the_texts_that_they_get_alone(target, file):
    """Law 11."""
    from concurrent.futures import ThreadPoolExecutor

    prompts = [[3, 5, 7, 3], [1, 2], list(range(20)), [9] * 5]

    def answer(prompt):
        return draftwood.generate(
            target, prompt, max_new_tokens=16, drafters=f'ngram+head:file="{file}"', planner="fixed:6"
        ).ids

    alone = [answer(prompt) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answer, prompts * 3)) == alone * 3


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_1"])
def test_the_fingerprint_is_that_of_the_model_of_transformers(tiny_gguf, kind):
    from transformers import AutoModelForCausalLM

    path = tiny_gguf("llama", kind)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    found = CpuTarget(path, threads=1)
    assert found.fingerprint == embedding_fingerprint(model.get_input_embeddings().weight)
    assert shipped(found.fingerprint) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_file_is_read_as_safetensors_reads_it(tmp_path, dtype):
    tensors = {name: one if name == "d2t" else one.to(dtype) for name, one in random_head().tensors.items()}
    save_file(tensors, tmp_path / "head.safetensors", metadata=random_head().header())
    found = read_head(tmp_path / "head.safetensors").tensors
    assert found.keys() == load_file(tmp_path / "head.safetensors").keys()
    for name, one in tensors.items():
        np.testing.assert_array_equal(found[name], one.float().numpy() if one.is_floating_point() else one.numpy())


class TestRefusals:
    def test_of_another_model(self, tmp_path, target):
        path = saved(tmp_path / "head.safetensors", random_head(width=32))
        with pytest.raises(CapabilityError, match="another model"):
            draftwood.generate(target, [1, 2, 3], drafters=f'head:file="{path}"')

    @pytest.mark.parametrize(("wrong", "said"), [
        ({"layers": (0, 9)}, "does not show"), ({"inner": 24}, "multiples of 32"),
    ])  # fmt: skip
    def test_of_other_sizes(self, target, wrong, said):
        with pytest.raises(CapabilityError, match=said):
            fitted(target, random_head(**wrong))

    def test_of_other_weights(self, target, caplog):
        for known in (target.fingerprint, "0123456789abcdef"):
            assert not caplog.records
            fitted(target, replace(random_head(), target=known))
        assert "was trained for other weights" in caplog.text

    def test_without_a_file(self, target):
        with pytest.raises(UsageError, match="no head comes with draftwood for this model"):
            draftwood.generate(target, [1, 2, 3], drafters="head")
        answer = draftwood.generate(target, [1, 2, 3], drafters="ngram+head:optional=true", max_new_tokens=3)
        assert len(answer.ids) == 3


class SteppedHead:
    """The twin of a `CpuHead` in passes over one token each: every node after its whole path, after the text."""

    def __init__(self, head):
        self._head, self._program, self._record = head, head._program, PassRecord(head._program)
        self.layers, self.capabilities, self.open = head.layers, head.capabilities, head.open

    def read_and_grow(self, text, positions, parts, tokens, asked):
        after = self.read(text, positions, parts, tokens)

        def row_after(path):
            (ids,), (probabilities,) = RowScores(after(path)[None]).top_k(int(asked.sizes[3]))
            return self._head._ids[ids], probabilities

        return grow(asked, row_after([]), row_after)

    def read(self, text, positions, parts, tokens):
        """Read pairs; returns what gives the scores after these further tokens."""
        states, width = [np.concatenate(one) for one in zip(*parts, strict=True)], self._program.shape.width
        for i, (where, token) in enumerate(zip(positions, tokens, strict=True)):
            for layer, some in enumerate(states):
                self._head._whole.target_states[0, layer * width : (layer + 1) * width] = some[i]
            first = self._pass(text, text.length, token, where, (FUSE,))
            text.positions.append(where)
        last = self._head._whole.whole_x[0, :width].copy()

        def after(path):
            row = first
            self._head._whole.whole_x[0, :width] = last
            for i, one in enumerate(path):
                row = self._pass(text, text.length + i, one, text.positions[-1] + 1 + i)
            return row

        return after

    def _pass(self, text, cell, token, where, asked=()):
        text.pages.make_ready(cell, cell + 1)
        self._record.fill([Rows(text.pages, cell, [token], positions=[where])], asked)
        self._head._pool.run(self._record.address, 1)
        return self._record.results(1)[0][0].copy()


@pytest.mark.parametrize("noise", [None, KeyedNoise(5, 1, 0.8), KeyedNoise(6)])
@pytest.mark.parametrize("threads", [1, 2])
def test_one_call_grows_the_tree_that_pass_after_pass_grows(head, noise, threads, monkeypatch):
    """To the last bit: after any number of new pairs, at any place, across the ends of pages and chunks."""
    monkeypatch.setattr(head, "_threads", threads)
    rng, trees, pairs = np.random.default_rng(0), [], (*range(1, 20), 40, 265, 1, 3, 1, 5, 1, 3, 130, *range(1, 7))
    text = rng.integers(0, VOCAB, 800).tolist()
    states = [rng.normal(size=(800, WIDTH)).astype(np.float32) for _ in range(2)]
    for drafter in (HeadDrafter(target=head), HeadDrafter(target=SteppedHead(head))):
        session, end = drafter.open(text[:2], noise), 2
        session.ends = frozenset(text[:5])
        for nodes, some in enumerate(pairs, 1):
            session.observe_hidden(end - 1, {i: one[end - 1 : end - 1 + some] for i, one in enumerate(states)})
            session.extend(text[end : end + some])
            end += some
            trees.append(session.draft(nodes, 0, drafter.prior))
            assert nodes_of(session.draft(nodes, 0, drafter.prior)) == nodes_of(trees[-1]), "nothing is new"
        session.close()
    assert max(len(tree) for tree in trees) > 20
    assert max(tree.longest for tree in trees) > 3
    for one, other in zip(trees[: len(pairs)], trees[len(pairs) :], strict=True):
        assert one.is_grown
        mine, true = nodes_of(one), nodes_of(other)
        both, least = mine.keys() & true.keys(), min(said[-1] for said in true.values())
        assert all(mine[node] == true[node] for node in both)
        # Of nodes that are as likely, one order takes these and the other those.
        assert all(some[node][-1] == least for some in (mine, true) for node in some.keys() - both)
        assert len(mine) == len(true)


def nodes_of(tree):
    """What is said of each node, by the tokens that lead to it."""
    columns = tree.evidence, tree.belief, tree.draft_prob, np.float32(tree.path_belief)
    said = zip(*(one.tolist() for one in columns), strict=True)
    return {tuple(tree.tokens[tree.path(node)].tolist()): one for node, one in enumerate(said)}


def test_what_does_not_pay_is_not_read(head):
    """By the prices, once passes were measured; the first drafts read the text alone."""
    drafter = HeadDrafter(target=head)
    session = drafter.open([1, 2, 3], None)
    rng, most = np.random.default_rng(1), []
    for token in (1.0, 1.0, 1.0, 1.0, 1e-12):
        states = {i: rng.normal(size=(1, WIDTH)).astype(np.float32) for i in range(2)}
        session.observe_hidden(len(session.text) - 2, states)
        session.prices = Prices(1e6, token=token)
        most.append(session.draft(30, 0, drafter.prior).longest)
        session.extend([4])
    assert most[:3] == [1, 1, 1]
    assert most[3] > 1
    assert most[4] == 0
    session.prices = Prices(1e6)
    session.observe_hidden(6, {i: rng.normal(size=(1, WIDTH)).astype(np.float32) for i in range(2)})
    for belief in (1.0, 0.5):
        tree = session.branch(TokenTree.build([5], belief=belief), 30, 0, drafter.prior)
        assert bool(len(tree)) == (belief < 1), "what others copy is sure"
