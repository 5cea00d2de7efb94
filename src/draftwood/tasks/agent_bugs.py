"""Bugs for the sessions of the workload ``agent``: one line of a standard library function, and a test for it.

Each was run: with the wrong line the test fails with the stated outcome, with the right one it passes. A test
repeats this on the running Python. Lines were chosen that have not changed for many versions.
"""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """A planted mistake.

    Attributes
    ----------
    module, qualname
        The function.
    right, wrong
        Text of one line of it, and what stands there instead.
    call
        An expression in which the module is imported by its name.
    expected
        What the call should give, as :func:`repr` writes it.
    outcome
        What it gives with the mistake: the same, or ``Error: message`` if it raises.
    report
        What a user has written about it.
    at
        Text of the line that raises, the last such line of the function; empty if nothing raises.
    """

    module: str
    qualname: str
    right: str
    wrong: str
    call: str
    expected: str
    outcome: str
    report: str
    at: str = ""


BUGS: tuple[Bug, ...] = (
    Bug(
        "calendar",
        "leapdays",
        "- (y2//100 - y1//100)",
        "+ (y2//100 - y1//100)",
        "calendar.leapdays(1890, 1910)",
        "4",
        "6",
        "The number of leap years is too high as soon as a century lies in between.",
    ),
    Bug(
        "textwrap",
        "indent",
        "text.splitlines(True)",
        "text.splitlines()",
        "textwrap.indent('one\\ntwo\\n', '> ')",
        "'> one\\n> two\\n'",
        "'> one> two'",
        "All lines end up in one line when I quote a mail.",
    ),
    Bug(
        "optparse",
        "Option._set_opt_strings",
        'opt[2] != "-"',
        'opt[2] == "-"',
        "optparse.Option('--verbose').get_opt_string()",
        "'--verbose'",
        "OptionError: invalid long option string '--verbose': must start with --, followed by non-dash",
        "No long option can be defined any more, the program stops at start-up.",
        "raise OptionError(",
    ),
    Bug(
        "ipaddress",
        "_find_address_range",
        "last._ip + 1",
        "last._ip",
        "[(str(a), str(b)) for a, b in ipaddress._find_address_range(map(ipaddress.ip_address, (1, 2, 3, 9)))]",
        "[('0.0.0.1', '0.0.0.3'), ('0.0.0.9', '0.0.0.9')]",
        "[('0.0.0.1', '0.0.0.1'), ('0.0.0.2', '0.0.0.2'), ('0.0.0.3', '0.0.0.3'), ('0.0.0.9', '0.0.0.9')]",
        "Neighbouring addresses are no longer merged.",
    ),
    Bug(
        "colorsys",
        "rgb_to_hsv",
        "h = 2.0+rc-bc",
        "h = 2.0+bc-rc",
        "colorsys.rgb_to_hsv(0.0, 1.0, 0.5)",
        "(0.4166666666666667, 1.0, 1.0)",
        "(0.25, 1.0, 1.0)",
        "Turquoise comes out as yellowish green in the colour picker.",
    ),
    Bug(
        "genericpath",
        "_splitext",
        "filenameIndex = sepIndex + 1",
        "filenameIndex = sepIndex",
        "genericpath._splitext('/home/.profile', '/', None, '.')",
        "('/home/.profile', '')",
        "('/home/', '.profile')",
        "Hidden files are taken for files without a name and with an extension.",
    ),
    Bug(
        "tabnanny",
        "Whitespace.__init__",
        "(b - len(count) + 1)",
        "(b - len(count))",
        "tabnanny.Whitespace('  \\t').norm",
        "((0, 0, 1), 0)",
        "IndexError: list index out of range",
        "Checking a file with mixed indentation ends in a traceback.",
        "count[b] = count[b] + 1",
    ),
    Bug(
        "posixpath",
        "relpath",
        "(len(start_list)-i)",
        "(len(path_list)-i)",
        "posixpath.relpath('/srv/data/a/b', '/srv/www')",
        "'../data/a/b'",
        "'../../../data/a/b'",
        "Links from the web folder into the data folder have too many dots.",
    ),
    Bug(
        "email.utils",
        "formataddr",
        "quotes = '\"'",
        'quotes = "\'"',
        "email.utils.formataddr(('Doe, Jane', 'jane@example.org'))",
        "'\"Doe, Jane\" <jane@example.org>'",
        "\"'Doe, Jane' <jane@example.org>\"",
        "Mail to people with a comma in their name is refused by the server.",
    ),
    Bug(
        "collections",
        "Counter.__sub__",
        "newcount = count - other[elem]",
        "newcount = other[elem] - count",
        "collections.Counter('abbbc') - collections.Counter('bccd')",
        "Counter({'b': 2, 'a': 1})",
        "Counter({'c': 1})",
        "Subtracting the sold items from the stock gives nonsense.",
    ),
    Bug(
        "ftplib",
        "parse227",
        "<< 8",
        "<< 4",
        "ftplib.parse227('227 Entering Passive Mode (10,1,2,3,19,137)')",
        "('10.1.2.3', 5001)",
        "('10.1.2.3', 441)",
        "Passive transfers time out, the port seems to be wrong.",
    ),
    Bug(
        "functools",
        "_c3_merge",
        "s2[1:]",
        "s2[:1]",
        "[c.__name__ for c in functools._c3_merge([[bool, int, object], [int, object], [bool, int]])]",
        "['bool', 'int', 'object']",
        "RuntimeError: Inconsistent hierarchy",
        "Dispatch on a class with two parents cannot find its order.",
        "raise RuntimeError(",
    ),
    Bug(
        "csv",
        "DictReader.__next__",
        "row[lf:]",
        "row[lr:]",
        "list(csv.DictReader(['name,age', 'Ada,36,London']))",
        "[{'name': 'Ada', 'age': '36', None: ['London']}]",
        "[{'name': 'Ada', 'age': '36', None: []}]",
        "Values without a heading get lost when I import a table.",
    ),
    Bug(
        "reprlib",
        "Repr.repr_dict",
        "if n > self.maxdict",
        "if n < self.maxdict",
        "reprlib.Repr().repr_dict({'one': 1, 'two': 2}, 3)",
        "\"{'one': 1, 'two': 2}\"",
        "\"{'one': 1, 'two': 2, ...}\"",
        "Short dictionaries are shown as if something had been left out.",
    ),
    Bug(
        "graphlib",
        "TopologicalSorter._find_cycle",
        "stack[node2stacki[node] :] + [node]",
        "stack[node2stacki[node] :]",
        "graphlib.TopologicalSorter({'a': ['b'], 'b': ['c'], 'c': ['a']})._find_cycle()",
        "['a', 'c', 'b', 'a']",
        "['a', 'c', 'b']",
        "The error about a cycle does not show where it closes.",
    ),
    Bug(
        "pprint",
        "_wrap_bytes_repr",
        "last = len(object) // 4 * 4",
        "last = len(object) // 4",
        "list(pprint._wrap_bytes_repr(b'abcdefghijkl-mno', 12, 4))",
        "[\"b'abcdefgh'\", \"b'ijkl-mno'\"]",
        "[\"b'abcd'\", \"b'efgh'\", \"b'ijkl'\", \"b'-mno'\"]",
        "Long byte strings run over the right margin.",
    ),
    Bug(
        "wsgiref.util",
        "shift_path_info",
        "path_parts = path_info.split('/')",
        "path_parts = path_info.split('/', 1)",
        "(lambda e: (wsgiref.util.shift_path_info(e), e['PATH_INFO']))({'PATH_INFO': '/blog/2024/may'})",
        "('blog', '/2024/may')",
        "('blog/2024/may', '')",
        "Every request below the first folder is answered with page not found.",
    ),
    Bug(
        "_strptime",
        "_calc_julian_from_U_or_W",
        "(day_of_week + 1) % 7",
        "(day_of_week - 1) % 7",
        "_strptime._calc_julian_from_U_or_W(2024, 10, 2, False)",
        "73",
        "71",
        "Dates given by week number are off by some days in the American calendar.",
    ),
    Bug(
        "difflib",
        "_format_range_unified",
        "beginning = start + 1",
        "beginning = start",
        "''.join(difflib.unified_diff(['x\\n'], ['y\\n'], 'a', 'b')).splitlines()[2]",
        "' -1 +1 '",
        "' -0 +0 '",
        "Patches are applied one line too high.",
    ),
    Bug(
        "textwrap",
        "TextWrapper._handle_long_word",
        "end = hyphen + 1",
        "end = hyphen",
        "textwrap.wrap('1234-5678-9012', 7)",
        "['1234-', '5678-', '9012']",
        "['1234', '-5678', '-9012']",
        "Hyphens move to the beginning of the next line.",
    ),
    Bug(
        "cmd",
        "Cmd.parseline",
        "'help ' + line[1:]",
        "'help ' + line",
        "cmd.Cmd().parseline('?quit')",
        "('help', 'quit', 'help quit')",
        "('help', '?quit', 'help ?quit')",
        "A question mark before a command does not show its help any more.",
    ),
    Bug(
        "gettext",
        "_expand_lang",
        "val += territory",
        "val += codeset",
        "gettext._expand_lang('de_AT.UTF-8')",
        "['de_AT.UTF-8', 'de_AT', 'de.UTF-8', 'de']",
        "['de.UTF-8.UTF-8', 'de.UTF-8', 'de.UTF-8', 'de']",
        "Austrian users see the English texts although there is a translation.",
    ),
    Bug(
        "http.client",
        "HTTPConnection._get_hostport",
        "int(host[i+1:])",
        "int(host[i:])",
        "http.client.HTTPConnection('example.org:8080').port",
        "8080",
        "InvalidURL: nonnumeric port: '8080'",
        "It is no longer possible to connect to another port.",
        "raise InvalidURL(",
    ),
    Bug(
        "json.encoder",
        "py_encode_basestring_ascii",
        "n -= 0x10000",
        "n -= 0x1000",
        "json.encoder.py_encode_basestring_ascii('\\U0001f600')",
        "'\"\\\\ud83d\\\\ude00\"'",
        "'\"\\\\ud879\\\\ude00\"'",
        "Emoji in the exported file turn into other characters.",
    ),
    Bug(
        "xml.sax.saxutils",
        "quoteattr",
        "if '\"' in data:",
        'if "\'" in data:',
        "xml.sax.saxutils.quoteattr('5\" pipe')",
        "'\\'5\" pipe\\''",
        '\'"5" pipe"\'',
        "A part with inches in its name makes the whole file unreadable.",
    ),
)
