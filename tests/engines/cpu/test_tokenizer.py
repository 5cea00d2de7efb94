"""The tokenizer of the CPU engine, against llama.cpp's own on the same files."""

import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from gguf import TokenType
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE

from draftwood.api.prompts import render
from draftwood.api.text import Spelling, TextBuilder
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.files.vocabulary import KNOWN
from draftwood.engines.tokens.encoders import SpecialTokens, byte_letters
from draftwood.engines.tokens.file_tokenizer import ids_of
from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.engines.tokens.tokenizer import GgufTokenizer
from draftwood.errors import ModelError, UnsupportedModelError
from draftwood.local.find import gguf_file

pytest.importorskip("xllamacpp")

from draftwood.engines.llama_cpp.tokenizer import LlamaTokenizer
from draftwood.engines.llama_cpp.weights import LlamaWeights
from tests.engines.test_llama_tokenizer import TEXTS
from tests.engines.tiny_vocabulary import SENTENCEPIECE, write_vocabulary
from tests.serve.scripted import byte_tokenizer
from tests.tiers import rest_is_slow

on_smollm2 = pytest.mark.smollm2
LETTERS = byte_letters()
SPECIAL = (
    ("<unk>", TokenType.UNKNOWN), ("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL),
    ("<|im_end|>", TokenType.NORMAL), ("<tool>", TokenType.USER_DEFINED), ("<|fim_pad|>", TokenType.NORMAL),
    ("<tool>>", TokenType.CONTROL), ("<unused0>", TokenType.CONTROL),
)  # fmt: skip
POOLS = (
    "abcXYZ", "  \t\n\r", "0123456789", "'sStTrReEvVlLmMdD", "!?.,;:~`^|<>=+$-_#*/\\\"()[]{}@%&", "éßµÀǄǅǆªº",
    "\u0301\u0300\u0327", "\u00a0\u1680\u2003\u2028\u202f\u3000\x85", "中文한국어日本ひカ\uff61",
    "\u3131\u318e\u3105\uff1a\uff1b\uff0c\u3001\u3002\u2014\u201c\u201d\u2018\u2019\uff01\u2026\u303f\ufe30",
    "٣½²Ⅷ〇", "🙂👍🏽\u200d\u200c", "ไทยहिन्दीবাংলা", "\x00\x0b\x7f\u200b\ufeff\ufffd\u1c89\U00010d40\U00013460",
)  # fmt: skip
WORDS = (
    "Hello", " world", "don't", "I'LL", "we'Re", "12345678", "iPhone", "<tool>", "</s>", "<|im_end|>", "<s", "▁",
)  # fmt: skip


def random_texts(count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(1, 14)):
            pool = draw.choice(POOLS)
            drawn = "".join(draw.choice(pool) for _ in range(draw.choice((1, 1, 2, 5))))
            parts.append(draw.choice(WORDS) if draw.random() < 0.3 else drawn)
        yield "".join(parts)


def pairs_of_bytes():
    """Tokens and merges of many pairs of bytes, those across characters first: they show where words end."""

    def is_continued(pair):
        return 0x80 <= pair[1] < 0xC0

    chosen = [*b"\t\n\r abstXYZ'.!=~$_/19", 0xC2, 0xC3, 0xCC, 0xE0, 0xE2, 0xE3, 0xE4, 0xF0, *range(0x80, 0xC0)]
    pairs = sorted([(a, b) for a in chosen for b in chosen], key=is_continued)
    tokens = [*LETTERS.values(), *(LETTERS[a] + LETTERS[b] for a, b in pairs)]
    merges = [f"{LETTERS[a]} {LETTERS[b]}" for a, b in pairs]
    return [*SPECIAL, *((token, TokenType.NORMAL) for token in tokens)], merges


BYTE_PAIRS, MERGES = pairs_of_bytes()


@pytest.fixture
def both(tmp_path):
    """llama.cpp's tokenizer and ours of one small file."""

    def make(*args, **settings):
        path = write_vocabulary(tmp_path / "tiny.gguf", *args, **settings)
        return LlamaTokenizer(LlamaWeights(path, vocabulary_only=True)), GgufTokenizer(GgufFile(path).metadata)

    return make


@pytest.fixture(scope="module")
def smollm2():
    path = gguf_file("smollm2")
    return LlamaTokenizer(LlamaWeights(path, vocabulary_only=True)), GgufTokenizer(GgufFile(path).metadata)


def check_same(theirs, ours, texts):
    names = ("bos_token", "bos_token_id", "eos_token", "eos_token_id", "chat_template", "all_special_ids")
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
    assert len(ours) == len(theirs)
    assert ours.end_ids == theirs._weights.end_ids
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.token_bytes() == theirs.token_bytes()
    assert tokenizer_fingerprint(ours) == tokenizer_fingerprint(theirs)
    ids = range(-1, theirs._weights.vocab_size + 1)
    assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids)
    for skip in (True, False):
        expected = [theirs.decode([token], skip_special_tokens=skip) for token in ids]
        assert [ours.decode([token], skip_special_tokens=skip) for token in ids] == expected
    for text in texts:
        assert ours(text) == theirs(text), text
        assert ours(text, add_special_tokens=False) == theirs(text, add_special_tokens=False), text


@on_smollm2
def test_smollm2_s_ids_and_texts_are_those_of_llama_cpp(smollm2):
    theirs, ours = smollm2
    check_same(theirs, ours, [*TEXTS, *random_texts(1_000, 1)])
    draw = random.Random(2)
    for _ in range(500):
        ids = [draw.randrange(-1, 49_153) for _ in range(draw.randrange(9))]
        for skip in (True, False):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)


@on_smollm2
@pytest.mark.parametrize("text", ["a", "中", " ", "1", "=", "\n", "<|im_end|>"])
def test_long_runs(smollm2, text):
    theirs, ours = smollm2
    assert ours(text * 20_000) == theirs(text * 20_000)


FIRST = {way: name for name, way in reversed(KNOWN.items())}.values()


@pytest.mark.parametrize("pre", rest_is_slow(KNOWN, *FIRST))
def test_texts_are_split_as_llama_cpp_splits_them(both, pre):
    theirs, ours = both(BYTE_PAIRS, model="gpt2", pre=pre, merges=MERGES)
    texts = [*random_texts(150, 3), *(text for text in TEXTS if len(text) < 200)][::2]
    for text in texts:
        assert ours(text) == theirs(text), text


NEWER = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s"
)


def test_the_expression_of_lfm2_5_splits_texts_as_that_of_lfm2():
    """Their files have one name for both (llama.cpp, pull request 23826)."""
    (older,) = KNOWN["lfm2"].patterns
    both = [pre_tokenizers.Split(Regex(each), "isolated") for each in (older, NEWER)]
    for text in [*random_texts(2_000, 9), *TEXTS, " \n \r\n\t\n  a", "\n\n\n", "  ", "a \n"]:
        parts = [one.pre_tokenize_str(text) for one in both]
        assert parts[0] == parts[1], text


def test_every_kind_of_token_of_a_vocabulary_of_bytes(both):
    odd = [("中▁", TokenType.NORMAL), ("odd", TokenType.UNUSED), ("[PAD1]", TokenType.UNUSED)]
    check_same(*both([*BYTE_PAIRS, *odd], model="gpt2", pre="gpt-2", merges=MERGES), random_texts(100, 4))


CHAT = (
    "{{- bos_token -}}{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endfor -%}"
)


@pytest.mark.parametrize("content", ["Hello", "an <|im_start|> in a text", ""])
def test_a_chat_has_one_bos_token_where_its_template_writes_it_and_its_file_asks_for_it(both, content):
    """As lfm2's do."""
    tokens = [*BYTE_PAIRS, ("<|im_start|>", TokenType.CONTROL)]
    theirs, ours = both(tokens, model="gpt2", pre="lfm2", merges=MERGES, template=CHAT)
    assert ours("a")["input_ids"] == [1, ours.get_vocab()["a"]]
    chat = [{"role": "user", "content": content}]
    ids = render(chat, ours)
    assert ids == render(chat, theirs)
    assert (ids[0], ids.count(1)) == (1, 1)


def test_a_byte_without_a_token_is_left_out(both):
    lacking = [token for token in BYTE_PAIRS if token[0] not in ("q", LETTERS[0xE4])]
    merges = [merge for merge in MERGES if {"q", LETTERS[0xE4]}.isdisjoint(merge.split(" "))]
    held = {token for token, _ in lacking}
    kept = [merge for merge in merges if merge.replace(" ", "") in held]
    theirs, ours = both(lacking, model="gpt2", pre="llama-bpe", merges=kept)
    for text in ("aqa", "q", "a中中b", *random_texts(50, 5)):
        assert ours(text) == theirs(text), text


def scored(seed, distinct):
    """A random vocabulary of pieces with scores: with few ``distinct`` ones many are equal."""
    draw, lengths = random.Random(seed), {3, 4, 5, 6, 10, 13}
    letters = ["▁", "a", "b", "c", "1", "\n", "é", "中", "🙂", "<", ">", "0", "x"]
    pieces = {"".join(draw.choice(letters) for _ in range(draw.randrange(1, 6))) for _ in range(80)}
    if seed % 2:
        pieces = {piece for piece in pieces if "▁" not in piece.lstrip("▁")} | {"▁" * count for count in (2, 3, 5)}
    tokens = list(SENTENCEPIECE[: 3 + 256])
    for piece in sorted(pieces):
        kind, length = (
            draw.choice([TokenType.NORMAL] * 4 + [TokenType.USER_DEFINED, TokenType.CONTROL]),
            len(piece.encode()),
        )
        if length in lengths:  # of equally long names that overlap, llama.cpp takes any
            kind = draw.choice([TokenType.NORMAL, TokenType.UNUSED])
        lengths.add(length)
        tokens.append((piece, kind))
    tokens += [("<tool>", TokenType.USER_DEFINED), ("<|im_end|>", TokenType.NORMAL)]
    tokens += [("<|endoftext|>", TokenType.CONTROL)]
    tokens = list(dict(tokens).items())
    return tokens, [float(draw.randrange(distinct)) for _ in tokens]


@pytest.mark.parametrize("seed", range(12))
def test_a_vocabulary_with_scores(both, seed):
    tokens, scores = scored(seed, (2, 5, 10_000)[seed % 3])
    settings = [{}, {"add_space_prefix": False}, {"name": "My Phi-3 mini"}, {"add_eos_token": True}][seed % 4]
    theirs, ours = both(tokens, scores=scores, **settings)
    parts = [*"abc1x\n\té中🙂▁", " ", "  ", "   ", "<s>", "</s>", "<tool>", "<|im_end|>", "<0x41>", "ab c"]
    draw = random.Random(seed)
    check_same(theirs, ours, ["".join(draw.choices(parts, k=draw.randrange(25))) for _ in range(60)])


def of_characters(seed):
    """A random vocabulary as gemma4's, with its merges: each joins two tokens to one more."""
    draw = random.Random(seed)
    letters = ["▁", *"abcxs<>/1", "\n", "é", "中", "🙂"]
    names, merges = letters[: draw.randrange(8, len(letters) + 1)], []
    for _ in range(90):
        pair = draw.choice(names), draw.choice(names)
        if "".join(pair) not in names and len("".join(pair)) < 9:
            names.append("".join(pair))
            merges.append(" ".join(pair))
    names += [run for run in ("\n" * count for count in (2, 3, 5)) if run not in names]
    tokens = [
        *SENTENCEPIECE[: 3 + 256],
        *((name, TokenType.NORMAL) for name in names),
        ("<turn|>", TokenType.CONTROL),
    ]
    tokens += [
        ("<tool>", TokenType.USER_DEFINED),
        ("<|channel>", TokenType.USER_DEFINED),
        ("odd", TokenType.UNUSED),
    ]
    tokens += [("<|tool_response>", TokenType.USER_DEFINED)] * (seed % 2)  # with it </s> is text
    draw.shuffle(merges)
    return tokens, [merge for merge in merges if " " in merge]


@pytest.mark.parametrize("seed", range(8))
def test_a_vocabulary_of_characters(both, seed):
    tokens, merges = of_characters(seed)
    theirs, ours = both(tokens, model="gemma4", merges=merges)
    parts = [
        *"abcxs1é中🙂▁<>/",
        "\n",
        "\n\n",
        "\n\n\n\n",
        " ",
        "   ",
        "\r\n",
        "\t",
        "<tool>",
        "</s>",
        "<0x41>",
        "ab x",
    ]
    draw = random.Random(seed)
    texts = ["".join(draw.choices(parts, k=draw.randrange(25))) for _ in range(200)]
    check_same(theirs, ours, [*texts, *random_texts(60, seed), ""])
    assert (ours("a")["input_ids"][0], ours.end_ids) == (1, theirs._weights.end_ids)
    assert (2 in ours.end_ids) == (seed % 2 == 0)
    for _ in range(100):
        ids = draw.choices(range(len(ours)), k=draw.randrange(9))
        for skip in (True, False):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)


def test_a_vocabulary_of_characters_reads_a_line_as_the_package_tokenizers_reads_it(both):
    tokens, merges = of_characters(3)
    _, ours = both(tokens, model="gemma4", merges=merges, add_bos_token=False)
    ids = {name: token for token, (name, _) in enumerate(tokens)}
    core = Tokenizer(BPE(ids, [tuple(merge.split(" ")) for merge in merges], byte_fallback=True))
    core.normalizer = normalizers.Replace(" ", "▁")
    for text in random_texts(400, 6):
        if not any(name in text for name, kind in tokens if kind != TokenType.NORMAL) and "\n" not in text:
            assert ours(text)["input_ids"] == [1, *core.encode(text).ids], text  # BOS, whatever the file says


@pytest.mark.parametrize("seed", range(4))
def test_a_text_of_such_a_vocabulary_is_told_piece_by_piece(both, seed):
    _, ours = both(of_characters(seed)[0], model="gemma4", merges=of_characters(seed)[1])
    draw = random.Random(seed)
    for text in random_texts(60, seed):
        ids = [*ours(text)["input_ids"], *draw.choices(range(len(ours)), k=3)]
        builder = TextBuilder(Spelling(ours))
        told = [piece for token in ids for piece in builder.push(token, "model")] + builder.finish("model")
        assert "".join(piece.text for piece in told) == ours.decode(ids, skip_special_tokens=True), text


def test_llama_s_manner_of_sentencepiece(both):
    check_same(*both(), ["", "ab", " ab", "a</s>b", "ab a\0", "é\n", "<tool> a", *random_texts(100, 7)])
    check_same(*both(template="{{ messages[0].content }}", add_bos_token=False), ["ab"])


ENDINGS = (
    (), ("<|end|>", "<end_of_turn>"), ("<|eom_id|>", "<eos>"), ("<reponame>", "<|file_sep|>", "<PRE>"), ("[PAD]",),
    ("<\uff5cend\u2581of\u2581sentence\uff5c>", "<EOT>"), ("<turn|>", "<|tool_response>"), ("[e~[",),
    ("<|return|>", "<|call|>", "<|end|>", "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"),
    ("<|flush|>", "<|calls|>", "<|end|>"), ("<|return|>", "<|calls|>", "<|end|>"), ("<|call|>", "<|end|>"),
)  # fmt: skip


@pytest.mark.parametrize("names", ENDINGS)
@pytest.mark.parametrize("keys", [{}, {"eot_token_id": 3}, {"eom_token_id": 4}])
def test_tokens_that_end_an_answer_are_those_of_llama_cpp(both, names, keys):
    known = dict(SENTENCEPIECE)
    tokens = [*SENTENCEPIECE, *((name, TokenType.NORMAL) for name in names if name not in known)]
    theirs, ours = both(tokens, **keys)
    assert ours.end_ids == theirs._weights.end_ids
    assert ours.all_special_ids == theirs.all_special_ids
    check_same(theirs, ours, ["".join(names), "a".join(names)])


def metadata(**changed):
    tokens = [*SPECIAL, *((letter, TokenType.NORMAL) for letter in LETTERS.values())]
    given = {
        "model": "gpt2", "tokens": [name for name, _ in tokens], "token_type": [int(kind) for _, kind in tokens],
        "merges": [], "bos_token_id": 1, "eos_token_id": 2,
    } | changed  # fmt: skip
    return {f"tokenizer.ggml.{name}": value for name, value in given.items() if value is not None}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"model": "bert"}, UnsupportedModelError, "vocabularies of type bert: try the engine llama.cpp"),
        ({"pre": "kimi-k2"}, UnsupportedModelError, r"splits texts \(kimi-k2\): try the engine llama.cpp"),
        ({"model": "llama"}, UnsupportedModelError, "tokens for 0 of 256 bytes"),
        ({"model": "gemma4"}, UnsupportedModelError, "tokens for 0 of 256 bytes"),
        ({"model": "gemma4", "bos_token_id": None}, ModelError, "that it does not name"),
        ({"merges": None}, ModelError, "no merges"),
        ({"merges": ["a zz"]}, ModelError, "damaged"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, ModelError, "two of its tokens have one name"),
        ({"tokens": None}, ModelError, "no tokens"),
        ({"token_type": [1]}, ModelError, "fewer types than tokens"),
        ({"tokens": [1, 2]}, ModelError, "tokens is not a list of the right type"),
        ({"scores": "a"}, ModelError, "scores is not a list of the right type"),
        ({"bos_token_id": "1"}, ModelError, "bos token is no whole number"),
        (
            {"bos_token_id": 9_999, "add_bos_token": True, "tokens": ["a"], "token_type": [1]},
            ModelError,
            "that it does not name",
        ),
    ],
)
def test_what_cannot_be_read_is_told_in_one_sentence(changed, error, message):
    with pytest.raises(error, match=message) as raised:
        GgufTokenizer(metadata(**changed))
    assert "\n" not in str(raised.value)


def test_the_longest_special_token_is_found_first():
    names = ["<a>", "a>b", "<a>b>>", "\n\n", "\n"]
    special = SpecialTokens(names, [2, 0, 1, 3, 4], {0})
    assert list(special.split("x<a>b>>y")) == ["x", 2, "y"]
    assert list(special.split("<a> \t <a>\n\nb")) == [0, 0, "b"]
    assert list(special.split("<a>b")) == [0, "b"]
    assert list(special.split("\n\n\n")) == [3, 4]
    assert list(special.split("")) == []
    assert list(SpecialTokens([], [], ()).split("a")) == ["a"]


@on_smollm2
@pytest.mark.parametrize("special", [False, True])
def test_a_long_text_has_the_same_ids_and_other_threads_run_meanwhile(special):
    from tokenizers.processors import TemplateProcessing

    words = byte_tokenizer().backend_tokenizer
    around = [(name, words.token_to_id(name)) for name in ("<end>", "<turn>")]
    words.post_processor = TemplateProcessing(single="<end> $A <turn>", special_tokens=around)
    text = "<user>".join(random_texts(8_000, 5))
    begun, order = Event(), []

    def others():
        begun.wait()
        for _ in range(20):
            time.sleep(0.001)
        order.append("others")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(others)
        begun.set()
        found = ids_of(words, text, special=special)
        order.append("text")
    assert order == ["others", "text"]
    assert found == words.encode(text, add_special_tokens=special).ids


FORKED = """
import os, sys, threading
from draftwood.engines.tokens.file_tokenizer import ids_of
from tests.serve.scripted import byte_tokenizer
words, done = byte_tokenizer().backend_tokenizer, threading.Event()
threading.Thread(target=done.wait).start()
ids_of(words, "a" * 20_000)
child = os.fork()
if not child:
    threading.Thread(target=done.wait, daemon=True).start()
    os._exit(len(ids_of(words, "a" * 20_000)) == 20_000)
done.set()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_fork_does_not_wait_for_threads_that_it_does_not_have():
    known = {**os.environ, "TOKENIZERS_PARALLELISM": "true", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60, env=known)


def test_neither_torch_nor_transformers_nor_llama_cpp_is_imported():
    code = f"""
import sys
from pathlib import Path
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.tokens.tokenizer import GgufTokenizer
tokenizer = GgufTokenizer(GgufFile(Path({str(gguf_file("smollm2"))!r})).metadata)
tokenizer.apply_chat_template([{{"role": "user", "content": "Hi"}}])
print({{"torch", "transformers", "xllamacpp", "huggingface_hub"}} & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "set()\n"


@pytest.mark.gemma3
def test_gemma3_s_ids_and_texts_are_those_of_llama_cpp():
    path = gguf_file("gemma3-270m")
    theirs, ours = LlamaTokenizer(LlamaWeights(path, vocabulary_only=True)), GgufTokenizer(GgufFile(path).metadata)
    check_same(theirs, ours, [*TEXTS, *random_texts(1_000, 8)])
