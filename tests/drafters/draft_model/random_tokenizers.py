"""Small tokenizers of every kind, trained on random texts."""

from __future__ import annotations

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

WORDS = (
    "the", "cat", "walking", "Hello", "ing", "x", "return", "self.value", "12345", "3.14", "don't", "it's", "café",
    "cafe\u0301", "naïve", "中文字符", "日本語", "한국어", "हिन्दी", "ไทย", "עברית",
    "🙂", "\U0001f469\u200d\U0001f467",
    "🇫🇷", "👍🏽", "e\u0301\u0323", "\u00a0", "\u200b", "ﬁ", "…", "—", "====", "((", "[{", "\u2581", "Ġ", "\ufffd",
)  # fmt: skip
GAPS = (" ", " ", " ", " ", "", "", "  ", "\n", "\n\n", "\n    ", "\t", "        ", ", ", ". ")
SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<|endoftext|>", "<pad>", "<image>")
KINDS = (
    "bytes", "bytes-spaced", "bytes-digits", "gemma", "metaspace-first", "metaspace-always", "unigram",
    "characters", "words", "wordpiece", "lowercase",
)  # fmt: skip


def random_text(random, words):
    """Return about so many words of many scripts, with gaps of all kinds."""
    return "".join(random.choice(WORDS) + random.choice(GAPS) for _ in range(words))


def random_tokenizer(random, kind):
    """Train a tokenizer of a kind of `KINDS` and give it some special tokens."""
    corpus = [random_text(random, 60) for _ in range(random.choice((1, 3, 10)))]
    size = random.choice((40, 300, 500))
    tokenizer = _trained(kind, corpus, size)
    names = random.sample(SPECIAL, random.randint(0, len(SPECIAL)))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.add_special_tokens({"additional_special_tokens": names})
    for setting, choices in (("bos_token", ("<s>", "<|im_start|>")), ("eos_token", ("</s>", "<|endoftext|>"))):
        if there := [name for name in choices if name in names]:
            setattr(fast, setting, there[0])
    return fast


def _trained(kind, corpus, size):
    if kind.startswith("bytes") or kind == "lowercase":
        return _byte_level(corpus, size, kind)
    if kind == "gemma" or kind.startswith("metaspace"):
        return _sentencepiece(corpus, size, kind)
    tokenizer, trainer = {
        "unigram": lambda: (
            Tokenizer(models.Unigram()),
            trainers.UnigramTrainer(
                vocab_size=size + 200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
            ),
        ),
        "characters": lambda: (
            Tokenizer(models.BPE(unk_token="<unk>")),
            trainers.BpeTrainer(vocab_size=1, special_tokens=["<unk>"], show_progress=False),
        ),
        "words": lambda: (
            Tokenizer(models.WordLevel(unk_token="<unk>")),
            trainers.WordLevelTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False),
        ),
        "wordpiece": lambda: (
            Tokenizer(models.WordPiece(unk_token="<unk>")),
            trainers.WordPieceTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False),
        ),
    }[kind]()
    if kind == "unigram":
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    if kind in ("words", "wordpiece"):
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def _byte_level(corpus, size, kind):
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.ByteLevel(add_prefix_space=kind == "bytes-spaced")
    if kind == "bytes-digits":
        split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split])
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    if kind == "lowercase":
        tokenizer.normalizer = normalizers.Lowercase()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def _sentencepiece(corpus, size, kind):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    if kind == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\u2581+"), "merged_with_next")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind.removeprefix("metaspace-"))
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    settings = json.loads(tokenizer.to_str())
    vocabulary = settings["model"]["vocab"]
    for byte in range(256):
        vocabulary.setdefault(f"<0x{byte:02X}>", len(vocabulary))
    settings["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(settings))
