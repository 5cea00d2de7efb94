"""Names to drafters, and drafters of other packages."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.contracts import Drafter, Needs
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.drafters.head.drafter import HeadDrafter, MtpDrafter
from draftwood.drafters.load import DRAFTERS, arms, known, load, load_inner
from draftwood.drafters.lookup.drafter import LookupDrafter
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.drafters.prediction.drafter import PredictionDrafter
from draftwood.errors import DrafterError, DraftwoodError, UnknownNameError, UsageError

# --- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("none", ()),
        ("default", (NgramDrafter(), HeadDrafter(optional=True), MtpDrafter(optional=True))),
        ("ngram", (NgramDrafter(),)),
        (
            "default+lookup",
            (NgramDrafter(), HeadDrafter(optional=True), MtpDrafter(optional=True), LookupDrafter()),
        ),
        (" ngram + lookup : length = 4 ", (NgramDrafter(), LookupDrafter(length=4))),
        ("lookup:max_ngram=3:length=10", (LookupDrafter(max_ngram=3, length=10),)),
        ("ngram:length=2:frequent=1", (NgramDrafter(length=2, frequent=1),)),
        ("ngram:length=4+ngram", (NgramDrafter(length=4), NgramDrafter())),
        (NgramDrafter(length=3), (NgramDrafter(length=3),)),
        ([], ()),
        (["none"], ()),
        (["ngram", LookupDrafter(length=2)], (NgramDrafter(), LookupDrafter(length=2))),
        (("lookup+ngram", NgramDrafter(length=2)), (LookupDrafter(), NgramDrafter(), NgramDrafter(length=2))),
    ],
)
def test_one_arm(spec, expected):
    assert load(spec) == expected


def test_several_arms():
    assert arms("none, ngram ,ngram+lookup:length=4") == [
        ("none", ()),
        ("ngram", (NgramDrafter(),)),
        ("ngram+lookup:length=4", (NgramDrafter(), LookupDrafter(length=4))),
    ]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("", "name is missing"),
        ("ngram+", "name is missing"),
        ("none+ngram", "cannot be combined"),
        (["ngram", "none"], "cannot be combined"),
        (["none", NgramDrafter()], "cannot be combined"),
        ("none:length=3", "takes no options"),
        ("default:length=3", "takes no options"),
        ("default+ngram", "named twice"),
        ("ngram+ngram:frequent=12", "named twice"),
        ([NgramDrafter(), "ngram"], "named twice"),
        ("ngram,lookup", "',' lists several"),
        ("ngram:length", "written key=value"),
        ("draft-model:model=ollama:llama3", "not 'llama3'; a value with ':' in it needs double quotes: model="),
        ('draft-model:model="ollama:llama3', "a double quote is missing"),
        ('ngram:length="4"5', "must be a whole number"),
        ("ngram:length=", "must be a whole number"),
        ("ngram:length=1.5", "'length' of drafter 'ngram' must be a whole number, not '1.5'"),
        ("parrot:p=x", "must be a number"),
        ("ngram:length=1:length=2", "given twice"),
        ("lookup:min_ngram=9", "min_ngram"),
    ],
)
def test_wrong_use(spec, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        load(spec)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "model", ["ollama:llama3.2:1b", "/models/a+b,c.gguf", "org/name", "a;b", "C:\\m.gguf", ""]
)
def test_values_in_double_quotes_stand_for_themselves(model):
    typed = f'draft-model:model="{model}":length=8'
    assert load(f"{typed}+ngram") == (DraftModelDrafter(model=model, length=8), NgramDrafter())
    assert arms(f"none, {typed}") == [("none", ()), (typed, (DraftModelDrafter(model=model, length=8),))]
    inner = f'draft-model;model="{model}";length=8/ngram'
    (outer,) = load(f"draft-model:model=small:drafters={inner}")
    assert load_inner(outer.drafters) == (DraftModelDrafter(model=model, length=8), NgramDrafter())


@pytest.mark.parametrize("name", ["eagle", "draft", "medusa"])
def test_a_method_that_is_not_here_is_an_unknown_name(name):
    with pytest.raises(UnknownNameError, match=f"unknown drafter .{name}.*known: copy-and-rec") as caught:
        load(f"ngram+{name}:model=small")
    assert caught.value.exit_code == 2


def test_unknown_names_are_told_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown drafter 'ngran': did you mean 'ngram'") as caught:
        load("lookup+ngran")
    assert set(caught.value.known) >= {"ngram", "lookup", "none", "default"}
    with pytest.raises(
        UnknownNameError, match="unknown option of drafter 'lookup' 'max_gram': did you mean 'max_ngram'"
    ):
        load("lookup:max_gram=3")
    with pytest.raises(UnknownNameError):
        arms("ngram,Ngram")
    with pytest.raises(UsageError, match="name is missing"):
        arms("ngram,")


def test_a_name_that_is_gone_answers_with_the_drafter_in_its_place(caplog):
    assert arms("suffix+lookup") == [("suffix+lookup", (NgramDrafter(), LookupDrafter()))]
    assert [record.message for record in caplog.records] == [
        "drafter 'suffix' is gone: 'ngram', which is right more often, takes its place"
    ]


@given(st.text(alphabet="ngramlookpeth:=+,019. -", max_size=30))
def test_nonsense_is_wrong_use(spec):
    with suppress(UsageError):
        assert all(d.name in DRAFTERS for d in load(spec))


def test_known_describes_every_name():
    lines = known()
    assert set(lines) >= {"none", "default", "ngram", "lookup"}
    assert all(line and "\n" not in line for line in lines.values())


# --- objects -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Foreign(Drafter):
    """A drafter of the contract alone."""

    name: ClassVar[str] = "foreign"
    prior: ClassVar = np.zeros(1, dtype=np.float32)
    needs: ClassVar = Needs(top_k=2)

    def open(self, prompt, noise):
        raise NotImplementedError


def test_foreign_objects_are_welcome():
    assert load([Foreign(), "ngram"]) == (Foreign(), NgramDrafter())


@dataclass(frozen=True, slots=True)
class Slotted(Foreign):
    given: object = field(default=None, repr=False)


def test_foreign_objects_with_slots_are_told_apart():
    one = Slotted([1])
    assert load([one, Slotted([1])]) == (one, one)
    with pytest.raises(UsageError, match="named twice"):
        load([one, one])


def broken(**attributes):
    return type("Broken", (Foreign,), attributes)()


@pytest.mark.parametrize(
    ("thing", "sentence"),
    [
        (3, "is no drafter"),
        (None, "is no drafter"),
        ([object()], "is no drafter"),
        (NgramDrafter, "is a class"),
        (broken(name=""), "'name' must be"),
        (broken(name=7), "'name' must be"),
        (broken(prior=[0.5]), "'prior' must be a float32 array"),
        (broken(prior=np.zeros(1)), "'prior' must be a float32 array"),
        (broken(prior=np.zeros((1, 1), np.float32)), "'prior' must be a float32 array"),
        (broken(prior=np.zeros(0, np.float32)), "'prior' must be a float32 array"),
        (broken(prior=np.full(1, 1.5, np.float32)), "'prior' must hold probabilities"),
        (broken(prior=np.full(1, np.nan, np.float32)), "'prior' must hold probabilities"),
        (broken(needs=None), "'needs' must be"),
        (broken(open=lambda prompt: prompt), "'open' must take the arguments prompt and noise"),
        (broken(open=5), "'open' must take the arguments prompt and noise"),
    ],
)
def test_objects_that_are_no_drafter(thing, sentence):
    with pytest.raises(DrafterError, match=sentence):
        load(thing)


# --- plug-ins ----------------------------------------------------------------------------------------------

GOOD = '''
from dataclasses import dataclass
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.tree import TokenTree

@dataclass(frozen=True)
class Echo(BaseDrafter):
    """Proposes the last token again."""

    name = "echo"
    times: int = 1
    loud: bool = False
    word: str | None = None
    weight: float = 0.5

    def open(self, prompt, noise):
        return Session(prompt)

class Session(TextSession):
    def draft(self, nodes, lookahead_nodes, accept_rates):
        return TokenTree.build(self.text[-1:].repeat(nodes), belief=accept_rates[0])
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package that offers drafters: its module's source and lines of entry points."""

    def install(source, *entries, package="example"):
        site = tmp_path / package
        info = site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{package}_drafters.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[draftwood.drafters]\n" + "\n".join(entries) + "\n")
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, f"{package}_drafters", raising=False)

    yield install
    for name in [n for n in sys.modules if n.endswith("_drafters") and n.startswith(("example", "other"))]:
        del sys.modules[name]


def test_a_plugin_is_a_drafter_like_ours(install):
    install(GOOD, "echo = example_drafters:Echo")
    echo, ngram = load("echo:times=3:loud=yes:word=none:weight=1e-1+ngram")
    assert (echo.times, echo.loud, echo.word, echo.weight) == (3, True, None, 0.1)
    assert ngram == NgramDrafter()
    session = echo.open([4, 5], None)
    assert session.draft(2, 0, echo.prior).tokens.tolist() == [5, 5]
    assert known()["echo"] == "Proposes the last token again."
    with pytest.raises(UnknownNameError, match="did you mean 'echo'"):
        load("ecko")
    with pytest.raises(UnknownNameError, match="option of drafter 'echo' 'tims': did you mean 'times'"):
        load("echo:tims=3")
    with pytest.raises(UsageError, match="'loud' of drafter 'echo' must be true or false, not 'perhaps'"):
        load("echo:loud=perhaps")
    assert load("echo:word=hi")[0].word == "hi"


def test_a_function_can_make_the_drafter(install):
    install(
        GOOD + "\ndef make(path: str, *, n: int = 1):\n    return Echo(times=n)\n", "echo = example_drafters:make"
    )
    assert load("echo:path=here:n=4")[0].times == 4
    with pytest.raises(UsageError, match="drafter 'echo' needs its option 'path': write echo:path="):
        load("echo")


@pytest.mark.parametrize(
    ("change", "entry", "sentence"),
    [
        ("import nowhere", "echo = example_drafters:Echo", "cannot be imported.*nowhere"),
        ("", "echo = example_drafters:Gone", "cannot be imported.*Gone"),
        ("def make(weights): ...", "echo = example_drafters:make", "argument 'weights' must be annotated"),
        ("def make(ids: list): ...", "echo = example_drafters:make", "argument 'ids' must be annotated"),
        (
            "def make(n: int | str): ...",
            "echo = example_drafters:make",
            "argument 'n' must be a keyword of one type",
        ),
        ("def make(**n: int): ...", "echo = example_drafters:make", "argument 'n' must be a keyword of one type"),
        ("def make(): return 5", "echo = example_drafters:make", "is no drafter"),
        ("def make(): return 1 / 0", "echo = example_drafters:make", "failed to make its drafter.*ZeroDivision"),
        ("", "other = example_drafters:Echo", "drafter's name is 'echo'"),
        ("Echo.prior = None", "echo = example_drafters:Echo", "'prior' must be"),
        ("Echo.needs = 4", "echo = example_drafters:Echo", "'needs' must be"),
        ("del Echo.name", "echo = example_drafters:Echo", "'name' must be"),
        ("Echo.open = lambda self: 1", "echo = example_drafters:Echo", "'open' must take"),
        ("class NoOpen(BaseDrafter): ...", "echo = example_drafters:NoOpen", "failed to make its drafter.*open"),
    ],
)
def test_broken_plugins_are_named_with_what_is_wrong(install, change, entry, sentence):
    install(f"{GOOD}\n{change}\n", entry)
    name = entry.split()[0]
    with pytest.raises(DrafterError, match=f"drafter plug-in '{name}' of example.*{sentence}"):
        load(name)
    assert load("ngram") == (NgramDrafter(),)
    assert name in known()


def test_a_plugin_that_checks_its_options_is_heard(install):
    install(
        "from draftwood.errors import UsageError\n\ndef make(n: int = 1):\n    raise UsageError('echo: n is 0')\n",
        "echo = example_drafters:make",
    )
    with pytest.raises(DraftwoodError, match="echo: n is 0") as caught:
        load("echo:n=0")
    assert caught.value.exit_code == 2


def test_a_plugin_cannot_take_our_names_nor_anothers(install):
    install(GOOD, "ngram = example_drafters:Echo", "none = example_drafters:Echo", "echo = example_drafters:Echo")
    assert load("ngram") == (NgramDrafter(),)
    assert load("none") == ()
    install(GOOD, "echo = other_drafters:Echo", package="other")
    with pytest.raises(DrafterError, match="several plug-ins have this name"):
        load("echo")


def test_plugins_are_not_imported_for_our_own_names(install):
    install("raise SystemExit", "echo = example_drafters:Echo")
    assert load("default+lookup") == (
        NgramDrafter(),
        HeadDrafter(optional=True),
        MtpDrafter(optional=True),
        LookupDrafter(),
    )


def test_names_bring_neither_numba_nor_torch():
    code = (
        "import sys; from draftwood.drafters.load import load, known; load('default+lookup'); known();"
        "assert not {'numba', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_objects_that_are_bound_to_different_things_stand_side_by_side():
    corpora = [Corpus.of([[1, 2, 3]]) for _ in range(2)]
    several = [CorpusDrafter(corpora=(corpus,)) for corpus in corpora]
    several += [PredictionDrafter(texts=((1, 2),)), PredictionDrafter(texts=((3, 4),))]
    several += [MemoryDrafter(), MemoryDrafter()]
    assert load(several) == tuple(several)
    for same in (several[0], PredictionDrafter(texts=((3, 4),)), MemoryDrafter(memory=several[-1].memory)):
        with pytest.raises(UsageError, match="named twice"):
            load([*several, same])
    with pytest.raises(UsageError, match="named twice"):
        load(["memory", "memory"])
