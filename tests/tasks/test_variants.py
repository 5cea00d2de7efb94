"""Variants of a task by its name: answers in one sentence, and temperatures."""

from __future__ import annotations

import pytest

from draftwood.errors import UnknownNameError, UsageError
from draftwood.tasks import KINDS, prompts
from draftwood.tasks.variants import ONE_SENTENCE, Variant, parse


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chat", Variant("chat")),
        ("chat:one-sentence", Variant("chat", one_sentence=True)),
        ("code-edit@0.7", Variant("code-edit", temperature=0.7)),
        ("chat@0", Variant("chat", temperature=0.0)),
        ("chat@2", Variant("chat", temperature=2.0)),
        ("web-qa:one-sentence@0.7", Variant("web-qa", True, 0.7)),
    ],
)
def test_names_are_read(name: str, expected: Variant) -> None:
    assert parse(name, KINDS) == expected


@pytest.mark.parametrize("kind", ONE_SENTENCE)
def test_the_instruction_stands_at_the_end(kind: str) -> None:
    name = f"{kind}:one-sentence"
    for plain, short in zip(prompts(kind), prompts(name), strict=True):
        assert short.task == name
        assert short.name == plain.name
        assert short.messages[-1]["content"] == plain.messages[-1]["content"] + "\n\nAnswer in one sentence."
        assert short.temperature == plain.temperature == 0.0


@pytest.mark.parametrize("kind", sorted({*KINDS, "code-suite"} - {*ONE_SENTENCE}))
def test_kinds_without_prose_have_no_such_variant(kind: str) -> None:
    with pytest.raises(UsageError, match=f"{kind} has no one-sentence variant.*grammar, summary, web-qa, chat"):
        prompts(f"{kind}:one-sentence")


@pytest.mark.parametrize("kind", [*KINDS, "code-suite", "web-qa:one-sentence"])
def test_a_temperature_changes_the_sampling_alone(kind: str) -> None:
    for plain, warm in zip(prompts(kind), prompts(f"{kind}@0.7"), strict=True):
        assert (warm.task, warm.temperature, warm.top_p) == (f"{kind}@0.7", 0.7, None)
        assert (warm.name, warm.content) == (plain.name, plain.content)


@pytest.mark.parametrize("degrees", ["", "hot", "-1", "2.1", "nan", "inf", "1e0", " 0.7", "0.7@0.3", "0,7", ".5"])
def test_what_is_no_temperature_is_refused(degrees: str) -> None:
    with pytest.raises(UsageError, match=r"must be a number from 0 to 2, as in chat@0\.7"):
        prompts(f"chat@{degrees}")


def test_unknown_names_are_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown task 'chatt': did you mean 'chat'"):
        prompts("chatt@0.7")
    with pytest.raises(
        UnknownNameError, match="unknown variant of chat 'one-sentense': did you mean 'one-sentence'"
    ):
        prompts("chat:one-sentense")
    with pytest.raises(UnknownNameError, match="unknown variant of chat ''"):
        prompts("chat:")
    with pytest.raises(UnknownNameError, match="unknown task ''"):
        prompts("")
