"""What a terminal shows while drafters are compiled: a note behind the text, gone with the next word."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("draftwood.compiling")
NOTE = "compiling the drafters, once on this machine"


def compiling(monkeypatch):
    """Let drafters say twice that they are compiled when they are opened."""
    from draftwood.drafters.ngram.drafter import NgramDrafter

    opened = NgramDrafter.open

    def told(self, *given):
        LOGGER.info("compiling a")
        LOGGER.info("compiling b")
        return opened(self, *given)

    monkeypatch.setattr(NgramDrafter, "open", told)


def test_on_a_terminal_the_note_comes_behind_the_first_word_and_goes(draftwood, tiny, monkeypatch):
    compiling(monkeypatch)
    ran = draftwood("generate", "a b a b", "-m", tiny, "--max-new-tokens", "4", "--raw", terminal=True)
    assert ran.code == 0
    assert ran.out.count(NOTE) == 1
    first, _, rest = ran.out.partition("\x1b7")
    assert first
    note, _, text = rest.partition("\x1b8\x1b[J")
    assert NOTE in note
    assert text
    assert not LOGGER.handlers
    assert LOGGER.level == logging.NOTSET


def test_a_warning_is_not_wiped_with_the_note(monkeypatch):
    from draftwood.cli.answering import CompilingNote
    from tests.cli.conftest import Terminal

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    warnings = logging.StreamHandler(screen)
    logging.getLogger("draftwood").addHandler(warnings)
    try:
        with CompilingNote():
            LOGGER.info("compiling a")
            logging.getLogger("draftwood").warning("not kept")
    finally:
        logging.getLogger("draftwood").removeHandler(warnings)
    note, _, rest = screen.getvalue().partition("\x1b8\x1b[J")
    assert NOTE in note
    assert rest == "not kept\n"
    assert not logging.getLogger("draftwood").filters


def test_into_a_file_only_the_text_goes(draftwood, tiny, monkeypatch):
    compiling(monkeypatch)
    ran = draftwood("generate", "a b a b", "-m", tiny, "--max-new-tokens", "4", "--raw")
    assert NOTE not in ran.out + ran.err
    monkeypatch.setenv("NO_COLOR", "1")
    ran = draftwood("generate", "a b a b", "-m", tiny, "--max-new-tokens", "4", "--raw", terminal=True)
    assert NOTE not in ran.out + ran.err
