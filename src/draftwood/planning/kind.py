"""Recognises the kind of a text by its lines, each a record (JSON, tables, logs, markup), a statement of a
program, or words; if words win, short turns and conversational words tell a chat from prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

KINDS = ("code", "prose", "chat", "structured")

LOOKED_AT = 1200  # how many characters from the end are classified: about a dozen lines, in 0.1 ms

_ROLE = re.compile(
    r"<\|im_start\|>(\w+)|<\|(?:start_header_id\|>)?(system|user|assistant|tool)\|>"
    r"|^(?:#+ *)?(system|user|assistant|human|tool|q|a)(?::|$)",
    re.IGNORECASE | re.MULTILINE,
)  # the beginning of a turn, in the usual chat templates
_MARK = re.compile(r"<\|[^|<>]{1,30}\|>|</?s>|\[/?INST\]")  # special tokens of chat templates

_RECORD = re.compile(
    r"""(?:
        ["'][^"']{1,60}["']\s*:             # "key": of JSON
      | [{}\[\]]+,?\s*$ | [{\[]\s*["'{\[]   # brackets that hold records
      | <[/!?]?[a-zA-Z][^<>]*>              # markup
      | \|.*\| | [-=.+*_]{3,}\s*$ | \d++\t  # tables, rules, numbered listings
      | \d{1,4}[-./:]\d\d?[-./:]\d+         # dates, times, addresses
      | (?:INSERT|SELECT|UPDATE|CREATE|DELETE)\s+[A-Z]
      | (?:INFO|WARNING|ERROR|DEBUG|OK|FAIL|Ran)\b[^.?!]*$ | FAILED\b | \d+\s(?:passed|failed)\b
      | Traceback\b | File\s" | [\w.]+Error: | [\w./-]+:\d+:  # of errors, tests and searches
      | [$>]\s\S | [\w.-]++=[^=(\s]*$          # commands, settings
      | (?:ls|cd|cat|grep|sed|git|python|pip|make|diff|pytest|---|\+\+\+|)\s+[\w./-]  # a shell's
      | [\w.-]+:\s+["'\[\d-]                   # YAML
    )""",
    re.VERBOSE,
)
_STATEMENT = re.compile(
    r"""(?:
        (?:async\s+)?(?:def|class)\s+\w+ | (?:from|import)\s+[\w.]+(?:\s+import|\s*$|,|\s+as)
      | (?:if|elif|while|for|with|except|else|try|finally)\b.*:\s*(?:\#.*)?$
      | (?:return|raise|yield|assert|del|pass|break|continue)\b(?:$|\s+[\w.'"(\[{-])
      | @\w+ | \# | // | /\* | \#include\b
      | [\w.\[\]'", ]++[-+*/|&]?=\s*\S            # an assignment
      | [\w.]++\(                 # a call
      | .*[{};]\s*$ | .*\$\{?\w+ | \w+\s--?\w+ | (?:fi|done|esac|end)\s*$
      | .*\b(?:function|const|let|var|public|static|void|self)\b.*[.(=]
      | (?:\"{3}|'{3})
    )""",
    re.VERBOSE,
)
_INNER = re.compile(r"""[=(\[{]\S|\w\(|\w\.\w+\(|[)\]}][,:;]?\s*$""")
"""What an indented line of a program has and one of prose has not."""
_DIFF = re.compile(r"^ -\d", re.MULTILINE)
_TIGHT = re.compile(r"[,;\t|](?=\S)")
_DELIMITERS = re.compile(r"[,;\t|]")
_TALK = re.compile(r"\b(?:you|your|yours|i|me|my|we|let's|please|thanks|hello|hi|sure)\b|\?|!", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}")

_MADE_UP = re.compile(
    r"\b(?:story|poem|tale|letter|dialogue|diary|essay|speech|song|shanty|haiku|novel|scene|monologue|fable|legend"
    r"|sonnet|limerick|obituary|article|review)s?\b",
    re.IGNORECASE,
)  # requests for texts whose answer is prose, however short the request

_SHORT_TURN = 400  # characters; a turn with a pasted passage is longer
_SOME_TALK = 0.03  # share of conversational words above which a text without turns is a chat
_FENCE = "```"
_WIDE = 160  # characters of a line that are classified


def kind_of(text: str) -> str:
    """Return one of `KINDS` for the last `LOOKED_AT` characters of a text with its template; empty text is
    prose.
    """
    turns = _turns(text)
    said = "".join(body for _, body in turns)[-LOOKED_AT:]
    votes = {"code": 0, "structured": 0, "words": 0}
    for line in said.splitlines():
        if line.strip():
            votes[_shape(line)] += len(line)
    total = sum(votes.values())
    marked = votes["code"] + votes["structured"]
    if total and marked >= 0.4 * total:
        records = votes["structured"] > votes["code"] or _DIFF.search(said) or _tools(turns)
        return "structured" if records else "code"
    return "chat" if _talks(turns, said) else "prose"


def _turns(text: str) -> list[tuple[str, str]]:
    """Return role and text of each turn; system messages are left out, as they are the same in all requests."""
    return [turn for turn in _split(text[-3 * LOOKED_AT :]) if turn[0] != "system"]


def _split(text: str) -> Iterator[tuple[str, str]]:
    role, start = "", 0
    for match in _ROLE.finditer(text):
        yield role, _MARK.sub("", text[start : match.start()])
        role, start = next(name for name in match.groups() if name).lower(), match.end()
    yield role, _MARK.sub("", text[start:])


def _shape(line: str) -> str:
    """Return ``structured``, ``code`` or ``words`` for a line that is not blank."""
    if line.lstrip().startswith(_FENCE):
        return "code"
    sentence, line = line.rstrip()[-1] in ".?!", line[:_WIDE]
    head = line.lstrip()
    delimiters = len(_DELIMITERS.findall(head))
    words = len(_WORD.findall(head))
    digits = sum(map(line.count, "0123456789"))
    table = delimiters >= 3 or (len(_TIGHT.findall(head)) >= 2 and "(" not in head)
    if _RECORD.match(head) or (table and 2 * delimiters >= words) or 4 * digits > len(line):
        return "structured"
    if _STATEMENT.match(head) and not (words >= 8 and sentence):
        return "code"
    return "code" if line[0] in " \t" and _INNER.search(line) else "words"


def _tools(turns: list[tuple[str, str]]) -> bool:
    """Whether the turns exchange fenced blocks, as when commands and their output are sent to and fro."""
    fenced = [role for role, body in turns if _FENCE in body]
    return "tool" in fenced or (len(fenced) >= 3 and {"user", "assistant"} <= set(fenced))


def _talks(turns: list[tuple[str, str]], said: str) -> bool:
    """Whether this is a conversation, not work on a pasted passage or a text to be written."""
    asked = [body for role, body in turns if role in ("user", "human", "q")]
    if asked:
        return max(map(len, asked)) < _SHORT_TURN and not _MADE_UP.search(asked[-1])
    words = len(_WORD.findall(said))
    return len(_TALK.findall(said)) > _SOME_TALK * max(1, words)
