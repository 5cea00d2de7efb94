"""What would be published: an sdist, and a wheel made from it that runs beside nothing but what it declares."""

import os
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

import draftwood

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
HEAD = 11_000_000
"""Bytes of the trained head that comes with the package for smollm2."""
DECODE = """
import sys
import draftwood
import draftwood.tasks
from draftwood.testing import ToyTarget

prompt, settings = [1, 2, 3] * 9, {"max_new_tokens": 40}
drafted = draftwood.generate(ToyTarget(), prompt, planner="fixed:16", **settings)
assert drafted.ids == draftwood.generate(ToyTarget(), prompt, drafters="none", **settings).ids
assert drafted.stats.drafted
assert draftwood.__file__.startswith(sys.prefix), draftwood.__file__
assert len(draftwood.tasks.prompts("chat")) > 20
assert not {"torch", "transformers", "scipy"} & set(sys.modules)
print(len(drafted.ids))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that was made from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Run a program of a new environment that holds the wheel and what it declares, extras left out."""
    home = tmp_path_factory.mktemp("new")
    place = home / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    for name in declared("draftwood"):
        link(name, site_of(place))
    install = [sys.executable, "-m", "pip", "--python", place, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, built[1]], check=True, capture_output=True, text=True)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV_"))}

    def run(program, *arguments):
        path = next(place.glob(f"*/{program}"))
        ran = subprocess.run([path, *arguments], cwd=home, env=clean, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    return run


def declared(name, found=None):
    """What a distribution needs on this machine without extras, and what that needs."""
    found = set() if found is None else found
    for requirement in map(Requirement, distribution(name).requires or ()):
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and requirement.name not in found:
            found.add(requirement.name)
            declared(requirement.name, found)
    return found


def link(name, site):
    """Make a distribution of this environment importable in another: no download, and nothing else comes along."""
    known = distribution(name)
    tops = {file.parts[0] for file in known.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(Path(known.locate_file(top)))


def site_of(place):
    return next(place.glob("lib/python*/site-packages"), place / "Lib" / "site-packages")


def test_the_wheel_holds_the_package_and_its_licence(built):
    names = ZipFile(built[1]).namelist()
    info = f"draftwood-{draftwood.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"draftwood", info}
    assert f"{info}/licenses/LICENSE" in names
    source = ROOT / "src"
    files = (path for path in source.rglob("*.*") if path.parent.name != "__pycache__" and path.suffix != ".py")
    data = {str(path.relative_to(source)) for path in files}
    assert {
        "draftwood/py.typed",
        "draftwood/measure/report/page.html.j2",
        "draftwood/tasks/data/chat.jsonl",
    } <= data
    assert data <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert built[1].stat().st_size < 2_000_000 + HEAD


def test_the_sdist_holds_what_tests_and_builds_it(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in (
        "pyproject.toml",
        "Makefile",
        "constraints.txt",
        "LICENSE",
        "README.md",
        "tests/test_packages.py",
    ):
        assert name in names
    assert not [name for name in names if name.endswith(".zst")]
    assert built[0].stat().st_size < 5_000_000 + HEAD


def test_both_packages_have_the_version_of_the_repository(built):
    assert [path.name.partition("-")[2] for path in built] == [
        f"{draftwood.__version__}.tar.gz",
        f"{draftwood.__version__}-py3-none-any.whl",
    ]


def test_the_command_runs_in_a_new_environment(installed):
    assert installed("draftwood", "--version") == (0, f"draftwood {draftwood.__version__}\n", "")
    code, out, _ = installed("draftwood", "--help")
    assert code == 0
    assert "generate" in out


def test_text_is_written_in_a_new_environment(installed):
    assert installed("python", "-W", "error", "-c", "import draftwood")[:2] == (0, "")
    assert installed("python", "-c", DECODE) == (0, "40\n", "")


def test_a_verb_that_needs_an_extra_says_which(installed):
    code, out, err = installed("draftwood", "generate", "hello", "--engine", "transformers")
    assert (code, out) == (1, "")
    assert "draftwood[transformers]" in err
