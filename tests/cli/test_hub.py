"""Verbs on names of the hub, of which a small one runs on the loopback; and words of other programs."""

from __future__ import annotations

import pytest

from tests.small_hub import used

NAME = "owner/tiny-GGUF"
SHORT = ("--threads", "1", "--max-new-tokens", "2", "--no-learned", "--temperature", "0")


@pytest.fixture
def hub(monkeypatch, tmp_path, tiny_gguf):
    """A repository with a model of two sizes, one in a folder, and a text."""
    with used(monkeypatch, tmp_path) as found:
        template = "{{ messages[0].content }}"
        files = {kind: tiny_gguf("llama", kind, template=template).read_bytes() for kind in ("Q4_0", "Q8_0")}
        found.repositories[NAME] = {
            "README.md": b"tiny", "tiny-Q4_0.gguf": files["Q4_0"], "more/tiny-Q8_0.gguf": files["Q8_0"],
        }  # fmt: skip
        monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "own"))
        yield found


def test_a_name_of_the_hub_answers_and_says_what_was_chosen(draftwood, hub):
    ran = draftwood("generate", "abc", "-m", NAME, *SHORT, "--json")
    assert f"note: {NAME}: Q8_0 (0 MB) is taken, which suits this memory; there are also Q4_0 (0 MB)" in ran.err
    sent = hub.sent
    again = draftwood("run", NAME, "abc", *SHORT, "--json")
    assert again.document["ids"] == ran.document["ids"]
    assert (hub.sent, "is taken" in again.err) == (sent, False)


@pytest.mark.parametrize(
    "how",
    [
        ("-hf", f"{NAME}:q4_0"), ("--hf-repo", NAME, "--hf-file", "tiny-Q4_0.gguf"),
        ("--model", f"hf:{NAME}:Q4_0"),
        ("-m", f"{NAME}/tiny-Q4_0.gguf"),
    ],
)  # fmt: skip
def test_spellings_of_other_tools_name_the_same(draftwood, hub, how):
    draftwood("generate", "abc", *how, *SHORT)
    assert [path for path in hub.asked if "elsewhere" in path] == [f"/elsewhere/{NAME}/tiny-Q4_0.gguf"]


def test_a_file_without_a_repository_is_refused(refused):
    said = refused("generate", "x", "--hf-file", "a.gguf")
    assert "--hf-file is a file of the hub, and smollm2 is no name there: give -hf owner/name" in said


@pytest.mark.parametrize("terminal", [False, True])
def test_pull_list_and_info_do_what_hands_expect(draftwood, hub, terminal):
    before = draftwood("info", NAME).out
    assert "not on this disk: draftwood pull owner/tiny-GGUF brings it" in " ".join(before.split())
    assert [line.split(maxsplit=1)[0] for line in before.splitlines()[1:3]] == ["Q4_0", "Q8_0"]
    assert "taken unless another is named" in before.splitlines()[2]
    models = draftwood("info", NAME, "--json").document["models"]
    assert [(one["label"], one["fits"], one["taken"]) for one in models] == [
        ("Q4_0", True, False),
        ("Q8_0", True, True),
    ]
    assert "no models are here: draftwood fetch brings a small one" in draftwood("list").out
    ran = draftwood("pull", f"{NAME}:Q4_0", terminal=terminal)
    assert ran.out.endswith("tiny-Q4_0.gguf\n")
    assert f"note: downloading 0 MB of {NAME} to " in ran.err
    assert "was here already" in draftwood("fetch", f"{NAME}:Q4_0").err
    assert draftwood("ls").out.split()[0] == f"{NAME}:Q4_0"
    (one,) = draftwood("list", "--json").document
    assert (one["name"], one["place"]) == (f"{NAME}:Q4_0", "hub")
    assert "llama, " in draftwood("info", NAME).out


def test_what_cannot_be_got_is_a_line(refused, hub):
    assert "neither this disk nor " in refused("pull", "owner/gone", code=1)
    assert "has owner/gone, or it is private" in refused("pull", "owner/gone", code=1)
    assert "has no Q2_K; it has Q4_0" in refused("run", f"{NAME}:Q2_K", "abc", code=1)
    assert "Ollama has no qwen3 here" in refused("pull", "ollama:qwen3", code=1)
    assert "--force is for models of draftwood info" in refused("pull", NAME, "--force")


def test_info_of_a_repository_with_a_folder_says_that_it_is_taken(draftwood, hub):
    hub.repositories[NAME]["model.safetensors"] = bytes(2_000_000)
    shown = draftwood("info", NAME).out
    assert "folder      of transformers, 2 MB, taken unless another is named" in shown
    assert shown.count("taken") == 1
    hub.repositories["owner/texts"] = {"README.md": b"none"}
    assert "1, no model among them" in draftwood("info", "owner/texts").out


def test_run_chats(draftwood, hub):
    assert draftwood("run", f"{NAME}:Q4_0", *SHORT, stdin=b"ab\n").err.count("error") == 0
    assert "Usage: draftwood chat" in draftwood("run", "--help").out
