"""Calls are read as they are written, by one reader: whole answers are their streams, joined."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import OpenAI

from draftwood.serve.calls import CallReader
from tests.serve.conftest import running
from tests.serve.session import acting, tokenizer_of_bytes

LOOK, LIST = ({"type": "function", "function": {"name": name}} for name in ("look", "list"))
CALL = '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'
AT = '{"at": "it"}'


def read(text, pieces=None, *, is_cut=False, hidden=()):
    """Read an answer in pieces of these lengths; returns its texts, and its calls as (name, arguments)."""
    reader, found, place = CallReader({"look": {}, "list": {}}, hidden), [], 0
    for size in [*(pieces or ()), len(text)]:
        found += reader.feed(text[place : place + size])
        place += size
    parts = []
    for event in [*found, *reader.end(is_cut=is_cut)]:
        if event.kind == "call":
            parts.append((event.text, ""))
        elif event.kind == "arguments":
            parts[-1] = (parts[-1][0], parts[-1][1] + event.text)
        elif event.kind == "text" and parts and isinstance(parts[-1], str):
            parts[-1] += event.text
        elif event.kind == "text":
            parts.append(event.text)
    return parts


CASES = [
    (CALL, [("look", AT)]),
    (CALL.replace("{", "\n {", 1).replace("</", "\n</"), [("look", AT)]),
    (' {"name": "look", "parameters": {"at": "it"}} ', [("look", AT)]),
    (CALL * 2 + CALL.replace("look", "list"), [("look", AT), ("look", AT), ("list", AT)]),
    (f"I look.\n{CALL}\n{CALL}\nDone.\n", ["I look.", ("look", AT), ("look", AT), "\n\n\nDone."]),
    (f"\n\n{CALL} ", [("look", AT)]),
    (CALL.replace("it", "</tool_call>x"), [("look", '{"at": "</tool_call>x"}')]),
    ('{"name": "look", "arguments": {"at": "<tool_call>{"}}', [("look", '{"at": "<tool_call>{"}')]),
    ('{"arguments": {"at": "it"}, "name": "look"}', [("look", AT)]),
    ('{"id": 1, "name": "look", "arguments": {"at": "it"}, "type": "function"}', [("look", AT)]),
    (r'{"name": "look", "arguments": "{\"at\": \"\\ud800\"}"}', [("look", r'{"at": "\ud800"}')]),
    ('{"name": "list"}', [("list", "{}")]),
    ('{"name": "list", "arguments": null}', [("list", "{}")]),
    ('<tool_call>{"arguments": "", "name": "list"}</tool_call>', [("list", "{}")]),
    (f"```json\n{CALL[11:-12]}\n```\nDone", [("look", AT), "\nDone"]),
    ("```json\n{}\n```", ["```json\n{}\n```"]),
    (f"<tool_call>no<tool_call>{CALL}", ["<tool_call>no<tool_call>", ("look", AT)]),
    # no calls
    ("", []),
    (" It is there. \n", [" It is there. \n"]),
    ("a < b, <tool> and <tool_c", ["a < b, <tool> and <tool_c"]),
    ("{", ["{"]),
    ('{"name": "list", "argu', ['{"name": "list", "argu']),
    ('x {"name": "list"}', ['x {"name": "list"}']),
    ('{"name": "other", "arguments": {}}', ['{"name": "other", "arguments": {}}']),
    ('<tool_call>{"name": ["look"], "arguments": {}}', ['<tool_call>{"name": ["look"], "arguments": {}}']),
    ('{"name": "look", "arguments": 3}', ['{"name": "look", "arguments": 3}']),
    ("[" * 9999, ["[" * 9999]),
]


@pytest.mark.parametrize(("text", "parts"), CASES)
def test_an_answer_is_read(text, parts):
    assert read(text) == parts
    assert read(text, [1] * len(text)) == parts


PIECES = [
    "<tool_call>", "</tool_call>", '{"name": "look", ', '"arguments": ', '{"at": ', '"',
    "}", "{", "[", "]", ",", ":", "\\", "\\ud8", "00", "NaN", "-1", "e999", " ", "\n", "<", "tool", '"name"', "'",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.data())
@settings(max_examples=300, deadline=None)
def test_however_it_is_cut_an_answer_reads_the_same(text, data):
    sizes, is_cut = data.draw(st.lists(st.integers(1, 9))), data.draw(st.booleans())
    whole = read(text, is_cut=is_cut)
    assert read(text, sizes, is_cut=is_cut) == whole
    assert is_cut or all(isinstance(json.loads(part[1]), dict) for part in whole if isinstance(part, tuple))


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        (r'{"a":1e999 , "\ud800": "\uD800\u00e9"}',) * 2,  # JSON stays as it is
        ('{"a": NaN, "b": [-Infinity, True]}', '{"a": null, "b": [null, true]}'),
        ('{"a": 01, "b": +1.50, "c": .5, "d": yes}', '{"a": 1, "b": 1.5, "c": 0.5, "d": "yes"}'),
        ('{"a": "x\ny\td\\d it\\\'s"}', r"""{"a": "x\ny\td\\d it's"}"""),
        ('{"a": [1, 2 3,], }', '{"a": [1, 2 ,3]}'),
        ('{"a": "it"', '{"a": "it"}'),
        ('{"a": {"b": [', '{"a": {"b": []}}'),
        ('{"a": ', '{"a": null}'),
        ('{"a', '{"a": null}'),
    ],
)
def test_arguments_are_what_was_written_or_the_nearest_json(written, arguments):
    text = f'{{"name": "look", "arguments": {written}}}'
    if written.endswith("}"):
        assert read(text) == [("look", arguments)]
    assert read(text[:-1]) == [("look", arguments)]


def test_nothing_is_added_to_a_call_that_the_limit_cuts():
    text = '{"name": "look", "arguments": {"at": "a'
    assert read(text, is_cut=True) == [("look", '{"at": "a')]
    assert read(text + '"}', is_cut=True) == [("look", '{"at": "a"}')]


def test_a_name_comes_first_and_arguments_as_they_are_written():
    reader = CallReader({"look": {}})
    seen = [[(one.kind, one.text) for one in reader.feed(letter)] for letter in CALL]
    assert next(n for n, some in enumerate(seen) if some) == CALL.index('{"at')
    assert sum(map(bool, seen)) > len(AT)


def test_text_is_told_at_once():
    reader = CallReader({"look": {}})
    assert [sum(len(one.text) for one in reader.feed(letter)) for letter in "a<b <tx"] == [1, 0, 2, 0, 0, 0, 4]


def test_a_json_object_that_is_no_call_is_told_as_it_is_written():
    reader = CallReader({"look": {}})
    assert "".join(one.text for one in reader.feed('{"answer": {"a": 1')) == '{"answer": {"a": 1'


SHAPES = [
    "", CALL, f"I look.\n{CALL}\nDone.", f"I look. {CALL}\n{CALL.replace('look', 'list')}",
    CALL.replace("it", "</tool_call>"), CALL.replace('"it"', r'"\ud800", "\udc00": [NaN, 1e999]'),
    f"Look: {CALL[:-20]}", "no call <tool_call>at all",
]  # fmt: skip


@pytest.fixture(scope="module")
def served():
    """A client of a server that writes one of these texts."""
    setup = acting({str(number): [text] for number, text in enumerate(SHAPES)})
    with running(setup) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def both(create, asked):
    """A whole answer, and its stream."""
    return create(**asked), list(create(**asked, stream=True))


def test_a_thought_that_the_template_opens_holds_no_call(monkeypatch):
    setup = acting({"0": [f"I could {CALL} but no.\n</think>\nSo: {CALL}"] * 2})
    monkeypatch.setattr(setup.tokenizer, "chat_template", setup.tokenizer.chat_template + "<think>\n")
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "0: x"}], "tools": [LOOK]}
    with running(setup) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        message = client.chat.completions.create(**asked).choices[0].message
    assert (message.content, len(message.tool_calls)) == ("So:", 1)
    assert message.reasoning_content == f"I could {CALL} but no."


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_one_call_at_a_time_is_the_first_and_ends_the_answer(served, number):
    asked = {"model": "tiny", "messages": [{"role": "user", "content": f"{number}: x"}], "tools": [LOOK, LIST],
             "parallel_tool_calls": False}  # fmt: skip
    whole, chunks = both(served.chat.completions.create, asked)
    message, parts = whole.choices[0].message, read(SHAPES[number])
    place = next((n for n, part in enumerate(parts) if isinstance(part, tuple)), len(parts))
    said = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    assert [*([message.content] if message.content else []), *said] == parts[: place + 1]
    assert whole.choices[0].finish_reason == ("tool_calls" if said else "stop")
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == (message.content or "")
    pieces = [call.function.arguments for delta in deltas for call in delta.tool_calls or ()]
    assert "".join(pieces) == "".join(arguments for _, arguments in said)


@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("is_cut", [False, True])
def test_streams_of_chats_are_whole_chats(served, number, is_cut):
    text = SHAPES[number]
    asked = {"model": "tiny", "messages": [{"role": "user", "content": f"{number}: x"}], "tools": [LOOK, LIST]}
    count, is_cut = len(tokenizer_of_bytes()(text)["input_ids"]), is_cut and text != ""
    whole, chunks = both(served.chat.completions.create, asked | ({"max_tokens": count} if is_cut else {}))
    whole, content, calls, ends = whole.choices[0], "", [], []
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        content, ends = content + (choice.delta.content or ""), [*ends, choice.finish_reason]
        for call in choice.delta.tool_calls or ():
            if call.index == len(calls):
                assert (len(call.id), call.type) == (29, "function")
                calls.append([call.function.name, ""])
            calls[call.index][1] += call.function.arguments
    said = [[call.function.name, call.function.arguments] for call in whole.message.tool_calls or ()]
    assert (content, calls, ends[-1]) == (whole.message.content or "", said, whole.finish_reason)
    parts = read(text, is_cut=is_cut)
    assert content == "".join(part for part in parts if isinstance(part, str))
    assert said == [list(part) for part in parts if isinstance(part, tuple)]
    assert whole.finish_reason == ("length" if is_cut else "tool_calls" if calls else "stop")


@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("is_cut", [False, True])
def test_events_of_responses_are_whole_responses(served, number, is_cut):
    text = SHAPES[number]
    count, is_cut = len(tokenizer_of_bytes()(text)["input_ids"]), is_cut and text != ""
    tools = [{"type": "function", **one["function"], "parameters": {}} for one in (LOOK, LIST)]
    asked = {"model": "tiny", "input": f"{number}: x", "tools": tools, "top_logprobs": 1}
    whole, told = both(served.responses.create, asked | ({"max_output_tokens": count} if is_cut else {}))
    assert [event.sequence_number for event in told] == list(range(len(told)))
    assert [event.type for event in told][:2] == ["response.created", "response.in_progress"]
    built, done = {}, []
    for event in (event.to_dict() for event in told):
        item = built.get(event.get("output_index"))
        match event["type"].removeprefix("response."):
            case "output_item.added":
                built[event["output_index"]] = event["item"]
            case "content_part.added":
                item["content"].append(event["part"])
            case "output_text.delta":
                item["content"][0]["text"] += event["delta"]
            case "content_part.done":
                assert item["content"][0]["text"] == event["part"]["text"]
                item["content"] = [event["part"]]
            case "function_call_arguments.delta":
                item["arguments"] += event["delta"]
            case "output_item.done":
                done.append(event["item"])
                assert {**item, "status": event["item"]["status"]} == event["item"]
    final = told[-1].to_dict()["response"]
    assert final["output"] == done
    assert items(done) == items(whole.to_dict()["output"])
    assert final["status"] == whole.status == ("incomplete" if is_cut else "completed")
    said = [
        item["content"][0]["text"] if item["type"] == "message" else (item["name"], item["arguments"])
        for item in done
    ]
    assert said == (read(text, is_cut=is_cut) or [""])
    scores = [part["logprobs"] for item in done for part in item.get("content", ())]
    assert all(bool(some) == (len(done) == 1) for some in scores), "those of all tokens, of a text alone"


def items(output):
    """The output of a response without what is new in each, and rounded scores."""
    kept = [{name: value for name, value in item.items() if not name.endswith("id")} for item in output]
    return json.loads(json.dumps(kept), parse_float=lambda number: round(float(number), 4))
