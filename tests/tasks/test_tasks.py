"""The workloads: names, sizes, order and determinism."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from draftwood.errors import UnknownNameError, UsageError
from draftwood.tasks import KINDS, Prompt, all_prompts, prompts
from draftwood.tasks.datafiles import sections, table

_FINGERPRINT = (
    "import hashlib; from draftwood.tasks import all_prompts; "
    "print(hashlib.sha256(repr(all_prompts()).encode()).hexdigest())"
)


DIGESTS = {
    "code-edit": "7758eb4296c6773d",
    "completion": "d8db11032c90439c",
    "structured": "d251ab9ff56ae3af",
    "grammar": "91011c00fcd7de4c",
    "summary": "87d17a9499c7503a",
    "web-qa": "97c9ef3c2b6e2b02",
    "agent": "c3e70ce655adcae4",
    "chat": "b03a1bfe740873b8",
    "creative": "09709044cd04bf64",
    "code-suite": "5a138105e5dc013c",
}
OF_THE_STANDARD_LIBRARY = ("code-edit", "completion", "structured", "agent", "code-suite")


@pytest.mark.parametrize("kind", DIGESTS)
def test_no_byte_of_a_prompt_changes(kind: str) -> None:
    # Recorded measurements refer to prompts by name. New ones at the end are welcome, with a new digest.
    if kind in OF_THE_STANDARD_LIBRARY and sys.version_info[:3] != (3, 11, 7):
        pytest.skip("the digest is of the standard library of Python 3.11.7")
    found = repr([(prompt.name, prompt.content) for prompt in prompts(kind)])
    assert hashlib.sha256(found.encode()).hexdigest()[:16] == DIGESTS[kind]


@pytest.mark.parametrize(
    ("table_or_text", "digest"),
    [
        (lambda: sections("completion"), "79f07bdf087da057"),
        (
            lambda: [*(table(n) for n in ("code", "structured", "agent", "agent-bugs")), sections("structured")],
            "029e192f6c87ab33",
        ),
    ],
    ids=["unfinished code", "tables"],
)
def test_what_is_stored_of_the_other_prompts_does_not_change_either(table_or_text, digest) -> None:
    assert hashlib.sha256(repr(table_or_text()).encode()).hexdigest()[:16] == digest


def test_the_kinds() -> None:
    assert KINDS == (
        "code-edit",
        "completion",
        "structured",
        "grammar",
        "summary",
        "web-qa",
        "agent",
        "chat",
        "creative",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_at_least_twenty_four_different_prompts(kind: str) -> None:
    found = prompts(kind)
    assert len(found) >= 24
    assert len({prompt.name for prompt in found}) == len(found)
    assert len({repr(prompt.content) for prompt in found}) == len(found)


@pytest.mark.parametrize("kind", [*KINDS, "code-suite"])
def test_prompts_are_well_formed(kind: str) -> None:
    for prompt in prompts(kind):
        assert isinstance(prompt, Prompt)
        assert prompt.task == kind
        assert (prompt.text is None) == bool(prompt.messages)
        assert prompt.content == (prompt.text or list(prompt.messages))
        roles = [message["role"] for message in prompt.messages]
        assert roles[-1:] in ([], ["user"])
        assert all(set(message) == {"role", "content"} for message in prompt.messages)
        texts = [prompt.text] if prompt.text else [message["content"] for message in prompt.messages]
        for text in texts:
            assert text == text.strip()
            assert text.isascii() or kind == "summary"  # one café


@pytest.mark.parametrize("kind", ["grammar", "summary", "web-qa", "chat", "creative"])
def test_prompts_about_prose_are_one_message_without_gaps(kind: str) -> None:
    for prompt in prompts(kind):
        (message,) = prompt.messages
        assert "  " not in message["content"]


def length(prompt: Prompt) -> int:
    return len(prompt.text) if prompt.text else sum(len(message["content"]) for message in prompt.messages)


@pytest.mark.parametrize(
    ("kind", "shortest", "longest"),
    [
        ("code-edit", 500, 2000),
        ("completion", 250, 2000),
        ("structured", 250, 2000),
        ("grammar", 450, 700),
        ("summary", 900, 1500),
        ("web-qa", 800, 1500),
        ("agent", 2400, 9000),
        ("chat", 40, 200),
        ("creative", 40, 200),
        ("code-suite", 450, 1500),
    ],
)
def test_the_length_in_characters_stays_within_bounds(kind: str, shortest: int, longest: int) -> None:
    lengths = [length(prompt) for prompt in prompts(kind)]
    assert shortest <= min(lengths)
    assert max(lengths) <= longest


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("grammar", "0c0293a057bd58fd"),
        ("summary", "57eca004eb0168f5"),
        ("web-qa", "e360db5b5b198159"),
        ("chat", "228ba8c7c025d167"),
    ],
)
def test_the_first_twelve_never_change(kind: str, digest: str) -> None:
    # Recorded measurements refer to them by name.
    texts = "\x00".join(prompt.messages[0]["content"] for prompt in prompts(kind, 12))
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("kind", KINDS)
def test_only_creative_prompts_are_meant_to_be_sampled(kind: str) -> None:
    expected = (1.0, 0.95) if kind == "creative" else (0.0, None)
    assert {(prompt.temperature, prompt.top_p) for prompt in prompts(kind)} == {expected}


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_takes_the_first_ones(kind: str) -> None:
    everything = prompts(kind)
    assert prompts(kind, 0) == []
    assert prompts(kind, 5) == everything[:5]
    assert prompts(kind, 1000) == everything == prompts(kind, None)


def test_all_prompts_follow_the_order_of_the_kinds() -> None:
    assert [prompt.task for prompt in all_prompts(2)] == [kind for kind in KINDS for _ in range(2)]
    assert len(all_prompts()) == sum(len(prompts(kind)) for kind in KINDS)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown task 'grammer': did you mean 'grammar'"):
        prompts("grammer")


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="limit must be 0 or more"):
        prompts("chat", -1)


def test_a_changed_prompt_does_not_change_the_next_call() -> None:
    first = prompts("chat", 1)[0]
    first.messages[0]["content"] = "changed"
    assert prompts("chat", 1)[0].messages[0]["content"] == sections("chat")[0][1]


def test_another_process_with_another_hash_seed_sees_the_same_prompts() -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    seen = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        run = subprocess.run(
            [sys.executable, "-c", _FINGERPRINT], env=env, capture_output=True, text=True, check=True
        )
        seen.add(run.stdout)
    assert len(seen) == 1
