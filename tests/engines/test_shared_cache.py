"""Drafters on the target's own cache: several at once, and one whose pass fails half-way."""

import numpy as np

import draftwood
from draftwood.drafters.draft_model.drafter import EarlyExitDrafter
from draftwood.engines.transformers.cache import Arena
from draftwood.engines.transformers.session import TransformersSession
from draftwood.engines.transformers.shared import shared_target
from tests.engines.tiny import build

PROMPT = np.random.default_rng(0).integers(0, 64, 4).tolist()


def test_drafters_on_one_cache_do_not_see_each_others_nodes():
    target = shared_target(build("llama"))
    ((target_session, _),) = target.open([PROMPT[:-1]])
    found = []
    for others in (False, True):
        drafter = EarlyExitDrafter(target=target.early_exit("2"))
        session = drafter.open(PROMPT, None)
        session.follow(target_session)
        if others:
            other = EarlyExitDrafter(target=target.early_exit("1")).open(PROMPT, None)
            other.follow(target_session)
            assert len(other.draft(4, 0, drafter.prior))
        tree = session.draft(12, 0, drafter.prior)
        grown = len(target_session._grown.tokens)  # those of the other drafter are forgotten
        found.append((tree.tokens.tolist(), tree.parents.tolist(), grown))
    assert found[0] == found[1]


def test_a_failure_while_a_draft_makes_room_changes_no_text(monkeypatch, caplog):
    model = build("llama")
    plain = draftwood.generate(model, PROMPT, drafters="none", max_new_tokens=40)
    grow, reserve, failed = TransformersSession.grown_rows, Arena.reserve, []

    def grown_rows(self, *arguments):
        with monkeypatch.context() as patched:
            patched.setattr(Arena, "reserve", reserve if failed else breaks)
            return grow(self, *arguments)

    def breaks(*_):
        failed.append(True)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(TransformersSession, "grown_rows", grown_rows)
    how = {"drafters": "early-exit:layers=2", "planner": "fixed:4"}
    drafted = draftwood.generate(model, PROMPT, max_new_tokens=40, **how)
    assert drafted.ids == plain.ids
    assert failed
    assert "is off for this request" in caplog.text
