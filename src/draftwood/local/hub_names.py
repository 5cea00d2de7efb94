"""Names of models on the hub, and which of a repository's GGUF files such a name means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from draftwood.errors import ModelError

_PREFIX = re.compile(r"hf:|(?:https://)?(?:hf\.co|huggingface\.co)/")
_PAGE = re.compile(r"/(?:blob|resolve)/main(?=/)|(?:/tree/main)?/?(?:\?[\w=&]*)?$", re.ASCII)
"""What the address of a page or of a download has besides the name of a model."""

_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::([\w.-]+)|/(\w.*\.gguf))?", re.ASCII)
_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)")
_SIDE = re.compile(r"mmproj|^imatrix|imatrix\.gguf$|^mtp[-_.]", re.IGNORECASE)  # for pictures, counts, a head
_LABEL = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4))\.gguf$",
    re.IGNORECASE,
)
_RANKS = (
    r"(UD-)?Q[456]_K.*", r"(UD-)?Q8.*", r"(UD-)?I?Q[45]_(?!0_\d_\d).*|MXFP4.*|NVFP4", r"BF16|FP?16",
    r"(?!FP?32|Q4_0_\d_\d).*", r".*",
)  # fmt: skip
"""Labels from the one to be preferred on: 4 to 6 bits lose little and are read fast, 8 and 16 lose less and take
longer, fewer than 4 lose much. Q4_0_4_8 and its like were for some processors, and nothing reads them any more."""

_GROWTH, _ROOM = 1.05, 1 << 30
"""Bytes in memory per byte of a file, at most, and bytes for the program and a text of some thousand tokens."""


class HubName(NamedTuple):
    """A model of the hub, as it is asked for: of its repository a quantisation, or a file, or neither."""

    repository: str
    quantisation: str = ""
    file: str = ""

    def __str__(self) -> str:
        said = self.repository
        return f"{said}/{self.file}" if self.file else f"{said}:{self.quantisation}" if self.quantisation else said


class HubFolder(str):
    """The name of a repository that is known to hold a folder of transformers."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One model of a repository: a GGUF file or all its parts in order, with what its name says of its weights
    (``"Q4_K_M"``, or nothing) and its bytes."""

    label: str
    files: tuple[str, ...]
    size: int

    @property
    def said(self) -> str:
        size = f"{self.size / 1e9:.1f} GB" if self.size >= 1e9 else f"{self.size / 1e6:.0f} MB"
        return f"{self.label or self.files[0]} ({size})"


def hub_name(text: str) -> HubName | None:
    """Return what ``owner/name``, ``owner/name:Q4_K_M`` or ``owner/name/file.gguf`` names, also behind ``hf:`` or
    the hub's address, also as the address of a page or of a download; None for other texts."""
    if prefix := _PREFIX.match(text):
        text = _PAGE.sub("", text[prefix.end() :])
    found = _NAME.fullmatch(text)
    if found is None or (found[3] and not is_usable(found[3])):
        return None
    if not (found[2] or found[3]) and found[1].endswith(".gguf"):  # a file that is not there
        return None
    return HubName(found[1], found[2] or "", found[3] or "")


def is_usable(file: str) -> bool:
    """Return whether a name out of a repository's list stays inside the folder that it is put into."""
    return file.isprintable() and not set(file) & set('\\:*?"<>|') and all(map(_is_plain, file.split("/")))


def _is_plain(part: str) -> bool:
    return bool(part.strip(". "))  # neither empty nor a way up


def is_model(file: str) -> bool:
    """Return whether a GGUF file holds a model or the first part of one, by its name."""
    part = _PART.search(file)
    return not _SIDE.search(file.rpartition("/")[2]) and (part is None or int(part[1]) == 1)


def variants(sizes: Mapping[str, int]) -> list[Variant]:
    """Return the models among files, given with their sizes, the smallest first; those of which a part is missing
    are none."""
    found = []
    for name in sorted(sizes):
        if name.endswith(".gguf") and is_model(name):
            part, stem = _PART.search(name), _PART.sub("", name)
            count = int(part[2]) if part else 0
            names = [_PART.sub(f"-{number:05d}-of-{count:05d}", name) for number in range(1, count + 1)] or [name]
            label = _LABEL.search(stem)
            if all(one in sizes for one in names):
                size = sum(sizes[one] for one in names)
                found.append(Variant(label[1].upper() if label else "", tuple(names), size))
    return sorted(found, key=lambda one: (one.size, one.files))


def meant(name: HubName, found: Iterable[Variant]) -> list[Variant]:
    """Return those that a name means: several, where it leaves the choice open. `ModelError` where several have
    the label that it names."""
    if name.file:
        return [one for one in found if name.file in one.files]
    if not name.quantisation:
        return list(found)
    named = [one for one in found if one.label == name.quantisation.upper()]
    if len(named) > 1:
        files = ", ".join(one.files[0] for one in named)
        raise ModelError(f"{name} may be several files ({files}): write {name.repository}/FILE.gguf")
    return named


def best(found: Sequence[Variant], free: int | None) -> Variant | None:
    """Return the best that fits into so many bytes of memory: of the preferred labels the largest; None if none
    does. Where what is free is not known, all fit."""
    fitting = [one for one in found if free is None or one.size * _GROWTH + _ROOM <= free]
    return min(fitting, key=lambda one: (_rank(one.label), -one.size), default=None)


def _rank(label: str) -> int:
    return next(rank for rank, pattern in enumerate(_RANKS) if re.fullmatch(pattern, label))
