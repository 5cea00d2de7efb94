"""A GGUF file's tokenizer and chat template: the ids of llama.cpp's own server, the ways of transformers."""

import subprocess
import sys

import numpy as np
import pytest

from draftwood import tasks
from draftwood.api.prompts import render
from draftwood.api.text import Spelling, TextBuilder
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.errors import ModelError, PromptError, UnsupportedModelError, UsageError
from draftwood.local.find import find, gguf_file
from draftwood.models.load import load_tokenizer

pytest.importorskip("xllamacpp")

from draftwood.engines.llama_cpp import tokenizer
from draftwood.engines.llama_cpp.tokenizer import LlamaTokenizer
from draftwood.engines.llama_cpp.weights import LlamaWeights
from draftwood.measure.peers import load_peers
from tests.engines.tiny_vocabulary import SENTENCEPIECE, write_vocabulary

on_smollm2 = pytest.mark.smollm2
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<jupyter_text>")
PIECES = (
    "Hello", " world", "don't", "it's", "I'LL", "naïve", "Straße", "中文字符", "日本語です", "한국어", "العربية",
    "مرحبا", "עברית", "हिन्दी", "ไทย", "Ελληνικά", "русский", "é", "🙂", "\U0001f469\u200d\U0001f467", "🇫🇷",
    "👍🏽", "½", "²", "٣", "12345", "3.14", "0x1F", "1_000", "def f(x):\n    return x", "\t\tif a == b:", "<html>",
    "{'a': [1, 2]}", "</s>", "…", "—", "“q”", "\u00a0", "\u200b", "\u3000", "\ufeff", "\ufffd", "\r\n", "\n\n\n",
    "   ", "\t", "\x0b", "\x00", "\x1b[0m", "\x7f", "\x85", "\u2028", "!!!", "==========", "a\u0301", "ﬁ", "Ⅷ",
    "\U0001d518", "\U000e0001", "\uffff", *SPECIAL,
)  # fmt: skip


def made_texts():
    """Texts of many kinds, always the same ones: 500 in all."""
    prompts = [p.text or p.messages[-1]["content"] for kind in tasks.KINDS for p in tasks.prompts(kind)]
    single = [chr(code) for code in range(256)]
    runs = [mark * count for mark in (" ", "\n", "\t", "a", "é", "🙂", "1", "!") for count in (2, 3, 7, 16, 65)]
    texts = dict.fromkeys(
        ["", *PIECES, *runs, *(f"{mark} and {mark}x{mark}" for mark in SPECIAL), *prompts[::3], *single]
    )
    random = np.random.default_rng(5)
    while len(texts) < 500:
        texts |= {"".join(random.choice(PIECES, size=random.integers(2, 12))): None}
    return list(texts)


TEXTS = made_texts()


@pytest.fixture(scope="module")
def smollm2():
    find("smollm2")
    return LlamaTokenizer(LlamaWeights(gguf_file("smollm2"), vocabulary_only=True))


@pytest.fixture(scope="module")
def theirs():
    return load_tokenizer("smollm2")


@pytest.fixture
def tiny(tmp_path):
    """A tokenizer of a small vocabulary in the manner of sentencepiece, with these settings."""

    def make(*args, **settings):
        return LlamaTokenizer(
            LlamaWeights(write_vocabulary(tmp_path / "tiny.gguf", *args, **settings), vocabulary_only=True)
        )

    return make


@pytest.fixture(scope="module")
def server():
    """llama.cpp's own server on the same file."""
    (opened,) = load_peers("llama.cpp", None, None, "smollm2", 1)
    opened.start(512)
    yield opened
    opened.close()


CONVERSATIONS = (
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "Hi\n"},
        {"role": "assistant", "content": " Hello! "},
        {"role": "user", "content": "أهلا 🙂\0 <|im_end|>"},
    ],
    [{"role": "user", "content": ""}],
    [{"role": "tool", "content": '{"a": 1}', "tool_calls": None}],
)
SYSTEM_FREE = [{"role": "user", "content": "ab"}]


@on_smollm2
@pytest.mark.slow
def test_ids_are_those_of_llama_cpp_s_server(smollm2, server):
    for text in TEXTS:
        for special in (True, False):
            request = {"content": text, "add_special": special, "parse_special": True}
            found = smollm2(text, add_special_tokens=special)["input_ids"]
            assert found == server.post("/tokenize", request)[0]["tokens"], text


@on_smollm2
def test_ids_and_texts_are_those_of_transformers(smollm2, theirs):
    assert len(TEXTS) == 500
    for text in TEXTS:
        ids = theirs(text, verbose=False)["input_ids"]
        assert smollm2(text)["input_ids"] == ids, text
        for skip in (True, False):
            settings = {"skip_special_tokens": skip, "clean_up_tokenization_spaces": False}
            assert smollm2.decode(ids, **settings) == theirs.decode(ids, **settings)


@on_smollm2
def test_every_name_means_what_it_means_in_transformers(smollm2, theirs):
    names = ("bos_token", "bos_token_id", "eos_token", "eos_token_id", "chat_template")
    assert [getattr(smollm2, name) for name in names] == [getattr(theirs, name) for name in names]
    assert smollm2.get_vocab() == theirs.get_vocab()
    assert len(smollm2) == len(theirs)
    assert smollm2.convert_ids_to_tokens([0, 260, 49151]) == theirs.convert_ids_to_tokens([0, 260, 49151])
    assert smollm2.decode(smollm2.all_special_ids, skip_special_tokens=True) == ""
    assert set(theirs.all_special_ids) <= set(smollm2.all_special_ids)
    assert smollm2(["a b", ""]) == dict(theirs(["a b", ""]))
    assert smollm2("a b") == dict(theirs("a b"))
    assert smollm2("a", return_attention_mask=False, verbose=False) == {"input_ids": [81]}
    assert tokenizer_fingerprint(smollm2) == tokenizer_fingerprint(theirs) == "bcc1f6b63e5e573f"


@on_smollm2
def test_what_is_no_character_becomes_the_replacement_character(smollm2):
    ids = smollm2("🙂")["input_ids"]
    assert len(ids) > 1
    for end in range(1, len(ids)):
        assert smollm2.decode(ids[:end]).endswith("\ufffd")
    assert smollm2("a\ud800b") == smollm2("a\ufffdb")  # half a character, as JSON can spell it
    assert smollm2("\ud83d\ude42") == smollm2("🙂")
    builder = TextBuilder(Spelling(smollm2))
    assert "".join(piece.text for token in [81, *ids, 2] for piece in builder.push(token, "")) == "a🙂"


@on_smollm2
@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("settings", [{}, {"add_generation_prompt": True}, {"tools": [{"name": "f"}]}])
def test_conversations_are_rendered_as_by_transformers(smollm2, theirs, messages, settings):
    for form in ({"tokenize": False}, {"return_dict": False}, {}):
        found = smollm2.apply_chat_template(messages, **settings, **form)
        expected = theirs.apply_chat_template(messages, **settings, **form)
        assert found == (expected if form else dict(expected))


TEMPLATES = {
    "blanks": "{% for m in messages %}\n {% if loop.first %}\n first\n  {% endif %}\n{{ m.role }}\n{% endfor %}\n",
    "break": "{% for m in messages %}{% if not loop.first %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}|{% endfor %}",
    "json": "{{ tools | tojson }}{{ messages | tojson(indent=2) }}{{ '<é>' | tojson }}",
    "nothing given": "{{ tools is none }}{{ documents is none }}{{ x is defined }}{{ add_generation_prompt }}",
    "special tokens": "{{ bos_token }}{{ eos_token }}",
    "reasoning": "{{ messages[-1].reasoning_content }}{{ messages[-1].thinking }}",
    "namespace": "{% set a = namespace(n=0) %}{% for m in messages %}{% set a.n = a.n + 1 %}{% endfor %}{{ a.n }}",
    "tools": "{% for t in tools or [] %}{{ t.name }}{% for k in t.args.items() %}{{ k }}{% endfor %}{% endfor %}",
    "year": "{{ strftime_now('%Y') }}",
    "own value": "{{ enable_thinking }}{{ date_string | default('none') }}",
}


@on_smollm2
@pytest.mark.parametrize("name", TEMPLATES)
def test_other_templates_are_rendered_as_by_transformers(smollm2, theirs, name):
    messages = [
        {"role": "user", "content": "é <b>"},
        {"role": "assistant", "content": "c", "thinking": "hm", "x": None},
    ]
    tools = [{"name": "f", "args": {"a": 1, "b": [None, True]}}]
    for settings in ({}, {"tools": tools, "add_generation_prompt": True, "enable_thinking": False}):
        given = {"chat_template": TEMPLATES[name], "tokenize": False, **settings}
        assert smollm2.apply_chat_template(messages, **given) == theirs.apply_chat_template(messages, **given)


HOSTILE = {
    "{% for m in messages %}": r"template cannot be read \(line 1: Unexpected end of template",
    "{{ messages | no_such_filter }}": r"template cannot be read \(line 1: No filter named 'no_such_filter'",
    "{{ ''.__class__.__mro__ }}": "template does what it may not do .*__class__.* unsafe",
    "{{ messages.append(1) }}": "template does what it may not do .*'append' of 'list' object is unsafe\\)",
    "{{ raise_exception.__globals__.os }}": "template does what it may not do",
}
REFUSING = {
    "{{ raise_exception('roles must alternate') }}": r"refuses these messages \(roles must alternate\)",
    "{{ messages[9].content }}": r"refuses these messages \(.*has no element 9\)",
    "{{ messages[0].content + 1 }}": "refuses these messages",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "refuses these messages .*recursion",
    "{{ range(1000000000) | list }}": "refuses these messages .*Range too big",
    "{% include 'x' %}": "refuses these messages",
}


@pytest.mark.parametrize("template", HOSTILE)
def test_a_template_that_cannot_be_used_gives_one_sentence(tiny, template):
    with pytest.raises(ModelError, match=HOSTILE[template]) as raised:
        render(SYSTEM_FREE, tiny(template=template))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("template", REFUSING)
def test_a_template_that_refuses_messages_gives_one_sentence(tiny, template):
    with pytest.raises(PromptError, match=REFUSING[template]) as raised:
        render(SYSTEM_FREE, tiny(template=template))
    assert "\n" not in str(raised.value)


def test_a_template_changes_neither_messages_nor_tools(tiny):
    messages, tools = [{"role": "user", "content": ["a"]}], [{"name": "f"}]
    tokenizer = tiny(template="{% set _ = messages[0].update({'role': 'x'}) %}{{ messages }}")
    with pytest.raises(ModelError, match="may not do"):
        tokenizer.apply_chat_template(messages, tools)
    assert (messages, tools) == ([{"role": "user", "content": ["a"]}], [{"name": "f"}])


def test_a_conversation_begins_with_one_bos_token(tiny):
    for template in ("{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"):
        tokenizer = tiny(template=template)
        assert tokenizer.apply_chat_template(SYSTEM_FREE, return_dict=False) == [1, 265]
        assert tokenizer.apply_chat_template(SYSTEM_FREE) == {"input_ids": [1, 265], "attention_mask": [1, 1]}
    never = tiny(template=template, add_bos_token=False)
    assert never.apply_chat_template(SYSTEM_FREE, return_dict=False) == [265]


def test_the_file_says_which_tokens_stand_around_a_text(tiny):
    assert tiny()("ab")["input_ids"] == [1, 265]
    assert tiny()("ab", add_special_tokens=False)["input_ids"] == [265]
    assert tiny()("")["input_ids"] == [1]
    assert tiny(add_eos_token=True)("ab")["input_ids"] == [1, 265, 2]
    assert tiny()("a</s>b")["input_ids"] == [1, 262, 2, 263]  # a special token's name is that token


def test_the_blank_that_a_vocabulary_puts_before_a_text_is_taken_away(tiny):
    tokenizer = tiny()
    for text in ("ab a", " a", "  a ", "é\0", "\n", ""):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.decode([265, 265]) == "ab ab"
    builder = TextBuilder(Spelling(tokenizer))
    assert [piece.text for token in (265, 265) for piece in builder.push(token, "")] == ["ab", " ab"]
    without = tiny(add_space_prefix=False)
    assert without.decode(without(" ab")["input_ids"], skip_special_tokens=True) == " ab"


def test_control_tokens_are_hidden_and_a_user_s_own_are_not(tiny):
    tokenizer = tiny()
    ids = [1, 265, 266, 2]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab<tool>"
    assert tokenizer.decode(ids) == "<s> ab<tool></s>"
    assert tokenizer.all_special_ids == [1, 2]


def test_rows_that_only_fill_the_model_are_no_tokens(tiny):
    tokenizer = tiny()
    assert len(tokenizer) == len(SENTENCEPIECE) - 2
    assert "[PAD1]" not in tokenizer.get_vocab()
    assert tokenizer.get_vocab()["<tool>"] == len(tokenizer) - 1
    assert tokenizer.decode([len(tokenizer)]) == ""


def test_a_vocabulary_that_cannot_spell_every_byte_is_refused(tiny):
    lacking = [token for token in SENTENCEPIECE if token[0] != "<0x0A>"]
    with pytest.raises(UnsupportedModelError, match="tokens for 255 of 256 bytes"):
        tiny(lacking)


CRASHING = """
import sys
from pathlib import Path
from draftwood.engines.llama_cpp.tokenizer import LlamaTokenizer
from draftwood.engines.llama_cpp.weights import LlamaWeights
from draftwood.measure.peers import load_peers
tokenizer = LlamaTokenizer(LlamaWeights(Path(sys.argv[1]), vocabulary_only=True))
for character in "a中!":
    print(len(tokenizer(character * 100_000)["input_ids"]))
"""


def test_a_run_of_characters_that_overflows_a_usual_stack_is_tokenized(tmp_path):
    """In a process of its own, which would end."""
    byte_level = [*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 324))]
    tokens = [(text, 1) for text in byte_level] + [("<s>", 3), ("aa", 1)]
    path = write_vocabulary(tmp_path / "tiny.gguf", tokens, model="gpt2", pre="tekken", merges=["a a"])
    ran = subprocess.run([sys.executable, "-c", CRASHING, path], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["50001", "300001", "100001"]


def test_a_text_for_which_no_stack_is_deep_enough_is_refused(monkeypatch):
    monkeypatch.setattr(tokenizer, "_MOST", 5_000)
    assert tokenizer.run_deep("abc " * 5_000, lambda: 7) == 7
    with pytest.raises(PromptError, match="5,001 characters without a space"):
        tokenizer.run_deep("abc " * 5_000 + "a" * 5_001, lambda: 7)


def test_a_system_that_gives_no_stack_is_told_of(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(tokenizer.ThreadPoolExecutor, "submit", refuse)
    usual = tokenizer.threading.stack_size()
    with pytest.raises(PromptError, match="a text of 3,000 characters needs 3 MiB of stack"):
        tokenizer.run_deep("a" * 3_000, lambda: 7)
    assert tokenizer.threading.stack_size() == usual


def test_no_template_says_so(tiny):
    tokenizer = tiny()
    assert tokenizer.chat_template is None
    with pytest.raises(UsageError, match="no chat template"):
        render(SYSTEM_FREE, tokenizer)
    with pytest.raises(UsageError, match="no chat template"):
        tokenizer.apply_chat_template(SYSTEM_FREE)
    tokenizer.chat_template = "{{ messages[0].content }}"
    assert render(SYSTEM_FREE, tokenizer) == [1, 265]
