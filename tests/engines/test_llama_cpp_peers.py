"""llama.cpp's own ways to write as peers: what its server says, and the server itself on the real smollm2."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from draftwood.contracts import Sampling
from draftwood.engines.llama_cpp import peers
from draftwood.errors import ModelError, UsageError, VocabularyError
from draftwood.local.find import find, gguf_file
from draftwood.measure.peers import GROUPS, load_peers
from draftwood.models.load import load_tokenizer

GREEDY = Sampling()
END = frozenset([2])
TOKENS = 24
ONE_WORD = "Answer with one word: the capital of France?"
needs_llama_cpp = pytest.mark.smollm2


def event(tokens, count, ms, content="x"):
    return {"tokens": tokens, "content": content, "timings": {"predicted_n": count, "predicted_ms": ms}}


EVENTS = [event([7], 1, 0.001), event([8], 2, 10.0), event([9], 3, 30.0), event([10], 4, 30.0)]
LAST = event([], 4, 30.0, "")
LAST["timings"] |= {"prompt_ms": 500.0, "draft_n": 5, "draft_n_accepted": 2}


def test_tokens_of_one_pass_share_their_arrival():
    answer = peers._streamed([*EVENTS, LAST])
    assert answer.ids == [7, 8, 9, 10]
    assert answer.text == "xxxx"
    assert [count for count, _ in answer.arrivals] == [1, 2, 4]
    assert [time for _, time in answer.arrivals] == pytest.approx([0.5, 0.51, 0.53], abs=1e-5)
    assert answer.prefill_s == answer.arrivals[0][1]
    assert answer.decode_s == pytest.approx(0.03, abs=1e-5)
    assert (answer.drafted, answer.accepted, answer.passes) == (5, 2, 2)


def test_an_end_that_llama_cpp_does_not_know_ends_the_text():
    answer = peers._streamed([*EVENTS, LAST])
    cut = peers._cut(answer, frozenset([9, 10]))
    assert cut.ids == [7, 8, 9]
    assert [count for count, _ in cut.arrivals] == [1, 2, 3]
    assert cut.decode_s == pytest.approx(0.03, abs=1e-5)
    assert peers._cut(answer, frozenset([7])).arrivals == answer.arrivals[:1]


def test_only_the_samplers_that_are_asked_for_run():
    assert peers._settings_of("p", Sampling(top_k=5))["samplers"] == ["temperature"]
    sampled = peers._settings_of("p", Sampling(temperature=0.5, top_p=0.9, seed=-1))
    assert sampled["samplers"] == ["temperature", "top_p"]
    assert (sampled["temperature"], sampled["top_p"], sampled["seed"]) == (0.5, 0.9, 2**32 - 1)
    with pytest.raises(UsageError, match="no repetition penalty"):
        peers._settings_of("p", Sampling(repetition_penalty=1.1))


def test_without_xllamacpp_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r'pip install "draftwood\[llama\]"'):
        load_peers("llama.cpp", None, None, "smollm2", None)


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("xllamacpp")
    return load_tokenizer("smollm2")


@pytest.fixture(scope="module")
def opened():
    """Peers by name, each started once and closed in the end."""
    made = {}

    def make(spec, tokenizer, name="smollm2"):
        if (spec, name) not in made:
            (made[spec, name],) = load_peers(spec, None, tokenizer, name, 1)
        return made[spec, name]

    yield make
    for peer in made.values():
        peer.close()


def ask(peer, ids, tokens=TOKENS, **sampling):
    return peer.answer(ids, tokens, end_ids=END, sampling=Sampling(**sampling))


def prompt(tokenizer, text):
    messages = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


@needs_llama_cpp
@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS["llama.cpp:all"])
def test_every_peer_answers_with_ids_of_the_same_vocabulary(tokenizer, opened, name, capfd):
    peer = opened(name, tokenizer)
    answer = ask(peer, prompt(tokenizer, "Count from 1 to 5, twice."))
    assert answer.text.startswith("1. 1\n2. 2\n3. 3\n")
    assert tokenizer.decode(answer.ids, skip_special_tokens=True) == answer.text
    assert (peer.name, peer.engine) == (name, "llama.cpp")
    counts, seconds = zip(*answer.arrivals, strict=True)
    assert list(counts) == sorted(set(counts))
    assert counts[0] == 1
    assert counts[-1] == len(answer.ids) <= TOKENS
    assert list(seconds) == sorted(seconds)
    assert answer.prefill_s == seconds[0] > 0
    assert answer.decode_s == pytest.approx(seconds[-1] - seconds[0])
    assert answer.passes == len(counts) - 1
    assert len(answer.ids) - 1 == answer.passes + answer.accepted
    assert 0 <= answer.accepted <= answer.drafted
    assert capfd.readouterr() == ("", "")


@needs_llama_cpp
@pytest.mark.slow
def test_a_longer_text_gets_a_larger_context(tokenizer, opened, monkeypatch):
    monkeypatch.setattr(peers, "_SMALLEST", 256)
    peer, ids = opened("llama.cpp", tokenizer), prompt(tokenizer, ONE_WORD)
    peer.close()
    contexts = []
    for limit in (3, 400, 3):
        assert tokenizer.decode(ask(peer, ids, tokens=limit).ids) == "Paris<|im_end|>"
        contexts.append(peer.context)
    assert contexts == [256, 512, 512]


@needs_llama_cpp
def test_what_one_server_answers(tokenizer, opened):
    """Texts end with the end token, follow the seed, lose no token of a character; wrong ids are told."""
    peer = opened("llama.cpp", tokenizer)
    first = ask(peer, prompt(tokenizer, ONE_WORD))
    assert (tokenizer.decode(first.ids[:-1]), first.ids[-1]) == ("Paris", 2)
    assert ask(peer, prompt(tokenizer, ONE_WORD)).ids == first.ids
    ids, settings = prompt(tokenizer, "Tell me a story."), {"temperature": 1.2, "top_k": 50, "top_p": 0.99}
    one, again, other = (ask(peer, ids, tokens=12, seed=seed, **settings).ids for seed in (3, 3, 4))
    assert one == again != other
    stars = ask(peer, tokenizer("🌟🌟🌟🌟🌟🌟🌟🌟")["input_ids"], tokens=7)
    assert len(stars.ids) == stars.arrivals[-1][0] == 7
    assert "🌟" in stars.text == tokenizer.decode(stars.ids)
    with pytest.raises(ModelError, match=r"gave no answer .*invalid tokens"):
        ask(peer, [70_000])


@needs_llama_cpp
def test_another_vocabulary_or_no_model_at_all_is_refused(tokenizer, tmp_path):
    (other,) = load_peers("llama.cpp", None, lambda *_, **__: {"input_ids": [1, 2, 3]}, "smollm2", 1)
    with pytest.raises(VocabularyError, match="has another vocabulary than the model"):
        ask(other, [1, 2, 3])
    other.close()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "broken.gguf").write_text("GGUF")
    (broken,) = load_peers("llama.cpp", None, tokenizer, str(tmp_path), 1)
    with pytest.raises(ModelError, match=r"llama\.cpp cannot load"):
        ask(broken, [1, 2, 3])
    assert gguf_file("smollm2").parent == find("smollm2")


@pytest.fixture
def local():
    """A server that answers every request with these bytes, and what post makes of it."""

    def serve(body, **request):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                if body is not None:
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        with HTTPServer(("127.0.0.1", 0), Handler) as http:
            thread = threading.Thread(target=http.handle_request)
            thread.start()
            server = object.__new__(peers.LlamaCppPeer)
            server._key, server._path = "key", "x.gguf"
            server._address = f"http://127.0.0.1:{http.server_port}"
            try:
                return server.post("/completion", request)
            finally:
                thread.join()

    return serve


def test_events_end_at_line_feeds_alone(local):
    assert local('data: {"a": "x\u2028y\x85"}\n\ndata: {"b": 2}\n\n', stream=True) == [
        {"a": "x\u2028y\x85"},
        {"b": 2},
    ]
    assert local('{"a": 1}') == [{"a": 1}]


def test_a_server_that_breaks_off_or_says_an_error_is_told(local):
    with pytest.raises(ModelError, match="broke off"):
        local(None)
    with pytest.raises(ModelError, match=r"gave no answer \(too long\)"):
        local('data: {"error": {"message": "too long"}}\n\n', stream=True)
    with pytest.raises(ModelError, match=r"gave no answer \(it said nothing\)"):
        local("", stream=True)
