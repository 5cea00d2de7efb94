"""``draftwood info``: the models there are, and what a bug report should contain about this machine."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from draftwood.cli import options, screen
from draftwood.errors import DraftwoodError
from draftwood.local.catalogue import DEFAULT_MODEL
from draftwood.measure.records.provenance import package_version

if TYPE_CHECKING:
    from draftwood.local.hub_names import HubName
    from draftwood.models.forecast import Forecast

_PACKAGES = ("torch", "transformers", "xllamacpp", "llama_cpp_python", "numpy", "numba")
_EXPECTED = {"cpu": 377, "transformers": 27, "llama.cpp": 85}  # README's: 4 bits; transformers in float32


def info(
    model: Annotated[
        str | None,
        Argument(metavar="MODEL", help="Tell of this GGUF file, folder or hub name instead."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show models, versions, engines, devices and the cache folder; or what a MODEL needs, before it is loaded."""
    if model is not None:
        _tell_of(model, as_json)
        return
    found = collect()
    if as_json:
        screen.say(json.dumps(found, indent=2))
        return
    learnt = "speed and acceptance under {files} settings, {bytes:,} bytes in {folder}; remove it to learn anew"
    learnt = learnt.format(**found["learned"])
    if not found["learned"]["is_kept"]:
        learnt = "nothing is read or kept (DRAFTWOOD_LEARNED)"
    lines = {
        **found["versions"],
        **{f"engine {name}": _said_engine(name, said, found["speeds"]) for name, said in found["engines"].items()},
        "speed of engines": f"{DEFAULT_MODEL} without drafts; {_said_speeds(found['speeds'])}",
        "system": found["system"],
        "CPU": f"{found['cpu_count']} cores, instructions: {found['cpu_instructions']}",
        "threads of torch": found["threads"], "devices of torch": ", ".join(found["devices"]) or None,
        "cache folder": found["cache_folder"], "learnt": learnt,
        **{f"model {model['name']}": _said_model(model) for model in found["models"]},
        "other models": "any GGUF file, any folder of transformers, a hub name (with a network); draftwood list",
        "drafters": ", ".join(found["drafters"]),
    }  # fmt: skip
    screen.show_facts({name: "not installed" if value is None else value for name, value in lines.items()})


def _tell_of(model: str, as_json: bool) -> None:
    """Show what a model's files say; of a name of the hub that is not here, what there is to be had."""
    from draftwood.local.find import find
    from draftwood.local.hub_names import HubName
    from draftwood.local.machine import cores, free_memory
    from draftwood.local.memory_speed import memory_speed
    from draftwood.local.neighbours import any_copy
    from draftwood.measure.wording import count as count_of
    from draftwood.models.forecast import forecast

    place = find(model)
    if isinstance(place, HubName) and any_copy(place) is None:
        _tell_of_repository(place, as_json)
        return
    found, threads = forecast(model), cores()
    speed = memory_speed(threads) if found.read else None
    most = speed / found.read if speed and found.read else None
    facts = {
        **asdict(found), "free": free_memory(), "threads": threads, "bytes_per_second": speed,
        "tokens_per_second": most,
    }  # fmt: skip
    if as_json:
        screen.say(json.dumps(facts, indent=2))
        return
    count = f"{found.weights / 1e9:.1f} billion" if found.weights >= 1e9 else f"{found.weights / 1e6:,.0f} million"
    memory, at_best = f"{_gigabytes(found.needed)} of weights", "not known for this engine"
    if found.context is not None:
        memory += f", {_gigabytes(1000 * found.context)} for every 1,000 tokens of a text"
    if found.states:
        memory += f", {_gigabytes(found.states)} for the states of each text"
    if facts["free"] is not None:
        memory += f"; {_gigabytes(facts['free'])} are free here"
    if most and speed and found.read:
        at_best = (
            f"at best {most:,.{max(0, 1 - int(most >= 10))}f} tokens/s without drafts: a token reads "
            f"{_gigabytes(found.read)}, and {count_of(threads, 'thread')} read {_gigabytes(speed)}/s here"
        )
    engine = {"engine": _said_choice(found.engine, found.reason)}
    session = {} if found.engine is None else {"session": _session(found, speed, threads)}
    if not found.weights:
        screen.show_facts({"model": found.model, **engine, **session})
        return
    said = f"{found.model}, {count} weights, most of them {found.kind}"
    screen.show_facts({"model": said, **engine, "memory": memory, "speed": at_best, **session})


def _session(found: Forecast, speed: int | None, threads: int) -> str:
    """Return the line with which sessions of a model begin."""
    from draftwood.cli.opening import Opening
    from draftwood.drafters.load import load
    from draftwood.models.engine import CPU

    drafters = [one.name for one in load("default") if not getattr(one, "optional", False)]
    name, own = (_instructions(), threads) if found.engine == CPU else (None, None)
    return str(Opening(found.engine or "", name, own, speed, found.read, found.longest, drafters))


def _tell_of_repository(name: HubName, as_json: bool) -> None:
    """Show the models that a repository of the hub offers, and which would be taken here."""
    from draftwood.local.hub_names import best
    from draftwood.local.machine import free_memory
    from draftwood.models.here import is_folder, of_transformers
    from draftwood.models.hub import look

    repository, free = look(name.repository), free_memory()
    there, weights = repository.variants, 0
    if is_folder(repository):
        weights = sum(one.size for one in repository.named(of_transformers(repository)))
    taken = None if weights else best(there, free)
    models = [asdict(one) | {"fits": best([one], free) is not None, "taken": one is taken} for one in there]
    if as_json:
        said = {"repository": repository.name, "models": models, "folder": weights or None, "free": free}
        screen.say(json.dumps(said, indent=2))
        return
    facts = {"repository": f"{repository.name}, not on this disk: draftwood pull {name} brings it"}
    if weights:
        facts["folder"] = f"of transformers, {_gigabytes(weights)}, taken unless another is named"
    for one in models:
        fits = "taken unless another is named" if one["taken"] else "fits" if one["fits"] else "does not fit"
        facts[one["label"] or one["files"][0]] = f"{_gigabytes(one['size'])}, {fits}"
    if not (models or weights):
        facts["files"] = f"{len(repository.files)}, no model among them"
    if free is not None:
        facts["memory"] = f"{_gigabytes(free)} are free here"
    screen.show_facts(facts)


def _said_choice(engine: str | None, reason: str | None) -> str:
    if engine is None:
        return f"none here runs it: {reason}" if reason else "none here runs it"
    own = {"cpu": "cpu, draftwood's own"}.get(engine, engine)
    return own if reason is None else f"{own}, if it can; draftwood's own does not: {reason}"


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def collect() -> dict[str, Any]:
    """Return everything that `info` shows, JSON-ready."""
    from draftwood import __version__
    from draftwood.drafters.load import known
    from draftwood.local import findings
    from draftwood.local.find import cache_folder, installed

    files = findings.files(findings.LEARNED)
    kept = {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}
    versions = {name: package_version(name) for name in _PACKAGES}
    return {
        "versions": {"draftwood": __version__, "python": platform.python_version(), **versions},
        "engines": _engines(), "speeds": _speeds(), "system": f"{platform.system()} {platform.machine()}",
        "cpu_count": os.cpu_count(), "cpu_instructions": _instructions(),
        **(_torch() if versions["torch"] else {"threads": None, "devices": []}),
        "cache_folder": str(cache_folder()),
        "learned": {"folder": str(findings.folder()), "is_kept": findings.learning_is_kept(), **kept},
        "models": installed(),
        "drafters": known(),
    }  # fmt: skip


def _said_model(model: dict[str, Any]) -> str:
    here = model["state"] != "missing"
    size = f"{model['size'] / 1e6:.0f} MB" if here else f"{model['download_size'] / 1e6:.0f} MB to download"
    said = f"{model['state']}, {size}, {model['licence']}; {model['description']}"
    force = {"missing": "", "broken": " --force"}.get(model["state"])
    return said if force is None else f"{said} (draftwood fetch {model['name']}{force} brings it)"


def _said_engine(name: str, said: str | None, speeds: dict[str, dict[str, Any]]) -> str:
    if said is None:
        return f'not installed: pip install "draftwood[{name.partition(".")[0]}]"'
    speed = speeds[name]
    if speed["tokens_per_second"] is None:
        return f"not measured here; {said}"
    how = f"measured {speed['day']}" if speed["measured"] else "expected"
    return f"{speed['tokens_per_second']:.0f} tokens/s {how}; {said}"


def _said_speeds(speeds: dict[str, dict[str, Any]]) -> str:
    """Say what the speeds of engines are worth beside each other."""
    if any(speed["measured"] for speed in speeds.values()):
        return "measured one by one: draftwood bench --peers llama.cpp compares"
    return "expected: on two cores, see docs/figures.md"


def _speeds() -> dict[str, dict[str, Any]]:
    """Return each engine's tokens per second of the default model, as this machine has learnt; where it has learnt
    none, as expected: measured speeds and those of another machine do not stand beside each other."""
    from draftwood.api.learned import speeds

    known, names = speeds(DEFAULT_MODEL), ("tokens_per_second", "dtype", "day")
    return {
        name: dict(zip(names, known.get(name, (None if known else expected, None, None)), strict=True))
        | {"measured": name in known}
        for name, expected in _EXPECTED.items()
    }


def _engines() -> dict[str, str | None]:
    """Say of each engine whether it can run models here; None if it is not installed."""
    from draftwood.models.engine import CPU, LLAMA_CPP, TRANSFORMERS, is_installed

    said = None
    if is_installed(LLAMA_CPP):
        from draftwood.engines.llama_cpp.library import library, takes_layers

        try:
            where = "graphics card" if takes_layers() else "processor"
            said = f"{library().release}, {where}"
        except DraftwoodError as error:
            said = str(error)
    return {CPU: "installed", TRANSFORMERS: "installed" if is_installed(TRANSFORMERS) else None, LLAMA_CPP: said}


def _instructions() -> str:
    """Return the instruction set of our own engine, as DRAFTWOOD_INSTRUCTIONS names it, or why there is none."""
    try:
        from draftwood.engines.cpu.code.instructions import chosen

        return chosen().name
    except DraftwoodError as error:
        return str(error)


def _torch() -> dict[str, Any]:
    import torch

    devices = ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    return {"threads": torch.get_num_threads(), "devices": devices}
