"""llama.cpp's library and files: other layouts, versions and wheels are refused, and no file crashes us."""

import ctypes
import importlib.metadata
import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from draftwood.engines.llama_cpp import library as module
from draftwood.engines.llama_cpp.library import (
    CONTEXT_DEFAULTS,
    CONTEXTS,
    MODEL_DEFAULTS,
    ContextParams,
    ModelParams,
    check_layout,
    library,
)
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.errors import CapabilityError, ModelError, ModelNotFoundError, UnsupportedModelError

STRUCTS = [
    (ModelParams, "llama_model_default_params", MODEL_DEFAULTS),
    (ContextParams, "llama_context_default_params", CONTEXT_DEFAULTS),
]


@pytest.fixture(autouse=True)
def _found_anew():
    """The library is loaded once per process; here it is looked for again and again."""
    yield
    library.cache_clear()


def moved(kind, at, extra):
    """A struct in which the fields from ``at`` on lie behind a new field."""
    fields = list(kind._fields_)
    return type(kind.__name__, (ctypes.Structure,), {"_fields_": [*fields[:at], ("new", extra), *fields[at:]]})


@pytest.mark.parametrize(("kind", "function", "defaults"), STRUCTS)
def test_the_layout_of_the_pinned_version_is_known(kind, function, defaults):
    check_layout(getattr(library(), function)(), defaults)


@pytest.mark.parametrize(("kind", "function", "defaults"), STRUCTS)
@pytest.mark.parametrize("extra", [ctypes.c_uint32, ctypes.c_uint64])
def test_a_struct_moved_by_one_field_is_refused(kind, function, defaults, extra):
    """As if the library had another field than we know, or lacked one, before the last field with a default."""
    known = [name for name, _ in kind._fields_]
    last = max(known.index(name) for name in defaults)
    found = getattr(library(), function)()
    for at in range(last + 1):
        wider = moved(kind, at, extra)
        used = {*defaults, "vocab_only", "kv_unified"} & set(known)
        if all(getattr(wider, name).offset == getattr(kind, name).offset for name in used):
            continue  # it fills a gap: all that we set, or that the library does, lies where it was
        memory = ctypes.create_string_buffer(bytes(found), ctypes.sizeof(wider))
        with pytest.raises(CapabilityError, match=rf"cannot be used safely \({kind.__name__} has another layout"):
            check_layout(wider.from_buffer(memory), defaults)


def test_without_the_wheel_it_says_what_to_install(monkeypatch, tiny_gguf):
    path = tiny_gguf()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    library.cache_clear()
    assert not module.is_installed()
    with pytest.raises(CapabilityError, match=r"files need llama.cpp: run pip install \"draftwood\[llama\]\""):
        LlamaTarget(path)


@pytest.mark.parametrize("there", [False, True])
def test_a_wheel_whose_library_is_missing_or_broken_is_refused(monkeypatch, tmp_path, there):
    (tmp_path / "__init__.py").touch()
    if there:
        (tmp_path / "xllamacpp.abi3.so").write_bytes(b"no library")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    library.cache_clear()
    with pytest.raises(CapabilityError, match="cannot be loaded" if there else "no library for this system"):
        library()


def test_a_function_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(module, "_FUNCTIONS", (*module._FUNCTIONS, ("no_such_function", None)))
    library.cache_clear()
    with pytest.raises(CapabilityError, match=r"cannot be used safely.*no_such_function"):
        library()


# --- the other wheel -------------------------------------------------------------------------------------------


@pytest.fixture
def wheels(monkeypatch, tmp_path):
    """``wheels(xllamacpp=FILES, llama_cpp=FILES)``: only these are installed, with the library as these files."""
    real, versions = module.SOURCES[0].place(), {source.package: source.good[-1] for source in module.SOURCES}

    def version(package):
        if versions[package] is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    def install(**files):
        specs = {}
        for name, some in files.items():
            (tmp_path / name).mkdir()
            for file in some:
                place = tmp_path / name / file
                place.parent.mkdir(exist_ok=True)
                place.symlink_to(real)
            specs[name] = SimpleNamespace(origin=str(tmp_path / name / "__init__.py"))
        monkeypatch.setattr(importlib.util, "find_spec", specs.get)
        monkeypatch.setattr(importlib.metadata, "version", version)
        library.cache_clear()
        return versions

    return install


def test_the_two_wheels_have_two_layouts():
    one, other = CONTEXTS["xllamacpp"], CONTEXTS["llama_cpp_python"]
    assert ctypes.sizeof(one) == ctypes.sizeof(other) + 8
    assert other.type_v.offset == one.type_v.offset
    assert other.kv_unified.offset == one.kv_unified.offset - 8
    found = library().llama_context_default_params()
    wrong = other if isinstance(found, one) else one
    memory = ctypes.create_string_buffer(bytes(found), ctypes.sizeof(one))
    with pytest.raises(CapabilityError, match="ContextParams has another layout at"):
        check_layout(wrong.from_buffer(memory), CONTEXT_DEFAULTS)


FIRST, SECOND = ["xllamacpp.abi3.so"], ["lib/libllama.so"]


@pytest.mark.parametrize(
    ("files", "versions", "release"),
    [
        ({"xllamacpp": FIRST, "llama_cpp": SECOND}, {}, "xllamacpp 2026.10.11549"),
        *(
            ({"llama_cpp": [file]}, {}, "llama_cpp_python 0.3.36")
            for file in (*SECOND, "lib/libllama.dylib", "lib/llama.dll")
        ),
        ({"xllamacpp": [], "llama_cpp": SECOND}, {}, "llama_cpp_python 0.3.36"),
        ({"xllamacpp": ["xllamacpp.pyd"], "llama_cpp": SECOND}, {}, "llama_cpp_python 0.3.36"),
        ({"xllamacpp": FIRST, "llama_cpp": SECOND}, {"xllamacpp": "2027.1.1"}, "llama_cpp_python 0.3.36"),
        ({"llama_cpp": SECOND}, {"llama_cpp_python": "0.3.36+cu124"}, "llama_cpp_python 0.3.36"),
    ],
)
def test_which_wheel_serves(wheels, monkeypatch, files, versions, release):
    """The first that is here, exports functions and is of a known release."""
    wheels(**files).update(versions)
    monkeypatch.setitem(CONTEXTS, "llama_cpp_python", ContextParams)  # the file has the first wheel's library
    assert module.is_installed()
    assert library().release == release


@pytest.mark.parametrize(
    ("files", "versions", "said"),
    [
        (
            {"xllamacpp": FIRST},
            {"xllamacpp": "2026.12.1"},
            r'xllamacpp 2026.12.1 is not known.*install "xllamacpp==20',
        ),
        ({"llama_cpp": SECOND}, {}, r"cannot be used safely.*ContextParams has another layout"),
        (
            {"llama_cpp": SECOND},
            {"llama_cpp_python": "0.3.35"},
            r'python 0.3.35 is not known.*install "xllamacpp==',
        ),
        ({"llama_cpp": SECOND}, {"llama_cpp_python": None}, "llama_cpp_python of an unknown release is not known"),
        ({"xllamacpp": [], "llama_cpp": []}, {}, r"xllamacpp has no library .* pip install .llama_cpp_python=="),
    ],
)
def test_wheels_that_are_refused(wheels, files, versions, said):
    wheels(**files).update(versions)
    with pytest.raises(CapabilityError, match=said):
        library()


# --- files ---------------------------------------------------------------------------------------------------


def test_files_that_are_none(tmp_path):
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        LlamaTarget(tmp_path / "missing.gguf")
    with pytest.raises(ModelError, match="cannot be read"):
        LlamaTarget(tmp_path)
    for content in (b"", b"GG", b"no GGUF at all", b"PK\3\4" * 99):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(ModelError, match="is no GGUF file"):
            LlamaTarget(tmp_path / "other")


def test_files_without_a_vocabulary(tiny_gguf):
    with pytest.raises(UnsupportedModelError, match="has no vocabulary: take a file with"):
        LlamaTarget(tiny_gguf(vocabulary=False), threads=1)


OPEN = """
import sys
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.errors import DraftwoodError

for path in sys.argv[1:]:
    try:
        target = LlamaTarget(path, threads=1)
        ((session, scores),) = target.open([[1, 2, 3]])
        print("opened")
    except DraftwoodError as error:
        assert str(error).count(chr(10)) == 0, error
        print(error)
"""


def opened(*paths):
    """What a process of its own says of each file; it must not crash."""
    command = [sys.executable, "-c", OPEN, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    said = done.stdout.splitlines()
    assert done.returncode == 0, f"after {len(said)} of {len(paths)} files: {done.stderr[-2000:]}"
    assert len(said) == len(paths)
    return said


def test_a_file_that_is_cut_off_is_refused(tiny_gguf, tmp_path):
    whole, paths = tiny_gguf("llama", "Q4_0").read_bytes(), []
    rng = np.random.default_rng(0)
    for length in (4, 8, 24, 25, 100, *rng.integers(4, len(whole), 20).tolist(), len(whole) - 1):
        paths.append(tmp_path / f"{length}.gguf")
        paths[-1].write_bytes(whole[:length])
    for path, said in zip(paths, opened(*paths), strict=True):
        assert said.startswith((f"llama.cpp cannot load {path} (", f"{path} is cut off or damaged (")), said
        assert said.endswith("get the file again")


@pytest.mark.parametrize("files", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_read_but_crash_nothing(tiny_gguf, tmp_path, files):
    """A byte of the head or of the metadata is another one."""
    whole, rng, paths = tiny_gguf("llama", "Q4_0").read_bytes(), np.random.default_rng(1), []
    for number in range(files):
        damaged = bytearray(whole)
        for _ in range(int(rng.integers(1, 4))):
            damaged[int(rng.integers(4, 2000))] = int(rng.integers(256))
        paths.append(tmp_path / f"{number}.gguf")
        paths[-1].write_bytes(damaged)
    opened(*paths)
