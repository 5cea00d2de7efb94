"""What is compiled: how many kernels, for which arrays, and that none on disk is ever out of date."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import draftwood
from draftwood.drafters.load import DRAFTERS, load
from draftwood.index import machine_code
from draftwood.index.compiling import KERNELS
from draftwood.index.frontier import PARENT, bar, empty, offer, take

NUMBA = {"DRAFTWOOD_KERNELS": "numba"}  # nothing is run without numba

OPENED = """
from draftwood.drafters.load import DRAFTERS, load
for name in DRAFTERS:
    (drafter,) = load(name)
    if drafter.needs.prices or drafter.needs.hidden:  # these have no kernels
        continue
    session = drafter.open([1, 2, 3, 1, 2], None)
    session.extend([3, 1])
    session.draft(8, 0, drafter.prior)
    session.close()
from draftwood.index.compiling import KERNELS
names = [f"{kernel.py_func.__module__}.{kernel.__name__}" for kernel in KERNELS]
print(*sorted(name.removeprefix("draftwood.drafters.") for name in names))
"""

ENTRIES = (
    "corpus.kernel.grow",
    "llama_cpp.ngram_counts._count_all",
    "llama_cpp.ngram_counts._propose",
    "ngram.kernel.advance",
    "ngram.kernel.grow",
    "parrot.kernel.suggest",
    "prediction.kernel.draft",
    "recycling.kernel.grow",
    "recycling.kernel.record",
)

KERNEL = """
from draftwood.index.compiling import compiled
from draftwood.index.helper_of_a_test import helped
@compiled("i8(i8)")
def answer(number):
    return helped(number)
"""
HELPER = """
from draftwood.index.compiling import inner
ADDED = {added}
@inner
def helped(number):
    return number * {times} + ADDED
"""
ASKED = """
import io, logging
told = io.StringIO()
logging.basicConfig(level=logging.INFO, stream=told, format="%(message)s")
from draftwood.index import machine_code
from draftwood.index.kernel_of_a_test import answer
print(answer(10), end=" ")
print(told.getvalue() if machine_code.is_usable() else sum(answer.stats.cache_hits.values()))
"""


def run(code, **environment):
    here = {"PYTHONPATH", "DRAFTWOOD_CACHE"}  # kernels of another run would be found there
    settings = {name: value for name, value in os.environ.items() if name not in here}
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path):
    """A copy of the package that may be edited, with a kernel that calls a helper in another file."""
    source = Path(draftwood.__file__).parent
    copy = tmp_path / "src" / "draftwood"
    index = ("__init__", "compiling", "machine_code", "arguments", "marks", "missing", "numba_compiling")
    for file in (
        "__init__.py",
        "errors.py",
        "files/__init__.py",
        "files/paths.py",
        *(f"index/{i}.py" for i in index),
    ):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        if file != "__init__.py":
            shutil.copy(source / file, copy / file)
    (copy / "__init__.py").touch()
    (copy / "index" / "kernel_of_a_test.py").write_text(KERNEL)
    return copy / "index"


def ask(package, added, times=2, **environment):
    """What the kernel answers once the helper says this, and what was told; of numba, its hits on disk."""
    helper = package / "helper_of_a_test.py"
    helper.write_text(HELPER.format(added=added, times=times))
    shutil.rmtree(package / "__pycache__" / helper.stem, ignore_errors=True)
    for old in package.glob("__pycache__/helper_of_a_test.*.pyc"):  # Python itself looks at whole seconds only
        old.unlink()
    found, _, told = run(ASKED, PYTHONPATH=str(package.parent.parent), **environment).partition(" ")
    return int(found), told


# --- how much is compiled ----------------------------------------------------------------------------------------


def test_all_drafters_together_compile_nine_kernels():
    assert tuple(run(OPENED, PYTHONPATH=str(Path(draftwood.__file__).parent.parent)).split()) == ENTRIES


def test_no_kernel_that_is_on_disk_needs_numba():
    root = Path(draftwood.__file__).parent
    files = [file for file in root.rglob("*.py") if "\n@compiled(" in file.read_text()]
    names = [".".join(("draftwood", *file.relative_to(root).with_suffix("").parts)) for file in files]
    code = f"import sys, {', '.join(names)}; print('numba' in sys.modules)"
    paths = {"PYTHONPATH": str(root.parent)}
    run(code, **paths)  # compiles those that are not
    assert len(names) > 8
    assert run(code, **paths) == "False"


def test_a_kernel_takes_read_only_arrays_and_writable_ones_as_it_is():
    for name in DRAFTERS:
        for drafter in load(name):
            if drafter.needs.prices or drafter.needs.hidden:
                continue
            writable, frozen = drafter.prior.copy(), drafter.prior.copy()
            frozen.flags.writeable = False
            for accept_rates in (writable, frozen):
                drafter.open([1, 2, 3, 1, 2], None).draft(4, 0, accept_rates)
    assert all(len(kernel.signatures) == 1 for kernel in KERNELS)


def test_accept_rates_of_any_layout_grow_the_same_tree():
    (drafter,) = load("ngram")
    session = drafter.open([1, 2, 3, 1, 2], None)
    plain = np.linspace(0.1, 0.9, len(drafter.prior), dtype=np.float32)
    unaligned = np.zeros(4 * len(plain) + 1, dtype=np.uint8)[1:].view(np.float32)
    unaligned[:] = plain
    strided, frozen = np.repeat(plain, 2)[::2], plain.copy()
    frozen.flags.writeable = False
    trees = [session.draft(4, 0, rates).tokens.tolist() for rates in (plain, unaligned, strided, frozen)]
    assert trees == trees[:1] * 4


# --- on disk -----------------------------------------------------------------------------------------------------


def test_a_change_in_a_helper_of_another_file_is_seen_and_old_versions_are_removed(package):
    assert ask(package, 1) == (21, "compiling kernel_of_a_test.answer")
    (file,) = package.rglob("*.kernel")
    for number in range(4):  # as left by branches, a jump of the clock after
        other = file.with_name(f"kernel_of_a_test.answer-{number}.kernel")
        other.touch()
        os.utime(other, (4e9, 4e9))
    assert ask(package, 1) == (21, "")
    assert ask(package, 5) == (25, "compiling kernel_of_a_test.answer")  # a constant
    assert len(list(package.rglob("*.kernel"))) == 3
    assert ask(package, 5, times=3)[0] == 35  # the code


def test_where_machine_code_is_not_used_numba_keeps_kernels(package):
    assert ask(package, 1, **NUMBA) == (21, "0")
    assert ask(package, 1, **NUMBA) == (21, "1")
    (file,) = package.rglob("*.nbi")
    for name in (
        f"kernel_of_a_test.answer-{number}-4.py3{end}" for number in range(3) for end in (".nbi", ".1.nbc")
    ):
        file.with_name(name).touch()
        os.utime(file.with_name(name), (4e9, 4e9))
    assert ask(package, 5, **NUMBA) == (25, "0")  # helpers are seen here too
    assert [len(list(package.rglob(f"*.{kind}"))) for kind in ("nbi", "nbc")] == [3, 3], "old versions are removed"
    assert ask(package, 5, NUMBA_BOUNDSCHECK="1")[0] == 25
    assert not list(package.rglob("*.kernel"))


@pytest.mark.slow  # numba's own files, where ours cannot be; damage of ours is tried in every run
def test_a_damaged_file_is_compiled_anew(package):
    """Cut off, or zeros where a disk lost a block: machine code like that would end the process."""
    ask(package, 1, **NUMBA)
    for kind, start, end in ("nbi", 0, None), ("nbi", 200, None), ("nbc", 100, None), ("nbc", 2000, 2064):
        (file,) = package.rglob(f"*.{kind}")
        whole = file.read_bytes()
        assert len(whole) > start
        file.write_bytes(whole[:start] + (b"" if end is None else bytes(end - start) + whole[end:]))
        assert ask(package, 1, **NUMBA) == (21, "0")
    assert ask(package, 1, **NUMBA) == (21, "1")


@pytest.mark.parametrize("settings", [{}, NUMBA])
def test_a_disk_that_is_full_costs_one_line(package, settings):
    """Two kernels, one line, and both work."""
    (package / "helper_of_a_test.py").write_text(HELPER.format(added=1, times=2))
    second = KERNEL.replace("answer", "second").replace("helped(number)", "helped(number) + 1")
    (package / "kernel_of_a_test.py").write_text(KERNEL + second)
    full = (
        "import errno, os, pathlib, logging, sys\n"
        "def save(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "pathlib.Path.write_bytes = save\n"
        "if os.environ.get('DRAFTWOOD_KERNELS'):\n"
        "    from numba.core.caching import IndexDataCacheFile as F; F.save = save\n"
        "logging.basicConfig(stream=sys.stdout, format='%(levelname)s %(message)s')\n"
        "from draftwood.index.kernel_of_a_test import answer, second; print(answer(10), second(10))"
    )
    warning, answers = run(full, PYTHONPATH=str(package.parent.parent), **settings).splitlines()
    assert warning.startswith("WARNING compiled drafters are not kept for the next start: No space left on device")
    assert answers == "21 22"


def test_where_the_package_cannot_be_written_to_another_folder_is_used(package, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    assert ask(package, 1, NUMBA_CACHE_DIR=str(elsewhere)) == (21, "compiling kernel_of_a_test.answer")
    assert ask(package, 1, NUMBA_CACHE_DIR=str(elsewhere)) == (21, "")
    assert not list(package.rglob("*.kernel"))


def test_kernels_that_are_named_alike_are_kept_in_different_folders():
    for entry in ENTRIES:
        import_module(f"draftwood.drafters.{entry.rpartition('.')[0]}")
    functions = [kernel.py_func for kernel in KERNELS]
    assert len({(machine_code._folders(one)[-1], machine_code.name_of(one)) for one in functions}) == len(KERNELS)


@pytest.mark.parametrize("settings", [{}, NUMBA])
def test_without_any_folder_a_kernel_is_compiled_all_the_same(package, tmp_path, settings):
    (package / "__pycache__").touch()  # no folder, nor can it become one
    (tmp_path / "file").touch()
    nowhere = {"HOME": str(tmp_path / "file"), "XDG_CACHE_HOME": str(tmp_path / "file" / "cache")}
    assert ask(package, 1, **nowhere, **settings)[0] == 21


def test_the_stamp_is_the_same_in_every_process():
    code = "from draftwood.index.compiling import *; import draftwood.drafters.recycling.kernel as k"
    code += "; print(*(stamp(kernel.py_func, False) for kernel in KERNELS))"
    path = str(Path(draftwood.__file__).parent.parent)
    told = {run(code, PYTHONPATH=path, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(told) == 1
    assert " 0x" not in told.pop()


# --- without numba -----------------------------------------------------------------------------------------------

ERRORS = """
import sys
import numpy as np
from draftwood.index.compiling import compiled
@compiled("i8(i8[::1], i8)")
def pick(numbers, place):
    if place < 0:
        raise ValueError("negative")
    return numbers[place]
@compiled("i8(i8)")
def room(size):
    return len(np.empty(size, np.int64))
some = np.arange(5)
print(type(pick).__name__, pick(some, 2), room(10), "numba" in sys.modules)
for kernel, arguments in (
    (pick, (some, "x")), (pick, (some.astype(np.int32), 1)), (pick, (some[::2], 1)), (pick, ([1], 0)),
    (pick, (some,)), (room, (1 << 70,)), (pick, (some, -1)), (room, (1 << 60,)), (room, (-5,)),
):
    try:
        kernel(*arguments)
    except Exception as error:
        print(type(error).__name__, end=" ")
import numba
print(pick(some, 3), numba.njit(lambda: 7)())
"""


def test_errors_are_those_of_python_with_numba_and_without(package):
    (package / "errors_of_a_test.py").write_text(ERRORS)
    code, path = "import draftwood.index.errors_of_a_test", str(package.parent.parent)
    names = f"{'TypeError ' * 5}OverflowError {'ValueError ' * 3}"
    assert run(code, PYTHONPATH=path, **NUMBA).splitlines() == ["CPUDispatcher 2 10 True", f"{names}3 7"]
    run(code, PYTHONPATH=path)
    assert run(code, PYTHONPATH=path).splitlines() == ["Kernel 2 10 False", f"{names}3 7"]


def test_damaged_machine_code_is_not_run(package):
    """Zeros where a disk lost a block, or the end missing: machine code like that would end the process."""
    ask(package, 1)
    (file,) = package.rglob("*.kernel")
    whole = file.read_bytes()
    read = (
        "import sys; from pathlib import Path; import draftwood.index.machine_code as m\n"
        f"file = Path({str(file)!r}); whole, (name, _, key) = file.read_bytes(), file.stem.partition('-')\n"
        "assert m.read_code([file.parent], name, key)\n"
        "damaged = b'', whole[:100], whole[:-1], whole[:200] + bytes(64) + whole[264:], b'x' + whole\n"
        "for part in damaged: file.write_bytes(part); assert m.read_code([file.parent], name, key) is None\n"
    )
    run(read, PYTHONPATH=str(package.parent.parent))
    assert ask(package, 1)[1], "it is compiled again"
    assert file.read_bytes() == whole or ask(package, 1) == (21, ""), "and kept again"


def test_machine_code_that_cannot_be_linked_is_left_to_numba(package):
    ask(package, 1)
    broken = "import draftwood.index.machine_code as m\ndef fail(*_): raise OSError('no')\nm._linked = fail\n"
    for hits in ("0", "1"):
        assert run(broken + ASKED, PYTHONPATH=str(package.parent.parent)).split() == ["21", hits]


# --- the frontier ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_frontier_takes_the_likeliest_first_and_of_equals_the_first(seed):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 9))
    (order, chance, entries), tree = empty.py_func(nodes, 2), np.empty((3, nodes), dtype=np.int32)
    waiting, offered = [], 0
    for node in range(nodes):
        room = nodes - node
        for _ in range(rng.integers(0, 6)):
            likely = float(rng.integers(0, 4)) / 4
            kept = sorted(waiting, key=lambda pair: (-pair[0], pair[1]))[:room]
            assert bar.py_func(order, chance, room) == (kept[-1][0] if len(kept) == room else -1.0)
            slot = offer.py_func(order, chance, room, likely)
            assert (slot >= 0) == (len(kept) < room or likely > kept[-1][0])
            if slot >= 0:
                entries[slot] = offered, 7, node - 1, node
            waiting.append((likely, offered))
            offered += 1
        slot = take.py_func(order, entries, tree, node)
        if not waiting:
            assert slot == -1
            return
        best = min(waiting, key=lambda pair: (-pair[0], pair[1]))
        waiting.remove(best)
        assert (chance[slot], *tree[:, node]) == (best[0], best[1], entries[slot, PARENT], 7)
