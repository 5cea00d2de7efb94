"""Tags that are control tokens of a model: the reader of calls sees them, and no client does, on every engine."""

import pytest
from gguf import TokenType
from openai import OpenAI

from draftwood.api.setup import Setup
from draftwood.api.text import Spelling
from draftwood.grammar.grammar import library
from draftwood.grammar.vocabulary import vocabulary_of
from draftwood.serve.asking import grammar_of
from draftwood.serve.call_forms.found import OURS, hidden_tags
from draftwood.serve.calls import CallReader
from draftwood.serve.fields import ChatRequest
from draftwood.serve.tools import tools_of
from tests.cli.conftest import SPECIAL, TEMPLATE, save_tiny
from tests.engines.tiny_vocabulary import SENTENCEPIECE, write_vocabulary
from tests.serve.conftest import running

TAGS = OURS.tags
CALL = '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'
LOOK = {"type": "function", "function": {"name": "look"}}


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """A tiny model whose tags are control tokens."""
    return save_tiny(tmp_path_factory.mktemp("tagged") / "tiny", TEMPLATE, TAGS)


@pytest.fixture(params=["cpu", "llama.cpp", "transformers"])
def tokenizer(request, tmp_path, tagged):
    if request.param == "transformers":
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(tagged)
    path = write_vocabulary(tmp_path / "v.gguf", (*SENTENCEPIECE, *((tag, TokenType.CONTROL) for tag in TAGS)))
    if request.param == "cpu":
        from draftwood.engines.files.gguf_file import GgufFile
        from draftwood.engines.tokens.tokenizer import GgufTokenizer

        return GgufTokenizer(GgufFile(path).metadata)
    pytest.importorskip("xllamacpp")
    from draftwood.engines.llama_cpp.tokenizer import LlamaTokenizer
    from draftwood.engines.llama_cpp.weights import LlamaWeights

    return LlamaTokenizer(LlamaWeights(path, vocabulary_only=True))


def test_the_reader_of_calls_sees_hidden_tags_and_no_client_does(tokenizer):
    tags = hidden_tags(tokenizer)
    assert set(tags) == set(TAGS)
    ids = tokenizer(f"</tool_call>ab a\nab {CALL}{CALL} ab<tool_call>", add_special_tokens=False)["input_ids"]
    decode = Spelling(tokenizer, set(tags.values()))
    reader = CallReader({"look": {}}, tags)
    events = reader.feed(decode([*ids, tokenizer.eos_token_id])) + reader.end(is_cut=False)
    told = "".join(one.text for one in events if one.kind == "text")
    assert told.split() == ["ab", "a", "ab", "ab"]  # blanks depend on the vocabulary
    assert [one.text for one in events if one.kind == "arguments"] == ['{"at": "it"}'] * 2


def test_a_form_beside_tools_leaves_room_for_calls_between_them(tokenizer):
    asked = ChatRequest(
        messages=[{"role": "user", "content": "a"}], tools=[LOOK], response_format={"type": "json_object"}
    )
    grammar = grammar_of(asked, tools_of(asked), tokenizer)
    vocabulary = vocabulary_of(tokenizer, len(tokenizer), frozenset({tokenizer.eos_token_id}))
    for text, follows in ((CALL, True), (CALL * 2, True), ("</tool_call>", False)):
        matcher = library().LLMatcher(vocabulary.tokens, grammar.compiled(), log_level=0)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        while ids and matcher.compute_bitmask()[ids[0] // 8] >> ids[0] % 8 & 1:
            matcher.consume_token(ids.pop(0))
        assert (not ids and matcher.is_accepting()) == follows, (text, ids)


def test_tags_that_are_text_are_told_as_they_are(tiny_folder):
    from transformers import AutoTokenizer

    assert hidden_tags(AutoTokenizer.from_pretrained(tiny_folder)) == {}


def test_no_client_is_told_of_hidden_tags(tagged):
    setup = Setup(str(tagged), None, "none", "fixed:1")
    bias = {str(setup.tokenizer.convert_tokens_to_ids(tag)): 100 - n for n, tag in enumerate((*TAGS, *SPECIAL))}
    asked = {"model": "tiny", "max_tokens": 20, "logit_bias": bias, "temperature": 2.0, "top_p": 1.0,
             "messages": [{"role": "user", "content": "a"}]}  # fmt: skip
    with running(setup) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        for tools in ([], [LOOK]):
            found = client.chat.completions.create(**asked, tools=tools)
            assert not found.choices[0].message.content
            chunks = client.chat.completions.create(**asked, tools=tools, stream=True)
            assert not any(chunk.choices[0].delta.content for chunk in chunks)
