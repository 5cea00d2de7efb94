"""What gpt-oss thinks is told apart in its chats, and its next prompt has the answer alone."""

from __future__ import annotations

import httpx2 as httpx  # comes with the openai package
import pytest
from openai import OpenAI

from draftwood.api.conversation import Conversation
from draftwood.api.prompts import render
from draftwood.api.setup import Setup
from draftwood.serve.asking import grammar_of
from draftwood.serve.call_forms.named import message_marks
from draftwood.serve.fields import ChatRequest
from draftwood.serve.tools import tools_of
from tests.api.test_thoughts import HARMONY
from tests.serve.conftest import running
from tests.serve.scripted import byte_tokenizer, save_bytes, scripted, spell
from tests.serve.test_call_grammars import allows

LOOK = {"type": "function", "function": {"name": "look"}}
CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
TEXT = "<think>The user</think>Hello"


def answer(tokenizer, text):
    frame = ("<|channel|>", b"analysis", "<|message|>", b"The user", "<|end|>", "<|start|>", b"assistant")
    return spell(tokenizer, *frame, "<|channel|>", b"final", "<|message|>", text.encode(), "<end>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_bytes(tmp_path_factory.mktemp("harmony") / "bytes", *HARMONY)


@pytest.fixture(scope="module")
def written():
    return []


@pytest.fixture(scope="module")
def url(folder, written):
    setup = Setup(str(folder), None, "none", "fixed:1")
    with running(scripted(setup, lambda _: answer(setup.tokenizer, written[-1]), margin=40)) as server:
        yield f"{server.url}/v1"


def ask(url, route="chat/completions", **more):
    asked = {"model": "tiny", "max_tokens": 200, "messages": [{"role": "user", "content": "a"}]} | more
    return httpx.post(f"{url}/{route}", json=asked, timeout=60).raise_for_status()


@pytest.mark.parametrize(
    "more", [{}, {"tools": [LOOK]}, {"logprobs": True, "top_logprobs": 1}, {"stop": ["\n\n"]}]
)
def test_a_thought_is_told_apart(url, written, more):
    written.append("Hello <think>")
    found = ask(url, **more).json()
    (choice,) = found["choices"]
    assert choice["message"]["content"] == "Hello <think>"
    assert choice["message"]["reasoning_content"] == "The user"
    counts = found["usage"]
    assert 8 < counts["completion_tokens_details"]["reasoning_tokens"] < counts["completion_tokens"] - 13
    if more.get("logprobs"):
        told = choice["logprobs"]["content"]
        assert b"".join(bytes(one["bytes"]) for one in told).decode() == "Hello <think>"


def test_a_call_behind_a_thought_is_a_call_and_one_within_is_none(url, written):
    written.append(CALL)
    (choice,) = ask(url, tools=[LOOK]).json()["choices"]
    assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == (None, "The user")
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["look"]


def test_a_stream_tells_the_same(url, written):
    written.append("Hello")
    lines = ask(url, stream=True).text.split("\n\n")
    pieces = [httpx.Response(200, text=line[6:]).json() for line in lines if line.startswith("data: {")]
    for name, text in (("content", "Hello"), ("reasoning_content", "The user")):
        assert "".join(one["choices"][0]["delta"].get(name) or "" for one in pieces) == text


def test_a_text_that_is_no_chat_is_told_as_the_model_wrote_it(url, written):
    written.append("Hello")
    found = ask(url, "completions", prompt="a").json()["choices"][0]["text"]
    assert found == "analysisThe userassistantfinalHello"


class Says:
    """A processor by which a model writes an answer."""

    def __init__(self, ids):
        self._ids, self._start = ids, None

    def __call__(self, prefix, row):
        length = prefix.shape[-1]
        self._start = length if self._start is None else self._start
        row[..., self._ids[min(length - self._start, len(self._ids) - 1)]] = 1e4
        return row


def test_the_next_question_of_a_conversation_follows_the_answer_alone(folder):
    tokenizer = Setup(str(folder), None, "none", "fixed:1").tokenizer
    says = Says(answer(tokenizer, "Hello"))
    with Conversation(str(folder), drafters="none", logits_processor=[says]) as talk:
        assert "".join(piece.text for piece in talk.say("a")) == TEXT
        assert talk.messages[-1]["content"] == TEXT
        list(talk.say("b"))
        prompt = "<user>a<turn><assistant>Hello<turn><user>b<turn><assistant>"
        assert talk.generation.prompt_tokens == len(tokenizer(prompt)["input_ids"])


def test_an_item_of_a_response_is_what_was_thought(url, written):
    written.append("Hello")
    asked = {"model": "tiny", "input": "a", "max_output_tokens": 200, "top_logprobs": 1, "temperature": 0}
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        whole = client.responses.create(**asked)
        with client.responses.stream(**asked) as told:
            events = list(told)
            streamed = told.get_final_response()
    for response in (whole, streamed):
        thought, message = response.output
        assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", "The user", [])
        assert (message.type, response.output_text) == ("message", "Hello")
        assert "".join(one.token for one in message.content[0].logprobs).startswith("Hello")
        assert response.usage.output_tokens_details.reasoning_tokens > 8
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds.index("reasoning_text.done") < kinds.index("output_text.delta")
    deltas = (event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert "".join(deltas) == "The user"


def test_a_response_that_ends_within_a_thought_is_the_thought(url, written):
    written.append("Hello")
    asked = {"model": "tiny", "input": "a", "max_output_tokens": 16}
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        response = client.responses.create(**asked)
    assert (response.status, [item.type for item in response.output]) == ("incomplete", ["reasoning"])
    assert response.output[0].content[0].text.startswith("The")


CALLS = (
    "{% set f = m.tool_calls[0].function %}<|start|>assistant to=functions.{{ f.name }}"
    "<|channel|>commentary json<|message|>{{ f.arguments | tojson }}<|call|>"
)
HARMONY_TEMPLATE = (
    "{% for t in tools or [] %}<system>{{ t.function.name }}<turn>{% endfor %}"
    "{% for m in messages %}{% if m.tool_calls %}CALLS{% else %}"
    "<|start|>{{ m.role }}{{ '<|channel|>final' if m.role == 'assistant' }}<|message|>{{ m.content }}<|end|>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
).replace("CALLS", CALLS)
THOUGHT = ("<|channel|>", b"analysis", "<|message|>", b"so", "<|end|>", "<|start|>", b"assistant")
HEADERS = [
    (*THOUGHT, "<|channel|>", b"commentary to=functions.look ", "<|constrain|>", b"json", "<|message|>"),
    (*THOUGHT, b" to=functions.look", "<|channel|>", b"commentary json", "<|message|>"),
    (b" to=functions.look", "<|channel|>", b"commentary ", "<|constrain|>", b"json", "<|message|>"),
    ("<|channel|>", b"commentary to=functions.look", "<|message|>"),
    ("<|channel|>", b"commentary", "<|message|>", b"I look.", "<|end|>", "<|start|>",
     b"assistant to=functions.look", "<|channel|>", b"commentary", "<|message|>"),
]  # fmt: skip


@pytest.fixture(scope="module")
def calling(folder, written):
    """A server whose template writes calls in messages to functions."""
    setup = Setup(str(folder), None, "none", "fixed:1")
    setup.tokenizer.chat_template = HARMONY_TEMPLATE
    setup = scripted(setup, lambda _: spell(setup.tokenizer, *written[-1]), margin=40)
    with (
        running(setup) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
    ):
        yield client


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_message_to_a_function_is_a_call(calling, written, header, stream):
    arguments = '{"at": "<|message|> \u4e2d"}'
    written.append((*header, arguments.encode(), "<end>"))
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "tools": [LOOK], "max_tokens": 200}
    if stream:
        with calling.chat.completions.stream(**asked) as told:
            (choice,) = told.get_final_completion().choices
    else:
        (choice,) = calling.chat.completions.create(**asked).choices
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments, choice.finish_reason) == ("look", arguments, "tool_calls")
    assert (choice.message.content or None) == ("I look." if b"I look." in header else None)
    assert getattr(choice.message, "reasoning_content", None) == ("so" if b"so" in header else None)


SAYS = "<|start|>assistant<|channel|>"
THINKS = f"<|channel|>analysis<|message|>so<|end|>{SAYS}"
MEANWHILE = f"commentary<|message|>I look.<|end|>{SAYS}"
TO_LOOK = "commentary to=functions.look <|constrain|>json<|message|>"
AT = {
    "type": "object",
    "properties": {"at": {"type": "integer"}},
    "required": ["at"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"schema": AT}}
STRICT = {"type": "function", "function": {"name": "look", "parameters": AT, "strict": True}}
FREE = {"type": "function", "function": {"name": "list", "parameters": AT}}
GOOD, BAD = '{"at": 3}', '{"at": "x"}'


@pytest.mark.parametrize(
    ("asked", "yes", "no"),
    [
        ({"response_format": FORM}, [f"final<|message|>{GOOD}"], [f"final<|message|>{BAD}", GOOD, TO_LOOK + GOOD]),
        ({"guided_regex": "a/b+"}, ["final<|message|>a/bb"], ["final<|message|>ab", "final<|message|>a"]),
        ({"tools": [STRICT, FREE], "tool_choice": "required"},
         [TO_LOOK + GOOD, TO_LOOK.replace("look", "list") + GOOD], [TO_LOOK + BAD, "final<|message|>no"]),
        ({"tools": [STRICT, FREE]},
         [TO_LOOK + GOOD, "final<|message|>any \u4e2d", f"{MEANWHILE}{TO_LOOK}{GOOD}",
          TO_LOOK.replace("look", "list") + BAD],
         [TO_LOOK + BAD, TO_LOOK.replace("look", "other") + GOOD]),
        ({"tools": [STRICT], "response_format": FORM}, [TO_LOOK + GOOD, f"final<|message|>{GOOD}"],
         [TO_LOOK + BAD, f"final<|message|>{BAD}", f"{MEANWHILE}final<|message|>{GOOD}"]),
    ],
)  # fmt: skip
def test_grammars_hold_messages_of_harmony_behind_their_thoughts(asked, yes, no):
    tokenizer = byte_tokenizer(*HARMONY)
    tokenizer.chat_template = HARMONY_TEMPLATE
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "a"}], **asked})
    tools = tools_of(request)
    ids = render(request.messages, tokenizer) if tools is None else tools.prompt(request.messages, tokenizer)
    grammar = grammar_of(request, tools, tokenizer, message_marks(tokenizer, ids))
    for before in ("<|channel|>", THINKS, THINKS + THINKS.partition("<|channel|>")[2]):
        assert [allows(grammar, tokenizer, before + text) for text in yes] == [True] * len(yes)
        assert not any(allows(grammar, tokenizer, before + text) for text in no)
    assert message_marks(tokenizer, [*ids, 5]) is None


def test_calls_of_harmony_are_told_by_its_template_and_forced(calling, written):
    written.append((b" to be", "<end>"))
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "tools": [LOOK], "max_tokens": 200}
    (choice,) = calling.chat.completions.create(**asked).choices
    assert choice.message.content == " to be"
    for thought in ((), THOUGHT):
        written.append((*thought, "<|channel|>", b"commentary: no", "<end>"))
        (choice,) = calling.chat.completions.create(**asked, tool_choice="required").choices
        assert choice.message.tool_calls[0].function.name == "look"
        assert getattr(choice.message, "reasoning_content", None) == ("so" if thought else None)
