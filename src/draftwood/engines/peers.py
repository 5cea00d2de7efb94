"""Names of peers, other engines' own ways to write: ``transformers:lookup:tokens=3,llama.cpp:ngram-mod``. Options
follow after colons; ``transformers:all``, ``llama.cpp:all`` and ``all`` stand for several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from draftwood.engines.peer import Peer, PeerName
from draftwood.errors import UnknownNameError, UsageError
from draftwood.models.engine import TRANSFORMERS, choose, implied_engine
from draftwood.models.load import load as load_model
from draftwood.spelling import read_options

_NGRAM = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")

METHODS: Mapping[str, Mapping[str, Mapping[str, int | None]]] = {
    "transformers": {
        "": {},
        "lookup": {"tokens": 10, "ngram": 2},
        "assistant": {"assistant": None, "tokens": 20},
        "early-exit": {"early-exit": None},
    },
    "llama.cpp": {method: {} for method in ("", *_NGRAM)},
}
"""Per engine its methods ("" is plain), each with its options and their defaults (None: must be given)."""

TEXTS = frozenset({"assistant"})
"""Options whose value is a text; the others' are numbers."""

Load = Callable[[str], tuple[Any, Any]]  # a model's name -> the model and its tokenizer

LOOKUP_SETTINGS = ("transformers:lookup:tokens=3", "transformers:lookup", "transformers:lookup:ngram=3")
"""transformers' prompt lookup with its defaults, with shorter drafts and with longer matches; comparisons take the
best of the three."""

_TRANSFORMERS = ("transformers", *LOOKUP_SETTINGS)
_LLAMA_CPP = ("llama.cpp", *(f"llama.cpp:{method}" for method in _NGRAM))

GROUPS: Mapping[str, tuple[str, ...]] = {
    "transformers:all": _TRANSFORMERS,
    "llama.cpp:all": _LLAMA_CPP,
    "all": (*_TRANSFORMERS, *_LLAMA_CPP),
}
"""Names that stand for several peers. Early exit is in none: it needs a model that was trained for it; nor is an
assistant, which must be named."""


def peer_names(spec: str) -> list[PeerName]:
    """Return the peers that ``spec`` lists, groups expanded and each once, without loading anything. Raises
    `UnknownNameError` for an unknown name or option, `UsageError` for an option that is no number from 1 or given
    twice."""
    typed = [name.strip() for name in spec.split(",")]
    return [_parse(name) for name in dict.fromkeys(n for t in typed for n in GROUPS.get(t, (t,)))]


def load_peers(
    spec: str, model: Any, tokenizer: Any, model_name: str, threads: int | None, load: Load = load_model
) -> list[Peer]:
    """Return the peers that ``spec`` lists; llama.cpp starts at its first answer, on ``threads`` threads (None:
    its own choice), with the GGUF file of ``model_name``; transformers' peers write with ``model``, and ``load``
    finds the models of their assistants. Raises as `peer_names`, what ``load`` raises, and `UsageError` if early
    exit is behind the last layer, xllamacpp or a GGUF file is missing, or ``model`` or an assistant is another
    engine's."""
    peers: list[Peer] = []
    for name in peer_names(spec):
        if name.engine == "transformers":
            if hasattr(model, "capabilities"):
                raise UsageError(
                    f"the peer {name.name} needs a model of transformers, which does not run {model_name} here: "
                    "leave the peer out, or take the engine transformers"
                )
            from draftwood.engines.transformers.peers import TransformersPeer

            assistant = None
            if name.method == "assistant":
                from draftwood.engines.transformers.peers import Assistant

                check_assistants([name])
                drafting = load(name.options["assistant"])
                assistant = Assistant(name.name, model, tokenizer, *drafting, name.options["tokens"])
            peers.append(TransformersPeer(name, model, assistant))
        else:
            from draftwood.engines.llama_cpp.peers import LlamaCppPeer

            peers.append(LlamaCppPeer(name, tokenizer, model_name, threads))
    return peers


def check_assistants(names: Iterable[PeerName]) -> None:
    """Find the assistants of peers, without loading them. Raises what `draftwood.models.find` raises, and
    `UsageError` for a GGUF file."""
    for name in names:
        given = name.options.get("assistant")
        if given is not None and choose(given, implied_engine(given, "float32", None))[0] != TRANSFORMERS:
            raise UsageError(
                f"the peer {name.name} needs an assistant of transformers, and {given} is a GGUF file: name "
                f"another model, or compare with the drafter draft-model:model={given}"
            )


def _parse(name: str) -> PeerName:
    engine, *parts = (part.strip() for part in name.split(":"))
    if engine not in METHODS:
        raise UnknownNameError("peer", name, [*METHODS, *GROUPS])
    methods = METHODS[engine]
    method = parts[0].partition("=")[0].strip() if parts else ""
    if method not in methods or parts == [""]:
        known = [*(f"{engine}:{m}".rstrip(":") for m in methods), *GROUPS]
        raise UnknownNameError("peer", name, known)
    given = parts if parts and "=" in parts[0] else parts[1:]  # ``early-exit=4`` is method and option in one
    return PeerName(name, engine, method, MappingProxyType(_options(name, given, methods[method])))


def _options(name: str, given: Sequence[str], known: Mapping[str, int | None]) -> dict[str, Any]:
    chosen: dict[str, Any] = {key: default for key, default in known.items() if default is not None}
    for key, text in read_options(f"peer {name!r}", given, known).items():
        if key in TEXTS and text:
            chosen[key] = text
            continue
        if key in TEXTS:
            raise UsageError(f"option {key!r} of peer {name!r} is empty: write {key}=NAME")
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"option {key!r} of peer {name!r} must be a whole number from 1, not {text!r}")
        chosen[key] = int(text)
    if missing := [key for key in known if key not in chosen]:
        example = "NAME" if missing[0] in TEXTS else "4, for example"
        raise UsageError(f"peer {name!r} needs its option {missing[0]!r}: write {missing[0]}={example}")
    return chosen
