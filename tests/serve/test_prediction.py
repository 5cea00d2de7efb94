"""A prediction makes edits of code several times as fast: counted in passes, since clocks are no tests."""

from __future__ import annotations

import pytest

from tests.serve.conftest import running

CODE = '''```python
def mean_and_spread(values):
    """Return the mean of some numbers, and the mean square of how far they are from it."""
    total = 0
    for x in values:
        total = total + x
    mean = total / len(values)
    total = 0
    for x in values:
        total = total + (x - mean) ** 2
    return mean, total / len(values)
```'''
ASKED = (
    "Edit this Python function: rename the variable `total` to `amount`. "
    "Return the whole function and nothing else."
)


@pytest.mark.smollm2
def test_an_edit_takes_a_quarter_of_the_passes_and_is_the_same_text():
    from openai import OpenAI

    from draftwood.api.setup import Setup
    from draftwood.models import load

    model, tokenizer = load("smollm2", engine="transformers")
    setup = Setup(model, tokenizer, "ngram", "goodput")
    asked = {
        "model": "tiny", "messages": [{"role": "user", "content": f"{ASKED}\n\n{CODE}"}], "temperature": 0,
        "max_tokens": 120, "prediction": {"type": "content", "content": CODE},
    }  # fmt: skip
    with running(setup) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        found, plain = (
            client.chat.completions.create(**asked, extra_headers={"x-draftwood": said})
            for said in ("trace", "trace, plain")
        )
    assert found.choices[0].message.content == plain.choices[0].message.content
    tokens, passes = found.usage.completion_tokens, found.draftwood[0]["passes"]
    assert plain.draftwood[0]["passes"] == tokens - 1 > 60
    assert tokens > 4 * passes
    counted = found.usage.completion_tokens_details
    assert counted.accepted_prediction_tokens > tokens / 2
    assert counted.accepted_prediction_tokens + counted.rejected_prediction_tokens <= sum(
        step.get("drafted", 0) for step in found.draftwood[0]["steps"]
    )
