"""The names of peers, and transformers' own ways to write as peers."""

import subprocess
import sys

import pytest
import torch
from transformers import GenerationConfig

from draftwood.contracts import Sampling
from draftwood.engines.transformers.peers import TransformersPeer
from draftwood.errors import ModelNotFoundError, UnknownNameError, UsageError
from draftwood.measure.peers import GROUPS, LOOKUP_SETTINGS, check_assistants, load_peers, peer_names
from tests.engines.tiny import build

PROMPT = [5, 6, 7, 8, 9, 10, 5, 6, 7, 8, 9, 10, 5, 6, 7]
GREEDY = Sampling()
NOBODY = frozenset[int]()
LOOP = 11
"""A token that the model of `looping` repeats for ever, once it is there."""


@pytest.fixture(scope="module")
def model():
    return build("llama")


@pytest.fixture(scope="module")
def looping():
    """A model that nearly always says the same, so that drafts are right."""
    made = build("llama", seed=1)
    with torch.no_grad():
        made.lm_head.weight.mul_(0.02)
        made.lm_head.weight[LOOP] = 0
        made.model.norm.weight.zero_()
        made.lm_head.weight[LOOP] = 1
    return made


def peer(name, model):
    (made,) = load_peers(name, model, None, "nowhere", None)
    return made


def generate(model, limit, end_ids=NOBODY):
    config = GenerationConfig(
        do_sample=False, max_new_tokens=limit, eos_token_id=sorted(end_ids) or None, pad_token_id=0
    )
    prompt = torch.tensor([PROMPT])
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    return out[0, len(PROMPT) :].tolist()


def check(answer):
    """What holds for every answer."""
    counts, seconds = zip(*answer.arrivals, strict=True)
    assert list(counts) == sorted(set(counts))
    assert counts[0] >= 1
    assert counts[-1] == len(answer.ids)
    assert list(seconds) == sorted(seconds)
    assert answer.prefill_s == seconds[0] > 0
    assert answer.decode_s == pytest.approx(seconds[-1] - seconds[0])
    assert answer.passes == len(counts) - 1
    assert counts[-1] - counts[0] == answer.passes + answer.accepted
    assert 0 <= answer.accepted <= answer.drafted


def test_importing_it_brings_no_engine():
    heavy = {"torch", "transformers", "xllamacpp"}
    code = f"import sys, draftwood.measure.peers; assert not {heavy} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_are_taken_apart():
    lookup, assistant, other = peer_names(
        "transformers:lookup:ngram=3,transformers:assistant=a/b:tokens=5,llama.cpp:ngram-map-k4v"
    )
    assert (lookup.name, lookup.method) == ("transformers:lookup:ngram=3", "lookup")
    assert lookup.options == {"tokens": 10, "ngram": 3}
    assert (assistant.method, assistant.options) == ("assistant", {"assistant": "a/b", "tokens": 5})
    assert (other.engine, other.method, other.options) == ("llama.cpp", "ngram-map-k4v", {})


def test_groups_are_spread_out_and_nothing_comes_twice():
    names = [n.name for n in peer_names("llama.cpp:ngram-mod,all,transformers")]
    assert names[0] == "llama.cpp:ngram-mod"
    assert sorted(names) == sorted(GROUPS["all"])
    assert {*LOOKUP_SETTINGS, "transformers", "llama.cpp", "llama.cpp:ngram-cache"} <= set(names)


@pytest.mark.parametrize(
    ("spec", "error", "sentence"),
    [
        ("", UnknownNameError, "unknown peer ''"),
        ("transformer", UnknownNameError, "did you mean 'transformers'"),
        ("transformers:", UnknownNameError, "unknown peer 'transformers:'"),
        ("transformers:lokup", UnknownNameError, "did you mean 'transformers:lookup'"),
        ("transformers,llama.cpp:ngram", UnknownNameError, "unknown peer 'llama.cpp:ngram'"),
        ("all:tokens=3", UnknownNameError, "unknown peer 'all:tokens=3'"),
        ("transformers:lookup:grams=3", UnknownNameError, "unknown option of peer"),
        ("transformers:lookup=3", UnknownNameError, "unknown option of peer"),
        ("transformers:lookup:tokens", UsageError, "written key=value"),
        ("transformers:lookup:tokens=0", UsageError, "whole number from 1"),
        ("transformers:lookup:tokens=two", UsageError, "whole number from 1"),
        ("transformers:lookup:tokens=2:tokens=3", UsageError, "given twice"),
        ("transformers:early-exit=4", UnknownNameError, "unknown peer"),
        ("transformers:asistant=x", UnknownNameError, "did you mean 'transformers:assistant'"),
        ("transformers:assistant", UsageError, "needs its option 'assistant': write assistant=NAME"),
        ("transformers:assistant=", UsageError, "write assistant=NAME"),
        ("transformers:assistant=x:tokens=0", UsageError, "whole number from 1"),
        ("transformers:assistant=x:token=3", UnknownNameError, "did you mean 'tokens'"),
        ("llama.cpp:ngram-mod:n=3", UnknownNameError, "unknown option of peer"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_loaded(spec, error, sentence):
    with pytest.raises(error, match=sentence):
        peer_names(spec)


@pytest.mark.parametrize("name", ["transformers", *LOOKUP_SETTINGS])
def test_every_peer_writes_what_generate_writes(model, name):
    asked = peer(name, model)
    answer = asked.answer(PROMPT, 24, end_ids=NOBODY, sampling=GREEDY)
    asked.close()
    assert (asked.name, asked.engine) == (name, "transformers")
    assert answer.ids == generate(model, 24)
    assert len(answer.ids) == 24
    assert name != "transformers" or (answer.drafted, answer.accepted, answer.passes) == (0, 0, 23)
    check(answer)


def test_lookup_tells_of_its_drafts(looping):
    plain = peer("transformers", looping).answer(PROMPT, 30, end_ids=NOBODY, sampling=GREEDY)
    drafted = peer("transformers:lookup:tokens=3", looping).answer(PROMPT, 30, end_ids=NOBODY, sampling=GREEDY)
    assert drafted.ids == plain.ids
    assert drafted.passes < plain.passes
    assert 0 < drafted.accepted <= drafted.drafted <= 3 * drafted.passes
    check(drafted)


def test_a_text_ends_with_the_end_token(model):
    whole = generate(model, 24)
    end = whole[9]
    stop = whole.index(end) + 1
    for name in ("transformers", "transformers:lookup"):
        answer = peer(name, model).answer(PROMPT, 24, end_ids=frozenset([end, 63]), sampling=GREEDY)
        assert answer.ids == whole[:stop]
        check(answer)


def test_sampling_follows_the_seed_and_leaves_the_random_numbers_alone(model):
    asked = peer("transformers", model)
    sampling = Sampling(temperature=2.0, top_k=20, top_p=0.99, min_p=0.001, seed=3)
    state = torch.get_rng_state()
    first, again = (asked.answer(PROMPT, 12, end_ids=NOBODY, sampling=sampling).ids for _ in range(2))
    other = asked.answer(PROMPT, 12, end_ids=NOBODY, sampling=Sampling(temperature=2.0, seed=4)).ids
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), state)


def test_what_the_model_s_own_settings_say_is_overridden_without_a_word_and_put_back(model, recwarn, capfd):
    kept = model.generation_config
    odd = GenerationConfig(
        do_sample=True, temperature=0.3, top_k=2, repetition_penalty=1.5, eos_token_id=list(range(64))
    )
    model.generation_config = odd
    try:
        ids = [
            peer(name, model).answer(PROMPT, 12, end_ids=NOBODY, sampling=GREEDY).ids
            for name in ("transformers", "transformers:lookup")
        ]
        assert model.generation_config is odd
    finally:
        model.generation_config = kept
    assert ids == [generate(model, 12)] * 2
    assert "_get_candidate_generator" not in vars(model)
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


def assisted(model, assistant, tokenizer=None, its_tokenizer=None):
    (name,) = peer_names("transformers:assistant=x:tokens=4")
    return TransformersPeer(name, model, tokenizer, (assistant, its_tokenizer))


def test_an_assistant_drafts_and_neither_it_nor_the_next_answer_is_changed(looping):
    kept = looping.generation_config
    looping.generation_config = GenerationConfig(num_assistant_tokens=3, do_sample=True, temperature=0.1)
    try:
        asked = assisted(looping, looping)
        first, again = (asked.answer(PROMPT, 24, end_ids=NOBODY, sampling=GREEDY) for _ in range(2))
        assert looping.generation_config.num_assistant_tokens == 3
    finally:
        looping.generation_config = kept
    assert first.ids == again.ids == generate(looping, 24)
    assert [count for count, _ in first.arrivals] == [count for count, _ in again.arrivals]
    assert first.passes < 23
    assert 0 < first.accepted <= first.drafted <= 4 * first.passes
    check(first)


def test_an_assistant_is_loaded_even_where_nobody_says_how(model):
    with pytest.raises(ModelNotFoundError, match="nothing/here"):
        load_peers("transformers:assistant=./nothing/here", model, None, "nowhere", None)


def test_unfit_assistants_are_refused(model, tmp_path, monkeypatch):
    def refused(match, *given):
        with pytest.raises(UsageError, match=match):
            assisted(*given)

    wider = build("llama")
    wider.config.vocab_size = 96
    refused("another vocabulary", model, wider)
    one, other = (lambda *_, ids=ids, **__: {"input_ids": ids} for ids in ([1, 2], [2, 1]))
    refused("another vocabulary", model, model, one, other)
    monkeypatch.setattr(type(model), "_is_stateful", True)
    refused("cannot take rejected tokens back", model, model)
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    for name, error, match in (
        (f"{tmp_path}/small.gguf", UsageError, "is a GGUF file: name another model"),
        ("smolm2", UnknownNameError, "did you mean 'smollm2'"),
        ("./nothing/here", ModelNotFoundError, "nothing/here"),
    ):
        with pytest.raises(error, match=match):
            check_assistants(peer_names(f"transformers:assistant={name}"))
