"""transformers' assisted generation as a peer: with a model of the same vocabulary, and of another one."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.generation.candidate_generator import AssistantVocabTranslatorCache

from draftwood.contracts import Sampling
from draftwood.engines.peers import load_peers
from draftwood.errors import ModelNotFoundError, UnknownNameError, UsageError
from tests.engines.test_peers import GREEDY, NOBODY, check
from tests.engines.tiny import SHAPE

LETTERS = [chr(c) for c in range(32, 127)]
SAMPLED = Sampling(temperature=1.0, seed=3)


def made(letters, seed):
    """A random model with a token per letter, and its tokenizer."""
    words = Tokenizer(BPE({letter: i for i, letter in enumerate(letters)}, [], unk_token="?"))
    words.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SHAPE | {"vocab_size": len(tokenizer)})).eval(), tokenizer


@pytest.fixture(scope="module")
def models():
    """The model itself, one of another vocabulary, and one with the same tokens in another order."""
    return {
        "same": made(LETTERS, 0),
        "other": made(["~~", "QQ", "zz", *reversed(LETTERS)], 1),
        "shuffled": made(LETTERS[::-1], 2),
    }


@pytest.fixture(scope="module")
def prompt(models):
    return models["same"][1]("one two one two one")["input_ids"]


@pytest.fixture
def folders(tmp_path):
    """Empty folders, so that the names of models are found."""
    for name in ("same", "other", "shuffled"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_text("")
    return tmp_path


def peers(spec, models, folders, tokenizer=True):
    """The peers that ``spec`` lists, ``{}`` in it being where the models are."""
    model, own = models["same"]

    def load(name):
        return models[name.rpartition("/")[2]]

    return load_peers(spec.format(folders), model, own if tokenizer else None, "nowhere", None, load)


def test_the_text_is_plain_decoding_s_and_the_model_drafts_well_for_itself(models, folders, prompt):
    plain, drafted = peers("transformers,transformers:assistant={}/same:tokens=4", models, folders)
    answer, truth = (one.answer(prompt, 30, end_ids=NOBODY, sampling=GREEDY) for one in (drafted, plain))
    assert answer.ids == truth.ids
    assert answer.passes < truth.passes
    assert 0 < answer.accepted <= answer.drafted <= 4 * answer.passes
    check(answer)


def test_another_vocabulary_goes_by_way_of_the_text(models, folders, prompt):
    plain, drafted = peers("transformers,transformers:assistant={}/other", models, folders)
    answer, truth = (one.answer(prompt, 20, end_ids=NOBODY, sampling=GREEDY) for one in (drafted, plain))
    assert answer.ids == truth.ids
    assert answer.drafted > 0
    check(answer)


@pytest.mark.parametrize("name", ["same", "other"])
def test_sampling_follows_the_seed_and_greedy_texts_stay_right_behind_it(models, folders, prompt, name):
    plain, drafted = peers(f"transformers,transformers:assistant={{}}/{name}", models, folders)
    first, again = (drafted.answer(prompt, 12, end_ids=NOBODY, sampling=SAMPLED).ids for _ in range(2))
    assert first == again
    truth = plain.answer(prompt, 12, end_ids=NOBODY, sampling=GREEDY).ids
    assert drafted.answer(prompt, 12, end_ids=NOBODY, sampling=GREEDY).ids == truth
    drafted.close()
    assert len(drafted.answer(prompt, 12, end_ids=NOBODY, sampling=SAMPLED).ids) == 12


def test_two_peers_of_one_assistant_do_not_disturb_each_other(models, folders, prompt):
    """transformers keeps by tokenizer which assistant it has cut."""
    spec = "transformers:assistant={0}/other,transformers:assistant={0}/other:tokens=2"
    for one in peers(spec, models, folders):
        answer = one.answer(prompt, 12, end_ids=NOBODY, sampling=SAMPLED)
        assert answer.passes <= 11
        check(answer)


def test_no_answer_changes_the_assistant_or_the_next_answer(models, folders, prompt):
    assistant = models["same"][0]
    kept = assistant.generation_config
    odd = GenerationConfig(
        num_assistant_tokens=3, num_assistant_tokens_schedule="heuristic", do_sample=True, temperature=0.1
    )
    assistant.generation_config = odd
    try:
        (one,) = peers("transformers:assistant={}/same", models, folders)
        first, again = (one.answer(prompt, 24, end_ids=NOBODY, sampling=GREEDY) for _ in range(2))
        assert assistant.generation_config is odd
        assert odd.num_assistant_tokens == 3
    finally:
        assistant.generation_config = kept
    assert [count for count, _ in first.arrivals] == [count for count, _ in again.arrivals]
    assert first.drafted == again.drafted


def test_sampling_leaves_another_vocabulary_s_assistant_whole_and_nothing_behind(models, folders, prompt):
    assistant = models["other"][0]
    head, embedding = assistant.get_output_embeddings(), assistant.get_input_embeddings()
    rows, before = head.weight.shape[0], len(AssistantVocabTranslatorCache._cache)
    (one,) = peers("transformers:assistant={}/other", models, folders)
    one.answer(prompt, 12, end_ids=NOBODY, sampling=SAMPLED)
    assert assistant.get_output_embeddings() is head
    assert assistant.get_input_embeddings() is embedding
    assert head.weight.shape[0] == rows
    view = weakref.ref(one._assistant._views[True])
    one.close()
    gc.collect()
    assert view() is None
    assert len(AssistantVocabTranslatorCache._cache) == before


@pytest.mark.parametrize(
    ("name", "tokenizer", "error", "sentence"),
    [
        ("{}/shuffled", True, UsageError, "another vocabulary of the same size"),
        ("{}/other", False, UsageError, "give the model's tokenizer"),
        ("{}/small.gguf", True, UsageError, "is a GGUF file: name another model"),
        ("smolm2", True, UnknownNameError, "did you mean 'smollm2'"),
        ("./nothing/here", True, ModelNotFoundError, "nothing/here"),
    ],
)
def test_unfit_assistants_are_refused(models, folders, name, tokenizer, error, sentence):
    (folders / "small.gguf").write_bytes(b"GGUF")
    with pytest.raises(error, match=sentence):
        peers(f"transformers:assistant={name}", models, folders, tokenizer=tokenizer)


def test_a_model_that_cannot_take_tokens_back_is_refused(models, folders, monkeypatch):
    monkeypatch.setattr(type(models["same"][0]), "_is_stateful", True)
    with pytest.raises(UsageError, match="cannot take rejected tokens back"):
        peers("transformers:assistant={}/same", models, folders)
