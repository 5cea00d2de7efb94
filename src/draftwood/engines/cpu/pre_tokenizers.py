"""How texts are split before their bytes are merged: regular expressions by the names that GGUF files give them.

Each expression splits the parts that the one before it made; text between matches is a part, too. They split as
llama.cpp does, which differs in places from how a model was trained.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from draftwood.errors import UnsupportedModelError


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


def _cased(ending: str, digits: str) -> str:
    """Return an expression for words that begin in upper case and go on in lower case."""
    upper, lower = r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"  # outside of ASCII both are any letters
    word = rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ending}"
    return rf"{word}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_KINDS: Mapping[PreTokenizer, str] = {
    PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")): "default",
    PreTokenizer((_GPT2,)): "gpt-2 phi-2 gigachat a.x-4.0 mellum mpt olmo trillion granite-docling exaone4",
    PreTokenizer((r"\p{N}", _GPT2)): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    PreTokenizer((_LLAMA3,)): "dbrx smaug-bpe",
    PreTokenizer((_LLAMA3,), whole_first=True, adds_bos=True): (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"
    ),
    PreTokenizer((_QWEN2,)): "qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2",
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
