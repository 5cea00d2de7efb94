"""Names of peers, other engines' own ways to write: ``transformers:lookup:tokens=3,llama.cpp:ngram-mod``. Options
follow after colons; ``transformers:all``, ``llama.cpp:all`` and ``all`` stand for several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from draftwood.contracts import Target
from draftwood.engines.peer import Peer, PeerName
from draftwood.errors import UnknownNameError, UsageError
from draftwood.models.engine import TRANSFORMERS, choose, implied_engine
from draftwood.models.load import load as load_model
from draftwood.spelling import read_options

_NGRAM = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")

METHODS: Mapping[str, Mapping[str, Mapping[str, int | None]]] = {
    "transformers": {"": {}, "lookup": {"tokens": 10, "ngram": 2}, "assistant": {"assistant": None, "tokens": 20}},
    "llama.cpp": {method: {} for method in ("", *_NGRAM)},
}
"""Per engine its methods ("" is plain), each with its options and their defaults; None: the name of a model."""

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
"""Names that stand for several peers. An assistant is in none: it must be named."""


def peer_names(spec: str) -> list[PeerName]:
    """Return the peers that ``spec`` lists, groups expanded and each once, without loading anything. Raises
    `UnknownNameError` for an unknown name or option, `UsageError` for an option that is no number from 1 or given
    twice."""
    typed = [name.strip() for name in spec.split(",")]
    return [_parse(name) for name in dict.fromkeys(n for t in typed for n in GROUPS.get(t, (t,)))]


def load_peers(
    spec: str, model: Any, tokenizer: Any, model_name: str, threads: int | None,
    load: Callable[[str], tuple[Any, Any]] = load_model,
) -> list[Peer]:  # fmt: skip
    """Return the peers that ``spec`` lists; llama.cpp starts at its first answer, on ``threads`` threads (None:
    its own choice), with the GGUF file of ``model_name``; transformers' peers write with ``model``, and ``load``
    gives the model and tokenizer of an assistant. Raises as `peer_names`, what ``load`` raises, and `UsageError`
    if xllamacpp or a GGUF file is missing, or ``model`` or an assistant is another engine's."""
    peers: list[Peer] = []
    for name in peer_names(spec):
        if name.engine == "llama.cpp":
            from draftwood.engines.llama_cpp.peers import LlamaCppPeer

            peers.append(LlamaCppPeer(name, tokenizer, model_name, threads))
            continue
        if isinstance(model, Target):
            raise UsageError(
                f"the peer {name.name} needs a model of transformers, which does not run {model_name} here: "
                "leave the peer out, or take the engine transformers"
            )
        from draftwood.engines.transformers.peers import TransformersPeer

        assistant = None
        if name.method == "assistant":
            check_assistants([name])
            assistant = load(name.options["assistant"])
        peers.append(TransformersPeer(name, model, tokenizer, assistant))
    return peers


def check_assistants(names: Iterable[PeerName]) -> None:
    """Find the assistants of peers, without loading them. Raises what `draftwood.local.find` raises, and
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
        raise UnknownNameError("peer", name, [*(f"{engine}:{m}".rstrip(":") for m in methods), *GROUPS])
    given = parts if parts and "=" in parts[0] else parts[1:]  # ``assistant=x`` is method and option in one
    known = methods[method]
    chosen: dict[str, Any] = {key: default for key, default in known.items() if default is not None}
    for key, text in read_options(f"peer {name!r}", given, known).items():
        if known[key] is None:
            chosen[key] = text
        elif not text.isdecimal() or int(text) < 1:
            raise UsageError(f"option {key!r} of peer {name!r} must be a whole number from 1, not {text!r}")
        else:
            chosen[key] = int(text)
    for key in known:
        if not chosen.get(key):
            raise UsageError(f"peer {name!r} needs its option {key!r}: write {key}=NAME")
    return PeerName(name, engine, method, chosen)
