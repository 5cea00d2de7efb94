"""Structured text: JSON, logs, diffs and stack traces, to be continued or to be turned into something else.

The data is made up by seeded draws (:mod:`draftwood.tasks.records`), diffs and traces from the standard library of
the running Python. About half of the prompts are plain text that breaks off; the others ask for a change or for
another format.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from draftwood.tasks import records
from draftwood.tasks._seeded import Draw
from draftwood.tasks.prompt import Content, asked
from draftwood.tasks.stdlib import place, source

# (module, name in it, old word, new word) for diffs.
_RENAMED: tuple[tuple[str, str, str, str], ...] = (
    ("shlex", "shlex.push_source", "newstream", "incoming"),
    ("calendar", "HTMLCalendar.formatmonth", "theyear", "year"),
    ("bdb", "Breakpoint.bpprint", "out", "target"),
    ("copy", "_deepcopy_dict", "y", "result"),
    ("gzip", "_GzipReader._read_eof", "crc32", "checksum"),
)
# (module, name in it, text of the line): frames of stack traces, outermost first.
_FRAMES: tuple[tuple[str, str, str], ...] = (
    ("json", "load", "return loads("),
    ("json.decoder", "JSONDecoder.decode", "self.raw_decode("),
    ("json.decoder", "JSONDecoder.raw_decode", "raise JSONDecodeError("),
)
_LOOP: tuple[tuple[str, str, str], ...] = (
    ("copy", "deepcopy", "y = copier(x, memo)"),
    ("copy", "_deepcopy_dict", "deepcopy(value, memo)"),
)
_APPLICATION = (
    ('"/srv/shop/app/server.py", line 88, in handle', "response = self.routes[request.path](request)"),
    ('"/srv/shop/app/views.py", line 41, in import_orders', "orders = read_orders(request.files['orders'])"),
    ('"/srv/shop/app/orders.py", line 17, in read_orders', "return [Order(**row) for row in json.load(stream)]"),
)
_MAILER = (
    ('"/opt/mailer/bin/mailer", line 9, in <module>', "sys.exit(main(sys.argv[1:]))"),
    ('"/opt/mailer/mailer/command.py", line 63, in main', "return options.run(options)"),
    ('"/opt/mailer/mailer/send.py", line 27, in run', "server = connect(read_settings(options.settings))"),
    ('"/opt/mailer/mailer/settings.py", line 14, in read_settings', "host = parser.get('mail', 'smtp_host')"),
)
_REPORTS = (
    ('"/home/kaya/reports/weekly.py", line 112, in <module>', "write_page(build_report(this_week()))"),
    ('"/home/kaya/reports/weekly.py", line 74, in build_report', "rows = [summary(town) for town in TOWNS]"),
    (
        '"/home/kaya/reports/weekly.py", line 51, in summary',
        "return town, mean(readings[town]), len(readings[town])",
    ),
)


def _pretty(rows: list[dict[str, Any]]) -> str:
    return json.dumps(rows, indent=2)


def _fenced(request: str, text: str, language: str = "") -> Content:
    return asked(f"{request}\n\n```{language}\n{text}\n```")


def _broken(text: str) -> str:
    """Cut off the last quarter, behind a whole word."""
    return re.sub(r"\w*$", "", text[: len(text) * 3 // 4]).rstrip()


def _json(draw: Draw) -> Iterator[tuple[str, Content]]:
    yield "json-orders", _broken(_pretty(records.orders(draw, 6)))
    request = "Rename the key `qty` to `quantity` in this document. Return the whole document and nothing else."
    yield "json-rename", _fenced(request, _pretty(records.orders(draw, 5)), "json")
    yield "json-sensors", _broken(_pretty(records.sensors(draw, 9)))
    request = "Remove every reading whose status is not `ok`. Return the rest of the document unchanged."
    yield "json-filter", _fenced(request, _pretty(records.sensors(draw, 7)), "json")
    yield "json-people", _broken(_pretty(records.people(draw, 6)))
    request = "Write these records as CSV with a line of headings."
    yield "json-to-csv", _fenced(request, _pretty(records.people(draw, 5)), "json")
    rows = records.orders(draw, 14)
    heads = list(rows[0])
    csv = [heads, *([str(row[head]) for head in heads] for row in rows)]
    yield "csv-orders", _broken("\n".join(",".join(line) for line in csv))
    table = "\n".join(",".join(line) for line in csv[:9])
    yield "csv-to-markdown", _fenced("Turn this CSV into a Markdown table with the same columns.", table, "csv")


def _logs(draw: Draw) -> Iterator[tuple[str, Content]]:
    yield "log-access", "\n".join(records.access_log(draw, 8))
    request = "Replace the last part of every address in this log by `x`. Return the whole log and nothing else."
    yield "log-anonymise", _fenced(request, "\n".join(records.access_log(draw, 7)))
    yield "log-jobs", _broken("\n".join(records.job_log(draw, 18)))
    request = "List the lines of this log that are warnings or errors, exactly as they stand."
    yield "log-errors", _fenced(request, "\n".join(records.job_log(draw, 16)))
    yield "log-sql", _broken("\n".join(records.inserts(draw, 12)))
    request = "Turn each line of this log into a JSON object with the keys time, level, job and message."
    yield "log-to-json", _fenced(request, "\n".join(records.job_log(draw, 8)))


def _diff(module: str, qualname: str, old: str, new: str, lines: int = 3) -> str:
    before = source(module, qualname)
    after = re.sub(rf"\b{old}\b", new, before)
    path = f"{module.replace('.', '/')}.py"
    found = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm="", n=lines
    )
    return "\n".join(found)


def _diffs(_: Draw) -> Iterator[tuple[str, Content]]:
    module, qualname, old, new = _RENAMED[0]
    yield "diff-stream", _broken(_diff(*_RENAMED[0]))
    request = "Apply this diff to the function below. Return the whole function and nothing else."
    module, qualname, old, new = _RENAMED[1]
    text = f"{_diff(module, qualname, old, new, 1)}\n```\n\n```python\n{source(module, qualname).rstrip()}"
    yield "diff-apply", _fenced(request, text, "diff")
    yield "diff-breakpoint", _broken(_diff(*_RENAMED[2]))
    yield "diff-reverse", _fenced("Write the diff that undoes this one.", _diff(*_RENAMED[3]), "diff")
    yield "diff-checksum", _broken(_diff(*_RENAMED[4]))


def _frame(module: str, qualname: str, text: str) -> tuple[str, str]:
    lines, first, last = place(module, qualname)
    # The first line of the function stands in where another Python words the line differently.
    number = next((n for n in range(first, last + 1) if text in lines[n - 1]), first)
    path = f"/usr/lib/python3/{module.replace('.', '/')}{'/__init__' if module == 'json' else ''}.py"
    return f'"{path}", line {number}, in {qualname.rpartition(".")[2]}', lines[number - 1].strip()


def _trace(frames: tuple[tuple[str, str], ...], error: str) -> str:
    shown = "".join(f"  File {where}\n    {text}\n" for where, text in frames)
    return f"Traceback (most recent call last):\n{shown}{error}"


def _traces(draw: Draw) -> Iterator[tuple[str, Content]]:
    parsing = tuple(_frame(*frame) for frame in _FRAMES)
    deep = tuple(_frame(*frame) for frame in _LOOP)
    whole = _trace(
        (*_APPLICATION, *parsing), "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    )
    start = _trace((('"/srv/shop/app/cart.py", line 52, in snapshot', "saved = copy.deepcopy(self.items)"),), "")
    yield "trace-recursion", start + "".join(f"  File {where}\n    {text}\n" for where, text in deep * 3).rstrip()
    request = "List the frames of this stack trace as `file:line function`, one per line, outermost first."
    yield "trace-frames", _fenced(request, whole)
    missing = f"KeyError: 'delivery-{draw.below(900) + 100}'"
    chained = "During handling of the above exception, another exception occurred:"
    again = _trace(_APPLICATION[:2], "")
    yield "trace-chained", f"{_trace(_APPLICATION, missing)}\n\n{chained}\n\n{again.rstrip()}"
    request = "Shorten every path in this stack trace to the name of the file. Return the whole trace."
    option = _frame("configparser", "RawConfigParser.get", "raise NoOptionError(")
    error = "configparser.NoOptionError: No option 'smtp_host' in section: 'mail'"
    yield "trace-shorten", _fenced(request, _trace((*_MAILER, option), error))
    log = records.job_log(draw, 5)
    before, begun = "\n".join(log[:4]), _trace(_APPLICATION[:1], "").rstrip()
    yield "trace-in-log", f"{before}\n{_trace(_APPLICATION, missing)}\n{log[4]}\n{begun}"
    request = "Turn this stack trace into a JSON list of objects with the keys file, line, function and code."
    mean = _frame("statistics", "mean", "raise StatisticsError(")
    error = "statistics.StatisticsError: mean requires at least one data point"
    yield "trace-to-json", _fenced(request, _trace((*_REPORTS, mean), error))


_GROUPS: tuple[Callable[[Draw], Iterator[tuple[str, Content]]], ...] = (_json, _logs, _diffs, _traces)


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the messages or the text of each prompt.

    The groups take turns, so that the first few prompts hold something of each.

    Yields
    ------
    tuple of str and content
        A short name, and plain text that breaks off or a request with a document.
    """
    waiting = [group(Draw(group.__name__)) for group in _GROUPS]
    while waiting:
        for group in list(waiting):
            found = next(group, None)
            if found is None:
                waiting.remove(group)
            else:
                yield found
