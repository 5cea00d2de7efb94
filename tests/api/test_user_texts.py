"""What users bring to draft from: every source gives the same text sooner, and each mistake is one sentence."""

import logging

import numpy as np
import pytest
import torch
from tests.api.fake import TOKENIZER, TOKENS, FakeTokenizer, proper, toy
from tests.api.generating import ONE, PROMPT, batch
from tests.engines.tiny import build
from tests.helpers import ONE_BY_ONE

from draftwood import Conversation, Corpus, Memory, decode_with, generate, stream
from draftwood.api.setup import Setup
from draftwood.api.user_texts import UserTexts, detached
from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.corpus.file import write_corpus
from draftwood.drafters.llama_cpp.ngram_cache import NgramCacheDrafter
from draftwood.drafters.llama_cpp.ngram_counts_file import write_counts
from draftwood.drafters.load import load
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.errors import CapabilityError, UsageError, VocabularyError
from draftwood.testing import ToyTarget


class Tokenizer(FakeTokenizer):
    """The fake with the vocabulary that it has, so that files know it again."""

    names = "own"

    def __call__(self, text, add_special_tokens=True):
        return super().__call__(text)

    def get_vocab(self):
        return {f"{self.names} {token!r} {i}": i for i, token in enumerate(TOKENS)}


class AnotherTokenizer(Tokenizer):
    names = "another"


KNOWN = Tokenizer()
IDS = TOKENIZER("ab a b")["input_ids"]
PROMPTS = [IDS, IDS[::-1], [3, 4]]
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 4}
SETTINGS = {"tokenizer": KNOWN, "max_new_tokens": 40, "logits_processor": proper, "planner": "fixed:16"}


def answer(ids=IDS, **settings):
    return generate(toy(), ids, drafters="none", **SETTINGS | settings)


def corpus(ids, tokenizer=KNOWN):
    return Corpus.of([ids], fingerprint=tokenizer_fingerprint(tokenizer))


def kept(path, found):
    sizes = [(len(part.tokens), len(part.suffixes)) for part in found.parts]
    write_corpus(path, found.parts, sizes, found.documents, {"tokenizer": found.fingerprint})


def memory(ids):
    found = Memory()
    found.add(ids)
    return found


# --- predictions of several prompts --------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 2, 8])
@pytest.mark.parametrize("sampling", [{}, SAMPLED])
def test_each_prompt_of_a_list_has_its_own_prediction(batch_size, sampling):
    model = toy()
    plain = generate(model, PROMPTS, drafters="none", **SETTINGS, **sampling)
    expected = [plain[0].ids, None, ["ab", plain[2].ids]]
    written = generate(
        model,
        PROMPTS,
        drafters="lookup:length=1",
        **SETTINGS,
        **sampling,
        prediction=expected,
        batch_size=batch_size,
    )
    assert [w.ids for w in written] == [p.ids for p in plain]
    assert ["prediction" in w.sources for w in written] == [True, False, True]
    assert len(written[0].steps) < len(plain[0].steps) / 3
    assert model.open_sessions == 0


@pytest.mark.parametrize("wrong", [["ab"], [IDS, IDS], []])
def test_as_many_predictions_as_prompts(wrong):
    with pytest.raises(UsageError, match=rf"3 prompts and {len(wrong)} predictions: give one text for all"):
        generate(toy(), PROMPTS, **SETTINGS, prediction=wrong)


# --- memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_path", [str, lambda path: path])
def test_a_memory_named_by_its_file_is_loaded_and_saved(tmp_path, as_path):
    path = as_path(tmp_path / "folder" / "m.dwm")
    first = generate(toy(), IDS, drafters="lookup:length=1", **SETTINGS, memory=path)
    again = generate(toy(), IDS, drafters="lookup:length=1", **SETTINGS, memory=path)
    assert again.ids == first.ids
    assert len(again.steps) < len(first.steps) / 2
    (only,) = Memory.open(path).answers()
    assert only.ids.tolist() == first.ids
    with pytest.raises(VocabularyError, match="of another tokenizer"):
        generate(toy(), IDS, tokenizer=AnotherTokenizer(), memory=path)


def test_a_memory_that_cannot_be_saved_loses_no_text(tmp_path, caplog):
    path = tmp_path / "m.dwm"
    with stream(toy(), IDS, **SETTINGS, memory=path) as pieces:
        path.write_bytes(b"somebody else's file")
        with caplog.at_level(logging.WARNING, "draftwood"):
            text = "".join(piece.text for piece in pieces)
    assert text == answer().text
    assert "the memory was not saved: " in caplog.text
    assert path.read_bytes() == b"somebody else's file"


# --- files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("several", [False, True])
def test_a_corpus_is_named_by_its_file(tmp_path, several):
    plain, path = answer(), tmp_path / "c.dwc"
    kept(path, corpus(plain.ids))
    given = [str(path), corpus(IDS)] if several else path
    written = generate(toy(), IDS, drafters="lookup:length=1", **SETTINGS, corpus=given)
    assert written.ids == plain.ids
    assert "corpus" in written.sources
    kept(path, corpus(plain.ids, AnotherTokenizer()))
    for way in ({"corpus": path}, {"drafters": f"corpus:file={path}"}):
        with pytest.raises(VocabularyError, match=r"c\.dwc holds the ids of another tokenizer"):
            generate(toy(), IDS, **SETTINGS, **way)


# --- conversations -------------------------------------------------------------------------------------------


def said(conversation, text, **options):
    return "".join(piece.text for piece in conversation.say(text, **options))


@pytest.mark.parametrize("sampling", [{}, SAMPLED])
def test_a_conversation_takes_a_prediction_per_answer(sampling):
    questions = ("a b", "b", "ab a", "b b")
    with Conversation(toy(), drafters="none", **SETTINGS, **sampling) as plain:
        expected = [said(plain, q) for q in questions]
    with Conversation(toy(), drafters="lookup", **SETTINGS, **sampling) as conversation:
        predictions = [None, expected[1], None, [expected[3], "ab"]]
        answers, used = [], []
        for question, prediction in zip(questions, predictions, strict=True):
            answers.append(said(conversation, question, prediction=prediction))
            used.append("prediction" in conversation.generation.sources)
    assert answers == expected
    assert used == [False, True, False, True]


# --- model.generate ------------------------------------------------------------------------------------------


LONG = {"do_sample": False, "max_new_tokens": 40, "pad_token_id": 0}


def test_decode_with_takes_a_prediction_per_row_and_sequences_share_one(llama):
    rows = batch([PROMPT, PROMPT[3:40]])
    settings = LONG | {"do_sample": True, "num_return_sequences": 2, "eos_token_id": None}
    plain = decode_with("none", seed=3)
    llama.generate(**rows, **settings, custom_generate=plain)
    expected = [[g.ids for g in plain.generations[:2]], plain.generations[3].ids]
    decoding = decode_with("lookup:length=1", "fixed:16", seed=3, prediction=expected)
    llama.generate(**rows, **settings, custom_generate=decoding)
    assert [g.ids for g in decoding.generations] == [g.ids for g in plain.generations]
    assert [len(g.steps) < 20 for g in decoding.generations] == [True, True, False, True]
    with pytest.raises(UsageError, match="2 prompts and 3 predictions"):
        llama.generate(**rows, **settings, custom_generate=decode_with(prediction=[None, None, None]))


def test_decode_with_saves_a_memory_after_each_call(llama, tmp_path):
    path = tmp_path / "m.dwm"
    decoding = decode_with("lookup:length=1", "fixed:16", memory=path, corpus=Corpus.of([PROMPT]), context=PROMPT)
    theirs = llama.generate(**ONE, **LONG)
    passes = []
    for _ in range(2):
        assert torch.equal(llama.generate(**ONE, **LONG, custom_generate=decoding), theirs)
        assert path.exists()
        path.unlink()
        passes.append(len(decoding.generations[0].steps))
    assert passes[1] < passes[0]


# --- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"prediction": "ab"}, "leave prediction out, or name drafters other than 'none'"),
        ({"memory": Memory(), "context": "a"}, "leave memory and context out"),
        ({"corpus": corpus(IDS)}, "plain decoding, which drafts from nothing"),
    ],
)
@pytest.mark.parametrize("none", ["none", []])
def test_plain_decoding_drafts_from_nothing(none, given, sentence):
    for door in (generate, Conversation):
        with pytest.raises(UsageError, match=sentence):
            door(toy(), *([IDS] if door is generate else []), tokenizer=KNOWN, drafters=none, **given)
    with pytest.raises(UsageError, match=sentence):
        decode_with(none, tokenizer=KNOWN, **given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"prediction": 3}, "prediction is text, token ids or a list of these, not int"),
        ({"prediction": b"ab"}, "prediction is text, token ids or a list of these, not bytes"),
        ({"prediction": [1.5]}, "prediction is text, token ids or a list of these, not float"),
        ({"prediction": [3, "a"]}, "str is none of them"),
        ({"prediction": [{"role": "user"}]}, "not dict"),
        ({"prediction": [3, 99]}, r"prediction has token ids outside the vocabulary \[0, 17\)"),
        ({"context": [[-1]]}, r"context has token ids outside the vocabulary \[0, 17\)"),
        ({"context": 3}, "context is text, token ids or a list of these, not int"),
        ({"memory": 3}, "memory is a file or a Memory, not 3"),
        ({"memory": ""}, "memory is a file or a Memory, not ''"),
        ({"corpus": 3}, "corpus is a file or a Corpus, not 3"),
        ({"corpus": ["", 3]}, "corpus is a file or a Corpus"),
        ({"corpus": "nothing.dwc"}, "nothing.dwc"),
    ],
)
def test_what_is_no_source(given, sentence):
    model = toy()
    with pytest.raises(UsageError, match=sentence) as caught:
        generate(model, IDS, tokenizer=KNOWN, **given)
    assert "\n" not in str(caught.value)
    assert model.open_sessions == 0


@pytest.mark.parametrize("name", ["prediction", "context"])
@pytest.mark.parametrize(
    "door",
    [
        lambda **given: generate(toy(), IDS, **given),
        lambda **given: build("llama").generate(**ONE, **LONG, custom_generate=decode_with(**given)),
    ],
)
def test_text_needs_a_tokenizer(door, name):
    with pytest.raises(UsageError, match="as text needs a tokenizer: pass tokenizer=, or give token ids"):
        door(**{name: "ab"})


def test_files_are_opened_before_a_model_is_loaded():
    with pytest.raises(UsageError, match=r"nothing\.dwc"):
        generate("no such model anywhere", IDS, corpus="nothing.dwc")


def test_a_corpus_of_another_tokenizer_however_it_is_given():
    foreign = corpus(IDS, AnotherTokenizer())
    with pytest.raises(VocabularyError, match="the corpus that was given holds the ids of another tokenizer"):
        generate(toy(), IDS, tokenizer=KNOWN, corpus=foreign)
    with pytest.raises(VocabularyError, match="another tokenizer"):
        generate(toy(), IDS, tokenizer=KNOWN, drafters=CorpusDrafter(corpora=(foreign,)))
    assert generate(toy(), IDS, corpus=foreign, max_new_tokens=5).ids == answer(logits_processor=None).ids[:5]


def test_a_target_that_takes_nothing_back_is_no_place_for_sources():
    with pytest.raises(CapabilityError, match="one token per pass"):
        generate(ToyTarget(**ONE_BY_ONE), [1, 2], prediction=[1, 2])


# --- sources that are shared, detached or not of here ---------------------------------------------------------


def fingerprinted(path):
    with Memory.open(path) as made:
        made.add(IDS)
        made.check_fingerprint(tokenizer_fingerprint(KNOWN))
    return path


def test_a_file_that_tells_its_tokenizer_wants_to_be_compared(tmp_path):
    path = fingerprinted(tmp_path / "m.dwm")
    kept(tmp_path / "c.dwc", corpus(IDS))
    write_counts(tmp_path / "n.dwn", np.array([[3, 4, -1, -1, 5, 2]], dtype=np.int32), tokenizer="abc")
    for given in (
        {"memory": path},
        {"corpus": tmp_path / "c.dwc"},
        {"drafters": f"memory:file={path}"},
        {"drafters": f"corpus:file={tmp_path / 'c.dwc'}"},
        {"drafters": f"ngram-cache:static={tmp_path / 'n.dwn'}"},
    ):
        with pytest.raises(UsageError, match="belongs to one tokenizer, and none is known here to compare"):
            generate(toy(), IDS, **given)
        with pytest.raises(UsageError, match="pass tokenizer="):
            decode_with(**given)


def test_drafters_of_one_memory_agree_on_its_size(tmp_path):
    given = UserTexts(memory=tmp_path / "m.dwm")
    found = Setup(toy(), KNOWN, "memory:namespace=a:tokens=5000+memory:namespace=b", "fixed:8", given).drafters
    assert {d.memory.size for d in found} == {5000}
    with pytest.raises(UsageError, match="its drafters ask for tokens=500 and tokens=5000: give all"):
        Setup(toy(), KNOWN, "memory:namespace=a:tokens=500+memory:namespace=b:tokens=5000", "fixed:8", given)


def test_detached_drafters_know_what_was_known_and_teach_nobody(tmp_path):
    mine, counts = memory(IDS), tmp_path / "c.dwn"
    given = (
        MemoryDrafter(memory=mine, namespace="a"),
        MemoryDrafter(memory=mine),
        MemoryDrafter(file=str(tmp_path / "m.dwm")),
        NgramCacheDrafter(dynamic=str(counts), save=True),
        NgramDrafter(),
    )
    one, other, of_file, counting, plain = detached(given)
    assert one.memory is other.memory is not mine
    assert of_file.memory is not given[2].memory
    assert (of_file.file, counting.save, plain) == (None, False, given[-1])
    one.memory.add([1, 2, 3])
    of_file.memory.add([1, 2, 3])
    assert [len(d.memory.answers()) for d in (one, given[0], given[2])] == [2, 1, 0]
    session = counting.open([1, 2, 3, 4], None)
    session.close()
    assert not counts.exists()
    assert load((one, other, of_file))
