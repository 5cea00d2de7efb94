"""Other projects' proposers of copied text, behind the calls that `drafting.py` times. Each at its own defaults.

vLLM's n-gram proposer is numba and numpy, and its file is read out of the wheel: nothing of vLLM is installed.
ArcticInference's suffix cache is C++. ``pip install arctic-inference`` builds it; alone it comes from the unpacked
source: ``pip install nanobind``, ``cmake csrc/suffix_decoding -DCMAKE_BUILD_TYPE=Release
-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$PWD/arctic_inference/suffix_decoding``, ``make``; then name that folder.
Transformers' prompt lookup is part of transformers.
"""

from __future__ import annotations

import sys
import types
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Drawn = tuple[list[int], list[int]]

VLLM_FILE = "vllm/v1/spec_decode/ngram_proposer.py"
VLLM_NGRAM = 5  # both bounds, where a user of vLLM sets neither
ARCTIC = {"max_tree_depth": 24, "max_spec_factor": 1.0, "min_token_prob": 0.1}  # as vLLM runs it

ROOM = 8192  # tokens that a session may learn


class Text:
    """The text of a session in a buffer with room, as serving engines hold it."""

    def __init__(self, ids: Ints) -> None:
        self.buffer = np.zeros(len(ids) + ROOM, dtype=np.int32)
        self.buffer[: len(ids)] = ids
        self.length = len(ids)

    def add(self, ids: Sequence[int]) -> None:
        self.buffer[self.length : self.length + len(ids)] = ids
        self.length += len(ids)


class TransformersLookup:
    """`PromptLookupCandidateGenerator`, called as ``generate(prompt_lookup_num_tokens=16)`` does."""

    name = "transformers prompt lookup"
    trees = False

    def __init__(self) -> None:
        self.version = version("transformers")

    def open(self, ids: Ints, nodes: int) -> TransformersSession:
        return TransformersSession(ids, nodes)


class TransformersSession:
    def __init__(self, ids: Ints, nodes: int) -> None:
        import torch
        from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

        self._torch = torch
        self._lookup = PromptLookupCandidateGenerator(num_output_tokens=nodes, max_length=1 << 31)
        self._ids = torch.tensor(np.asarray(ids, dtype=np.int64))[None]

    def draft(self, nodes: int) -> Any:  # noqa: ARG002 - fixed when it was made
        return self._lookup.get_candidates(self._ids)[0]

    def drawn(self, found: Any) -> Drawn:
        return chain(found[0, self._ids.shape[1] :].tolist())

    def learn(self, ids: Sequence[int]) -> None:
        self._ids = self._torch.cat((self._ids, self._torch.tensor([ids])), dim=-1)

    @property
    def nbytes(self) -> int:
        return int(self._ids.nbytes)


class VllmNgram:
    """`NgramProposer` as it stands in a wheel of vLLM, or in vLLM where that is installed."""

    name = "vLLM ngram"
    trees = False

    def __init__(self, wheel: Path | None) -> None:
        if wheel is None:
            from vllm.v1.spec_decode import ngram_proposer  # type: ignore[import-not-found]

            self.version, self._module = version("vllm"), ngram_proposer
        else:
            self.version = wheel.name.split("-")[1]
            self._module = _from_wheel(wheel)

    def proposer(self, nodes: int, longest: int, requests: int = 1) -> Any:
        speculative = types.SimpleNamespace(
            prompt_lookup_min=VLLM_NGRAM, prompt_lookup_max=VLLM_NGRAM, num_speculative_tokens=nodes
        )
        return self._module.NgramProposer(
            types.SimpleNamespace(
                speculative_config=speculative,
                model_config=types.SimpleNamespace(max_model_len=longest),
                scheduler_config=types.SimpleNamespace(max_num_seqs=max(requests, 1)),
                parallel_config=types.SimpleNamespace(tensor_parallel_size=1),
            )
        )

    def open(self, ids: Ints, nodes: int) -> VllmSession:
        return VllmSession(self, [ids], nodes)

    def open_batch(self, texts: Sequence[Ints], nodes: int) -> VllmSession:
        return VllmSession(self, texts, nodes)


class VllmSession:
    """The rows of a batch; alone, the first of one."""

    def __init__(self, peer: VllmNgram, texts: Sequence[Ints], nodes: int) -> None:
        room = max(len(ids) for ids in texts) + ROOM
        self._ids = np.zeros((len(texts), room), dtype=np.int32)
        self._lengths = np.array([len(ids) for ids in texts], dtype=np.int32)
        for row, ids in zip(self._ids, texts, strict=True):
            row[: len(ids)] = ids
        self._sampled = [[0]] * len(texts)  # what matters is that each row sampled something
        self._proposer = peer.proposer(nodes, room, len(texts))

    def draft(self, nodes: int) -> Any:
        return self._proposer.propose(nodes, self._sampled, self._lengths, self._ids)

    def drawn(self, found: Any) -> Drawn:
        return chain(list(found[0]))

    def learn(self, ids: Sequence[int], row: int = 0) -> None:
        start = self._lengths[row]
        self._ids[row, start : start + len(ids)] = ids
        self._lengths[row] += len(ids)

    @property
    def nbytes(self) -> int:
        return 4 * int(self._lengths.sum())


class ArcticSuffix:
    """`SuffixDecodingCache`, called as vLLM's ``method: suffix`` does; its trees, too, which vLLM does not use."""

    name = "ArcticInference suffix"
    trees = True

    def __init__(self, folder: Path | None) -> None:
        if folder is not None:
            sys.path.insert(0, str(folder))
        from arctic_inference.suffix_decoding import SuffixDecodingCache  # type: ignore[import-not-found]

        self._make = SuffixDecodingCache
        try:
            self.version = version("arctic_inference")
        except PackageNotFoundError:
            about = folder / "PKG-INFO" if folder is not None else Path()
            lines = about.read_text(encoding="utf-8").splitlines() if about.is_file() else []
            self.version = next((line[9:] for line in lines if line.startswith("Version: ")), "unknown")

    def open(self, ids: Ints, nodes: int) -> ArcticSession:  # noqa: ARG002
        return ArcticSession(self._make(max_tree_depth=ARCTIC["max_tree_depth"]), ids)

    def open_beside(self, other: ArcticSession, ids: Ints) -> ArcticSession:
        return ArcticSession(other.cache, ids)


class ArcticSession:
    def __init__(self, cache: Any, ids: Ints) -> None:
        self.cache, self._text = cache, Text(ids)
        self._number = len(cache.active_requests)
        cache.start_request(self._number, np.ascontiguousarray(ids, dtype=np.int32))

    def draft(self, nodes: int, *, tree: bool = False) -> Any:
        text = self._text
        return self.cache.speculate(
            self._number,
            text.buffer[max(0, text.length - int(ARCTIC["max_tree_depth"])) : text.length],
            max_spec_tokens=nodes,
            max_spec_factor=ARCTIC["max_spec_factor"],
            min_token_prob=ARCTIC["min_token_prob"],
            use_tree_spec=tree,
        )

    def drawn(self, found: Any) -> Drawn:
        return list(found.token_ids), list(found.parents)

    def learn(self, ids: Sequence[int]) -> None:
        self._text.add(ids)
        self.cache.add_active_response(self._number, ids)

    @property
    def nbytes(self) -> int:
        """What its two trees estimate of themselves."""
        trees = (*self.cache._local_trees.values(), self.cache._global_tree)
        return sum(tree.estimate_memory() for tree in trees)


Peer = TransformersLookup | VllmNgram | ArcticSuffix


def peers(wheel: Path | None, arctic: Path | None) -> Iterator[Peer | str]:
    """Yield each peer, or one line that says why it is not measured."""
    for name, make in (
        (TransformersLookup.name, TransformersLookup),
        (VllmNgram.name, lambda: VllmNgram(wheel)),
        (ArcticSuffix.name, lambda: ArcticSuffix(arctic)),
    ):
        try:
            yield make()
        except (ImportError, OSError, KeyError, PackageNotFoundError) as error:
            yield f"{name}: not measured ({error})"


def chain(tokens: list[int]) -> Drawn:
    return tokens, list(range(-1, len(tokens) - 1))


def _from_wheel(wheel: Path) -> types.ModuleType:
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read(VLLM_FILE).decode()
    module = types.ModuleType("ngram_proposer")
    with _stand_in():
        exec(compile(source, f"{wheel.name}/{VLLM_FILE}", "exec"), module.__dict__)
    return module


@contextmanager
def _stand_in() -> Iterator[None]:
    """The one name that the file imports from vLLM, which it uses in annotations only."""
    package, config = types.ModuleType("vllm"), types.ModuleType("vllm.config")
    config.VllmConfig = object  # type: ignore[attr-defined]
    sys.modules.update({"vllm": package, "vllm.config": config})
    try:
        yield
    finally:
        del sys.modules["vllm"], sys.modules["vllm.config"]
