"""README is one page, every document is found from the index, and links, commands, names, defaults and examples
hold; one sentence says when drafted texts are equal, in the same words everywhere."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import io
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

import draftwood
from draftwood import tasks
from draftwood.cli.main import command_line, in_our_words
from draftwood.drafters.load import DRAFTERS, SETS, arms
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.files.families import FAMILIES
from draftwood.measure.peers import peer_names
from draftwood.models.engine import ENGINES
from draftwood.planning.load import load as load_planner
from draftwood.verify.load import load as load_rule
from tests.tiers import rest_is_slow

ROOT = Path(__file__).parents[1]
DOCS, README = ROOT / "docs", ROOT / "README.md"
PAGES = sorted([README, *DOCS.rglob("*.md"), *ROOT.glob("benchmarks/**/*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Addresses of a page's headings, as GitHub makes them."""
    made: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text(page)), re.MULTILINE):
        plain = re.sub(r"[^\w -]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()).replace(" ", "-")
        made.add(next(a for a in (plain, *(f"{plain}-{i}" for i in range(1, 99))) if a not in made))
    return made


def test_what_is_told_of_changes_and_rooms_stays_short():
    assert len(text(ROOT / "CHANGELOG.md").splitlines()) <= 150
    assert len(text(ROOT / "LOG.md").encode()) < 60_000
    rows = re.findall(r"^\|.*\|$", text(ROOT / "ARCHITECTURE.md"), re.MULTILINE)
    cells = [cell for row in rows for cell in row.split("|")]
    assert [cell for cell in cells if len(cell.split()) > 25] == []


def test_readme_is_one_page_that_begins_with_the_two_commands():
    assert len([word for word in text(README).split() if re.search(r"\w", word)]) <= 700  # no marks of tables
    assert text(README).count("![") == 1
    assert re.match(r"# draftwood\n\n```\nmake demo .*\nmake test .*\n```\n", text(README))
    headings = re.findall(r"^## (.+)$", text(README), re.MULTILINE)
    assert headings == ["How much faster", "Install", "Use", "Where it loses", "More"]


PROMISE = re.compile(r"without changing|changes? (a|no|any) (single )?(token|text)\b|texts? (stays?|is) the", re.I)
CLAIM = (
    "exact on draftwood's own engine and in float32; in bfloat16 on transformers two nearly equal tokens may fall"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_who_promises_the_same_text_names_the_condition_once_in_the_same_words(page):
    differ = "more than half of the texts then come out different, equally good (156 of 348 were equal)"
    said = f"The text is the model's own: {CLAIM} the other way: {differ}."
    assert text(page).count(said) == bool(PROMISE.search(text(page)))
    assert "156 of 348 texts equal" in text(DOCS / "figures.md")
    assert CLAIM in text(ROOT / "src/draftwood/serve/web/page.html")


TOLD = {README, *DOCS.rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"} - {DOCS / "figures.md"}


def parsed(group, line):
    """Parse a command as the command line does, verb below verb; returns what was given."""
    command, arguments, parent = group, in_our_words(shlex.split(line, comments=True)[1:]), None
    while hasattr(command, "commands") and arguments:
        context = command.make_context(command.name or "draftwood", arguments, parent=parent)
        _, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        parent = context
    try:
        return command.make_context(command.name, arguments, parent=parent).params
    except typer.BadParameter as error:
        if type(error).__name__ != "MissingParameter":  # a page may name a verb, or some of its flags, alone
            raise
        return {}


@pytest.mark.parametrize("page", sorted(TOLD), ids=lambda p: str(p.relative_to(ROOT)))
def test_each_command_parses_with_its_names_and_options(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "head.safetensors").touch()
    group = typer.main.get_command(command_line())
    told = text(page).replace("\\\n", " ")
    lines = [line for block in FENCE.findall(told) for line in block.splitlines() if line.startswith("draftwood ")]
    for line in [*lines, *re.findall(r"`(draftwood [a-z][^`\n]*)`", FENCE.sub("", told))]:
        given = parsed(group, line)
        for name, read in {
            "drafters": arms,
            "planner": load_planner,
            "rule": load_rule,
            "peers": peer_names,
        }.items():
            value = given.get(name) or []
            _ = [read(one) for one in ([value] if isinstance(value, str) else value)]
        assert given.get("engine") in (None, *ENGINES), line
        if isinstance(given.get("tasks"), str):
            kinds = {re.split("[:@]", task)[0] for task in given["tasks"].split(",")}
            assert kinds <= {*tasks.KINDS, "code-suite"}, line


@pytest.mark.parametrize("page", sorted(DOCS.glob("drafters/*.md")), ids=lambda p: p.stem)
def test_options_of_drafters_have_the_defaults_of_the_page(page):
    for name, section in re.findall(r"^## ([a-z-]+)\n(.*?)(?=^## |\Z)", text(page), re.DOTALL | re.MULTILINE):
        table = section.partition("| option | default | meaning |")[2].partition("\n\n")[0]
        for options, defaults in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", table, re.MULTILINE):
            for option, default in zip(options.split(", "), defaults.split(", "), strict=False):
                said = f"{name}:{option.strip('`')}={default.strip('`')}"
                if default not in ("none", "empty") and " " not in default:
                    assert load_drafters(said) == load_drafters(name), said


def test_names_are_told_and_what_is_named_exists():
    told = {page: text(page) for page in TOLD}
    for names, page in ((DRAFTERS, "index.md"), (SETS, "index.md"), (FAMILIES, "cpu.md"), (ENGINES, "cli.md")):
        assert [name for name in names if not re.search(rf"\b{name}\b", told[DOCS / page])] == []
    assert [page for page in TOLD if re.search(r"pip install \S*draftwood", told[page])] == [], (
        "no index has it yet"
    )
    project, every = tomllib.loads(text(ROOT / "pyproject.toml"))["project"], "".join(told.values())
    assert set(",".join(re.findall(r'"\.\[([\w,]+)\]"', every)).split(",")) <= {*project["optional-dependencies"]}
    source = "".join(text(path) for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py"))
    assert {name for name in re.findall(r"DRAFTWOOD_[A-Z_]+", every) if name not in source} == set()
    roots = (ROOT, ROOT / "src" / "draftwood", ROOT / "docs")
    files = re.findall(r"`((?:\w+/)+[\w.]+\.(?:py|md|txt))`", every)
    assert [name for name in files if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCE.sub("", text(page))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_knows_every_page_which_says_first_who_needs_it():
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(text(DOCS / "index.md"))}
    assert {page.resolve() for page in DOCS.rglob("*.md")} - linked == {DOCS / "index.md"}
    assert [page for page in DOCS.rglob("*.md") if not re.match(r"# .+\n\nFor ", text(page))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_examples_compile_and_call_what_there_is(page):
    if page == DOCS / "python.md":  # its code blocks are signatures
        return
    for block in re.findall(r"^```python\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE):
        compile(block, str(page), "exec")
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            if (called := ast.unparse(call.func)).startswith("draftwood."):
                function = eval(called, {"draftwood": draftwood})
                inspect.signature(function).bind_partial(**{word.arg: None for word in call.keywords})


def test_the_page_of_the_python_names_is_fresh():
    spec = importlib.util.spec_from_file_location("make_python", DOCS / "make_python.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert text(DOCS / "python.md") == made.page(), "run python docs/make_python.py > docs/python.md"


@pytest.mark.smollm2
def test_the_python_examples_of_readme_give_what_they_show(capsys):
    whole, argument = re.findall(r"^```python\n(.*?)^```$", text(README), re.DOTALL | re.MULTILINE)
    exec(argument.replace("40", "4"), {})
    exec(whole, {})
    shown = re.search(r"print\(answer\.text\)  # (.*)", whole).group(1)
    assert capsys.readouterr().out.splitlines()[0] == shown


QUICK = [DOCS / f"{name}.md" for name in ("cpu", "server", "transformers")]
RUN = [*QUICK, README, DOCS / "faq.md", DOCS / "measuring.md", DOCS / "drafters" / "your-texts.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
APART = {
    r"^pip install": "installs into this environment",
    r"^make ": "is a demonstration by itself, or these tests",
    r"^draftwood fetch": "asks an index of packages; tests/models/test_fetching.py does so on one of its own",
    r"^draftwood serve": "runs until it is stopped; tests/cli/test_serve.py starts and stops it",
    r"--peers": "needs the files of another engine; tests/measure/test_bench.py runs peers",
    r"--engine (transformers|llama\.cpp)": "needs a model of another engine",
    r"^draftwood drift|--sustain|--live +#": "takes minutes with its default prompts; tests/cli run it with few",
    r"FOLDER .*--dtype": "needs a folder of safetensors; tests/engines/cpu have some",
    r"--profile MODEL": "needs a profile that a quiet machine made; tests/cli/test_profile.py has one",
    r'engine="transformers"': "needs a folder; the test above runs what README has of it",
    r"OpenAI\(|client\.|from ray": "needs a running server, or ray",
}
"""Lines and blocks that are not run, and why."""


def started(line):
    """The words of a line that is a command of ours, without what it sets for other programs; else none."""
    command = re.match(r"(?:[A-Z_]+=\S* )*(draftwood .*)", line)
    return shlex.split(command[1], comments=True) if command else []


@pytest.fixture
def empty_folder(tmp_path, monkeypatch, tiny_gguf):
    """A folder with nothing but what a reader has: models by the names that pages give them, texts, logs."""
    from tests.small_hub import used

    place = tmp_path / "folder"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))  # of a chat that ends at once
    model = Path(tiny_gguf()).read_bytes()
    monkeypatch.setattr("draftwood.local.find.CATALOGUE", {})  # smollm2 is a file here, too
    for name in ("smollm2", "my-model.gguf", "MODEL", "FOLDER"):
        (place / name).write_bytes(model)  # a path that exists is not taken for another name
    (place / "logs.jsonl").write_text('{"prompt": "a b a b", "output": "a b a b a"}\n')
    (place / "answers.jsonl").write_text('{"prompt_ids": [3, 4, 3, 4], "output_ids": [3, 4, 3, 4, 3]}\n')
    (place / "mine.jsonl").write_text('{"prompt": "a b a b"}\n')
    for name in ("src", "docs"):
        (place / name).mkdir()
        (place / name / "a.txt").write_text("some text of a file. " * 40)
    with used(monkeypatch, tmp_path / "home") as hub:
        hub.repositories["owner/name"] = {"name-Q4_K_M.gguf": model}
        yield place


@pytest.mark.parametrize("page", rest_is_slow(RUN, *QUICK), ids=lambda p: p.stem)
def test_blocks_run_as_they_stand_in_an_empty_folder(page, empty_folder, llama, capsys):
    from draftwood.cli.main import run

    ids = llama.dummy_inputs["input_ids"] % 60
    known = {"model": llama, "inputs": {"input_ids": ids}, "draftwood": draftwood}
    for kind, block in BLOCK.findall(text(page)):
        if kind == "python" and not any(re.search(why, block) for why in APART):
            exec(compile(block, str(page), "exec"), known)
        for line in block.replace("\\\n", " ").splitlines() if not kind else ():
            words = started(line)
            if not words or any(re.search(why, line) for why in APART):
                continue
            for name in re.findall(r"@([\w.]+)", line) + re.findall(r"\bnotes\.txt", line):
                (empty_folder / name).write_text("Rename x to count: x = 1\nprint(x)\n" * 3)
            for name in re.findall(r"(?:-o|--trace) (\S+)", line):
                (empty_folder / name).unlink(missing_ok=True)
            few = ["--max-new-tokens", "8"] * (words[1] in ("generate", "bench") or "--live" in words)
            assert run([*words[1:], *few]) == 0, (line, capsys.readouterr().err)
