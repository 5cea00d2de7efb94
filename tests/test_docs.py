"""README is one page, every document is found from the index, and links and examples are not broken."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted([README, *DOCS.rglob("*.md"), *ROOT.glob("benchmarks/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
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


def test_readme_is_one_page():
    assert len(text(README).splitlines()) <= 120
    assert len(text(README)) <= 8000


def test_what_is_told_of_changes_and_rooms_stays_short():
    assert len(text(ROOT / "CHANGELOG.md").splitlines()) <= 150
    assert len(text(ROOT / "LOG.md").encode()) < 60_000
    cells = re.findall(
        r"[^|\n]+(?=\|)", "\n".join(re.findall(r"^\|.*\|$", text(ROOT / "ARCHITECTURE.md"), re.MULTILINE))
    )
    assert [cell for cell in cells if len(cell.split()) > 25] == []


def test_readme_begins_with_the_two_commands_and_keeps_its_order():
    assert re.match(r"# draftwood\n\n```\nmake demo .*\nmake test .*\n```\n", text(README))
    headings = re.findall(r"^## (.+)$", text(README), re.MULTILINE)
    assert headings == [
        "Install",
        "Use",
        "How much faster",
        "Why the text cannot change",
        "What you know helps",
        "Would it help you?",
        "Drafters",
        "Where it loses",
        "Your own drafter",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCE.sub("", text(page))):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_knows_every_page():
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(text(DOCS / "index.md"))}
    missing = {page for page in DOCS.rglob("*.md") if page.resolve() not in linked} - {DOCS / "index.md"}
    assert not missing


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_says_first_who_needs_it(page):
    assert re.match(r"(<!-- .* -->\n)?# .+\n\nFor ", text(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_examples_compile(page):
    if page == DOCS / "python.md":  # its code blocks are signatures
        return
    for block in re.findall(r"^```python\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE):
        compile(block, str(page), "exec")


def test_the_page_of_the_python_names_is_fresh():
    spec = importlib.util.spec_from_file_location("make_python", DOCS / "make_python.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert text(DOCS / "python.md") == made.page(), "run python docs/make_python.py > docs/python.md"


@pytest.mark.smollm2
def test_the_python_examples_of_readme_run(tmp_path, monkeypatch):
    import draftwood
    from draftwood.cli.main import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "one.py").write_text("def f(x):\n    return x\n", encoding="utf-8")
    assert run(["corpus", "build", "src", "-o", "repo.dwc"]) == 0
    model, tokenizer = draftwood.load("smollm2", engine="transformers")
    given = {
        "model": model,
        "tokenizer": tokenizer,
        "inputs": tokenizer("one two three one two", return_tensors="pt"),
        "prompt": "def f(x):",
        "prompts": ["a b a b", "one two"],
        "old_file": "def f(x):\n    return x\n",
        "page1": "def g(x):",
        "page2": "return x",
    }
    model.generation_config.max_new_tokens = 4
    blocks = re.findall(r"^```python\n(.*?)^```$", text(README), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        short = re.sub(r"max_new_tokens=\d+", "max_new_tokens=4", block)
        exec(short.replace('draftwood.load("smollm2")', "model, tokenizer"), {"draftwood": draftwood, **given})
