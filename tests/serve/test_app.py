"""The `openai` package gets from the server what `draftwood.generate` writes, and errors that it understands."""

import json

import httpx2 as httpx  # comes with the openai package
import pytest

from draftwood.local.crowding import Others
from tests.serve.conftest import running
from tests.serve.session import acting
from tests.serve.test_drafting import BODIES

HELLO = [{"role": "user", "content": "hello hello"}]


def asked(**more):
    return {"model": "tiny", "messages": HELLO, "max_tokens": 24, "temperature": 0} | more


def post(url, body, words=""):
    """Ask for a chat; ``words`` are those of our header."""
    headers = {"x-draftwood": words} if words else {}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def chat(client, **more):
    return client.chat.completions.create(**asked(**more))


def joined(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "seed": 7, "top_p": 0.9}, {"stop": ["x"]}])
def test_a_chat_is_the_text_of_generate(client, alone, settings):
    found = chat(client, **settings)
    theirs = alone(HELLO, **settings)
    assert found.choices[0].message.content == theirs.text
    assert found.choices[0].finish_reason == theirs.finish_reason
    assert found.usage.prompt_tokens == theirs.prompt_tokens
    assert found.usage.completion_tokens == len(theirs.ids)


def test_a_stream_is_the_same_text(client, alone):
    options = {"include_usage": True}
    chunks = list(chat(client, stream=True, stream_options=options, seed=3, temperature=1))
    theirs = alone(HELLO, temperature=1.0, seed=3)
    assert joined(chunks) == theirs.text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage.completion_tokens == len(theirs.ids)


def test_plain_texts_with_several_prompts_and_echo(client, alone):
    found = client.completions.create(model="tiny", prompt=["ab", "cd"], max_tokens=8, temperature=0, echo=True)
    assert [one.text for one in found.choices] == [
        text + alone(text, max_new_tokens=8).text for text in ("ab", "cd")
    ]
    ids = client.completions.create(model="tiny", prompt=[65, 66], max_tokens=8, temperature=0)
    assert ids.choices[0].text == alone([65, 66], max_new_tokens=8).text


def test_several_choices_are_drawn_apart_and_their_prompt_counts_once(client):
    found = chat(client, n=3, temperature=1.0, seed=5)
    assert len({one.message.content for one in found.choices}) == 3
    assert [one.index for one in found.choices] == [0, 1, 2]
    assert found.usage.completion_tokens == 72
    again = list(chat(client, n=3, temperature=1.0, seed=5, stream=True))
    for number, one in enumerate(found.choices):
        parts = [c.choices[0] for c in again if c.choices[0].index == number]
        assert "".join(part.delta.content or "" for part in parts) == one.message.content


def test_a_prediction_is_copied_from_and_counted(client, alone):
    text = alone(HELLO, max_new_tokens=64).text
    found = chat(client, max_tokens=64, prediction={"type": "content", "content": text})
    assert found.choices[0].message.content == text
    counted = found.usage.completion_tokens_details
    assert counted.accepted_prediction_tokens > 40
    wrong = chat(
        client, max_tokens=64, prediction={"type": "content", "content": [{"type": "text", "text": text[::-1]}]}
    )
    assert wrong.choices[0].message.content == text
    none = chat(client, max_tokens=64).usage.completion_tokens_details
    assert (none.accepted_prediction_tokens, none.rejected_prediction_tokens) == (0, 0)


def test_penalties_and_biases_change_the_text_alike_with_and_without_drafts(client):
    plain = chat(client, max_tokens=64).choices[0].message.content
    for settings in ({"presence_penalty": 2}, {"frequency_penalty": 1.5}, {"logit_bias": {"40": 100}}):
        both = [
            chat(client, max_tokens=64, **settings, extra_headers=headers)
            for headers in ({}, {"x-draftwood": "plain"})
        ]
        texts = {one.choices[0].message.content for one in both}
        assert len(texts) == 1
        assert texts != {plain}
    assert texts == {chr(32 + 40) * 64}


@pytest.mark.parametrize(("cores", "said"), [(0.0, ""), (99.0, "other programs took 99.0 of ")])
def test_a_trace_tells_at_its_end_what_slowed_it_down(url, monkeypatch, cores, said):
    monkeypatch.setattr(Others, "cores", cores)
    answer = post(url, asked(stream=True), "trace")
    told = [
        json.loads(line[6:]).get("draftwood", {}).get("busy") for line in answer.text.splitlines() if "{" in line
    ]
    busy = [one for one in told if one is not None]
    assert (len(busy), busy[0][: len(said)], bool(busy[0])) == (1, said, bool(said))


def test_a_trace_tells_who_drafted_what(url):
    answer = post(url, asked(stream=True, max_tokens=48), "trace")
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    told = [chunk["draftwood"] for chunk in chunks if "draftwood" in chunk]
    assert "".join(piece["text"] for one in told for piece in one["pieces"]) == "".join(
        c["choices"][0]["delta"].get("content", "") for c in chunks
    )
    steps = [one["step"] for one in told if one["step"] is not None]
    assert told[-1]["tokens"] == 1 + sum(1 + step["accepted"] for step in steps) == 48
    trees = [step for step in steps if step["tree"]]
    assert any(step["tree"]["path"] for step in trees)
    assert all(len(step["tree"]["path"]) == step["accepted"] for step in trees)
    whole = post(url, asked(), "trace, plain").json()
    assert whole["draftwood"][0]["sources"] == ["model"] * 24


@pytest.mark.parametrize(
    "path", ["/", "/health", "/metrics", "/v1/models", "/v1/models/tiny", "/v1/nothing", "/tokenize"]
)
def test_the_head_of_an_answer_is_that_of_the_answer(url, path):
    with httpx.Client(base_url=url) as client:
        head, whole = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    names = {"content-type", "allow", "content-security-policy"}
    assert [head.headers.get(name) for name in names] == [whole.headers.get(name) for name in names]


def test_unknown_routes_words_and_fields(url):
    assert httpx.get(f"{url}/v1/nothing").json()["error"]["type"] == "not_found_error"
    assert httpx.get(f"{url}/v1/chat/completions").status_code == 405
    assert httpx.get(f"{url}/v1/models/tiny").json()["id"] == "tiny"
    found = post(url, asked(service_tier="auto", zzz=1))
    assert found.headers["x-draftwood-ignored"] == "service_tier, zzz"
    wrong = post(url, asked(), "tracing")
    assert wrong.status_code == 400
    assert "trace" in wrong.json()["error"]["message"]


def test_tokens_go_there_and_back(url):
    found = httpx.post(f"{url}/tokenize", json={"prompt": "hello", "return_token_strs": True}).json()
    assert found["count"] == 5
    assert "".join(found["token_strs"]) == "hello"
    assert httpx.post(f"{url}/detokenize", json={"tokens": found["tokens"]}).json() == {"prompt": "hello"}
    assert httpx.post(f"{url}/detokenize", json={"tokens": [-1]}).status_code == 400
    assert httpx.post(f"{url}/tokenize", json={"messages": HELLO}).json()["count"] > 11
    assert httpx.post(f"{url}/tokenize", json={}).status_code == 400
    assert httpx.post(f"{url}/tokenize", json={"messages": HELLO, "tools": 3}).status_code == 400


def test_chats_are_tokenized_with_all_that_is_part_of_their_prompts(url):
    tools = [{"type": "function", "function": {"name": "look", "description": "Look around."}}]
    chat = {"messages": HELLO, "tools": tools, "chat_template_kwargs": {"flavour": "sweet"}}
    found = httpx.post(f"{url}/tokenize", json=chat)
    assert found.headers["x-draftwood-ignored"] == "chat_template_kwargs.flavour"
    answer = httpx.post(f"{url}/v1/chat/completions", json={**chat, "max_tokens": 1}).json()
    assert found.json()["count"] == answer["usage"]["prompt_tokens"]
    told = httpx.post(f"{url}/apply-template", json=chat)
    assert "Look around." in told.json()["prompt"]
    assert told.headers["x-draftwood-ignored"] == "chat_template_kwargs.flavour"


def test_metrics_add_up(url, client):
    def numbers():
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return lambda start: sum(float(v) for name, v in found.items() if name.startswith(start))

    before = numbers()
    chat(client, n=2)
    httpx.post(f"{url}/v1/chat/completions", content=b"{")
    after = numbers()
    gained = {name: after(name) - before(name) for name in (
        "vllm:generation_tokens_total", "draftwood:tokens_total", "vllm:request_success_total",
        "vllm:time_to_first_token_seconds_count", "draftwood:refused_requests_total",
    )}  # fmt: skip
    assert list(gained.values()) == [48, 48, 2, 2, 1]
    accepted = [after(f"vllm:spec_decode_num_accepted_tokens_{end}") for end in ("total", "per_pos_total")]
    assert accepted[0] == accepted[1] > 0
    assert after("vllm:num_requests_running") == after("vllm:num_requests_waiting") == 0


def test_curl_need_not_say_that_it_sends_json_and_pages_of_other_sites_must(url):
    form, evil = "application/x-www-form-urlencoded", {"origin": "http://evil"}
    bodies = BODIES | {"/tokenize": {"prompt": "a"}, "/v1/embeddings": {"input": "a"}, "/api/show": {"model": "a"}}
    for path, asked in bodies.items():
        for kind, more, status in ((form, {}, 200), ("application/json", evil, 200), (form, evil, 400)):
            found = httpx.post(
                f"{url}{path}", content=json.dumps(asked), headers={"content-type": kind, **more}, timeout=60
            )
            assert found.status_code == status, found.text


def test_a_loop_is_counted_and_logged(caplog):
    caplog.set_level("INFO", "draftwood.server")
    with running(acting({"a": ["ab" * 100], "b": ["abcdefgh"]}), logs_requests=True) as server:
        for name in ("a: x", "b: x"):
            body = {"messages": [{"role": "user", "content": name}], "temperature": 0, "max_tokens": 150}
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).raise_for_status()
        counted = httpx.get(f"{server.url}/metrics").text
    assert 'draftwood:looped_texts_total{model_name="tiny"} 1.0' in counted
    looped, other = [one for one in caplog.records if "/v1/chat/completions" in one.getMessage()]
    assert "tokens only repeat themselves" in looped.getMessage()
    assert (looped.fields["looped"] == 148, "looped" in other.fields) == (True, False)
