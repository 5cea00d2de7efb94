"""The tokens of a GGUF file and what they are for, read from its metadata as llama.cpp reads it.

Source of the rules: ``src/llama-vocab.cpp`` of llama.cpp. Types in files are not always right, so some tokens are
known by their names. Texts are split before their bytes are merged, by regular expressions that have the names by
which files ask for them. Each splits the parts that the one before it made; text between matches is a part, too.
They split as llama.cpp does, which differs in places from how a model was trained.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import ModelError, UnsupportedModelError

UNKNOWN, UNUSED, NORMAL, CONTROL, USER_DEFINED, BYTE = (1 << bit for bit in range(6))
"""Kinds of tokens; a token may be of several."""
SPECIAL = UNKNOWN | CONTROL | USER_DEFINED
"""Kinds of tokens that their names in a text become."""

_KIND_OF_TYPE = np.array([0, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE], dtype=np.uint8)
_LISTS = {"tokens": str, "merges": str, "token_type": int, "scores": int | float}

_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|return|>", "<|call|>",
    "<|calls|>", "<|flush|>", "<turn|>", "<|tool_response>", "[e~[",
)  # fmt: skip
"""Names of tokens that end an answer, in whatever file."""

_NO_ENDS = (
    (("<|return|>", "<|flush|>"), ("<|call|>", "<|calls|>"), "<|end|>", USER_DEFINED),
    (("<|tool_response>",), ("<|tool_response>",), "</s>", NORMAL),
)
"""Where a vocabulary has one of the first names and one of the second, the third ends no answer and is a token of
another kind: in harmony (gpt-oss) ``<|end|>`` ends a message, which may be a thought, and in gemma4 ``</s>`` is
text."""
MESSAGE_MARKS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
"""Of harmony: what messages consist of besides text. They are shown, since without them one message runs into
another."""

_ROLES: Mapping[str, tuple[str, ...]] = {
    "fim_pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>",
                "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"),
    "fim_suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>",
                "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>"),
    "fim_mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>",
                "\u2581<MID>", "<|code_middle|>", "<|middle|>"),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
"""Tokens that a file may name by a key of the metadata; without it they are known by their names, and are control
tokens. Of several of one role llama.cpp takes any; here it is the one with the lowest id."""
_OLD_KEYS = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}
_ENDING_ROLES = ("fim_pad", "fim_rep", "fim_sep")  # models that fill in the middle write these before another file

_KEEPS_BLANKS = ("<unk>", "<s>", "<|endoftext|>")
"""Of phi-3: its other special tokens take the blanks after them."""


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How texts are split, and what goes with it."""

    patterns: tuple[str, ...]
    whole_first: bool = False  # a part that is a token by itself becomes that token, whatever its merges say
    adds_bos: bool = False  # a text begins with a BOS token unless the file says otherwise

    def expressions(self) -> list[str]:
        """Return the patterns, without characters that llama.cpp does not know yet."""
        return [_PROPERTY.sub(rf"[\g<0>&&[^{_NEWER}]]", pattern) for pattern in self.patterns]


_NEWER = (
    "\u0897\u1b4e-\u1b4f\u1b7f\u1c89-\u1c8a\u2427-\u2429\u31e4-\u31e5\ua7cb-\ua7cd\ua7da-\ua7dc"
    "\U000105c0-\U000105f3\U00010d40-\U00010d65\U00010d69-\U00010d85\U00010d8e-\U00010d8f"
    "\U00010ec2-\U00010ec4\U00010efc\U00011380-\U00011389\U0001138b\U0001138e\U00011390-\U000113b5"
    "\U000113b7-\U000113c0\U000113c2\U000113c5\U000113c7-\U000113ca\U000113cc-\U000113d5\U000113d7-\U000113d8"
    "\U000113e1-\U000113e2\U000116d0-\U000116e3\U00011bc0-\U00011be1\U00011bf0-\U00011bf9\U00011f5a"
    "\U00013460-\U000143fa\U00016100-\U00016139\U00016d40-\U00016d79\U00018cff\U0001cc00-\U0001ccf9"
    "\U0001cd00-\U0001ceb3\U0001e5d0-\U0001e5fa\U0001e5ff\U0001f8b2-\U0001f8bb\U0001f8c0-\U0001f8c1\U0001fa89"
    "\U0001fa8f\U0001fabe\U0001fac6\U0001fadc\U0001fadf\U0001fae9\U0001fbcb-\U0001fbef"
)
"""Characters since Unicode 16, which llama.cpp does not know: to it they are neither letters nor signs."""
_PROPERTY = re.compile(r"\\p\{[A-Z]\}")

_ENDING = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDING}|{_WORD}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_QWEN2 = rf"{_ENDING}|{_WORD}|\p{{N}}|{_MARKS}|{_SPACES}"
_WORD_WITH_MARKS, _SIGNS = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
_QWEN35 = rf"{_ENDING}|{_WORD_WITH_MARKS}|\p{{N}}|{_SIGNS}|{_SPACES}"
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)


def _cased(ending: str, digits: str) -> str:
    """Return an expression for words that begin in upper case and go on in lower case."""
    upper, lower = r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"  # outside of ASCII both are any letters
    word = rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ending}"
    return rf"{word}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_KINDS: Mapping[PreTokenizer, str] = {
    PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")): "default",
    PreTokenizer((_GPT2,)): "gpt-2 phi-2 gigachat a.x-4.0 mellum mpt olmo trillion granite-docling exaone4",
    PreTokenizer((r"\p{N}", _GPT2)): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    PreTokenizer((_LLAMA3,)): "dbrx smaug-bpe glm4 glm5 chatglm-bpe",
    PreTokenizer((_LLAMA3,), whole_first=True, adds_bos=True): (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"
    ),
    PreTokenizer((_QWEN2,)): "qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2",
    PreTokenizer((_QWEN35,)): "qwen35",
    PreTokenizer((r"\p{N}{1,3}", rf"{_ENDING}|{_WORD}|\p{{N}}+|{_MARKS}|{_SPACES}"), whole_first=True): "minicpm5",
    PreTokenizer((r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK3)): (
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4"
    ),
    PreTokenizer((_cased(f"(?:{_ENDING})?", r"\p{N}{1,3}"),)): "gpt-4o llama4 kanana2 talkie minimax-m2",
    PreTokenizer((_cased("", r"\p{N}"),), whole_first=True, adds_bos=True): "tekken",
    PreTokenizer((rf"{_ENDING}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)): "seed-coder",
    PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]&&[^\\s]]+", r"\p{N}")
    ): "deepseek-coder",
}
KNOWN = {name: kind for kind, names in _KINDS.items() for name in names.split()}
"""By ``tokenizer.ggml.pre`` of a file: those of models that the engine runs."""


def pre_tokenizer(name: str) -> PreTokenizer:
    """Return how texts are split by the name in a file; `UnsupportedModelError` for one that is not known here."""
    if name not in KNOWN:
        raise UnsupportedModelError(
            f"the engine cpu does not know how this model splits texts ({name}): try the engine llama.cpp"
        )
    return KNOWN[name]


_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gpt2": {"bos": 11, "eos": 11}, "llama": {"bos": 1, "eos": 2}, "gemma4": {},
}  # fmt: skip
"""The kinds of vocabularies that are read here: tokens that a file of the kind need not name."""


class FileVocabulary:
    """The tokens of a file, from its metadata.

    ``names`` has the name of each token, ``ids`` its id by name, ``kinds`` what it is (bits of `CONTROL` and the
    others). ``model`` is ``gpt2`` (merges of bytes), ``gemma4`` (merges of characters) or ``llama`` (pieces with
    scores). ``pre`` says how texts are split before their bytes are merged, else None. ``bos`` and ``eos`` stand
    before and after a text, None where there are none, and ``adds_bos`` and ``adds_eos`` say whether the file
    asks for them. ``end_ids`` are the tokens that end an answer. Raises `UnsupportedModelError` for a kind of
    vocabulary that the engine does not know, and `ModelError` for metadata that contradict themselves.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        model = self.model = str(metadata.get("tokenizer.ggml.model"))
        if model not in _DEFAULTS:
            raise UnsupportedModelError(
                f"the engine cpu does not read vocabularies of type {model}: try the engine llama.cpp"
            )
        self.pre = pre_tokenizer(self.text("tokenizer.ggml.pre") or "default") if model == "gpt2" else None
        for name, kind in _LISTS.items():
            found = metadata.get(f"tokenizer.ggml.{name}", [])
            if not isinstance(found, list) or not all(isinstance(one, kind) for one in found[:1]):
                raise _broken(f"tokenizer.ggml.{name} is not a list of the right type")
        named = metadata.get("tokenizer.ggml.tokens", [])
        self.names: list[str] = [name or f"[EMPTY_{token}]" for token, name in enumerate(named)]
        self.ids = dict(zip(self.names, range(len(self.names)), strict=True))
        if not self.names or len(self.ids) != len(self.names):
            raise _broken("it has no tokens" if not self.names else "two of its tokens have one name")
        self.kinds = self._kinds_of_types()
        self.bos, self.eos = (self.role_id(role, _DEFAULTS[model].get(role)) for role in ("bos", "eos"))
        adds_bos, adds_eos = (metadata.get(f"tokenizer.ggml.add_{role}_token") for role in ("bos", "eos"))
        adds_bos = True if model == "gemma4" else adds_bos  # whatever its file says
        usual = self.pre is None or self.pre.adds_bos
        self.adds_bos, self.adds_eos = bool(usual if adds_bos is None else adds_bos), bool(adds_eos)
        if (self.adds_bos and self.bos is None) or (self.adds_eos and self.eos is None):
            raise _broken("it asks for a token before or behind each text that it does not name")
        self.end_ids = frozenset(self._find_ends())

    def text(self, key: str) -> str | None:
        """Return a text of the metadata, None where there is none."""
        found = self.metadata.get(key)
        return found if isinstance(found, str) else None

    def scores(self) -> NDArray[np.float32]:
        """Return the scores of all tokens."""
        found = self.metadata.get("tokenizer.ggml.scores")
        scores = np.zeros(len(self.names), np.float32) if found is None else np.asarray(found, np.float32)
        if len(scores) < len(self.names):
            raise _broken("it has fewer scores than tokens")
        return scores[: len(self.names)]

    @cached_property
    def special(self) -> list[int]:
        """Tokens that their names in a text become, longest names first."""
        found = np.flatnonzero(self.kinds & SPECIAL).tolist()
        return sorted(found, key=lambda token: -len(self.names[token].encode(errors="replace")))

    @cached_property
    def takes_blanks(self) -> frozenset[int]:
        """Special tokens that take the blanks after them."""
        name = (self.text("general.name") or "").lower()
        if "phi-3" not in name and "phi3" not in name:
            return frozenset()
        return frozenset(token for token in self.special if self.names[token] not in _KEEPS_BLANKS)

    @property
    def adds_space(self) -> bool:
        """Whether a blank goes before a text."""
        return self.model == "llama" and bool(self.metadata.get("tokenizer.ggml.add_space_prefix", True))

    def _kinds_of_types(self) -> NDArray[np.uint8]:
        found = self.metadata.get("tokenizer.ggml.token_type")
        if found is None:
            return np.full(len(self.names), NORMAL, np.uint8)
        types = np.asarray(found, np.int64)[: len(self.names)]
        if len(types) < len(self.names):
            raise _broken("it has fewer types than tokens")
        return _KIND_OF_TYPE[np.where((types < 0) | (types >= len(_KIND_OF_TYPE)), 0, types)]

    def role_id(self, role: str, default: int | None = None) -> int | None:
        """Return the token that the metadata name for a role (``bos``, ``fim_pre``), else ``default``."""
        names = (f"{role}_token_id", *((f"{_OLD_KEYS[role]}_token_id",) if role in _OLD_KEYS else ()))
        given = [self.metadata.get(f"tokenizer.ggml.{name}") for name in names]
        if not all(token is None or type(token) is int for token in given):
            raise _broken(f"the id of its {role} token is no whole number")
        every = (*reversed(given), default)
        return next((token for token in every if token is not None and 0 <= token < len(self.names)), None)

    def _find_ends(self) -> Iterable[int]:
        """Return tokens that end an answer, and correct the kinds of tokens that are known by their names."""
        ends = self._find_roles()
        for token in np.flatnonzero(self.kinds & CONTROL).tolist():
            if "unused" in self.names[token]:
                self.kinds[token] |= UNUSED
        for token in self._named(_ENDS):
            ends.add(token)
            self.kinds[token] |= CONTROL
        self.kinds[self._named(MESSAGE_MARKS)] = USER_DEFINED
        ends |= {token for token in (self.eos, self.role_id("eot"), self.role_id("eom")) if token is not None}
        for first, second, name, kind in _NO_ENDS:
            if self._named(first) and self._named(second) and name in self.ids:
                ends.discard(self.ids[name])
                self.kinds[self.ids[name]] = kind
        return ends

    def _find_roles(self) -> set[int]:
        """Return tokens of `_ROLES` that end an answer, and mark those found by name as control tokens."""
        ends = set()
        for role, names in _ROLES.items():
            token = self.role_id(role)
            if token is None and (found := self._named(names)):
                token = min(found)
                self.kinds[token] |= CONTROL
            if token is not None and role in _ENDING_ROLES:
                ends.add(token)
        return ends

    def _named(self, names: Sequence[str]) -> list[int]:
        return [self.ids[name] for name in names if name in self.ids]


def _broken(why: str) -> ModelError:
    return ModelError(f"the file's vocabulary is damaged ({why}): get the file again, or convert the model anew")
