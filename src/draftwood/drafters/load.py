"""Makes drafters from their names: ``ngram+lookup:max_ngram=3:length=10``.

A value in double quotes may hold the characters that separate names and options:
``draft-model:model="C:/my+model.gguf":length=8``.

Other packages add drafters by entry points of the group ``draftwood.drafters``: the name, and a class (or
function) that makes the drafter from keyword arguments annotated int, float, bool or str, each optionally ``|
None``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from draftwood.contracts import Drafter, Needs
from draftwood.errors import DrafterError, DraftwoodError, UnknownNameError, UsageError
from draftwood.spelling import SCALARS, Imported, arguments, kinds, split, translated

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger("draftwood")

DRAFTERS: MutableMapping[str, Callable[..., Drafter]] = Imported(
    {
        "ngram": "draftwood.drafters.ngram.drafter:NgramDrafter",
        "lookup": "draftwood.drafters.lookup.drafter:LookupDrafter",
        "corpus": "draftwood.drafters.corpus.drafter:CorpusDrafter",
        "memory": "draftwood.drafters.memory.drafter:MemoryDrafter",
        "ngram-cache": "draftwood.drafters.llama_cpp.ngram_cache:NgramCacheDrafter",
        "ngram-simple": "draftwood.drafters.llama_cpp.copying:NgramSimpleDrafter",
        "ngram-map-k": "draftwood.drafters.llama_cpp.copying:NgramMapKDrafter",
        "ngram-map-k4v": "draftwood.drafters.llama_cpp.copying:NgramMapK4vDrafter",
        "ngram-mod": "draftwood.drafters.llama_cpp.ngram_mod:NgramModDrafter",
        "prediction": "draftwood.drafters.prediction.drafter:PredictionDrafter",
        "parrot": "draftwood.drafters.parrot.drafter:ParrotDrafter",
        "jacobi": "draftwood.drafters.jacobi.drafter:JacobiDrafter",
        "logits-extend": "draftwood.drafters.logits_extend.drafter:LogitsExtendDrafter",
        "lookahead": "draftwood.drafters.lookahead.drafter:LookaheadDrafter",
        "recycling": "draftwood.drafters.recycling.drafter:RecyclingDrafter",
        "draft-model": "draftwood.drafters.draft_model.drafter:DraftModelDrafter",
        "early-exit": "draftwood.drafters.draft_model.drafter:EarlyExitDrafter",
        "quantized-self": "draftwood.drafters.draft_model.drafter:QuantizedSelfDrafter",
        "head": "draftwood.drafters.head.drafter:HeadDrafter",
        "mtp": "draftwood.drafters.head.drafter:MtpDrafter",
    }
)
"""The drafters of this package; a plug-in cannot take their names."""

REPLACED: Mapping[str, str] = {"suffix": "ngram"}
"""Drafters that are gone, and which one their names stand for until the next release."""

SETS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "default": ("ngram", "head:optional=true", "mtp:optional=true"),
    "copy-and-recycle": ("ngram", "logits-extend", "recycling"),
}  # names that stand for sets of drafters

GROUP = "draftwood.drafters"


def load(spec: str | Drafter | Iterable[str | Drafter]) -> tuple[Drafter, ...]:
    """Return a set of drafters from names joined by ``+`` with options, from drafters, or from several of
    these.

    Raises `UnknownNameError` for a drafter or option that does not exist; `UsageError` for a value of the wrong
    type or out of range, a quote that is not closed, a drafter named twice, and ``none`` together with others;
    `DrafterError` for a plug-in or object that is no drafter.
    """
    parts = [spec] if isinstance(spec, str) or not isinstance(spec, Iterable) else list(spec)
    items = [item for part in parts if isinstance(part, str) for item in split(part, "+")]
    if "none" in items and (len(items) > 1 or len(parts) > 1):
        raise UsageError("'none' is plain decoding and cannot be combined with drafters")
    found: list[tuple[Drafter, bool]] = []  # with whether it was given as text
    for part in parts:
        as_text = isinstance(part, str)
        for drafter in _named(part) if isinstance(part, str) else [_checked(part, f"drafter {part!r:.80}")]:
            if any(_alike(drafter, other, bound=not (as_text and text)) for other, text in found):
                raise UsageError(f"drafter {drafter.name!r} is named twice with the same options")
            found.append((drafter, as_text))
    return tuple(drafter for drafter, _ in found)


def load_inner(text: str) -> tuple[Drafter, ...]:
    """Return the drafters that an option of a drafter names, in which ``/`` stands for ``+`` and ``;`` for ``:``.

    As in ``ngram/recycling`` and ``draft-model;model=NAME;length=8``; in double quotes all of them stand for
    themselves. Empty text is no drafter. Raises what `load` raises.
    """
    return load(translated(text, "/;", "+:")) if text else ()


def _alike(one: Any, other: Any, *, bound: bool) -> bool:
    """Whether two have the same options and, if ``bound``, the same texts and objects."""
    if type(one) is not type(other) or repr(one) != repr(other):
        return False
    names = [f.name for f in fields(one) if f.init and not f.repr] if bound and is_dataclass(one) else []
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all(a is b or (isinstance(a, tuple) and a == b) for a, b in pairs)


def arms(spec: str) -> list[tuple[str, tuple[Drafter, ...]]]:
    """Return the sets that ``,`` separates, each as typed and with its drafters. Raises what `load` raises."""
    return [(label, load(label)) for label in split(spec, ",")]


def known() -> dict[str, str]:
    """Return every name that `load` accepts, with a one-line description, for help texts."""
    lines = {name: f"a set: {'+'.join(members)}" for name, members in SETS.items()} | {"none": "plain decoding"}
    lines |= {name: _first_line(make) for name, make in DRAFTERS.items()}
    for name, points in _plugins().items():
        try:
            lines[name] = _first_line(_plugin(name, points))
        except DrafterError as error:
            lines[name] = str(error)
    return lines


def _named(part: str) -> list[Drafter]:
    if len(split(part, ",")) > 1:
        raise UsageError(f"one set of drafters is wanted here, and ',' lists several: {part!r}")
    drafters: list[Drafter] = []
    for item in split(part, "+"):
        name, *options = split(item, ":")
        if not name:
            raise UsageError(f"a drafter's name is missing in {part!r}; known: {', '.join(_names())}")
        if name in SETS and options:
            raise UsageError(f"{name!r} takes no options; write them after the drafter that they are for")
        if name in REPLACED:
            log.warning("drafter %r is gone: %r, which is right more often, takes its place", name, REPLACED[name])
            name = REPLACED[name]
        for before, option in pairwise(options):
            if "=" in before and "=" not in option:
                raise UsageError(
                    f"options of drafter {name!r} are written key=value, not {option!r}; a value with ':' in it "
                    f'needs double quotes: {before.partition("=")[0]}="..."'
                )
        members = [split(member, ":") for member in SETS[name]] if name in SETS else [[name, *options]]
        drafters += [_make(member, settings) for member, *settings in members]
    return drafters


def _make(name: str, options: list[str]) -> Drafter:
    if name in DRAFTERS:
        make = DRAFTERS[name]
        return make(**arguments("drafter", name, make, options))
    plugins = _plugins()
    if name not in plugins:
        raise UnknownNameError("drafter", name, _names())
    make, what = _plugin(name, plugins[name]), _title(name, plugins[name])
    given = arguments("drafter", name, make, options)
    try:
        drafter = make(**given)
    except DraftwoodError:
        raise
    except OSError as error:
        raise UsageError(f"{error.filename or what} cannot be read ({error.strerror}): check its name") from error
    except Exception as error:
        raise DrafterError(f"{what} failed to make its drafter: {error!r}") from error
    _checked(drafter, what)
    if drafter.name != name:
        raise DrafterError(f"{what}: its drafter's name is {drafter.name!r}; it must equal the entry point's")
    return drafter


def _plugins() -> dict[str, list[EntryPoint]]:
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in {*DRAFTERS, *SETS}:
            found.setdefault(point.name, []).append(point)
    return found


def _names() -> list[str]:
    return [*SETS, *DRAFTERS, *_plugins()]


def _title(name: str, points: list[EntryPoint]) -> str:
    package = points[0].dist.name if points[0].dist else points[0].value
    return f"drafter plug-in {name!r} of {package}"


def _plugin(name: str, points: list[EntryPoint]) -> Callable[..., Drafter]:
    """Import a plug-in and check its signature."""
    what = _title(name, points)
    if len({point.value for point in points}) > 1:
        values = ", ".join(sorted(point.value for point in points))
        raise DrafterError(f"{what}: several plug-ins have this name ({values}); uninstall all but one")
    try:
        make: Callable[..., Drafter] = points[0].load()
        parameters = inspect.signature(make, eval_str=True).parameters.values()
    except Exception as error:
        raise DrafterError(f"{what} cannot be imported: {error!r}") from error
    for p in parameters:
        allowed = kinds(p.annotation)
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) or len(set(allowed) - {NoneType}) != 1:
            raise DrafterError(f"{what}: argument {p.name!r} must be a keyword of one type")
        if not set(allowed) <= SCALARS:
            raise DrafterError(f"{what}: argument {p.name!r} must be annotated int, float, bool or str")
    return make


def _checked(drafter: Any, what: str) -> Drafter:
    """Check what a drafter declares, without opening it."""
    if isinstance(drafter, type):
        raise DrafterError(f"{what} is a class; give one of its instances: {drafter.__name__}()")
    if not isinstance(drafter, Drafter):
        raise DrafterError(f"{what} is no drafter: let its class inherit from draftwood.contracts.Drafter")
    if not isinstance(drafter.name, str) or not drafter.name:
        raise DrafterError(f"{what}: 'name' must be a string that is not empty, not {drafter.name!r}")
    prior = drafter.prior
    if not isinstance(prior, np.ndarray) or prior.dtype != np.float32 or prior.ndim != 1 or not prior.size:
        raise DrafterError(f"{what}: 'prior' must be a float32 array, one number per evidence class")
    if not ((prior >= 0) & (prior <= 1)).all():
        raise DrafterError(f"{what}: 'prior' must hold probabilities")
    if not isinstance(drafter.needs, Needs):
        raise DrafterError(f"{what}: 'needs' must be a draftwood.contracts.Needs, not {drafter.needs!r}")
    try:
        inspect.signature(drafter.open).bind([0], None)
    except (TypeError, ValueError) as error:
        raise DrafterError(f"{what}: 'open' must take the arguments prompt and noise: {error}") from error
    return drafter


def _first_line(make: Callable[..., Drafter]) -> str:
    return (inspect.getdoc(make) or "").partition("\n")[0]
