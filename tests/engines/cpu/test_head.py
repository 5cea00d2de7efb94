"""A head on the CPU engine: nearly what it says in torch, the same in passes of every shape, and texts intact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import draftwood
from draftwood.contracts import Sampling
from draftwood.engines.cpu.formats import FORMATS
from draftwood.engines.cpu.gguf_types import dequantised, quantised, read_floats
from draftwood.engines.cpu.head.target import fingerprint, fitted, head_of, shipped_head
from draftwood.engines.cpu.head.weights import KIND
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.heads.weights import HeadShape, HeadWeights, read_head
from draftwood.engines.transformers.head.load import embedding_fingerprint
from draftwood.engines.transformers.head.network import HeadNetwork
from draftwood.engines.transformers.head.target import TorchHead
from draftwood.errors import CapabilityError, UsageError
from draftwood.training.head_module import HeadModule
from tests.engines.tiny_gguf import LAYERS, VOCAB, WIDTH
from tests.helpers import check_texts_with_a_head, check_turns_with_a_head

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
    kept = {
        name: torch.from_numpy(dequantised(quantised(KIND, value.numpy()), FORMATS[KIND]))
        if value.dim() == 2
        else value
        for name, value in weights.tensors.items()
    }
    return replace(weights, tensors=kept)


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
    return head_of(target, file)


def some_states(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(700, WIDTH)).astype(np.float32)[:count] for _ in range(2)]


def tokens_for(count, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB, count).tolist()


def begun(head, count, *, pieces=()):
    """A session that has read so many pairs, in pieces that end at these places."""
    states, tokens, session, low = some_states(count), tokens_for(count), head.open(), 0
    for high in (*pieces, count):
        scores = head.read(session, range(low, high), [[one[low:high] for one in states]], tokens[low:high])
        low = high
    return session, scores


def said(scores):
    """Probabilities by token, float32[rows, vocabulary]."""
    ids, probabilities = scores.top_k(TOKENS)
    found = np.zeros((len(ids), VOCAB), dtype=np.float32)
    np.put_along_axis(found, ids, probabilities, axis=1)
    return found


def test_it_says_nearly_what_torch_says(head, target, monkeypatch):
    monkeypatch.setattr("draftwood.engines.transformers.head.network.fast_format", lambda _: torch.float32)
    weights, tensors = as_kept(random_head()), target.model.weights.file.tensors
    embedding, rows = (
        torch.from_numpy(read_floats("F32", tensors[f"{name}.weight"].data)) for name in ("token_embd", "output")
    )
    true = TorchHead(
        HeadNetwork(weights, embedding, rows), weights.ids().astype(np.int32), (0, 1), target.capabilities
    )
    states, tokens = some_states(40), tokens_for(40)
    positions = [*range(10), *range(25, 55)]  # some were not shown
    ours, theirs = head.open(), true.open()
    found = head.read(ours, positions, [states], tokens)
    expected = true.read(theirs, positions, [[torch.from_numpy(one) for one in states]], tokens)
    for parents in ((), (-1, -1, -1), (0, 0, 2), (3, 5)):
        if parents:
            some = tokens_for(len(parents), len(parents))
            (found,), (expected,) = head.grow([(ours, some, parents)]), true.grow([(theirs, some, parents)])
        gap = np.abs(said(found) - said(expected)).sum(-1) / 2
        assert gap.max() < 0.05, "total variation"


def test_a_tree_reads_each_branch_as_a_chain(head):
    tree, _ = begun(head, 70)
    other, _ = begun(head, 9, pieces=(4,))
    head.grow([(tree, [3, 9], [-1, -1]), (other, [7], [-1])])
    (row, beside) = head.grow([(tree, [4, 4, 2], [0, 1, 3]), (other, [8], [0])])
    for number, path in enumerate(([3, 4], [9, 4], [9, 4, 2])):
        chain, _ = begun(head, 70, pieces=(1, 2, 66))
        for deep, token in enumerate(path):
            (alone,) = head.grow([(chain, [token], [deep - 1])])
        np.testing.assert_array_equal(said(row)[number], said(alone)[0])
    again, _ = begun(head, 9)
    (copies,) = head.grow([(again, [7, 8], [-1, 0])])
    np.testing.assert_array_equal(said(beside)[0], said(copies)[1])


def test_copies_and_cuts(head):
    states, tokens = some_states(200), tokens_for(200)
    session, _ = begun(head, 130)
    head.grow([(session, [5, 6], [-1, 0])])
    twin = session.copied()
    session.truncate(70)
    for text, end, first in ((session, 70, 70), (twin, 130, 130)):
        assert (text.length, text.nodes) == (end, 0)
        scores = head.read(text, range(first, 200), [[one[first:] for one in states]], tokens[first:])
        np.testing.assert_array_equal(said(scores), said(begun(head, 200)[1]))
    later = session.copied()
    head.grow([(later, [1], [-1])])
    (found,) = head.grow([(session, [2], [-1])])
    twin.close()
    (expected,) = head.grow([(begun(head, 200)[0], [2], [-1])])
    np.testing.assert_array_equal(said(found), said(expected))


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
    assert fingerprint(found) == embedding_fingerprint(model.get_input_embeddings().weight)
    assert shipped_head(found) is None


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
        for known in (fingerprint(target), "0123456789abcdef"):
            assert not caplog.records
            fitted(target, replace(random_head(), target=known))
        assert "was trained for other weights" in caplog.text

    def test_without_a_file(self, target):
        with pytest.raises(UsageError, match="no head comes with draftwood for this model"):
            draftwood.generate(target, [1, 2, 3], drafters="head")
        answer = draftwood.generate(target, [1, 2, 3], drafters="ngram+head:optional=true", max_new_tokens=3)
        assert len(answer.ids) == 3

    def test_too_many_nodes(self, head):
        session, _ = begun(head, 3)
        with pytest.raises(CapabilityError, match="at most 256 nodes"):
            head.grow([(session, [1] * 257, [-1] * 257)])
