"""Tokenizers of folders, without transformers: its ids, texts and chats, whatever class and settings are named."""

from __future__ import annotations

import json
import random

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizer, PreTrainedTokenizerFast
from transformers.models.auto import tokenization_auto

from draftwood.engines.tokens import hub_tokenizer
from draftwood.engines.tokens.tokenizer import HubTokenizer
from draftwood.errors import ModelError, UnsupportedModelError, UsageError
from tests.engines.cpu.tiny_families import VOCAB


def byte_level():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[: VOCAB - 20]
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<s>", "</s>"])
    core.add_tokens([AddedToken("<tool>", normalized=False)])
    begins(core, "<s>")
    made = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    made.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}</s>{% endfor %}"
    return made


def begins(core, name):
    token = core.token_to_id(name)
    core.post_processor = processors.TemplateProcessing(single=f"{name} $A", special_tokens=[(name, token)])


def letters():
    """A vocabulary of letters that stand for bytes, and steps that no class builds."""
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "\u0120a", "12", "<|endoftext|>", "<|padding|>"]
    pairs = [("a", "b"), ("\u0120", "a"), ("1", "2")]
    core = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, pairs, ignore_merges=True))
    digits = pre_tokenizers.Digits(individual_digits=True)
    core.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<s>", "</s>"])
    core.add_tokens([AddedToken("<tool>", normalized=False, lstrip=True)])
    return core


def pieces():
    """A vocabulary with tokens for bytes, written as an earlier transformers wrote that of a LlamaTokenizer."""
    some = ["\u2581", *"abcdefgh", "\u2581a", "ab", "\u2581\u2581", "<bos>", "<eos>", "<pad>"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *some]
    pairs = [("\u2581", "a"), ("a", "b"), ("\u2581", "\u2581")]
    core = Tokenizer(
        models.BPE({name: i for i, name in enumerate(names)}, pairs, unk_token="<unk>", byte_fallback=True)
    )
    core.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.add_special_tokens(["<unk>", "<s>", "</s>"])
    begins(core, "<s>")
    return core


def padded():
    core = letters()
    core.enable_padding(pad_id=0, pad_token="<q>")
    core.enable_truncation(3)
    return core


def unigram():
    return Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0))


CLASSES = [
    (pieces, "llama", "LlamaTokenizer"), (pieces, "llama", "LlamaTokenizerFast"),
    (letters, "llama", "LlamaTokenizer"), (pieces, "llama", None), (pieces, "llama", "CodeLlamaTokenizer"),
    (pieces, "llama", "GemmaTokenizerFast"), (pieces, "llama", "NobodyTokenizer"),
    (pieces, "llama", "PreTrainedTokenizer"), (letters, "llama", "GPT2Tokenizer"),
    (letters, "llama", "GPTNeoXTokenizerFast"), (letters, "llama", "BloomTokenizerFast"),
    (padded, "llama", "PreTrainedTokenizerFast"), (padded, "llama", "Qwen2Tokenizer"),
    (letters, "smollm3", "Qwen3_5Tokenizer"), (letters, "qwen2", "PreTrainedTokenizerFast"),
    (letters, "qwen2", None), (letters, "qwen3", "PreTrainedTokenizerFast"), (letters, "qwen3", None),
    (letters, "qwen3_moe", "GPT2Tokenizer"), (pieces, "gemma2", None),
    (pieces, "gemma3_text", "GemmaTokenizer"), (pieces, "mistral", "LlamaTokenizer"), (pieces, "mixtral", None),
    (pieces, "phi3", "LlamaTokenizer"), (letters, "olmo2", "GPT2Tokenizer"), (letters, "granite", None),
    (letters, "qwen3_5", "Qwen2Tokenizer"), (letters, "qwen3_5_text", None), (letters, "qwen3_next", None),
    (pieces, "ernie4_5", "LlamaTokenizer"), (letters, "glm4_moe_lite", None), (letters, "gpt_oss", None),
    (pieces, "gemma4_text", "GemmaTokenizer"), (letters, "lfm2", "GPT2Tokenizer"),
]  # fmt: skip
LEFT = {"content": "<x>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
RIGHT = LEFT | {"content": "<s>", "lstrip": False, "rstrip": True}
TEMPLATE = "{{ bos_token }}|{{ pad_token }}|{{ unk_token }}|{{ image_token }}|%s{%% for m in messages %%}"
TEMPLATE += "{{ m.content }}{{ eos_token }}{%% endfor %%}"
ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
SEVERAL = [{"name": name, "template": TEMPLATE % name} for name in ("default", "tool_use", "rag")]
# What tokenizer_config.json says, and other files.
FOLDERS = {
    "nothing": ({}, {}),
    "roles": (ROLES | {"image_token": "<img>"}, {}),
    "objects": ({"bos_token": RIGHT | {"__type": "AddedToken"}, "pad_token": LEFT | {"__type": "AddedToken"}}, {}),
    "null": ({"bos_token": None, "eos_token": "", "pad_token": "", "image_token": None}, {}),
    "map": ({}, {"special_tokens_map.json": ROLES | {"bos_token": RIGHT, "video_token": "<v>",
                                                     "additional_special_tokens": ["<x>"]}}),
    "null in the map": (ROLES, {"special_tokens_map.json": {"bos_token": None, "eos_token": ""}}),
    "lists": ({"additional_special_tokens": ["<x>", "<y>"], "extra_special_tokens": []},
              {"special_tokens_map.json": {"extra_special_tokens": ["<z>", "<x>"]}}),
    "no list": ({"extra_special_tokens": []}, {"special_tokens_map.json": {"additional_special_tokens": ["<x>"]}}),
    "names": ({"extra_special_tokens": {"image_token": "<img>"}, "additional_special_tokens": ["<y>"]},
              {"special_tokens_map.json": {"extra_special_tokens": {"u_token": "<z>"}, "v_token": "<v>"}}),
    "listed": ({"added_tokens_decoder": {"300": LEFT, "1": RIGHT | {"special": True}}} | ROLES,
               {"special_tokens_map.json": {"bos_token": "<y>"}}),
    "added": ({"additional_special_tokens": ["<y>"]}, {"added_tokens.json": {"<y>": 300, "<x>": 301}}),
    "switches": ({"add_bos_token": True, "add_eos_token": True, "add_prefix_space": False, "legacy": True,
                  "split_special_tokens": True, "clean_up_tokenization_spaces": True, "do_lower_case": True,
                  "model_max_length": 3} | ROLES, {}),
    "prefix": ({"add_prefix_space": True, "legacy": False, "add_bos_token": False} | ROLES, {}),
    "legacy": ({"legacy": True}, {}),
    "program": ({"auto_map": {"AutoTokenizer": ["own.Slow", "own.Fast"]}}, {}),
    "one template": ({"chat_template": TEMPLATE % "one"}, {"chat_template.json": {"chat_template": "other"}}),
    "templates": ({"chat_template": SEVERAL}, {}),
    "a template's file": ({"chat_template": SEVERAL}, {"chat_template.jinja": TEMPLATE % "file"}),
    "files": ({"chat_template": "not this"}, {"chat_template.jinja": TEMPLATE % "file",
                                              "additional_chat_templates/rag.jinja": TEMPLATE % "rag"}),
    "no default": ({"chat_template": "nor this"}, {"additional_chat_templates/tool_use.jinja": TEMPLATE % "t"}),
}  # fmt: skip
BYTES_SEEN = "_tokenizer_json_has_byte_level"
TEXTS = (
    "a b", " ab  c\n", "", "d\u00eda \u6771\u4eac", "ab 12 a\u0301b  ", "abc\tdef\r\n",
    "a<s>b</s> <tool>c <x>  <y>d<pad>\nab 12 <z> <unk><img>e <bos> x <eos>y <v>",
)  # fmt: skip


def written(path, core, model_type, named, said, files):
    """Write a folder."""
    path.mkdir()
    core.save(str(path / "tokenizer.json"))
    settings = said if named is None else {"tokenizer_class": named} | said
    for name, content in {
        "config.json": {"model_type": model_type},
        "tokenizer_config.json": settings,
        **files,
    }.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content))


def chat(tokenizer, **how):
    talk = [{"role": "user", "content": "ab <x> c"}, {"role": "assistant", "content": "d"}]
    try:
        return tokenizer.apply_chat_template(talk, return_dict=False, **how)
    except (ValueError, UsageError):
        return "no template"


def compare(path):
    theirs, ours = AutoTokenizer.from_pretrained(path, trust_remote_code=False), HubTokenizer(path)
    for text in TEXTS:
        for special in (True, False):
            ids = [one(text, add_special_tokens=special)["input_ids"] for one in (ours, theirs)]
            assert ids[0] == ids[1], text
    numbers = random.Random(1)
    for _ in range(20):
        ids = [numbers.randrange(len(theirs) + 2) for _ in range(9)]
        for skip in (True, False):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)
    assert ours.get_vocab().items() <= theirs.get_vocab().items()
    for how in (
        {},
        {"tools": [{"type": "function"}]},
        {"chat_template": "rag"},
        {"chat_template": "{{ eos_token }}a"},
    ):
        if how != {"chat_template": "rag"} or isinstance(theirs.chat_template, dict):
            assert chat(ours, **how) == chat(theirs, **how), how


@pytest.mark.parametrize(("make", "model_type", "named"), CLASSES, ids=lambda one: getattr(one, "__name__", one))
def test_ids_texts_and_chats_are_those_of_transformers(make, model_type, named, tmp_path):
    if (make, named) == (letters, "LlamaTokenizer") and not hasattr(PreTrainedTokenizerFast, BYTES_SEEN):
        pytest.skip("this transformers builds a LlamaTokenizer even where it cannot read the vocabulary")
    for number, (name, (said, files)) in enumerate(FOLDERS.items()):
        path = tmp_path / str(number)
        written(path, make(), model_type, named, said, files)
        try:
            theirs = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        except ValueError:  # a class of the folder itself
            with pytest.raises(UnsupportedModelError, match="take transformers"):
                HubTokenizer(path)
        else:
            print(name, type(theirs))  # of the folder that fails
            compare(path)


def test_a_chat_has_one_bos_token_where_its_template_and_its_tokenizer_write_it(tmp_path):
    byte_level().save_pretrained(tmp_path)
    ours = HubTokenizer(tmp_path)
    assert ours("a")["input_ids"][0] == ours.bos_token_id
    ids = chat(ours)
    assert (ids[0], ids.count(ours.bos_token_id)) == (ours.bos_token_id, 1)


def test_classes_of_transformers_that_do_not_take_tokenizer_json_as_it_is_are_known():
    names = {
        name.removesuffix("Fast") for name in dir(transformers) if name.endswith(("Tokenizer", "TokenizerFast"))
    }
    names |= {name for name in tokenization_auto.TOKENIZER_MAPPING_NAMES.values() if name}
    for name in sorted(names):
        found = hub_tokenizer._class({"model_type": "llama"}, {"tokenizer_class": name}, False)
        if tokenization_auto.tokenizer_class_from_name(name) in (PreTrainedTokenizerFast, PreTrainedTokenizer):
            assert found == "TokenizersBackend"
        else:
            assert found == name.removesuffix("Fast")


@pytest.mark.parametrize(
    ("make", "said", "sentence"),
    [
        (letters, {"tokenizer_class": "T5TokenizerFast"}, "the class T5Tokenizer"),
        (letters, {"fix_mistral_regex": True}, "with fix_mistral_regex"),
        (letters, {"fast_tokenizer_files": ["tokenizer.4.0.json"]}, "with fast_tokenizer_files"),
        (unigram, {"tokenizer_class": "LlamaTokenizer"}, "the class LlamaTokenizer"),
        (letters, {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["a.B", None]}}, "auto_map"),
    ],
)
def test_what_only_transformers_reads_is_refused(make, said, sentence, tmp_path):
    written(tmp_path / "folder", make(), "llama", None, said, {})
    with pytest.raises(UnsupportedModelError, match=f"{sentence}.*take transformers"):
        HubTokenizer(tmp_path / "folder")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"tokenizer.json": "{"}, r"tokenizer\.json cannot be read"),
        ({"tokenizer_config.json": {"added_tokens_decoder": {"300": {"content": 5}}}}, "of a wrong type"),
        ({"tokenizer_config.json": {"added_tokens_decoder": []}}, "of a wrong type"),
        ({"special_tokens_map.json": "[]"}, "special_tokens_map.json: list instead of an object"),
        ({"special_tokens_map.json": {"bos_token": 5}}, "of a wrong type"),
        ({"added_tokens.json": {"<x>": "many"}}, "of a wrong type"),
    ],
)
def test_a_tokenizer_that_is_damaged(files, sentence, tmp_path):
    written(tmp_path / "folder", letters(), "llama", None, {}, files)
    with pytest.raises(ModelError, match=sentence):
        HubTokenizer(tmp_path / "folder")


def test_tokens_that_a_class_has_and_a_folder_lacks_are_not_counted(tmp_path):
    """A model has no row for them."""
    written(tmp_path / "folder", letters(), "llama", "GPTNeoXTokenizer", {"pad_token": "<own>"}, {})
    ours = HubTokenizer(tmp_path / "folder")
    assert ours.get_vocab()["<own>"] == len(ours) - 1
    written(tmp_path / "other", pieces(), "llama", "CodeLlamaTokenizer", {}, {})
    assert len(HubTokenizer(tmp_path / "other")) == pieces().get_vocab_size()


def test_chat_templates_that_are_none_are_left_out(tmp_path):
    odd = [{"name": {}, "template": "x"}, {"name": "default", "template": 5}, {"name": "tool_use"}]
    written(tmp_path / "folder", letters(), "llama", None, {"chat_template": odd}, {})
    assert HubTokenizer(tmp_path / "folder").chat_template is None


def test_halves_of_characters_and_several_chats(tmp_path):
    byte_level().save_pretrained(tmp_path)
    ours = HubTokenizer(tmp_path)
    assert ours("\ud800x") == ours("\ufffdx")
    assert ours.all_special_ids == sorted(AutoTokenizer.from_pretrained(tmp_path).all_special_ids)
    with pytest.raises(UsageError, match="one chat at a time"):
        ours.apply_chat_template([[{"role": "user", "content": "ab"}]])
