"""Every family of the CPU engine: scores as transformers has them, and the same bits however a text is read."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from draftwood.engines.cpu.code.instructions import INSTRUCTIONS, runnable
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.errors import CapabilityError, ModelError
from draftwood.tree import TokenTree
from tests.engines import tiny_gguf
from tests.engines.cpu.tiny_families import (
    TINY,
    VOCAB,
    WINDOW,
    build,
    config_of,
    fitting,
    rounded,
    scores_of,
    sizes_of,
    tensors_of,
    tiled,
    write,
)
from tests.tiers import rest_is_slow

IDS = np.random.default_rng(3).integers(0, VOCAB, 200).tolist()
FLIP = 2**-8
"""Of the largest score: what a value may change that lies so near the middle between two whole numbers that
another order of sums decides between them. They lie 1 / 127 of the largest of their 32 apart, and are one of many.
The models that ours are compared with round what cells hold as we do."""

EIGHT_BITS = 0.05
"""Root of the mean square of what inputs in 8 bits change, as part of that of all scores. One of them is off by
step / sqrt(12), step being largest / 127 and the largest of 32 about 2.5 times their root mean square: 0.6 % per
product. There are four in a row in each of up to seven layers and one behind: 3 %."""
WIDER = {"qwen35moe": 1.2, "qwen3next": 1.2, "nemotron_h_moe": 1.2}
"""States carry what is rounded along the text, and shares of experts and of their gates are rounded, too. Squares
are off by twice as much."""
KEPT = (
    "mlp.gate.weight", "feed_forward.gate.weight", "conv.conv.weight", "router.weight", "router.proj.weight",
    "expert_gate.weight", "_bias", "conv1d.weight", "in_proj_a.weight",
)  # fmt: skip
"""What is in floats, whatever the file's type."""
QUICK = ("llama", "gemma2", "gemma3", "phi3", "qwen3moe")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """``files(name, kind)`` is a model and its GGUF file; the model has the weights that the file can hold."""
    folder, made = tmp_path_factory.mktemp("families"), {}

    def get(name, kind="F32", **settings):
        key = (name, kind, *settings.items())
        if key not in made:
            model = build(name, **settings)
            place = folder / f"{len(made)}.gguf"
            path = write(place, name, tensors_of(name, model), model.config, kind)
            with torch.no_grad():
                for parameter_name, parameter in model.named_parameters():
                    is_read = ".visual." not in parameter_name
                    if is_read and parameter.ndim > 1 and not parameter_name.endswith(KEPT):
                        turned = TINY[name].turned and "experts" in parameter_name
                        weights = parameter.swapaxes(1, 2) if turned else parameter
                        values, order = np.ascontiguousarray(weights.numpy()), (1, 1)
                        if name != "qwen3next" and parameter_name.endswith(
                            "linear_attn.out_proj.weight"
                        ):  # blocks are as in the file
                            order = model.config.linear_num_key_heads, model.config.linear_num_value_heads
                            values = np.ascontiguousarray(tiled(values.T, *order).T)
                        values = rounded(values, fitting(kind, values.shape[-1]))
                        if order != (1, 1):
                            values = tiled(values.T, order[1] // order[0], order[1]).T
                        weights.copy_(torch.from_numpy(values))
            made[key] = SimpleNamespace(model=model, path=path)
        return made[key]

    return get


def read(target, ids, width=256):
    """Return the scores of all positions, read in passes of so many tokens."""
    [(session, first)] = target.open([ids[:1]])
    rows = [first.raw(0)]
    while session.length < len(ids):
        part = ids[session.length : session.length + width]
        [scores] = target.score([(session, part[0], TokenTree.build(part[1:]))])
        rows += [scores.raw(row) for row in range(len(part))]
        session.keep(range(len(part) - 1))
    session.close()
    return np.array(rows)


def all_experts(name):
    """Settings with which each token of a mixture takes all experts; none for other families."""
    usual = config_of(name).get_text_config().to_dict()
    return {used: 6 for used in ("num_experts_per_tok", "moe_k", "top_k_experts") if used in usual}


def difference(ours, theirs):
    return np.sqrt(np.square(ours - theirs).mean() / np.square(theirs).mean())


@pytest.mark.parametrize("name", TINY)
def test_scores_are_those_of_transformers(name, files):
    # Of gemma4's mixture two experts score so nearly alike that a value which flips decides between them.
    file = files(name, **(all_experts(name) if name == "gemma4-mixture" else {}))
    ours, theirs = read(CpuTarget(file.path, threads=1), IDS), scores_of(file.model, IDS)
    assert np.abs(ours - theirs).max() < FLIP * np.abs(theirs).max()


def divergence(theirs, ours):
    """Mean KL divergence of tokens by our scores from those by theirs, in nats."""
    expected, found = (torch.from_numpy(one).double().log_softmax(-1) for one in (theirs, ours))
    return float((expected.exp() * (expected - found)).sum(-1).mean())


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen2"])
def test_whole_numbers_in_attention_change_little(name, files):
    file = files(name)
    ours, exact = read(CpuTarget(file.path, threads=1), IDS), copy.deepcopy(file.model)
    exact.set_attn_implementation("eager")  # in float32
    assert 0 < divergence(scores_of(exact, IDS), ours) < 1e-4


# Of deepseek3 two groups of experts are chosen, and what is rounded decides between two that score alike.
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("name", rest_is_slow([name for name in TINY if name != "deepseek3"], *QUICK))
def test_scores_of_quantised_weights_are_those_of_what_they_stand_for(name, kind, files):
    # Of a mixture all experts are used: else what is rounded decides between two that score alike.
    file = files(name, kind, **all_experts(name))
    ours, theirs = read(CpuTarget(file.path, threads=1), IDS), scores_of(file.model, IDS)
    assert 1e-4 < difference(ours, theirs) < EIGHT_BITS * WIDER.get(name, 1)


UNREAD = ("attention.head_count", "expert_count", "expert_used_count")
"""Numbers without which llama.cpp ends the process: files without them are refused here."""


# Without some numbers of deepseek2 it ends the process.
OTHERS = [name for name, tiny in TINY.items() if tiny.architecture != "deepseek2"]


@pytest.mark.parametrize("name", rest_is_slow(OTHERS, "llama-yarn", "gemma2", "granite"))
def test_llama_cpp_reads_our_tiny_files_alike_whatever_number_is_missing(name, tmp_path):
    """Or both refuse it. So the order of their numbers is that of real files; none needs the first, vocab_size."""
    model = build(name, vocab_size=tiny_gguf.VOCAB)
    tensors, path = tensors_of(name, model), tmp_path / "less.gguf"
    other = {
        "phi3": {"attention.sliding_window": None},  # which llama.cpp leaves out
        "exaone4": {"attention.sliding_window": None},  # which it heeds in files of 64 layers alone
        "gpt-oss": {"rope.scaling.yarn_truncate": True},  # which llama.cpp does, and no file says
    }.get(name, {})
    said = sizes_of(model.config) | TINY[name].keys
    for key in [key for key in said if said[key] is not None and key not in other]:
        if (name, key) == ("phi3-long", "rope.scaling.original_context_length"):
            continue  # there its choice of factors goes by the room that it was given
        if key == "rope.dimension_sections" or "shared_feed" in key:
            continue  # it refuses files without; here no number is needed: positions of texts, a tensor's size
        if name.startswith("nemotron") and "layer_norm" in key:
            continue  # files have two such numbers: older ones need the one, we the other
        if name.startswith("gemma4") and key == "rope.dimension_count_swa":
            continue  # without it llama.cpp ends the process
        if (name, key) == ("gpt-oss", "expert_feed_forward_length"):
            continue  # here feed_forward_length is enough, which is the same
        write(path, name, tensors, model.config, keys={key: None, **other}, vocabulary=True)
        ours, theirs = last_row(CpuTarget, path), None if key in UNREAD else last_row(LlamaTarget, path)
        assert (ours is None) == (theirs is None), key
        # Its cells are in float16, and it rounds queries and weights of attention to that, too.
        assert ours is None or np.abs(ours - theirs).max() < 8 * FLIP * np.abs(theirs).max(), key


def last_row(engine, path):
    """The scores behind the text; None where the engine refuses the file."""
    try:
        target = engine(path, threads=1, **{"exact": False} if engine is LlamaTarget else {})
    except CapabilityError as error:
        pytest.skip(str(error))
    except ModelError:
        return None
    [(session, scores)] = target.open([IDS])
    row = np.array(scores.raw(0))
    session.close()
    return row


@pytest.mark.parametrize(("number", "windows"), [(0, "1111111"), (1, "0000000"), (2, "1010101"), (9, "1111111")])
def test_a_pattern_of_windows_is_a_number_as_in_llama_cpp(number, windows, tmp_path):
    """One layer in so many sees the whole text: each with 1, none with 0."""
    model = build("gemma3", vocab_size=tiny_gguf.VOCAB)
    keys = {"attention.sliding_window_pattern": number}
    path = write(tmp_path / "f", "gemma3", tensors_of("gemma3", model), model.config, keys=keys, vocabulary=True)
    assert [*map(bool, CpuTarget(path).model.weights.shape.windows)] == [one == "1" for one in windows]
    if number != 1:  # at which llama.cpp ends the process
        ours, theirs = last_row(CpuTarget, path), last_row(LlamaTarget, path)
        assert np.abs(ours - theirs).max() < 4 * FLIP * np.abs(theirs).max()


# --- the same bits -----------------------------------------------------------------------------------------------

KINDS = ("F32", "Q8_0", "Q4_K")
FILES = [(name, kind) for name in TINY for kind in KINDS]
FEW = [(name, "Q4_K") for name in QUICK] + [("mixtral", "F32"), ("gemma", "F32"), ("glm4-flash", "Q8_0")]


@pytest.mark.parametrize(("name", "kind"), rest_is_slow(FILES, *FEW))
def test_a_row_has_the_same_bits_at_every_width(name, kind, files):
    path = files(name, kind).path
    target, ids = CpuTarget(path, threads=1), IDS[: 3 * WINDOW]
    alone = read(target, ids, 1)
    for width in (2, 3, 5, 13, 256):
        assert np.array_equal(read(target, ids, width), alone)
    assert np.array_equal(read(CpuTarget(path, threads=3), ids, 31), alone)


@pytest.mark.parametrize(("name", "kind"), rest_is_slow(FILES, *FEW))
def test_a_row_has_the_same_bits_in_trees_and_beside_other_texts(name, kind, files):
    random = np.random.default_rng(7)
    target = CpuTarget(files(name, kind).path, threads=1)
    texts = [IDS[: 2 * WINDOW], IDS[50:61], IDS[: WINDOW - 3]]
    trees = [
        TokenTree.build(
            random.integers(0, VOCAB, size).tolist(),
            [int(random.integers(-1, i)) if i else -1 for i in range(size)],
        )
        for size in (30, 9, 17)
    ]
    sessions = [target.open([text])[0][0] for text in texts]
    found = target.score([(session, 5, tree) for session, tree in zip(sessions, trees, strict=True)])
    for text, tree, scores in zip(texts, trees, found, strict=True):
        rows = [scores.raw(row) for row in range(1 + len(tree))]
        for node in range(-1, len(tree)):
            path = [*text, 5, *tree.tokens[tree.path(node)].tolist()]
            assert np.array_equal(read(target, path)[-1], rows[1 + node])
    kept = trees[0].path(29)
    sessions[0].keep(kept)
    text = [*texts[0], 5, *trees[0].tokens[kept].tolist()]
    [scores] = target.score([(sessions[0], 6, TokenTree.empty())])
    assert np.array_equal(scores.raw(0), read(target, [*text, 6], 1)[-1])


@pytest.mark.parametrize("instructions", [one for one in runnable() if one != runnable()[0]])
@pytest.mark.parametrize(
    ("name", "kind"), rest_is_slow([*FILES, ("llama", "F16"), ("llama", "BF16")], ("llama", "Q4_K"))
)
def test_a_row_has_the_same_bits_on_every_instruction_set(name, kind, instructions, files):
    path, ids = files(name, kind).path, IDS[: 2 * WINDOW]
    other = CpuTarget(path, threads=1, instructions=INSTRUCTIONS[instructions])
    assert np.array_equal(read(other, ids, 7), read(CpuTarget(path, threads=1), ids))
