"""The workloads: names, sizes, order and determinism; variants and temperatures."""

from __future__ import annotations

import hashlib
import re

import pytest

from draftwood.errors import UnknownNameError, UsageError
from draftwood.tasks import KINDS, Prompt, prompts
from draftwood.tasks.prompt import ONE_SENTENCE

# By kind: the digest of names and contents, and the bounds of a prompt's characters.
PINNED = {
    "code-edit": ("7758eb4296c6773d", 500, 2000),
    "completion": ("d8db11032c90439c", 250, 2000),
    "structured": ("d251ab9ff56ae3af", 250, 2000),
    "grammar": ("91011c00fcd7de4c", 450, 700),
    "summary": ("87d17a9499c7503a", 900, 1500),
    "web-qa": ("97c9ef3c2b6e2b02", 800, 1500),
    "agent": ("c3e70ce655adcae4", 2400, 9000),
    "chat": ("b03a1bfe740873b8", 40, 200),
    "creative": ("09709044cd04bf64", 40, 200),
    "code-suite": ("5a138105e5dc013c", 450, 1500),
}


@pytest.mark.parametrize("kind", PINNED)
def test_no_byte_of_a_prompt_changes(kind: str) -> None:
    # Recorded measurements refer to prompts by name. New ones at the end are welcome, with a new digest.
    digest, shortest, longest = PINNED[kind]
    found = prompts(kind)
    said = repr([(prompt.name, prompt.content) for prompt in found])
    assert hashlib.sha256(said.encode()).hexdigest()[:16] == digest
    assert len(found) >= (5 if kind == "code-suite" else 24)
    assert len({p.name for p in found}) == len({repr(p.content) for p in found}) == len(found)
    sizes = [len(p.text) if p.text else sum(len(m["content"]) for m in p.messages) for p in found]
    assert shortest <= min(sizes) <= max(sizes) <= longest


def test_the_kinds() -> None:
    assert (*KINDS, "code-suite") == tuple(PINNED)


@pytest.mark.parametrize("kind", PINNED)
def test_prompts_are_well_formed(kind: str) -> None:
    expected = (1.0, 0.95) if kind == "creative" else (0.0, None)
    for prompt in prompts(kind):
        assert isinstance(prompt, Prompt)
        assert (prompt.task, prompt.temperature, prompt.top_p) == (kind, *expected)
        assert (prompt.text is None) == bool(prompt.messages)
        roles = "".join(message["role"][0] for message in prompt.messages)
        assert re.fullmatch(r"u|(su(au)+)?", roles), roles
        for text in [prompt.text] if prompt.text else [message["content"] for message in prompt.messages]:
            assert text == text.strip()
            assert text.isascii() or kind == "summary"  # one café


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_takes_the_first_ones(kind: str) -> None:
    everything = prompts(kind)
    assert prompts(kind, 0) == []
    assert prompts(kind, 5) == everything[:5]
    assert prompts(kind, 1000) == everything == prompts(kind, None)


def test_a_changed_prompt_does_not_change_the_next_call() -> None:
    first = prompts("chat:one-sentence", 1)[0]
    said = first.messages[0]["content"]
    first.messages[0]["content"] = "changed"
    assert prompts("chat:one-sentence", 1)[0].messages[0]["content"] == said


@pytest.mark.parametrize("kind", ONE_SENTENCE)
def test_the_instruction_stands_at_the_end(kind: str) -> None:
    name = f"{kind}:one-sentence"
    for plain, short in zip(prompts(kind), prompts(name), strict=True):
        assert (short.task, short.name, short.temperature) == (name, plain.name, 0.0)
        assert short.messages[-1]["content"] == plain.messages[-1]["content"] + "\n\nAnswer in one sentence."


@pytest.mark.parametrize("kind", [*KINDS, "code-suite", "web-qa:one-sentence"])
def test_a_temperature_changes_the_sampling_alone(kind: str) -> None:
    for degrees in ("0", "0.7", "2"):
        for plain, warm in zip(prompts(kind), prompts(f"{kind}@{degrees}"), strict=True):
            assert (warm.task, warm.temperature, warm.top_p) == (f"{kind}@{degrees}", float(degrees), None)
            assert (warm.name, warm.content) == (plain.name, plain.content)


@pytest.mark.parametrize("degrees", ["", "hot", "-1", "2.1", "nan", "inf", "1e0", " 0.7", "0.7@0.3", "0,7", ".5"])
def test_what_is_no_temperature_is_refused(degrees: str) -> None:
    with pytest.raises(UsageError, match=r"must be a number from 0 to 2, as in chat@0\.7"):
        prompts(f"chat@{degrees}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("chatt@0.7", "unknown task 'chatt': did you mean 'chat'"),
        ("chat:one-sentense", "unknown variant of chat 'one-sentense': did you mean 'one-sentence'"),
        ("chat:", "unknown variant of chat ''"),
        ("", "unknown task ''"),
    ],
)
def test_unknown_names_are_named(name: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=said):
        prompts(name)


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(UsageError, match="limit must be 0 or more"):
        prompts("chat", -1)
    for kind in sorted({*PINNED} - {*ONE_SENTENCE}):
        with pytest.raises(UsageError, match=f"{kind} has no one-sentence variant.*grammar, summary, web-qa"):
            prompts(f"{kind}:one-sentence")
