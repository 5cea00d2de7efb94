"""Drafts for models whose state llama.cpp cannot take back: it is saved before a pass, and restored."""

from __future__ import annotations

import numpy as np
import pytest

import draftwood
from draftwood.engines.llama_cpp import selftest
from draftwood.engines.llama_cpp.context import RECURRENT, Context, ContextSettings, PassRow
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.errors import CapabilityError, DraftwoodError
from draftwood.tree import TokenTree
from tests.engines import tiny_gguf as files
from tests.engines.story import OneByOne
from tests.engines.tiny_gguf import VOCAB
from tests.tiers import rest_is_slow

FAMILIES = rest_is_slow(("mamba", "mamba2", "jamba"), "mamba", "jamba")
NOTHING = TokenTree.empty()
TEXT = np.random.default_rng(1).integers(0, VOCAB, 20).tolist()
CHAIN = TokenTree.build([4, 5, 6, 7, 8])


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def target(tiny_gguf, family):
    return LlamaTarget(tiny_gguf(family, "Q8_0"), threads=1)


@pytest.fixture
def truth(tiny_gguf, family):
    return OneByOne(LlamaTarget(tiny_gguf(family, "Q8_0"), threads=1))


@pytest.fixture
def calls(monkeypatch):
    """``calls`` lists what the context is asked for: tokens and scored rows of passes, snapshots, restorations."""
    made, own = [], {name: getattr(Context, name) for name in ("run", "state", "restore")}

    def ran(self, rows, scored=None, also=()):
        made.append((len(rows), len(also) + (len(rows) if scored is None else scored)))
        return own["run"](self, rows, scored, also)

    def saved(self, sequence, part=0):
        made.append("save" if part == RECURRENT else "copy")
        return own["state"](self, sequence, part)

    def restored(self, sequence, data, part=0):
        made.append("restore" if part == RECURRENT else "paste")
        return own["restore"](self, sequence, data, part)

    for name, spy in {"run": ran, "state": saved, "restore": restored}.items():
        monkeypatch.setattr(Context, name, spy)
    return made


def opened(target, text=TEXT):
    ((session, _),) = target.open([text])
    return session


def assert_says(target, truth, session, tree=CHAIN, root=3):
    """Every row of a pass is that of plain decoding, bit by bit."""
    (scores,) = target.score([(session, root, tree)])
    for row in range(1 + len(tree)):
        text = [*session.ids, root, *tree.tokens[:row].tolist()]
        assert np.array_equal(scores.raw(row), truth(text))


def test_what_is_declared(target):
    can = target.capabilities
    assert (can.trees, can.rollback, can.batch, can.max_pass, target.exact) == (False, "snapshot", True, 24, True)
    session = opened(target)
    with pytest.raises(CapabilityError, match="chains of at most 23 tokens"):
        target.score([(session, 1, TokenTree.build([2, 3], [-1, -1]))])


def test_accepted_tokens_wait_and_the_next_pass_begins_with_them(target, truth, calls):
    session = opened(target)
    assert session.replay == 0
    del calls[:]
    target.score([(session, 3, CHAIN)])
    session.keep([0, 1])
    assert (session.replay, session.length) == (3, 23)
    assert session.ids == [*TEXT, 3, 4, 5]
    assert calls == ["save", (6, 6), "restore"]
    del calls[:]
    assert_says(target, truth, session)
    assert calls[0] == (9, 6), "the snapshot is still that of this length"
    session.keep([])
    assert session.replay == 4
    del calls[:]
    target.score([(session, 9, NOTHING)])
    session.keep([])
    assert (session.replay, calls) == (0, [(5, 1)])
    assert_says(target, truth, session)


def test_drafts_that_are_rejected_in_turns_leave_the_other_texts_where_they_are(target, truth, calls):
    """The cells that become free lie behind all others; else texts are written anew, to stay in order."""
    sessions = [opened(target, TEXT[:n]) for n in (20, 3)]
    for session in sessions:
        assert_says(target, truth, session)
        session.keep([0])
    del calls[:]
    for _ in range(12):
        for session in sessions:
            target.score([(session, 3, CHAIN)])
            session.keep([0])
    assert not {"copy", "paste"} & set(calls)
    for session in sessions:
        assert_says(target, truth, session)


def test_a_snapshot_that_the_library_refuses_is_made_good_by_reading(target, truth, monkeypatch):
    session = opened(target)
    target.score([(session, 3, CHAIN)])
    with monkeypatch.context() as patch:

        def refuses(*_):
            raise DraftwoodError("no")

        patch.setattr(Context, "go_back", refuses)
        session.keep([0])
    assert session.replay == 22
    assert_says(target, truth, session)


@pytest.mark.parametrize("family", ["lfm2", *FAMILIES])
def test_a_text_with_drafts_is_the_plain_one(target):
    prompts = [TEXT * 3, TEXT[:5] * 4, TEXT]
    for sampled in ({}, {"temperature": 1.0, "seed": 3}):
        plain = draftwood.generate(target, prompts, max_new_tokens=30, drafters="none", **sampled)
        drafted = draftwood.generate(target, prompts, max_new_tokens=30, drafters="copy-and-recycle", **sampled)
        assert [one.ids for one in drafted] == [one.ids for one in plain]


@pytest.mark.parametrize("family", ["lfm2", *FAMILIES])
def test_scores_that_are_not_finite_stay_in_their_draft_and_their_text(tmp_path, family, monkeypatch):
    own = files._tensors

    def broken(*given):
        found = own(*given)
        found["token_embd.weight"][77] = np.inf
        return found

    monkeypatch.setattr(files, "_tensors", broken)
    target = LlamaTarget(files.write_gguf(tmp_path / "broken.gguf", family=family), threads=1)
    session = opened(target)
    for chain in ([4, 77, 5], [4, 6]):
        (scores,) = target.score([(session, 3, TokenTree.build(chain))])
        broken_rows = [bool(np.isnan(scores.raw(row)).any()) for row in range(1 + len(chain))]
        assert broken_rows == [77 in chain[:row] for row in range(1 + len(chain))]
        session.keep([0])
    session.close()
    ((session, scores),) = target.open([[1, 77, 2]])
    assert np.isnan(scores.raw(0)).any()
    session.close()
    ((session, scores),) = target.open([TEXT])
    assert np.isfinite(scores.raw(0)).all()


# --- the trial -----------------------------------------------------------------------------------------------


def tried(path):
    return selftest._tried_snapshot(LlamaTarget(path, threads=1).weights, ContextSettings(1))


def test_snapshots_of_another_text_are_found_out(tiny_gguf, family, monkeypatch):
    path = tiny_gguf(family, "Q8_0")
    assert tried(path)

    def wrong(self, sequence, data, length):
        self.remove(sequence)
        for position in range(length):
            self.run([PassRow(9, position, (sequence,))])

    monkeypatch.setattr(Context, "go_back", wrong)
    assert not tried(path)


def test_the_trial_is_made_once(tiny_gguf, monkeypatch):
    path = tiny_gguf("mamba", "Q8_0")
    LlamaTarget(path, threads=1)
    monkeypatch.setattr(selftest, "_tried_snapshot", lambda *_: pytest.fail("it is remembered"))
    assert LlamaTarget(path, threads=1).capabilities.rollback == "snapshot"
