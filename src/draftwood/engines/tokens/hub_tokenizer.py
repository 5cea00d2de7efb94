"""What transformers makes of a folder's tokenizer.json: which class reads it, what that class replaces, which
tokens the other files name, and which chat templates there are.

Source: transformers 5.23 and 5.24, where ``models/auto/tokenization_auto.py`` chooses the class, and
``tokenization_utils_base.py`` and ``tokenization_utils_tokenizers.py`` add the tokens. Most classes take
tokenizer.json as it is. Some take its vocabulary and merges alone, and build the rest by settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.engines.files.hub_model import read_json
from draftwood.errors import ModelError, ModelNotFoundError, UnsupportedModelError

_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_END = "<|endoftext|>"
_OF_CODE = {
    "prefix_token": "\u2581<PRE>", "middle_token": "\u2581<MID>", "suffix_token": "\u2581<SUF>",
    "eot_token": "\u2581<EOT>", "fill_token": "<FILL_ME>",
}  # fmt: skip
_LLAMA = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
_QWEN = {"unk_token": _END, "bos_token": None, "eos_token": _END, "pad_token": _END}
_BUILT: Mapping[str, Mapping[str, str | None]] = {
    "LlamaTokenizer": _LLAMA,
    "CodeLlamaTokenizer": _LLAMA | _OF_CODE,
    "GemmaTokenizer": {
        "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    "Qwen2Tokenizer": _QWEN,
    "Qwen3_5Tokenizer": _QWEN,
    "GPT2Tokenizer": _QWEN | {"bos_token": _END, "pad_token": None},
    "GPTNeoXTokenizer": _QWEN | {"bos_token": _END, "pad_token": "<|padding|>"},
}  # fmt: skip
"""Classes that build most of the tokenizer themselves, with the special tokens that they have by default."""
_OTHERS = (
    "Albert Auto Bart Barthez Bartpho Basic Bert BertGeneration BertJapanese Bertweet BigBird BioGpt "
    "Blenderbot BlenderbotSmall ByT5 CLIP CTRL Camembert Canine Character Clvp CodeGen Cohere ConvBert Cpm "
    "CpmAnt DPRContextEncoder DPRQuestionEncoder DPRReader Deberta DebertaV2 Dia DistilBert Esm Esmc FNet FSMT "
    "FastSpeech2Conformer Flaubert Funnel GPTNeoXJapanese GPTSw3 Herbert LED Lasr LayoutLMv2 LayoutLMv3 "
    "LayoutXLM Luke Lxmert M2M100 MBart MBart50 MLuke MPNet Marian MarkupLM Mecab Mgpstr MobileBert Mvp MyT5 "
    "Nllb Nougat OpenAIGPT PLBart Parakeet Pegasus Perceiver Phobert Pop2Piano ProphetNet Rag Reformer RemBert "
    "RoCBert RoFormer Roberta SeamlessM4T Siglip Siglip2 Speech2Text SpeechT5 Splinter SqueezeBert T5 Tapas "
    "Tipsv2 Udop VideoPrism Vits Wav2Vec2CTC Wav2Vec2PhonemeCTC Whisper Wordpiece XGLM XLM XLMRoberta XLNet"
)
"""Other classes of transformers that do not take tokenizer.json as it is, each without the word Tokenizer."""
_PLAIN = "TokenizersBackend"
"""The class that takes tokenizer.json as it is; names that transformers does not know stand for it, too."""
_ALIASES = ("PreTrainedTokenizer", "PythonBackend", "BloomTokenizer")
_OF_TYPES = {
    "Qwen2Tokenizer": "qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe",
    "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text",
    "GemmaTokenizer": "gemma gemma2 gemma3_text",
    _PLAIN: (
        "mistral mixtral ministral ministral3 mistral3 phi3 granite granitemoe granitemoehybrid granitemoeshared "
        "olmo2 olmo3 glm4_moe_lite ernie4_5 ernie4_5_moe"
    ),
}
_USUAL = {kind: name for name, kinds in _OF_TYPES.items() for kind in kinds.split()}
"""By ``model_type``: its class, unless the folder may name another; types that are not here have none."""
_DISTRUSTED = ("qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "ernie4_5", "ernie4_5_moe", "phi3")
"""Types whose folders often name a wrong class, so that none of them is believed."""

_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
_SPACES = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "Qwen2Tokenizer": rf"{_WORD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+{_SPACES}",
    "Qwen3_5Tokenizer": rf"{_WORD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+{_SPACES}",
}


@dataclass(frozen=True, slots=True)
class HubParts:
    """What transformers makes of a folder.

    ``core`` is the tokenizer, of the package tokenizers. ``named`` has its special tokens by role, as chat
    templates see them. ``beyond`` are the ids of tokens that its class has by default and the folder lacks (None
    where it names another in their place): the model may have no row for them.
    """

    core: Any
    named: Mapping[str, str]
    templates: Mapping[str, str]
    beyond: frozenset[int | None]


def read_parts(folder: Path) -> HubParts:
    """Read the files of a folder that make its tokenizer.

    Raises `ModelNotFoundError` where there is no tokenizer.json, `ModelError` where a file is damaged, and
    `UnsupportedModelError` for a class or a setting that transformers alone knows.
    """
    from tokenizers import Tokenizer

    place = folder / "tokenizer.json"
    if not place.is_file():
        raise ModelNotFoundError(f"{folder} has no tokenizer.json, which this engine reads: take transformers")
    try:
        raw = place.read_bytes()
        loaded = Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises Exception itself
        raise ModelError(f"{place} cannot be read ({error}): get it again") from error
    said = _read(folder, "tokenizer_config.json")
    kind = _class(_read(folder, "config.json"), said, b'"ByteLevel"' in raw)
    is_bpe = type(loaded.model).__name__ == "BPE" and not loaded.model.continuing_subword_prefix
    odd = [name for name in ("fix_mistral_regex", "fast_tokenizer_files") if said.get(name)]
    if kind != _PLAIN and not (kind in _BUILT and is_bpe):
        odd.append(f"the class {kind}")
    if odd:
        raise UnsupportedModelError(
            f"the engine cpu does not read tokenizers with {odd[0]}, as in {folder}: take transformers"
        )
    try:
        return _parts(folder, said, kind, loaded)
    except ModelError:
        raise
    except Exception as error:  # tokens of a wrong type, for which the library raises Exception itself
        raise ModelError(f"{folder} has tokens or settings of a wrong type ({error}): get it again") from error


def _read(folder: Path, name: str) -> dict[str, Any]:
    return read_json(folder / name) if (folder / name).is_file() else {}


def _class(config: Mapping[str, Any], said: Mapping[str, Any], has_byte_level: bool) -> str:
    """Return the name of the class, by the settings of the model and of the tokenizer."""
    kind, auto_map = str(config.get("model_type")), said.get("auto_map")
    usual = _USUAL.get(kind)
    named = str(said.get("tokenizer_class") or config.get("tokenizer_class") or usual).removesuffix("Fast")
    is_known = named in (*_BUILT, *_ALIASES) or named.removesuffix("Tokenizer") in _OTHERS.split()
    has_program = auto_map.get("AutoTokenizer") if isinstance(auto_map, Mapping) else auto_map
    if has_program and not (usual or is_known):
        return f"{named} (auto_map)"
    believed = has_program or not (usual == _PLAIN or kind in _DISTRUSTED)
    if usual and not believed:
        return usual
    if has_byte_level and named == "LlamaTokenizer" and not has_program:
        return _PLAIN  # what this class builds could not read such a vocabulary
    return named if is_known and named not in _ALIASES else _PLAIN


def _parts(folder: Path, said: Mapping[str, Any], kind: str, loaded: Any) -> HubParts:
    from tokenizers import AddedToken
    from tokenizers.processors import TemplateProcessing

    defaults = _BUILT.get(kind, {})
    found = _Tokens(folder, said, defaults, loaded)
    listed = {str(one) for one in found.listed.values()}
    lacking = [name for name in defaults.values() if name and loaded.token_to_id(name) is None]
    core = loaded if kind == _PLAIN else _built(kind, said, loaded, found.named.get("unk_token"))
    core.no_truncation()
    core.no_padding()
    core.encode_special_tokens = bool(said.get("split_special_tokens"))
    found.add_to(core)
    named = {role: str(token) for role, token in found.named.items()}
    if kind == "Qwen2Tokenizer":
        every = dict.fromkeys([*named.values(), *map(str, found.extra)])
        core.add_tokens([AddedToken(name, special=True) for name in every])
    if kind == "CodeLlamaTokenizer" and (bos := named.get("bos_token")):
        core.post_processor = TemplateProcessing(single=[bos, "$A"], special_tokens=[(bos, core.token_to_id(bos))])
    beyond = frozenset(core.token_to_id(name) for name in lacking if name not in listed)
    return HubParts(core, named, _templates(folder, said.get("chat_template")), beyond)


class _Tokens:
    """The tokens that a folder names: ``named`` by role, ``extra`` without one, ``listed`` by their ids."""

    def __init__(
        self, folder: Path, said: Mapping[str, Any], defaults: Mapping[str, str | None], loaded: Any
    ) -> None:
        self._loaded = loaded
        given = {
            name: _token(one) if name in _ROLES or (isinstance(one, dict) and "__type" in one) else one
            for name, one in said.items()
        }
        own = {name: given.pop(name) for name in said if _is_own(name, said[name])}
        extra = given.pop("extra_special_tokens", None)
        if not extra and "additional_special_tokens" in given:
            extra = given.pop("additional_special_tokens")
        if isinstance(extra, Mapping):
            own |= extra
            extra = None
        self.listed: dict[int, Any] = {}
        if "added_tokens_decoder" in given:
            self.listed = {int(token): _token(one) for token, one in given["added_tokens_decoder"].items()}
        else:
            others = _read(folder, "special_tokens_map.json")
            more = others.pop("extra_special_tokens", None) or []
            if isinstance(more, Mapping):
                own |= more
                extra = None
            elif more:
                extra = [*(extra or ()), *more]
            given |= {name: _token(one, special=True) for name, one in others.items()}
            self._read_listed(folder, {str(given[role]) for role in _ROLES if given.get(role)}, extra or ())
        usual = [one for role, one in defaults.items() if role in _OF_CODE]
        extra = given.get("additional_special_tokens", usual) if extra is None else extra
        padding = loaded.padding
        roles = {**dict.fromkeys(_ROLES), **({"pad_token": padding["pad_token"]} if padding else {}), **defaults}
        roles |= {name: one for name, one in given.items() if name in _ROLES or _is_own(name, one)}
        self.named = {role: one for role, one in (roles | own).items() if one is not None}
        self.extra = [_token(one, special=True) for one in extra]

    def _read_listed(self, folder: Path, roles: set[str], extra: Iterable[Any]) -> None:
        """Read the tokens of added_tokens.json and of tokenizer.json."""
        from tokenizers import AddedToken

        special = roles | {str(one) for one in extra}
        for name, token in _read(folder, "added_tokens.json").items():
            is_special = name in special
            self.listed[token] = AddedToken(name, normalized=not is_special, special=is_special)
        self.listed |= self._loaded.get_added_tokens_decoder()

    def add_to(self, core: Any) -> None:
        """Add the tokens to a tokenizer in the order of transformers, on which new ids depend."""
        from tokenizers import AddedToken

        adding = [self.listed[token] for token in sorted(self.listed)]
        known = {str(one) for one in (*core.get_added_tokens_decoder().values(), *adding)}
        for one in (*self.named.values(), *self.extra):
            if str(one) not in known and one not in adding:
                adding.append(one)
        adding = [AddedToken(one, special=True) if isinstance(one, str) else one for one in adding]
        roles = {str(one) for one in self.named.values()}
        for one in adding:
            one.special = one.special or str(one) in roles
        core.add_tokens(adding)


def _is_own(name: str, one: Any) -> bool:
    """Whether a setting names a special token of a role that only this model has."""
    return name.endswith("_token") and name not in _ROLES and (isinstance(one, str) or hasattr(one, "content"))


def _token(said: Any, **properties: Any) -> Any:
    """Return a token with the properties that a file gives it; other values as they are."""
    from tokenizers import AddedToken

    if not isinstance(said, Mapping):
        return said
    return AddedToken(**{name: one for name, one in said.items() if name != "__type"} | properties)


def _built(kind: str, said: Mapping[str, Any], loaded: Any, unknown: Any) -> Any:
    """Return a tokenizer with the vocabulary and merges of another, and everything else as a class builds it."""
    from tokenizers import Tokenizer

    in_pieces = kind not in _SPLITS and not kind.startswith("GPT")
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    rest: dict[str, Any] = {"version": "1.0", "added_tokens": [], "post_processor": None, "model": empty}
    core = Tokenizer.from_str(json.dumps(rest | _steps(kind, said)))
    flags = {
        "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False,
        "fuse_unk": in_pieces, "byte_fallback": in_pieces,
        "unk_token": str(unknown) if kind in ("GemmaTokenizer", "CodeLlamaTokenizer") and unknown else None,
    }  # fmt: skip
    model = loaded.model
    for name, value in flags.items():
        setattr(model, name, value)
    core.model = model
    if kind not in ("GPTNeoXTokenizer", "CodeLlamaTokenizer") and loaded.post_processor is not None:
        core.post_processor = loaded.post_processor
    return core


def _steps(kind: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a class does before and after the merges, as tokenizer.json writes it."""
    prefix = said.get("add_prefix_space")
    level = {"type": "ByteLevel", "add_prefix_space": bool(prefix), "trim_offsets": True, "use_regex": True}
    back: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]  # fmt: skip
    if kind == "GemmaTokenizer":
        return {
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            "pre_tokenizer": {
                "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False
            },
            "decoder": {"type": "Sequence", "decoders": back},
        }  # fmt: skip
    if kind.endswith("LlamaTokenizer"):
        is_legacy = kind == "LlamaTokenizer" and said.get("legacy")
        has_prefix = prefix is None or bool(prefix)
        scheme = ("always" if is_legacy else "first") if has_prefix else "never"
        if has_prefix or kind == "CodeLlamaTokenizer":
            back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        return {
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False
            },
            "decoder": {"type": "Sequence", "decoders": back},
        }  # fmt: skip
    words: dict[str, Any] = level
    if kind in _SPLITS:
        split = {"type": "Split", "pattern": {"Regex": _SPLITS[kind]}, "behavior": "Isolated", "invert": False}
        words = {"type": "Sequence", "pretokenizers": [split, level | {"use_regex": False}]}
    form = None if kind == "GPT2Tokenizer" else {"type": "NFC"}
    return {"normalizer": form, "pre_tokenizer": words, "decoder": level}


def _templates(folder: Path, said: Any) -> Mapping[str, str]:
    """Return the chat templates by name: from files of their own, else one or several from the settings."""
    places = {"default": folder / "chat_template.jinja"}
    places |= {one.stem: one for one in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    found: dict[str, str] = {}
    for name, place in places.items():
        try:
            found |= {name: place.read_text(encoding="utf-8")} if place.is_file() else {}
        except (OSError, ValueError) as error:
            raise ModelError(f"{place} cannot be read ({error}): get it again") from error
    if isinstance(said, list):
        said = {str(one.get("name")): one.get("template") for one in said if isinstance(one, dict)}
    every = said if isinstance(said, dict) else {"default": said}
    return found or {name: one for name, one in every.items() if isinstance(one, str)}
