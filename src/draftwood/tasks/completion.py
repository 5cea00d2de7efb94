"""Code that breaks off in the middle and is continued without an instruction, as in an editor.

Half of it is the standard library of the running Python, the other half was written for this project, in several
languages: tests, handlers, styles and tables, in which the next lines resemble the last ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftwood.tasks.prompt import Content
from draftwood.tasks.stdlib import source
from draftwood.tasks.texts import completion_one, completion_two

# (module, name in it, how many characters of it).
CASES: tuple[tuple[str, str, int], ...] = (
    ("collections", "UserString", 1300),
    ("xml.sax.saxutils", "XMLGenerator", 1700),
    ("numbers", "Complex", 1500),
    ("ast", "NodeVisitor", 1500),
    ("http.client", "HTTPResponse", 1700),
    ("imaplib", "IMAP4.login", 300),
    ("ftplib", "FTP.login", 700),
    ("mailbox", "MaildirMessage", 1600),
    ("wave", "Wave_read", 1700),
    ("calendar", "HTMLCalendar", 1800),
    ("optparse", "OptionParser.__init__", 1000),
    ("http.cookiejar", "DefaultCookiePolicy", 1500),
    ("configparser", "RawConfigParser.__init__", 1500),
    ("zipfile", "ZipInfo.__init__", 1200),
)


def excerpt(module: str, qualname: str, length: int) -> str:
    """Return the beginning of a function or class, cut off in the middle of a line.

    Parameters
    ----------
    module
        Name of the module to import.
    qualname
        Dotted name within the module.
    length
        The largest number of characters.

    Returns
    -------
    str
        Source text that ends behind a whole word, without white space at its end.

    Raises
    ------
    DraftwoodError
        If this Python has no source for it.
    """
    text = source(module, qualname)
    # A word cut in two would begin the answer with a token that no tokenizer makes.
    return re.sub(r"\w*$", "", text[:length]).rstrip()


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the text of each prompt.

    Yields
    ------
    tuple of str
        A dotted or a short name, and the code.
    """
    for module, qualname, length in CASES:
        yield f"{module}.{qualname}", excerpt(module, qualname, length)
    for name, code in (*completion_one.CODE, *completion_two.CODE):
        yield name, code.strip()
