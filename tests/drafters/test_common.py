"""What is asked of drafters one by one in the same words: options, the contract, small vocabularies, kernels."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from tests.helpers import GREEDY, SAMPLED, sampled_truth, write

from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.jacobi.drafter import JacobiDrafter
from draftwood.drafters.llama_cpp.copying import NgramMapK4vDrafter, NgramMapKDrafter, NgramSimpleDrafter
from draftwood.drafters.llama_cpp.ngram_cache import NgramCacheDrafter
from draftwood.drafters.llama_cpp.ngram_mod import NgramModDrafter
from draftwood.drafters.load import load
from draftwood.drafters.logits_extend.drafter import LogitsExtendDrafter
from draftwood.drafters.lookahead.drafter import LookaheadDrafter
from draftwood.drafters.lookup.drafter import LookupDrafter
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.drafters.parrot.drafter import ParrotDrafter
from draftwood.drafters.prediction.drafter import PredictionDrafter
from draftwood.drafters.recycling.drafter import RecyclingDrafter
from draftwood.errors import UsageError
from draftwood.testing import ToyTarget, check_drafter

NAN = float("nan")
COPYING = (NgramSimpleDrafter, NgramMapKDrafter, NgramMapK4vDrafter)
OUT_OF_RANGE = [
    *((CorpusDrafter, {name: 0}, name) for name in ("max_match", "min_match", "levels")),
    (CorpusDrafter, {"max_match": 2000}, "max_match"),
    (JacobiDrafter, {"block": 0}, "block must lie between 1 and 1024"),
    (JacobiDrafter, {"block": 1025}, "block"),
    (JacobiDrafter, {"start": "random"}, "start must be one of prompt, previous, not 'random'"),
    *((LogitsExtendDrafter, {"roots": n}, "roots") for n in (0, 65)),
    *((LogitsExtendDrafter, {"length": n}, "length") for n in (0, 1025)),
    *((LookaheadDrafter, {"window": n}, "window must lie between 1 and 4096") for n in (0, 5000)),
    *((LookaheadDrafter, {"ngram": n}, "ngram must lie between 2 and 64") for n in (1, 65)),
    (LookaheadDrafter, {"guesses": -1}, "guesses must not be negative"),
    (LookaheadDrafter, {"vocabulary": -1}, "vocabulary must be"),
    (LookaheadDrafter, {"variant": "other"}, "variant must be one of authors, llama.cpp"),
    (LookupDrafter, {"max_ngram": 0}, "max_ngram"),
    (LookupDrafter, {"min_ngram": 0}, "min_ngram"),
    (LookupDrafter, {"min_ngram": 4, "max_ngram": 3}, "min_ngram"),
    (LookupDrafter, {"max_ngram": 1025}, "max_ngram"),
    (LookupDrafter, {"length": 0}, "length"),
    *((MemoryDrafter, {"length": n}, "length must lie between") for n in (0, 1 << 17, 10**5000, "8", 8.5, True)),
    *((MemoryDrafter, {"tokens": n}, "a memory holds 1 to") for n in (0, 1 << 40)),
    *((ParrotDrafter, {"order": n}, "order") for n in (0, 65)),
    *((ParrotDrafter, {"p": n}, "p") for n in (-0.1, NAN)),
    *((ParrotDrafter, {"context": n}, "context") for n in ((-1,), ("a",), (1.5,))),
    (ParrotDrafter, {"length": 0}, "length"),
    *((make, {key: n}, f"{make.name}: {key} must lie between 1 and 1024, not {n}")
      for make in COPYING for key in ("size_n", "size_m") for n in (0, 1025)),
    *((NgramMapK4vDrafter, {"min_hits": n}, f"min_hits must lie between 1 and 2147483647, not {n}")
      for n in (-1, 0, 1 << 31)),
    *((NgramCacheDrafter, {"n_draft": n}, "n_draft") for n in (0, 1 << 17)),
    (NgramCacheDrafter, {"save": True}, "dynamic=FILE"),
    *((NgramModDrafter, {"n_match": n}, "ngram-mod: n_match must lie between 1 and 1024") for n in (0, 1025)),
    *((NgramModDrafter, {"n_min": n}, "n_min") for n in (-1, 1025)),
    *((NgramModDrafter, {"n_max": n}, "n_max") for n in (-1, 1025)),
    *((PredictionDrafter, {"length": n}, "length") for n in (0, 1 << 17)),
    (PredictionDrafter, {"window": 3}, "window"),
    *((PredictionDrafter, {"floor": n}, "floor") for n in (-0.1, NAN)),
    *((PredictionDrafter, {"texts": (t,)}, "texts") for t in ((-1,), (1 << 31,), "a text", (1.5,), ((1,),))),
    *((RecyclingDrafter, {"context": n}, "context") for n in (0, 4)),
    *((RecyclingDrafter, {"length": n}, "length") for n in (0, (1 << 16) + 1)),
    *((NgramDrafter, {"length": n}, "length") for n in (0, 1 << 17)),
    *((NgramDrafter, {"frequent": n}, "frequent") for n in (-1, 13)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "said"), OUT_OF_RANGE)
def test_options_out_of_range(kind, options, said):
    with pytest.raises(UsageError, match=said):
        kind(**options)


SPECS = [
    "jacobi:block=1", "jacobi:block=5:start=previous",
    "logits-extend:roots=1:length=1", "logits-extend:roots=2:length=3", "logits-extend:roots=64:length=1024",
    "lookahead:variant=llama.cpp:prompt=false", "lookahead:window=1:ngram=2",
    "lookahead:forward_one=true:guesses=1", "lookup:max_ngram=5", "parrot:order=1:p=0",
    "parrot:order=2:p=0:learn=true", "recycling:context=1:length=1",
    "recycling:context=2:prompt=false", "recycling:length=65536", "ngram:frequent=0",
    "ngram:frequent=2:length=3",
]  # fmt: skip
TEXTS = [(), ((1, 2, 3, 0, 3, 1, 2, 0),), ((1, 2, 1), (3, 2, 0, 0, 0, 0)), ((0,) * 50,)]
DRAFTERS = {
    **{spec: load(spec)[0] for spec in SPECS},
    **{f"prediction of {len(t)} texts, {sum(map(len, t))} tokens": PredictionDrafter(texts=t) for t in TEXTS},
    "prediction that is short": PredictionDrafter(texts=TEXTS[2], floor=0, window=4, length=3),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_options_keep_the_contract(name):
    drafter = DRAFTERS[name]
    check_drafter(drafter)
    check_drafter(drafter, vocab_size=4, prompt=[3])
    assert hash(drafter) is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        drafter.length = 3


@pytest.mark.parametrize("name", ["ngram:frequent=0", "lookup", "logits-extend", "jacobi", "recycling"])
def test_prompts_of_any_kind(name):
    (drafter,) = load(name)
    for prompt in ([], [5], (5, 5), np.array([5, 5])):
        session = drafter.open(prompt, None)
        expected = [5] if len(prompt) == 2 and name not in ("logits-extend", "jacobi", "recycling") else []
        drafted = session.draft(1, 0, drafter.prior).tokens.tolist()
        assert drafted == (list(prompt[:1]) if name == "jacobi" else expected)


@pytest.mark.parametrize("vocab_size", [1, 2, 3, 9])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("spec", ["jacobi", "logits-extend", "recycling"])
def test_small_vocabularies_and_a_prompt_of_one_token(spec, vocab_size, sampling):
    target = ToyTarget(vocab_size=vocab_size, order=2)
    written = write(target, load(spec), 16, prompt=[0], limit=40, sampling=sampling)
    assert not any(source.failed for step in written.steps for source in step.by_source)
    assert written.ids == sampled_truth(target, sampling, [0], limit=40)


def test_kernels_come_with_the_first_text():
    code = (
        "import sys; from draftwood.drafters.load import load;"
        "ngram, prediction, memory, parrot = drafters = load('ngram+prediction+memory+parrot');"
        "[d.prior for d in drafters]; memory.open([1, 2], None).close(); assert 'llvmlite' not in sys.modules;"
        "{}; assert 'llvmlite' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code.format("prediction.open([1], None)")], check=True)


@pytest.mark.parametrize("package", ["llvmlite", "numba"])
def test_where_a_compiler_is_missing_one_sentence_says_so(package):
    code = (
        "import sys; sys.modules[{!r}] = None\n"
        "from draftwood.drafters.load import load; from draftwood.errors import DraftwoodError\n"
        "def module(): import draftwood.engines.cpu.target\n"
        "for need in (module, lambda: load('ngram')[0].open([1], None)):\n"
        "    try: need()\n"
        "    except DraftwoodError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code.format(package)], check=True, capture_output=True, text=True)
    sentences = said.stdout.splitlines()
    assert len(sentences) == (2 if package == "llvmlite" else 1)  # the engine needs no numba
    assert all(f"run pip install {package}; for Intel Macs it has no wheel" in line for line in sentences)
