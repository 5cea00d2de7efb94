"""The draft model for llama-cpp-python: the text stays, requests are found again, mistakes are one sentence."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.api import fake_llama
from tests.api.fake_llama import N_VOCAB, NAMES, Llama
from tests.toys import RaisingDrafter

from draftwood import Corpus, LlamaDraftModel
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.errors import CapabilityError, DraftwoodError, UnknownNameError, UsageError, VocabularyError
from draftwood.tree import TokenTree

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
FIXED = "fixed:8"


@pytest.fixture(autouse=True)
def _package(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", fake_llama)


def repeat(text):
    """The model says again what it said before, in rounds of twelve tokens."""
    return text[-12]


def mixed(text):
    """Now and then it says something else."""
    return (31 * sum(text[-3:]) + len(text)) % N_VOCAB if len(text) % 7 == 0 else repeat(text)


def chaos(text):
    """Nothing comes twice at the same place."""
    return (len(text) * len(text) * 7 + text[-1] * 31 + len(text) // 3) % N_VOCAB


@dataclass(frozen=True)
class Watched(BaseDrafter):
    """Proposes ``proposal``; keeps what its sessions were told."""

    name: ClassVar[str] = "watched"
    proposal: tuple[int, ...] = ()
    told: list = field(default_factory=list)

    def open(self, prompt, noise):
        self.told.append(("open", list(prompt)))
        return WatchedSession(self, prompt)


class WatchedSession(TextSession):
    def __init__(self, drafter, prompt):
        self.drafter = drafter
        super().__init__(prompt)

    def draft(self, nodes, lookahead_nodes, accept_rates):
        return TokenTree.build(list(self.drafter.proposal[:nodes]), belief=0.9)

    def learn(self, feedback):
        self.drafter.told.append(("learn", list(feedback.emitted)))
        super().learn(feedback)

    def begin_answer(self, ids):
        self.drafter.told.append(("begin", list(ids)))
        super().begin_answer(ids)

    def close(self):
        self.drafter.told.append(("close", []))
        super().close()


def plain(script, prompt=PROMPT, count=100):
    return Llama(script).write(prompt, count)


# --- the text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [repeat, mixed, chaos])
@pytest.mark.parametrize("planner", ["goodput", FIXED])
@pytest.mark.parametrize("drafters", ["default", "ngram", "lookup", "ngram-mod+ngram", "none"])
def test_the_text_stays(script, planner, drafters):
    llama = Llama(script, LlamaDraftModel(drafters, planner), logits_all=True)
    for prompt in (PROMPT, PROMPT[:3] * 5, [*PROMPT, *plain(script, count=20), 3], PROMPT):
        assert llama.write(prompt, 100) == plain(script, prompt)


def test_drafts_are_arrays_of_ids_and_not_too_long():
    model = LlamaDraftModel(planner="fixed:30", max_tokens=5)
    llama = Llama(repeat, model, logits_all=True)
    llama.write(PROMPT, 60)
    lengths = [len(draft) for _, draft in llama.drafts]
    assert all(draft.dtype == np.intc and draft.ndim == 1 for _, draft in llama.drafts)
    assert max(lengths) == 5
    nothing = LlamaDraftModel("none")(np.array(PROMPT, dtype=np.intc))
    assert nothing.dtype == np.intc
    assert nothing.shape == (0,)
    assert len(model(np.array([], dtype=np.intc))) == 0


# --- requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "goes_on"),
    [
        ([*PROMPT, 9], True),
        ([*PROMPT, 1, 9], True),
        ([*PROMPT, 1, 2, 3, 9], True),
        ([*PROMPT, 1, 2, 3, 9, 9], False),
        ([*PROMPT, 1, 9, 9], False),
        ([*PROMPT, 9, 9], False),
        ([4, *PROMPT[1:], 1], False),
        (PROMPT, False),
    ],
)
def test_a_text_goes_on_by_accepted_tokens_and_one_more(second, goes_on):
    drafter = Watched((1, 2, 3))
    model = LlamaDraftModel(drafter, FIXED)
    assert model(np.array(PROMPT, dtype=np.intc)).tolist() == [1, 2, 3]
    model(np.array(second, dtype=np.intc))
    last = ["learn"] if goes_on else ["close", "open", "begin"]
    assert [what for what, _ in drafter.told] == ["open", "begin", *last]


def test_a_llama_is_freed_when_its_program_lets_go_of_it():
    """Without waiting for the garbage collector: its weights may take all memory."""
    llama = Llama(repeat, LlamaDraftModel(planner=FIXED, prediction="text", corpus=corpus(NAMES)), logits_all=True)
    llama.write(PROMPT, 30)
    gc.collect()
    gc.disable()
    try:
        alive, llama = weakref.ref(llama), None
        assert alive() is None
    finally:
        gc.enable()


# --- the user's texts ----------------------------------------------------------------------------------------


def test_a_prediction_is_copied_and_may_change():
    model = LlamaDraftModel("lookup", FIXED, prediction=[20, 21, 22, 23, 24, 25, 26, 27])
    llama = Llama(lambda text: text[-1] + 1, model, logits_all=True)
    llama.write([19], 8)
    assert llama.passes <= 3
    model.prediction = None
    llama.drafts.clear()
    llama.write([19], 8)
    assert all(len(draft) == 0 for _, draft in llama.drafts)
    model.prediction = bytes(range(40, 56)).decode()  # as text, which the llama tokenizes
    llama.drafts.clear()
    llama.write([39], 16)
    assert max(len(draft) for _, draft in llama.drafts) == 8
    assert model.prediction == bytes(range(40, 56)).decode()


def test_a_memory_is_saved_and_used_in_the_next_process(tmp_path):
    path = tmp_path / "answers.dwm"
    for turn in range(2):
        model = LlamaDraftModel("memory", FIXED, memory=path)
        llama = Llama(lambda text: (text[-1] * 5 + 3) % N_VOCAB, model, logits_all=True)
        llama.write([1, 2, 3], 40)
        assert (llama.passes < 30) == (turn == 1)
        model.close()
        assert path.is_file()


class Names:
    """A tokenizer with the names of the fake's tokens."""

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def get_vocab(self):
        return {name: token for token, name in enumerate(self.names)}

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [self.names.index(word) for word in text.split()]}

    def decode(self, ids, **settings):
        return " ".join(self.names[i] for i in ids)


def corpus(names):
    ids = [3, 9, 27, 17, 51, 25, 11, 33]
    return Corpus.of([ids], fingerprint=tokenizer_fingerprint(Names(names)))


def test_files_of_another_tokenizer_are_refused():
    files = corpus(NAMES[::-1])
    with pytest.raises(VocabularyError):
        LlamaDraftModel(corpus=files, tokenizer=Names(NAMES))
    llama = Llama(repeat, LlamaDraftModel(corpus=files), logits_all=True)
    with pytest.raises(VocabularyError):
        llama.write(PROMPT, 3)


# --- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"drafters": "ngrm"}, UnknownNameError, "did you mean 'ngram'"),
        ({"planner": "goodputt"}, UnknownNameError, "did you mean 'goodput'"),
        ({"drafters": "recycling"}, CapabilityError, "needs top-k scores"),
        ({"drafters": "copy-and-recycle"}, CapabilityError, "needs top-k scores"),
        ({"drafters": "lookahead"}, CapabilityError, "needs"),
        ({"max_tokens": 0}, UsageError, "max_tokens is 0: it must be a whole number, at least 1"),
        ({"max_tokens": 2.5}, UsageError, "whole number"),
        ({"prediction": 7.5}, UsageError, "prediction is text, token ids or a list"),
        ({"prediction": [-1]}, UsageError, "outside the vocabulary"),
        ({"context": [0.5]}, UsageError, "context is text, token ids or a list"),
        ({"drafters": "none", "prediction": [1]}, UsageError, "'none' is plain decoding"),
        ({"tokenizer": "gpt2"}, UsageError, "tokenizer is a str"),
        ({"corpus": "no such file.dwc"}, DraftwoodError, "no such file"),
    ],
)
def test_mistakes_are_refused_when_it_is_made(given, error, says):
    with pytest.raises(error, match=says):
        LlamaDraftModel(**given)


def test_token_ids_that_the_vocabulary_does_not_have():
    """llama.cpp would fail in the pass."""
    llama = Llama(repeat, LlamaDraftModel(prediction=[5, N_VOCAB]), logits_all=True)
    with pytest.raises(UsageError, match=rf"outside the vocabulary \[0, {N_VOCAB}\)"):
        llama.write(PROMPT, 3)
    llama.draft_model = LlamaDraftModel(Watched((N_VOCAB,)), FIXED)
    llama.drafts.clear()
    assert llama.write(PROMPT, 20) == plain(repeat, count=20)
    assert all(len(draft) == 0 for _, draft in llama.drafts)


def test_a_llama_without_room_for_the_scores_is_refused():
    for llama in (
        Llama(repeat, LlamaDraftModel(), n_ctx=4096, n_batch=512),
        Llama(repeat, n_ctx=4096, logits_all=False),
    ):
        llama.draft_model = LlamaDraftModel()
        with pytest.raises(CapabilityError, match=r"does not keep the scores of all tokens.*logits_all=True"):
            llama.write(PROMPT, 3)


@pytest.mark.parametrize("kind", ["_is_recurrent", "_is_hybrid"])
def test_a_recurrent_model_gets_no_drafts(kind, caplog):
    llama = Llama(repeat, LlamaDraftModel(planner=FIXED, prediction=PROMPT), logits_all=True)
    setattr(llama, kind, True)
    with caplog.at_level(logging.WARNING, logger="draftwood"):
        llama.write(PROMPT, 50)
    assert all(len(draft) == 0 for _, draft in llama.drafts)
    assert [record.getMessage() for record in caplog.records] == [
        "llama-cpp-python cannot take tokens back from a recurrent model: no drafts are made"
    ]


def test_a_drafter_that_fails_is_off_for_the_request():
    llama = Llama(repeat, LlamaDraftModel([RaisingDrafter(), "ngram"], FIXED), logits_all=True)
    assert llama.write(PROMPT, 100) == plain(repeat)
    assert llama.passes < 30


def test_importing_the_draft_model_brings_nothing_heavy_and_not_the_package_itself():
    code = (
        "import sys, draftwood; draftwood.LlamaDraftModel()\n"
        "heavy = {'torch', 'transformers', 'numba', 'llama_cpp', 'xllamacpp'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the package itself --------------------------------------------------------------------------------------


REAL = """
import sys
from pathlib import Path
import llama_cpp, draftwood
from draftwood.engines.llama_cpp.plugin import CallerTokenizer
from draftwood.models.load_gguf import load_gguf_tokenizer

def texts(draft_model, **settings):
    llama = llama_cpp.Llama(sys.argv[1], n_ctx=700, n_threads=1, n_threads_batch=1, type_k=0, type_v=0,
                            logits_all=True, verbose=False, draft_model=draft_model)
    found = []
    for prompt in ([7, 8, 9] * 6, [30, 31, 32, 33, 30, 31, 32], [7, 8, 9] * 6 + [4]):
        written = llama.generate(prompt, **settings)
        llama.set_seed(1)
        found.append([next(written) for _ in range(60)])
    return found

for settings in ({"temp": 0.0}, {"temp": 0.0, "repeat_penalty": 1.1}, {"temp": 0.8}):
    plain = texts(None, **settings)
    near = [token if i % 10 else 5 for text in plain for i, token in enumerate(text)]
    for prediction in (None, plain, near):
        model = draftwood.LlamaDraftModel("ngram", "fixed:6", prediction=prediction)
        assert texts(model, **settings) == plain
        assert (model.stats.mean_acceptance_length > 5) == (prediction is plain)

ours = load_gguf_tokenizer(Path(sys.argv[1]))
llama = llama_cpp.Llama(sys.argv[1], n_ctx=256, n_threads=1, verbose=False)
theirs = CallerTokenizer(llama)
assert theirs.get_vocab() == ours.get_vocab()
for text in ("ab <|user|> c", "a" * 30000, "\\ud800 b"):
    assert theirs(text)["input_ids"] == ours(text, add_special_tokens=False)["input_ids"]
"""
"""Caches in float32, so that no token of the tiny model is decided by rounding."""


def test_with_llama_cpp_python_itself(tiny_gguf):
    code = "import llama_cpp"
    if subprocess.run([sys.executable, "-c", code], capture_output=True).returncode:
        pytest.skip("llama-cpp-python is not installed")
    done = subprocess.run(
        [sys.executable, "-c", REAL, str(tiny_gguf())], capture_output=True, text=True, timeout=300,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
