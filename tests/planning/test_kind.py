"""Recognising the kind of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood import tasks
from draftwood.planning.kind import KINDS, kind_of

EXPECTED = {
    "code-edit": "code",
    "completion": "code",
    "grammar": "prose",
    "summary": "prose",
    "web-qa": "prose",
    "chat": "chat",
    "creative": "prose",
    "structured": "structured",
    "agent": "structured",
}


def as_template(prompt: tasks.Prompt) -> str:
    if prompt.text is not None:
        return prompt.text
    turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in prompt.messages]
    return "<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n" + "".join(turns)


@pytest.mark.parametrize("task", tasks.KINDS)
def test_most_prompts_of_a_task_are_what_they_should_be(task):
    texts = [(as_template(p) + "<|im_start|>assistant\n")[-1000:] for p in tasks.prompts(task, 24)]
    right = [kind_of(text) for text in texts].count(EXPECTED[task])
    assert right >= 0.7 * len(texts)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('def add(a, b):\n    """Add."""\n    total = a + b\n    return total\n', "code"),
        ("for (int i = 0; i < n; i++) {\n    sum += a[i];\n}\nreturn sum;\n", "code"),
        ('{\n  "name": "Ada",\n  "town": "Brell",\n  "age": 36\n}', "structured"),
        ("id,name,town\n1,Ada,Brell\n2,Hugo,Carne\n", "structured"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", "structured"),
        ("2024-05-12 03:01:02 INFO started\n2024-05-12 03:01:09 ERROR no answer\n", "structured"),
        ("The tide rises along the shore and falls back again. It has done so for a very long time.", "prose"),
        ("user: Hi, what can you cook for me tonight?\nassistant: Sure, I would like to help you!", "chat"),
        ("Do you think that I should go? I would, if I were you.", "chat"),
        ("", "prose"),
        ("\n \n\t\n", "prose"),
    ],
)
def test_plain_cases(text, kind):
    assert kind_of(text) == kind


def test_a_passage_to_work_on_is_prose_whoever_asks():
    passage = "The bridge was built of stone and carried a road over the valley. " * 10
    assert kind_of(f"<|im_start|>user\nShorten this: {passage}<|im_end|>\n<|im_start|>assistant\n") == "prose"
    assert kind_of("<|im_start|>user\nPlan a weekend by train.<|im_end|>\n<|im_start|>assistant\n") == "chat"


def test_the_system_prompt_says_nothing():
    system = '<|im_start|>system\n{"tools": [\n{"name": "a"},\n{"name": "b"}\n]}\n<|im_end|>\n'
    assert kind_of(system + "<|im_start|>user\nWhat is a good name for a cat?<|im_end|>\n") == "chat"


@given(st.text(max_size=3000))
def test_any_text_is_of_some_kind(text):
    assert kind_of(text) in KINDS


@pytest.mark.parametrize("piece", [" ", "a", "a ", "a.", "(", "\\", '"', "=", "a=", "<|", "\t", "1:", "if a:"])
def test_text_that_repeats_itself_takes_no_longer(piece):
    # A regular expression that tries again from everywhere would take minutes here.
    assert kind_of(piece * 20_000) in KINDS
