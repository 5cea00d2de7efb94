"""What was learnt carries on from call to call, per target; a model begins with the profile of this machine."""

import gc
import json
import logging
from datetime import date

import pytest
from tests.engines.tiny import build

import draftwood
from draftwood.api.learned import _keep_all, fresh, learned, speeds
from draftwood.api.setup import Setup
from draftwood.contracts.declaring import declared
from draftwood.drafters.load import load
from draftwood.local import findings
from draftwood.local.crowding import Others
from draftwood.local.findings import profile_path, setting_of
from draftwood.planning.cost_curve import CostCurve
from draftwood.testing import ToyTarget

CURVE = {1: 0.02, 8: 0.03, 32: 0.06}


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model that says where it comes from, on a machine without profiles."""
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(findings, "folder", lambda: tmp_path / "found")
    monkeypatch.setattr(findings, "_said", set())
    made = build("llama")
    made.config._name_or_path = "owner/tiny"
    return made


def profile(model, text=None, /, **changes):
    """Put a profile of this model where `draftwood profile` would."""
    setting = setting_of(model)
    path = profile_path(*setting)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"row": "header", "verb": "profile", "format": 1, "settings": setting._asdict() | changes}]
    rows += [{"row": "pass", "context": 128, "n": n, "median_s": seconds} for n, seconds in CURVE.items()]
    path.write_text("\n".join(map(json.dumps, rows)) if text is None else text)
    return path


def test_a_call_goes_on_with_what_the_last_one_learnt():
    target, other = ToyTarget(), ToyTarget()
    (drafter,) = load("ngram")
    draftwood.generate(target, [1, 2, 3], drafters="ngram", max_new_tokens=30)
    learnt = Setup(target, None, "ngram", "fixed:16").planner.learned
    anew = Setup(other, None, "ngram", "goodput").planner.learned
    assert sum(learnt.beliefs.rates(declared(drafter), greedy=True).totals) > 0
    assert learnt.cost(1).passes > 0
    assert sum(anew.beliefs.rates(declared(drafter), greedy=True).totals) == 0
    assert anew.cost(1).passes == 0


def test_learning_begins_with_the_profile_of_this_machine(model):
    assert fresh(model).curve is None
    profile(model)
    assert fresh(model).curve == CostCurve({128: CURVE})
    assert learned(model).curve == CostCurve({128: CURVE})


@pytest.mark.parametrize(
    ("text", "changes"),
    [("", {}), ("none", {}), ('{"row": "header"}', {}), (None, {"threads": 7})],
)  # fmt: skip
def test_a_profile_that_is_broken_or_foreign_is_left_alone_with_one_warning(model, caplog, text, changes):
    path = profile(model, text, **changes)
    with caplog.at_level(logging.WARNING, "draftwood"):
        assert fresh(model).curve is None
        assert fresh(model).curve is None
    assert [str(path) in record.getMessage() for record in caplog.records] == [True]


@pytest.fixture
def keeping(monkeypatch):
    """Learning is kept, as outside of tests."""
    monkeypatch.setenv("DRAFTWOOD_LEARNED", "on")


def write_some(model):
    setup = Setup(model, None, "ngram", "goodput")
    cost = setup.planner.learned.cost(1)
    for _ in range(20):
        cost.learn(1, 64, 0.5)
    return cost


def named_model():
    made = build("llama")
    made.config._name_or_path = "owner/named"
    return made


@pytest.mark.usefixtures("model")
def test_a_model_that_is_loaded_again_knows_what_the_last_one_learnt(keeping):
    before = write_some(named_model()).seconds(1, 64)
    gc.collect()  # it is written when the model goes, or the process ends
    again = named_model()
    cost = learned(again).cost(1)
    assert cost.passes == 20
    assert cost.seconds(1, 64) == pytest.approx(before, rel=1e-3)
    assert fresh(again).cost(1).passes == 0, "measurements begin with nothing"
    (path,) = findings.files("learned")
    found = speeds("owner/named")["transformers"]
    today = date.today().isoformat()
    assert found == (pytest.approx(1 / cost.seconds(1, 256), rel=1e-3), "float32", today)
    record = json.loads(path.read_text())
    without_day = {name: value for name, value in record["speed"].items() if name != "day"}
    for speed in (None, record["speed"] | {"pass_s": 0}, without_day, []):
        broken = record | {"speed": speed}
        path.write_text(json.dumps(broken))
        assert speeds("owner/named") == {}
    assert speeds("owner/other") == {}


@pytest.mark.usefixtures("model")
def test_the_speed_of_a_busy_moment_is_not_kept(keeping, monkeypatch):
    monkeypatch.setattr(Others, "cores", 99.0)
    write_some(named_model())
    gc.collect()
    assert (len(findings.files("learned")), speeds("owner/named")) == (1, {})
    monkeypatch.setattr(Others, "cores", 0.0)
    write_some(named_model())
    gc.collect()
    quiet = speeds("owner/named")
    assert list(quiet) == ["transformers"]
    monkeypatch.setattr(Others, "cores", 99.0)
    model = named_model()
    for _ in range(200):
        learned(model).cost(1).learn(1, 64, 5.0)
    del model
    gc.collect()
    assert speeds("owner/named") == quiet, "that of the last quiet time stays"


def test_what_was_learnt_is_written_when_the_process_ends_and_now_and_then_before(model, keeping, monkeypatch):
    write_some(model)
    assert findings.files("learned") == []
    monkeypatch.setattr("draftwood.api.learned._PATIENCE", -1.0)
    learned(model)
    (path,) = findings.files("learned")
    before = path.stat().st_mtime_ns
    learned(model)
    assert path.stat().st_mtime_ns == before, "nothing was learnt since"
    path.unlink()
    write_some(model)
    _keep_all()
    assert findings.files("learned") == [path]


def test_nothing_is_kept_where_it_is_switched_off_or_the_model_says_no_name(model, keeping, monkeypatch):
    monkeypatch.setenv("DRAFTWOOD_LEARNED", "off")
    write_some(model)
    target = ToyTarget()
    draftwood.generate(target, [1, 2, 3], drafters="ngram", max_new_tokens=30)
    _keep_all()
    assert findings.files("learned") == []
