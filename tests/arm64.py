"""Our own engine on arm64, run by an emulator of processors (QEMU): what ``make test-arm`` runs.

It sets up an arm64 Python in ``.venv-arm`` from the registries of this Debian or Ubuntu and of pip, runs tests
there, and compares the scores of smollm2 with those of this processor.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-arm"
SYSTEM, SITE, DONE = FOLDER / "root", FOLDER / "site", FOLDER / "done"
NEEDS = {"apt-get": "apt", "dpkg-deb": "dpkg", "qemu-aarch64-static": "qemu-user-static"}
SYSTEM_PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
PACKAGES = ("gguf", "hypothesis", "pytest", "safetensors")
TESTS = ("law_13", "products", "pool", "target", "growing")  # the last one writes drafted texts
WHEELS = ("manylinux_2_28", "manylinux_2_27", "manylinux2014", "manylinux_2_17")
CPUINFO = "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp asimddp\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
"""LLVM reads the kind of processor here; QEMU would show it the file of this machine."""


def set_up() -> None:
    """Bring an arm64 Python and the packages of pyproject.toml, which needs no rights: nothing is installed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    lists, archives = FOLDER / "apt/lists", FOLDER / "apt/archives"
    for folder in (lists / "partial", archives / "partial", SYSTEM / "proc"):
        folder.mkdir(parents=True)
    (FOLDER / "apt/status").touch()
    own = [
        "APT::Architecture=arm64",
        "APT::Architectures=arm64",
        f"Dir::State::Lists={lists}",
        "APT::Sandbox::User=",
    ]
    own += [f"Dir::State::status={FOLDER / 'apt/status'}", f"Dir::Cache={FOLDER / 'apt'}"]
    apt = ["-qq", *(word for one in own for word in ("-o", one))]
    run("apt-get", *apt, "update")
    others = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    said = run("apt-cache", *apt, "depends", "--recurse", *(f"--no-{one}" for one in others), *SYSTEM_PACKAGES)
    run("apt-get", *apt, "download", *sorted(set(re.findall(r"^[a-z]\S+", said, re.MULTILINE))), folder=archives)
    for package in archives.glob("*.deb"):
        run("dpkg-deb", "-x", str(package), str(SYSTEM))
    (SYSTEM / "proc/cpuinfo").write_text(CPUINFO, encoding="ascii")
    install()
    DONE.touch()


def install() -> None:
    """Bring the wheels for the Python that was found."""
    (minor,) = (path.name.removeprefix("python3.") for path in SYSTEM.glob("usr/bin/python3.[0-9]*[0-9]"))
    said = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    platforms = [f"--platform={one}_aarch64" for one in WHEELS] + ["--platform=any"]
    abis = [f"--abi={one}" for one in (f"cp3{minor}", "abi3", "none")]
    run(
        sys.executable, "-m", "pip", "install", "-q", f"--target={SITE}", "--only-binary=:all:", *platforms, *abis,
        "--implementation=cp", f"--python-version=3.{minor}", f"--constraint={ROOT / 'constraints.txt'}",
        *said["project"]["dependencies"], *PACKAGES,
    )  # fmt: skip


def run(*command: str, folder: Path = ROOT) -> str:
    """Run a command to its end and return what it prints; ends everything, in a sentence, where it fails."""
    ran = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        sys.exit(f"{command[0]} failed, see above: {FOLDER} is made anew by the next make test-arm")
    return ran.stdout


def emulated(*arguments: str) -> list[str]:
    """Return the command that runs Python on an emulated processor, with NEON's dot products."""
    return [
        "qemu-aarch64-static",
        "-cpu",
        "neoverse-n1",
        "-L",
        str(SYSTEM),
        f"{SYSTEM}/usr/bin/python3",
        *arguments,
    ]


def scores(path: str, name: str) -> str:
    """Return the hash of a model's scores: of a prompt of more than a page, of eight tokens, and of a tree."""
    from draftwood.engines.cpu.code.instructions import INSTRUCTIONS
    from draftwood.engines.cpu.target import CpuTarget
    from draftwood.tree import TokenTree

    target, digest = CpuTarget(path, threads=2, instructions=INSTRUCTIONS[name]), hashlib.sha256()
    prompt = np.random.default_rng(7).integers(10, target.capabilities.vocab_size, 70).tolist()
    ((session, found),) = target.open([prompt])
    digest.update(found.raw(0).tobytes())
    for token in range(100, 108):
        (found,) = target.score([(session, token, TokenTree.empty())])
        session.keep(())
        digest.update(found.raw(0).tobytes())
    tree = TokenTree.build(np.arange(100, 110), [-1, 0, 1, 2, 0, 0, -1, 6, 7, 8])
    (found,) = target.score([(session, 99, tree)])
    for row in range(1 + len(tree)):
        digest.update(found.raw(row).tobytes())
    return digest.hexdigest()


def main() -> None:
    """Set up what is not there, then run everything."""
    if lacks := [package for tool, package in NEEDS.items() if shutil.which(tool) is None]:
        sys.exit(
            f"make test-arm needs {' and '.join(lacks)}: on Debian or Ubuntu, apt-get install {' '.join(lacks)}"
        )
    made_of = (ROOT / "pyproject.toml", ROOT / "constraints.txt")
    if not DONE.exists() or DONE.stat().st_mtime < max(path.stat().st_mtime for path in made_of):
        set_up()
    os.environ |= {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{SITE}", "OMP_NUM_THREADS": "1"}
    files = [f"tests/engines/cpu/test_{name}.py" for name in TESTS]
    tests = ["-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow and not smollm2", *(sys.argv[1:] or files)]
    failed = subprocess.run(emulated(*tests), cwd=ROOT).returncode
    from draftwood.engines.cpu.code.instructions import runnable
    from draftwood.local.find import gguf_file

    path = str(gguf_file("smollm2"))
    own = {name: scores(path, name) for name in runnable()}
    code = f"from tests.arm64 import scores; print(scores({path!r}, 'neon'))"
    own["neon, emulated"] = run(*emulated("-c", code)).strip()
    print(*(f"scores of smollm2, {name}: {found}" for name, found in own.items()), sep="\n")
    sys.exit(failed or ("scores differ" if len(set(own.values())) > 1 else 0))


if __name__ == "__main__":
    main()
