"""The CPU engine has the bits of its twin, `tests.oracles.cpu_pass`: scores, best tokens and hidden states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftwood.contracts import Watch
from draftwood.engines.cpu.code.records import CHUNK, Per
from draftwood.engines.cpu.phases import Division, Phase, Without
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.errors import CapabilityError
from draftwood.tree import TokenTree
from tests.engines.cpu.small_models import FEW_BITS, write_mixed
from tests.engines.cpu.small_models import KINDS as MIXED
from tests.engines.cpu.tiny_families import TINY, build, tensors_of, write
from tests.engines.story import random_tree
from tests.oracles.cpu_arithmetic import F, same_bits
from tests.oracles.cpu_pass import Pass
from tests.tiers import rest_is_slow

SMALL = {"hidden_size": 72, "intermediate_size": 72, "head_dim": 18}  # neither whole vectors nor whole tiles
TWO = {"gemma3": {"attention.sliding_window_pattern": 2}}  # of two layers, one sees the whole text
KINDS = [("llama", "Q4_K"), ("llama", "F32"), ("gemma2", "F16"), ("gemma3", "Q6_K"), ("mixtral", "BF16")]
CASES = [*KINDS, *((name, "Q8_0") for name in TINY)]
QUICK = (
    "qwen3", "phi3", "granite", "olmo2", "qwen3moe", "lfm2", "lfm2moe", "gpt-oss", "qwen2moe", "ernie4_5-moe",
    "qwen35", "qwen3next", "gemma4", "gemma4-small", "gemma4-mixture", "glm4-flash", "granitehybrid", "falcon-h1",
    "nemotron_h", "nemotron_h_moe-latent",
)  # fmt: skip
STATES = (
    "qwen35", "qwen35moe", "qwen3next", "granitehybrid", "granitehybrid-experts", "falcon-h1", "falcon-h1-norm",
    "nemotron_h", "nemotron_h_moe", "nemotron_h_moe-latent",
)  # fmt: skip
SEVERAL = (  # kinds of layers
    "smollm3", "olmo3", "lfm2", "lfm2moe", "granite-4", "granite_swa", "granitemoe_swa", "gemma4", "gemma4-small",
    "gemma4-mixture", "exaone4-small", *STATES,
)  # fmt: skip
IDS = np.random.default_rng(3).integers(0, 90, 40).tolist()


def written(folder, name, kind, tensors=None, **settings):
    """Write a tiny model of some layers, two unless told, whose ``tensors`` replace its own; returns its path."""
    layers = {} if name in SEVERAL else {"num_hidden_layers": 2}
    model = build(name, **layers | (SMALL if kind in ("F32", "F16", "BF16") else {}) | settings)
    every = tensors_of(name, model) | (tensors or {})
    return write(folder / "m.gguf", name, every, model.config, kind, TWO.get(name))


def shown(target, text):
    """Read a text; returns states, float32[tokens, layers + 1, width], and each token's scores and best token."""
    layers, states, scores, best = target.capabilities.hidden, [], [], []

    def show(positions, found):
        scores.extend(found.raw(row) for row in range(len(positions)))
        best.extend(found.argmax(row) for row in range(len(positions)))

    def show_hidden(first, found):
        assert first == sum(map(len, states)), "in order"
        states.append(np.stack([found[layer] for layer in layers], axis=1))

    watch = Watch(show, np.arange(len(text)), layers, show_hidden)
    ((session, _),) = target.open([text], watch=[watch])
    session.close()
    return np.concatenate(states), np.array(scores), best


def check(path, text):
    """Compare the engine with the twin at every token; returns what the engine shows."""
    found = states, scores, best = shown(CpuTarget(path, threads=1), text)
    twin = Pass(GgufFile(path))
    known = twin.begin()
    for position, token in enumerate(text):
        row = twin.read(token, known)
        for layer, state in enumerate(row.states):
            assert same_bits(states[position, layer], state), f"position {position}, before layer {layer}"
        assert same_bits(scores[position], row.scores), f"scores of position {position}"
        assert best[position] == row.best
    return found


@pytest.mark.parametrize(("name", "kind"), rest_is_slow(CASES, *KINDS, *((name, "Q8_0") for name in QUICK)))
def test_every_family_has_the_bits_of_its_twin(name, kind, tmp_path):
    check(written(tmp_path, name, kind), IDS[:12] if name in STATES else IDS)  # states are slow in numpy


@pytest.mark.parametrize("kinds", [MIXED, FEW_BITS])
def test_a_file_of_many_types_and_biases_has_them(kinds, tmp_path):
    check(write_mixed(tmp_path / "m.gguf", kinds=kinds), IDS)


def test_layers_of_different_sizes_have_them(tmp_path):
    """Heads, those of keys, and the gated unit; drafts of such a model are moved layer by layer."""
    model, random = build("qwen3", **SMALL | {"num_hidden_layers": 4}), np.random.default_rng(8)
    every, sizes = tensors_of("qwen3", model), [(4, 2, 72), (6, 3, 40), (6, 3, 96), (2, 1, 72)]
    for layer, (heads, kv_heads, inner) in enumerate(sizes):
        shapes = {
            "attn_q": (heads * 18, 72), "attn_k": (kv_heads * 18, 72), "attn_v": (kv_heads * 18, 72),
            "attn_output": (72, heads * 18), "ffn_gate": (inner, 72), "ffn_up": (inner, 72),
            "ffn_down": (72, inner),
        }  # fmt: skip
        every |= {
            f"blk.{layer}.{name}.weight": random.normal(0, 0.12, one).astype(F) for name, one in shapes.items()
        }
    names = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    keys = {name: list(some) for name, some in zip(names, zip(*sizes, strict=True), strict=True)}
    path = write(tmp_path / "m.gguf", "qwen3", every, model.config, "F32", keys)
    check(path, IDS)
    check_trees(path)


def test_a_text_longer_than_a_chunk_has_them(tmp_path):
    """The window of the first layer lies in two chunks at its end; the second layer sees the whole text."""
    settings = {"head_dim": 16, "hidden_size": 64, "max_position_embeddings": 1024}
    text = np.random.default_rng(4).integers(0, 150, CHUNK + 9).tolist()
    check(written(tmp_path, "gemma2", "Q8_0", **settings), text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gemma2", "Q8_0"),
        ("qwen3moe", "Q4_K"),
        ("lfm2", "Q8_0"),
        ("gpt-oss", "Q8_0"),
        ("qwen35", "Q8_0"),
        ("nemotron_h_moe", "Q8_0"),
        ("gemma4-small", "Q8_0"),
    ],
)
def test_each_node_of_a_tree_has_the_bits_of_its_path(name, kind, tmp_path):
    check_trees(written(tmp_path, name, kind))


def check_trees(path):
    rng, target, twin = np.random.default_rng(1), CpuTarget(path, threads=2), Pass(GgufFile(path))
    ((session, _),) = target.open([IDS[:20]])
    session.hidden = target.capabilities.hidden
    known = twin.begin()
    for token in IDS[:20]:
        twin.read(token, known)
    for _ in range(3):
        tree, root = random_tree(rng, 9, 150), int(rng.integers(150))
        (scores,) = target.score([(session, root, tree)])
        texts = {}
        for node, token in enumerate([root, *tree.tokens.tolist()], -1):
            texts[node] = (known if node < 0 else texts[int(tree.parents[node])]).copy()
            row = twin.read(token, texts[node])
            assert same_bits(scores.raw(1 + node), row.scores), f"node {node}"
            assert scores.argmax(1 + node) == row.best
            for layer, state in enumerate(row.states):
                assert same_bits(scores.hidden(layer)[1 + node], state), f"node {node}, before layer {layer}"
        kept = tree.path(int(rng.integers(-1, len(tree))))
        session.keep(kept)
        known = texts[int(kept[-1]) if len(kept) else -1]


# --- hard numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "which", "exponents", "largest"),
    [
        ("llama", "blk.0.ffn_gate", (-40, 30), 1e25),
        ("gemma", "blk.0.ffn_gate", (-40, 30), 1e25),
        ("llama", "blk.0.attn_q", (-2, 4), 1),
        ("gemma2", "blk.0.attn_q", (-2, 4), 1),
        ("gemma2", "output", (-40, 30), 2.99),
    ],
)
def test_numbers_of_every_size_have_the_bits_of_the_twin(name, which, exponents, largest, tmp_path):
    """They go through silu, gelu, softmax and the tanh of both caps; the states or scores after these show it."""
    wild = np.random.default_rng(5).normal(size=(150 if which == "output" else 72, 72))
    wild *= 10.0 ** np.linspace(*exponents, len(wild))[:, None]
    tensors = {f"{which}.weight": wild.astype(F), "blk.0.ffn_down.weight": np.eye(72, dtype=F)}
    states, scores, _ = check(written(tmp_path, name, "F32", tensors), IDS)
    sizes = np.abs(scores if which == "output" else states[:, 1])
    assert np.isfinite(sizes).all()
    assert sizes.max() > largest


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_what_is_not_finite_spoils_the_rows_that_see_it(value, kind, tmp_path):
    width = 72 if kind == "F32" else 256
    embedding = np.random.default_rng(6).normal(size=(150, width)).astype(F)
    embedding[7, 5] = value
    settings = {"num_hidden_layers": 1, "tie_word_embeddings": False}
    model = build("gemma2", **settings | (SMALL if kind == "F32" else {}))
    tensors = tensors_of("gemma2", model) | {"token_embd.weight": embedding}
    path = tmp_path / "m.gguf"
    write(path, "gemma2", tensors, model.config, lambda name: "F32" if name.startswith("token") else kind)
    _, scores, best = check(path, [7, *IDS])
    assert (best[0], best[1]) == (-1, -1)
    assert np.isfinite(scores[-1]).all(), "the window has left it behind"


# --- hidden states -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", rest_is_slow(["llama", "gemma3", "olmo2"], "llama"))
def test_states_are_nearly_those_of_transformers(family, tmp_path):
    model = build(family)
    target = CpuTarget(write(tmp_path / "m.gguf", family, tensors_of(family, model), model.config), threads=1)
    with torch.inference_mode():
        expected = model(torch.tensor([IDS]), output_hidden_states=True).hidden_states
    states, _, _ = shown(target, IDS)
    for layer, true in enumerate(torch.cat(expected).numpy()):
        gap = np.abs(states[:, layer] - true).max()
        assert gap < 0.01 * max(1.0, np.abs(true).max()), f"layer {layer}"


def test_texts_of_one_pass_keep_different_layers(tiny_gguf):
    target = CpuTarget(tiny_gguf("llama", "Q8_0"), threads=2)
    texts = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
    opened = target.open(texts)
    for (session, _), layers in zip(opened, [(0,), (1, 2), ()], strict=True):
        session.hidden = layers
    tree = TokenTree.build([5, 6], [-1, -1])
    found = target.score([(session, 11, tree) for session, _ in opened])
    target.score([(opened[2][0], 3, tree)])  # what was kept outlives the next pass
    for scores, layers, text in zip(found, [(0,), (1, 2)], texts, strict=False):
        states, _, _ = shown(target, [*text, 11, 6])
        for layer in layers:
            np.testing.assert_array_equal(scores.hidden(layer)[[0, 2]], states[-2:, layer])
    with pytest.raises(CapabilityError, match="was not asked for"):
        found[2].hidden(1)


OPTIONS = st.builds(
    Phase, st.sampled_from(list(Per)), st.integers(1, 9), st.booleans(), st.booleans(),
    st.sampled_from([None, None, "a", 3]), st.sampled_from([None, 0, 1]),
)  # fmt: skip


def limits(phases, times, asked, scored):
    """Twin of `Division.limits`: phase by phase."""
    found, first, opens = [], 0, 0
    for phase in phases:
        if phase.ends and not scored:
            break
        pieces = phase.number * times.get(phase.per, 1)
        if phase.per in (Per.ROWS, Per.SCORED):
            pieces = -(-times[phase.per] // phase.number)
        if Without(phase.layer) in asked or phase.only not in (None, *asked):
            pieces = 0
        opens = opens if phase.joined else first
        found.append([first, pieces, opens])
        first += pieces
    return found


@given(
    st.lists(OPTIONS, min_size=1), st.integers(1, 300), st.integers(0, 9), st.integers(1, 40),
    st.sets(st.sampled_from(["a", 3, Without(0), Without(1)])),
)  # fmt: skip
def test_a_pass_divides_its_phases_as_its_twin(phases, rows, scored, units, asked):
    phases.sort(key=lambda phase: phase.ends)  # scores come last
    times = {
        Per.ROWS: rows, Per.SCORED: scored, Per.UNITS: units, Per.EXPERTS: min(8, 2 * rows), Per.WALKS: 5,
    }  # fmt: skip
    found = Division(phases, 8, 2).limits(rows, scored, units, tuple(asked), 5)
    assert found.tolist() == limits(phases, times, asked, scored)


def test_a_pass_that_nobody_asked_has_no_work_for_it(tiny_gguf):
    program = CpuTarget(tiny_gguf("llama", "Q8_0")).model.program
    asked, plain = (program.limits(1, 1, 1, layers)[0][:, 1].sum() for layers in ((0, 1), ()))
    assert asked == plain + 2
