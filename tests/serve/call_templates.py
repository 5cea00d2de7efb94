"""Chat templates that write calls as families of models do, each with an answer of two calls in its form."""

from __future__ import annotations

from typing import NamedTuple

_TURNS = (
    "{% if tools %}<system>TOLD{% for t in tools %} {{ t.function.name }} {{ t.function.parameters | tojson }}"
    "{% endfor %}<turn>{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}{% if m.tool_calls %}CALLS{% endif %}<turn>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
_EACH = "{% for c in m.tool_calls %}{% set f = c.function %}CALL{% endfor %}"
_PAIRS = "{% for k, v in f.arguments.items() %}PAIR{% endfor %}"
_ALONE = "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}"


class Written(NamedTuple):
    """A template, the control tokens that it needs, and how a model writes two calls of `ARGUMENTS`, ``{}``."""

    template: str
    calls: str
    tokens: tuple[str, ...] = ()


ODD = 'a </tool_call> "q" \\ {"name": \n\t\u2028 \U0001f333 </b> \'x\''
ARGUMENTS = {"text": ODD, "count": 5, "deep": {"k": [1, None, True, "\u6728"], "": {}}}
_JSON = (
    '{"text": "a </tool_call> \\"q\\" \\\\ {\\"name\\": \\n\\t\u2028 \U0001f333 </b> \'x\'", "count": 5, '
    '"deep": {"k": [1, null, true, "\u6728"], "": {}}}'
)


def template(calls: str, told: str = "") -> str:
    """Return a chat template that writes calls so, and tells of tools in these words."""
    return _TURNS.replace("CALLS", calls).replace("TOLD", told)


def each(call: str, pair: str = "") -> str:
    return _EACH.replace("CALL", call).replace("PAIRS", _PAIRS.replace("PAIR", pair))


_VALUE = "{{ v if v is string else v | tojson }}"
_QWEN = "<parameter={{ k }}>\n" + _VALUE + "\n</parameter>\n"
_GIVEN = "{{ f.arguments if f.arguments is string else f.arguments | tojson }}"
_HERMES = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
_QUOTED = "{{ '<|\"|>' ~ v ~ '<|\"|>' if v is string else v | tojson }}"

_COMMAND = (
    '{"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}'
)

FORMS = {
    "objects with ids": Written(
        template(
            "<|START_THINKING|><|END_THINKING|><|START_ACTION|>[\n    "
            + each(f"{_COMMAND}{{% if not loop.last %}},\n    {{% endif %}}")
            + "\n]<|END_ACTION|>"
        ),
        f'<|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "note", "parameters": {_JSON}}},\n'
        '    {"tool_call_id": "1", "tool_name": "list", "parameters": {}}\n]<|END_ACTION|>',
        ("<|START_ACTION|>", "<|END_ACTION|>"),
    ),
    "hermes": Written(
        template(each(f"<tool_call>\n{_HERMES}\n</tool_call>")),
        f'<tool_call>\n{{"name": "note", "arguments": {_JSON}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "list", "arguments": {}}\n</tool_call>',
    ),
    "hermes of control tokens": Written(
        template(each('<tool_call>{"name": "{{ f.name }}", "arguments": {{ f.arguments }}}</tool_call>')),
        f'<tool_call>{{"name": "note", "arguments": {_JSON}}}</tool_call>'
        '<tool_call>{"name": "list"}</tool_call>',
        ("<tool_call>", "</tool_call>"),
    ),
    "elements": Written(
        template(each("<tool_call>\n<function={{ f.name }}>\nPAIRS</function>\n</tool_call>", _QWEN)),
        f"<tool_call>\n<function=note>\n<parameter=text>\n{ODD}\n</parameter>\n<parameter=count>\n5\n"
        "</parameter>\n"
        '<parameter=deep>\n{"k": [1, null, true, "\u6728"], "": {}}\n</parameter>\n</function>\n</tool_call>\n'
        "<tool_call>\n<function=list>\n</function>\n</tool_call>",
    ),
    "elements without an envelope": Written(
        template(each('<function name="{{ f.name }}">PAIRS</function>',
                      f'<param name="{{{{ k }}}}">{_VALUE}</param>')),
        f'<function name="note"><param name="text"><![CDATA[{ODD}]]></param><param name="count">5</param>'
        "<param name=\"deep\">{'k': [1, None, True, '\u6728'], '': {}}</param></function>"
        '<function name="list"></function>',
    ),
    "elements of keys and values": Written(
        template(each("<tool_call>{{ f.name }}\nPAIRS</tool_call>",
                      "<arg_key>{{ k }}</arg_key>\n<arg_value>" + _VALUE + "</arg_value>\n")),
        f"<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>{ODD}</arg_value>\n<arg_key>count</arg_key>\n"
        '<arg_value>5</arg_value>\n<arg_key>deep</arg_key>\n<arg_value>{"k": [1, null, true, "\u6728"], "": {}}'
        "</arg_value>\n</tool_call><tool_call>list\n</tool_call>",
        ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "bare": Written(
        template(_ALONE + each('{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}')),
        f'<|python_tag|>{{"name": "note", "parameters": {_JSON}}}; {{"name": "list", "parameters": {{}}}}',
        ("<|python_tag|>",),
    ),
    "list": Written(
        template(
            "[TOOL_CALLS] [" + each('{{ raise_exception("ids have 9 letters") if c.id | length != 9 }}'
            '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}, "id": "{{ c.id }}"}'
            "{{ ', ' if not loop.last }}") + "]"
        ),
        f'[TOOL_CALLS] [{{"name": "note", "arguments": {_JSON}, "id": "abcdefghi"}}, '
        '{"name": "list", "arguments": {}, "id": "abcdefghj"}]',
        ("[TOOL_CALLS]",),
    ),
    "names": Written(
        template(each("[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]" + _GIVEN)),
        f"[TOOL_CALLS]note[CALL_ID]abcdefghi[ARGS]{_JSON}[TOOL_CALLS]list[ARGS]{{}}",
        ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    ),
    "literals": Written(
        template(each("<|tool_call>call:{{ f.name }}{{ '{' }}PAIRS{{ '}' }}<tool_call|>",
                      "{{ k }}:" + _QUOTED + "{{ ',' if not loop.last }}")),
        f'<|tool_call>call:note{{count:5,deep:{{<|"|><|"|>:{{}},k:[1,null,true,<|"|>\u6728<|"|>]}},text:<|"|>{ODD}'
        '<|"|>}<tool_call|><|tool_call>call:list{}<tool_call|>',
        ("<|tool_call>", "<tool_call|>", '<|"|>'),
    ),
    "literals of Python": Written(
        template("", "List of tools:"),
        f"<|tool_call_start|>[note(text={ODD!r}, count=5, deep={{'k': [1, None, True, \"\u6728\"], '': {{}}}}), "
        "list()]<|tool_call_end|>",
        ("<|tool_call_start|>", "<|tool_call_end|>"),
    ),
}  # fmt: skip
