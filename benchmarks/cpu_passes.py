"""What passes over a GGUF file take, as a share of the memory's speed, beside llama.cpp; one process at a time.

    python benchmarks/cpu_passes.py MODEL.gguf [--random qwen3.5-4b] [--llama FOLDER] [--floats] [-o ROW.json]

Arms take turns, each in a process of its own: the memory's speed, our engine, llama.cpp (``--llama``: a folder of
libraries with several builds, as the wheel muthuishere-modelnexus 0.2.1 has one, of which the fastest is taken, or
the one library of xllamacpp). Printed are a table and JSON: median milliseconds of passes by their tokens.

- The memory's speed is that at which threads read numbers that fill no cache (`draftwood.local.memory_speed`), the
  median of all turns: where other machines share the memory, it changes from minute to minute.
- Bytes of a token are those of the weights that a pass over it reads, of a mixture the used experts, as our
  engine has them in memory; keys and values are left out.
- ``--random`` first writes MODEL.gguf: see `shapes`.
- ``--floats`` compares scores of a text, token by token, with those of our engine on the same weights as float32,
  for which it writes a file beside the other: KL divergence in nats.

A model with recurrent layers takes no tokens back in llama.cpp: its text grows by each pass.
"""

from __future__ import annotations

import argparse
import ctypes as c
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from shapes import SHAPES, say

from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.gguf_file import GgufFile, Tensor
from draftwood.engines.tokens.tokenizer import GgufTokenizer
from draftwood.local.machine import processor
from draftwood.local.memory_speed import measured as measured_memory
from draftwood.models.forecast import forecast
from draftwood.tree import TokenTree

WIDTHS = (1, 4, 8, 16)
_BATCH = 512  # tokens that llama.cpp reads at once
_READ = 1 << 30  # bytes whose reading is timed
_COMPARED = 64  # tokens whose scores are compared


class _Settings(c.Structure):
    """A C struct whose fields differ between releases: with room for all, it is returned and passed whole."""

    _fields_ = (("bytes", c.c_uint8 * 512),)


_IDS = c.POINTER(c.c_int32)


class _Batch(c.Structure):
    _fields_ = (
        ("n_tokens", c.c_int32), ("token", _IDS), ("embd", c.c_void_p), ("pos", _IDS), ("n_seq_id", _IDS),
        ("seq_id", c.POINTER(_IDS)), ("logits", c.POINTER(c.c_int8)),
    )  # fmt: skip


class LlamaLibrary:
    """A model in a library of llama.cpp, in its default settings.

    ``place`` is the library with all it needs, or a folder of libraries whose fastest build is taken.
    """

    def __init__(self, place: Path, model: Path, *, threads: int, context: int = 4096) -> None:
        os.environ["GGML_LOG_LEVEL"] = "0"
        for name in ("libggml-base.so", "libggml.so", "libllama.so") if place.is_dir() else ("",):
            library = c.CDLL(str(place / name), mode=c.RTLD_GLOBAL)
            if name == "libggml.so":
                library.ggml_backend_load_all_from_path(str(place).encode())
        self._library, pointer = library, c.c_void_p
        for name, result, arguments in (
            ("llama_model_default_params", _Settings, []), ("llama_context_default_params", _Settings, []),
            ("llama_model_load_from_file", pointer, [c.c_char_p, _Settings]),
            ("llama_init_from_model", pointer, [pointer, _Settings]),
            ("llama_set_n_threads", None, [pointer, c.c_int32, c.c_int32]),
            ("llama_batch_init", _Batch, [c.c_int32, c.c_int32, c.c_int32]),
            ("llama_decode", c.c_int32, [pointer, _Batch]), ("llama_get_memory", pointer, [pointer]),
            ("llama_get_logits_ith", c.POINTER(c.c_float), [pointer, c.c_int32]),
            ("llama_memory_seq_rm", c.c_bool, [pointer, c.c_int32, c.c_int32, c.c_int32]),
            ("llama_log_set", None, [pointer, pointer]),
        ):  # fmt: skip
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._quiet = c.CFUNCTYPE(None, c.c_int, c.c_char_p, pointer)(lambda *_: None)
        library.llama_log_set(c.cast(self._quiet, pointer), None)
        self._model = library.llama_model_load_from_file(str(model).encode(), library.llama_model_default_params())
        settings = library.llama_context_default_params()
        c.cast(c.pointer(settings), c.POINTER(c.c_uint32))[0] = context  # n_ctx is the first field of all releases
        self._context = library.llama_init_from_model(self._model, settings)
        library.llama_set_n_threads(self._context, threads, threads)
        self._batch = library.llama_batch_init(_BATCH, 0, 1)
        self.length = 0

    def run(self, ids: Sequence[int], *, scored: bool) -> None:
        """Read tokens behind the text, with scores of all or of the last; they stay until `cut`."""
        for start in range(0, len(ids), _BATCH):
            part, batch = ids[start : start + _BATCH], self._batch
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, self.length + i, 1
                batch.seq_id[i][0], batch.logits[i] = 0, scored or start + i == len(ids) - 1
            if self._library.llama_decode(self._context, batch):
                raise RuntimeError("llama_decode failed")
            self._scores = self._library.llama_get_logits_ith(self._context, len(part) - 1)
            self.length += len(part)

    def scores(self, size: int) -> NDArray[np.float32]:
        """Return the last token's scores, of so many tokens."""
        return np.ctypeslib.as_array(self._scores, (size,)).copy()

    def cut(self, length: int) -> None:
        """Drop the text behind so many tokens, where the model can."""
        memory = self._library.llama_get_memory(self._context)
        if self._library.llama_memory_seq_rm(memory, 0, length, -1):
            self.length = length


class Own:
    """Our engine, with a text."""

    def __init__(self, args: argparse.Namespace, ids: Sequence[int]) -> None:
        self.target = CpuTarget(args.model, threads=args.threads)
        ((self._session, _),) = self.target.open([ids])

    def run(self, ids: Sequence[int]) -> Any:
        """Compute a pass, and forget its tokens; returns its scores."""
        (found,) = self.target.score([(self._session, ids[0], TokenTree.build(list(ids[1:])))])
        return found

    def scores(self, token: int) -> NDArray[np.float32]:
        """Add a token; returns the scores of the next one."""
        found = np.array(self.run([token]).raw(0))
        self._session.keep([])
        return found


class Llama:
    """llama.cpp, with a text."""

    def __init__(self, args: argparse.Namespace, ids: Sequence[int]) -> None:
        longest = args.context + _COMPARED + (args.rounds + 1) * sum(WIDTHS)  # where it takes no tokens back
        self._library = LlamaLibrary(args.llama, args.model, threads=args.threads, context=max(4096, longest))
        self._library.run(ids, scored=False)
        self._file = GgufFile(args.model)

    def run(self, ids: Sequence[int]) -> None:
        length = self._library.length
        self._library.run(ids, scored=True)
        self._library.cut(length)

    def scores(self, token: int) -> NDArray[np.float32]:
        self._library.run([token], scored=True)
        return self._library.scores(self._file.tensors["token_embd.weight"].shape[0])


def measured(args: argparse.Namespace) -> dict[int, list[float]]:
    """What the process of an engine finds: milliseconds of passes by their tokens, and scores."""
    file = GgufFile(args.model)
    kind = Llama if args.arm == "llama.cpp" else Own
    if args.kept:
        text = GgufTokenizer(file.metadata)(Path(__file__).read_text(encoding="utf-8"))["input_ids"]
        engine = kind(args, text[: args.context])
        after = text[args.context : args.context + _COMPARED]
        np.save(args.kept, np.array([engine.scores(token) for token in after]))
        return {}
    size, rng = file.tensors["token_embd.weight"].shape[0], np.random.default_rng(0)
    ids = rng.integers(0, size, args.context + max(WIDTHS)).tolist()
    engine = kind(args, ids[: args.context])
    taken: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for turn in range(args.rounds + 1):
        for width in WIDTHS:
            before = perf_counter()
            engine.run(ids[-width:])
            if turn:  # memory is touched and code is compiled
                taken[width].append(1e3 * (perf_counter() - before))
    return taken


class FloatTensor:
    """A tensor that becomes float32 while it is written; one of which passes take single rows stays as it is."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self.kind = tensor, gguf.GGMLQuantizationType[tensor.kind]
        self._stays = tensor.name == "per_layer_token_embd.weight"
        self.dtype = np.dtype(np.uint8 if self._stays else np.float32)
        self.shape = tensor.known.shape if self._stays else tensor.shape
        self.nbytes = tensor.known.nbytes if self._stays else 4 * int(np.prod(self.shape))

    def tofile(self, file: Any) -> None:
        width = self.shape[-1] * self.dtype.itemsize
        rows = self.nbytes // width
        step = max(1, (1 << 26) // width)
        for start in range(0, rows, step):
            some = self._tensor.rows(slice(start, min(rows, start + step)))
            (some if self._stays else gguf.quants.dequantize(some, self.kind)).tofile(file)


def write_floats(model: Path, path: Path) -> None:
    """Write a file with the same weights as float32."""
    file = GgufFile(model)
    writer = gguf.GGUFWriter(path, file.metadata["general.architecture"])
    for name, value in file.metadata.items():
        if name != "general.architecture" and value != []:
            say(writer, name, value)
    for name, tensor in file.tensors.items():
        made = FloatTensor(tensor)
        writer.add_tensor(name, made, raw_dtype=made.kind if made.dtype == np.uint8 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def process(args: argparse.Namespace, arm: str, *more: str) -> Any:
    """Run an arm in a process of its own; returns what it found."""
    given = [sys.executable, __file__, str(args.model), "--arm", arm, "--threads", str(args.threads)]
    given += ["--rounds", str(args.rounds), "--context", str(args.context)]
    given += ["--llama", str(args.llama)] if args.llama else []
    done = subprocess.run([*given, *more], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def divergences(args: argparse.Namespace, arms: Sequence[str]) -> dict[str, float]:
    """Return by arm the mean KL divergence of its scores from those of the same weights in float32."""
    with TemporaryDirectory(dir=args.model.parent) as folder:
        path, kept = Path(folder, "floats.gguf"), {arm: Path(folder, f"{arm}.npy") for arm in ("float32", *arms)}
        write_floats(args.model, path)
        for arm, place in kept.items():
            given = argparse.Namespace(**vars(args) | ({"model": path} if arm == "float32" else {}))
            process(given, arm, "--kept", str(place))
        true, *others = (_logarithms(np.load(place)) for place in kept.values())
    sums = [np.sum(np.exp(true) * (true - found), axis=1) for found in others]
    return dict(zip(arms, map(float, map(mean, sums)), strict=True))


def _logarithms(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return logarithms of the probabilities of tokens, float64[texts, tokens]."""
    least = scores - scores.max(axis=1, keepdims=True).astype(np.float64)
    return least - np.log(np.sum(np.exp(least), axis=1, keepdims=True))


def compared(args: argparse.Namespace) -> dict[str, Any]:
    """Let the arms take turns; returns the row of the file."""
    arms = ["cpu", *(["llama.cpp"] if args.llama else [])]
    found: dict[str, list[Any]] = {arm: [] for arm in ("memory", *arms)}
    for _ in range(args.turns):
        for arm, results in found.items():
            results.append(process(args, arm))
    speeds = [median(speed) / 1e9 for speed in zip(*found["memory"], strict=True)]
    row: dict[str, Any] = {"model": args.model.name, "processor": processor(), "threads": args.threads}
    size = row["GB of a token"] = (forecast(args.model).read or 0) / 1e9
    row |= {"context": args.context, "memory GB/s": {"1": speeds[0], str(args.threads): speeds[1]}}
    nearness = divergences(args, arms) if args.floats else {}
    for arm in arms:
        ms = {width: median(ms for one in found[arm] for ms in one[str(width)]) for width in WIDTHS}
        share = size / (ms[1] / 1e3) / speeds[1]
        row[arm] = {"ms": ms, "share": share, "kl": nearness.get(arm)}
    return row


def line(row: dict[str, Any]) -> str:
    """Return lines of a table, one for each engine."""
    heads = "model", "engine", "GB a token", "ms of 1, 4, 8, 16", "of one", "of memory", "times llama.cpp", "KL"
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in ("cpu", "llama.cpp"):
        if arm not in row:
            continue
        found, ms = row[arm], list(row[arm]["ms"].values())
        gain = row["llama.cpp"]["ms"][1] / ms[0] if "llama.cpp" in row else float("nan")
        times, of_one = " / ".join(f"{one:.1f}" for one in ms), " / ".join(f"{one / ms[0]:.2f}" for one in ms)
        near = "" if found["kl"] is None else f"{found['kl']:.5f}"
        cells = row["model"], arm, f"{row['GB of a token']:.2f}", times, of_one, f"{found['share']:.0%}"
        lines.append(f"| {' | '.join((*cells, f'{gain:.2f}', near))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--random", choices=SHAPES, help="write MODEL first: random weights in this shape")
    parser.add_argument("--llama", type=Path, help="llama.cpp's libraries, a folder or a file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=300)
    parser.add_argument("--turns", type=int, default=3, help="processes of each arm")
    parser.add_argument("--rounds", type=int, default=10, help="passes of each width in a process")
    parser.add_argument("--floats", action="store_true", help="compare scores with those of float32")
    parser.add_argument("--arm", choices=("memory", "cpu", "llama.cpp", "float32"), help=argparse.SUPPRESS)
    parser.add_argument("--kept", help=argparse.SUPPRESS)  # where an arm writes scores
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if args.arm:
        if args.arm == "memory":
            print(json.dumps([measured_memory(threads, _READ) for threads in (1, args.threads)]))
        else:
            print(json.dumps(measured(args)))
        return
    if args.random:
        SHAPES[args.random]().write(args.model)
    row = compared(args)
    print(line(row), json.dumps(row), sep="\n")
    if args.output:
        args.output.write_text(json.dumps(row) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
