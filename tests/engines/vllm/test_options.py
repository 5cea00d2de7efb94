"""Options of the vLLM plug-in, from its configuration and from the environment."""

import pytest

from draftwood.engines.vllm.configuration import Options
from draftwood.engines.vllm.requests import check_version, is_tested
from draftwood.errors import CapabilityError, UnknownNameError, UsageError


def test_the_configuration_goes_before_the_environment():
    environment = {"DRAFTWOOD_VLLM_PLANNER": "off", "DRAFTWOOD_VLLM_TEXTS": "5", "DRAFTWOOD_LEARNED": "off"}
    found = Options.read({"draftwood": {"planner": "fixed:4", "log_every": 5}}, environment)
    assert found == Options(planner="fixed:4", texts=5, log_every=5.0)
    assert Options.read({}, {}) == Options() == Options.read(None, {})


@pytest.mark.parametrize(("text", "wanted"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_switches_in_the_environment(text, wanted):
    assert Options.read({}, {"DRAFTWOOD_VLLM_REQUESTS": text}).requests is wanted


@pytest.mark.parametrize(
    ("given", "environment", "said"),
    [
        ({"draftwood": {"drafter": "x"}}, {}, "did you mean 'drafters'"),
        ({"draftwood": "ngram"}, {}, "are an object"),
        ({"draftwood": {"planner": 5}}, {}, "must be text, not 5"),
        ({"draftwood": {"texts": 1.5}}, {}, "must be a whole number"),
        ({"draftwood": {"texts": True}}, {}, "must be a whole number"),
        ({"draftwood": {"requests": 1}}, {}, "must be true or false"),
        ({"draftwood": {"log_every": float("nan")}}, {}, "must not be negative"),
        ({}, {"DRAFTWOOD_VLLM_PLANER": "x"}, "did you mean 'DRAFTWOOD_VLLM_PLANNER'"),
        ({}, {"DRAFTWOOD_VLLM_TEXTS": "x"}, "must be a whole number, not 'x'"),
        ({}, {"DRAFTWOOD_VLLM_REQUESTS": "perhaps"}, "must be true or false"),
    ],
)
def test_wrong_options_are_refused(given, environment, said):
    with pytest.raises(UsageError, match=said):
        Options.read(given, environment)


def test_unknown_names_have_their_error():
    with pytest.raises(UnknownNameError):
        Options.read({"draftwood": {"x": 1}}, {})


@pytest.mark.parametrize(
    ("version", "tested"),
    [("0.32", True), ("0.32.1", True), ("0.33.0+cpu", True), ("0.320.1", False), ("", False)],
)
def test_which_versions_were_tested(version, tested, monkeypatch):
    assert is_tested(version) is tested
    if tested:
        check_version(version)
    else:
        with pytest.raises(CapabilityError, match="DRAFTWOOD_VLLM_ANY_VERSION=1"):
            check_version(version)
        monkeypatch.setenv("DRAFTWOOD_VLLM_ANY_VERSION", "1")
        check_version(version)
