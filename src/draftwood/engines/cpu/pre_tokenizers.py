"""How texts are split before their bytes are merged: regular expressions by the names that GGUF files give them.

Each expression splits what the one before it has left. They match what llama.cpp's match, which differs in places
from what a model was trained with: there a range of characters has no blanks, say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from draftwood.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How texts are split, and what goes with it.

    Attributes
    ----------
    patterns
        Regular expressions; what lies between their matches is kept, too.
    is_bytes
        Whether tokens are made of bytes; else of characters, blanks as U+2581, and of bytes only where there is no
        token for a character.
    whole_first
        Whether a part that is a token by itself becomes that token, whatever its merges say.
    adds_bos, needs_bos, has_bos
        Whether a text begins with a BOS token unless the file says otherwise, or even then, and whether there is
        one where the file names none.
    whole_newlines
        Whether newlines that are a token together become that token.
    """

    patterns: tuple[str, ...]
    is_bytes: bool = True
    whole_first: bool = False
    adds_bos: bool = False
    needs_bos: bool = False
    has_bos: bool = True
    whole_newlines: bool = False

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
_ASCII = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_SYMBOLS = r"[\p{P}\p{S}]"
_NO_SYMBOL = r"[^\r\n\p{L}\p{P}\p{S}]"
_EAST_ASIAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDING}|{_WORD}|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_QWEN2 = rf"{_ENDING}|{_WORD}|\p{{N}}|{_MARKS}|{_SPACES}"
_QWEN35 = (
    rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_DEEPSEEK3 = rf"{_ASCII}[A-Za-z]+|{_NO_SYMBOL}?[\p{{L}}\p{{M}}]+| ?{_SYMBOLS}+[\r\n]*|{_SPACES}"


def _cased(upper: str, lower: str, ending: str, digits: str) -> str:
    """Return an expression for words that begin in upper case and go on in lower case."""
    word = rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ending}"
    return rf"{word}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_UPPER, _LOWER = r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"  # outside of ASCII both are any letters
_GPT4O = _cased(_UPPER, _LOWER, f"(?:{_ENDING})?", r"\p{N}{1,3}")
_ANY_CASE = r"[\p{L}\p{M}]"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_DEEPSEEK_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
_DEEPSEEK_HAN = "[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]&&[^\\s]]+"

_SMOLLM = PreTokenizer((r"\p{N}", _GPT2))
_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_PLAIN_QWEN2 = PreTokenizer((_QWEN2,))
_WITH_BOS = PreTokenizer((_LLAMA3,), whole_first=True, adds_bos=True)
_O200K = PreTokenizer((_GPT4O,))
_V3 = PreTokenizer((r"\p{N}{1,3}", _EAST_ASIAN, _DEEPSEEK3))
_DIGITS = r"[^\p{N}]*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
"""Numbers, three digits at a time from the right; the first ones go with what is before them."""
_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_AYA = PreTokenizer((_DIGITS, _cased(_ANY_CASE, _ANY_CASE, f"(?:{_ENDING})?", r"\p{N}{1,3}")))
_BAILING = PreTokenizer(
    (rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}|{_MARKS}|\s*[\r\n]|\s+(?!\S)|\s+",)
)
_LINES = PreTokenizer((r"[^\n]+|\n+",), is_bytes=False, adds_bos=True, needs_bos=True, whole_newlines=True)
_RUNS = "|".join([rf"\s{{{1 << bit}}}(?!\S)" for bit in range(9, 1, -1)])

_KNOWN: Mapping[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "falcon": PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "deepseek-llm": PreTokenizer(
        (r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+",
         "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001-\u3002]+",
         r"\s+\z", _DEEPSEEK_HAN, r"\p{N}+")
    ),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_HAN, r"\p{N}")),
    "youtu": PreTokenizer(
        ("[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
         f"\ufe30-\ufe4f]+|[\u3105-\u312f]+|{_EAST_ASIAN}",
         _cased(_ANY_CASE, _ANY_CASE, f"(?:{_ENDING})?", r"\p{N}")), whole_first=True
    ),
    "spark2_5": PreTokenizer(
        (r"\p{N}{1,3}", _EAST_ASIAN,
         rf"{_ASCII}[A-Za-z]+|{_NO_SYMBOL}?[\p{{L}}\p{{M}}]+| ?{_SYMBOLS}+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")
    ),
    "jais-2": PreTokenizer(
        (rf"{_ENDING}|{_WORD}|\p{{N}}{{1,3}}|{_MARKS}|\s*[\r\n]+|{_RUNS}|\s{{1,2}}(?!\S)|\s",)
    ),
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_BLOOM,))),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    "tekken": PreTokenizer((_cased(_UPPER, _LOWER, "", r"\p{N}"),), whole_first=True, adds_bos=True),
    "superbpe": PreTokenizer((r"\p{N}+", r"(?=([0-9]{3})+(?![0-9]))")),
    "seed-coder": PreTokenizer((rf"{_ENDING}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)),
    "ufakzeka": PreTokenizer((rf"{_WORD}|\p{{N}}|{_MARKS}|{_SPACES}",)),
    "laguna": PreTokenizer((r"[^\n]+|\n+", _QWEN2)),
    "exaone-moe": PreTokenizer(
        (rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",)
    ),
    "minicpm5": PreTokenizer(
        (r"\p{N}{1,3}", rf"{_ENDING}|{_WORD}|\p{{N}}+|{_MARKS}|{_SPACES}"), whole_first=True
    ),
    "glm4": PreTokenizer((_LLAMA3,), has_bos=False), "chatglm-bpe": PreTokenizer((_LLAMA3,), has_bos=False),
    "sarvam-moe": PreTokenizer((r"[^\n]+|\n+",), is_bytes=False),
    "gemma4": _LINES,
    "afmoe": PreTokenizer((_DIGITS, _ASIAN, _DEEPSEEK3)),
    "qwen35": PreTokenizer((_QWEN35,)),
    **dict.fromkeys(("dbrx", "smaug-bpe"), PreTokenizer((_LLAMA3,))),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), _WITH_BOS
    ),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _V3),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"), _SMOLLM
    ),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "mpt", "olmo", "jais", "trillion", "granite-docling",
         "exaone4"), _PLAIN_GPT2
    ),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
        _PLAIN_QWEN2,
    ),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _O200K),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _AYA),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
}  # fmt: skip


def pre_tokenizer(name: str) -> PreTokenizer:
    """Return how texts are split by the name in a file; `UnsupportedModelError` for one that is not known here."""
    if name not in _KNOWN:
        raise UnsupportedModelError(
            f"the engine cpu does not know how this model splits texts ({name}): try the engine llama.cpp"
        )
    return _KNOWN[name]
