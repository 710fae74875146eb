"""Answers with tool calls, as the families of models write them, and what is in them.

What an answer holds is a list: a str is text outside calls, a Call is a call.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from localspec.server.tool_calls import (
    Arguments,
    CallBegun,
    CallEnded,
    Event,
    Family,
    Reasoning,
    Text,
    Tool,
    families,
    joined,
    parser_for,
)


class Call(NamedTuple):
    """A call that is in an answer. arguments: a value, or the text of those of a broken call."""

    name: str
    arguments: Any
    complete: bool = True


class Thought(NamedTuple):
    """Reasoning that is in an answer."""

    text: str


class Answer(NamedTuple):
    """An answer of a family, and what is in it."""

    name: str
    family: Family
    text: str
    holds: Sequence[Any]


WEATHER = Tool(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "alerts": {"type": "boolean"},
            "near": {"type": "object", "properties": {"lat": {"type": "number"}}},
            "tags": {"type": "array", "items": {"type": "string"}},
            "unit": {"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}]},
        },
        "required": ["city"],
        "$defs": {"unit": {"enum": ["C", "F"]}},
    },
    "The weather of a city.",
)
# A name that begins like another one, and a tool without arguments.
TOOLS = (WEATHER, Tool("get"), Tool("get_time", {"type": "object", "properties": {}}))


def contents(events: Iterable[Event]) -> list[Any]:
    """What events say is in an answer, in the notation of this table."""
    result: list[Any] = []
    for event in joined(events):
        match event:
            case Text(text):
                result.append(text)
            case Reasoning(text):
                result.append(Thought(text))
            case CallBegun(index, name):
                assert index == sum(isinstance(each, Call) for each in result)
                result.append(Call(name, "", complete=False))
            case Arguments(_, text):
                result[-1] = result[-1]._replace(arguments=text)
            case CallEnded(_, complete=True):
                call = result[-1]
                result[-1] = Call(call.name, json.loads(call.arguments))
    return result


def parsed(family: Family, pieces: Iterable[str], tools: Iterable[Tool] = TOOLS) -> list[Event]:
    """The events of an answer that arrives in pieces."""
    parser = parser_for(family, tools)
    events = [event for piece in pieces for event in parser.push(piece)]
    return joined([*events, *parser.finish()])


PARIS = Call("get_weather", {"city": "Paris"})
TIME = Call("get_time", {})


def _named(family: Family, before: str, middle: str, after: str) -> list[Answer]:
    """The usual answers of a family that writes calls as {before}NAME{middle}{JSON}{after}."""

    def call(name: str, arguments: str) -> str:
        return before + name + middle + arguments + after

    paris = call("get_weather", '{"city": "Paris"}')
    return [
        Answer("one", family, paris, [PARIS]),
        Answer("after text", family, "Wait.\n" + paris, ["Wait.\n", PARIS]),
        Answer("without arguments", family, call("get_time", "{}"), [TIME]),
        Answer("shorter name", family, call("get", "{}"), [Call("get", {})]),
        Answer("unknown tool", family, x := call("get_w", "{}"), [x]),
        Answer("longer name", family, x := call("get_weathers", "{}"), [x]),
        Answer("list for arguments", family, x := call("get", "[1]"), [x]),
        Answer("cut in the mark", family, x := before[:-1], [x]),
        Answer("cut in the name", family, x := before + "get_we", [x]),
        Answer("cut before arguments", family, x := before + "get_weather" + middle, [x]),
        Answer(
            "cut in the arguments",
            family,
            before + "get_weather" + middle + '{"city": "Par',
            [Call("get_weather", '{"city": "Par', complete=False)],
        ),
        Answer(
            "broken arguments",
            family,
            before + "get_weather" + middle + '{"city": Paris}',
            [Call("get_weather", '{"city": ', complete=False), "Paris}"],
        ),
    ]


def _hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


H = families.HERMES
_HERMES = [
    Answer("one", H, _hermes("get_weather", '{"city": "Paris"}'), [PARIS]),
    Answer(
        "text around",
        H,
        "Wait.\n" + _hermes("get_weather", '{"city": "Paris"}') + "\nDone.",
        ["Wait.\n", PARIS, "\nDone."],
    ),
    Answer(
        "two",
        H,
        _hermes("get_weather", '{"city": "Paris"}') + "\n" + _hermes("get_time", "{}"),
        [PARIS, TIME],
    ),
    Answer(
        "two in one pair of marks",
        H,
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}\n'
        '{"name": "get_time", "arguments": {}}</tool_call>',
        [PARIS, TIME],
    ),
    Answer(
        "arguments first",
        H,
        '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>',
        [PARIS],
    ),
    Answer(
        "arguments as a string",
        H,
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        [PARIS],
    ),
    Answer("no arguments", H, '<tool_call>{"name": "get_time"}</tool_call>', [TIME]),
    Answer("null", H, '<tool_call>{"name": "get_time", "arguments": null}</tool_call>', [TIME]),
    Answer(
        "other keys",
        H,
        '<tool_call>{"id": 7, "type": "function", "name": "get_time", "parameters": {}, "x": [1]}'
        "</tool_call>",
        [TIME],
    ),
    Answer(
        "a raw newline in a string",
        H,
        _hermes("get_weather", '{"city": "a\nb\\n\\u00e9"}'),
        [Call("get_weather", {"city": "a\nb\né"})],
    ),
    Answer(
        "a mark inside a string",
        H,
        _hermes("get_weather", '{"city": "</tool_call>"}'),
        [Call("get_weather", {"city": "</tool_call>"})],
    ),
    Answer(
        "no closing mark",
        H,
        '<tool_call>\n{"name": "get_time", "arguments": {}}\n',
        [TIME, "\n"],
    ),
    Answer(
        "no closing brace",
        H,
        '<tool_call>\n{"name": "get_time", "arguments": {}\n</tool_call>',
        [TIME, "\n</tool_call>"],
    ),
    Answer(
        "cut in the closing mark",
        H,
        '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_c',
        [TIME],
    ),
    Answer("unknown tool", H, x := _hermes("rm", "{}"), [x]),
    Answer("only a mark", H, x := "Write <tool_call> and </tool_call>.", [x]),
    Answer("an object that is no call", H, x := '<tool_call>{"a": 1}</tool_call>', [x]),
    Answer("JSON in prose", H, x := '{"name": "get_time", "arguments": {}}', [x]),
    Answer(
        "a mark, then a call",
        H,
        "<tool_call><tool_call>" + _hermes("get_time", "{}"),
        ["<tool_call><tool_call>", TIME],
    ),
    Answer(
        "a call, then an unknown one",
        H,
        _hermes("get_time", "{}") + "\n" + _hermes("rm", "{}"),
        [TIME, "\n" + _hermes("rm", "{}")],
    ),
    Answer(
        "broken",
        H,
        '<tool_call>{"name": "get_weather", "arguments": {"city": \'Paris\'}}</tool_call>',
        [Call("get_weather", '{"city": ', complete=False), "'Paris'}}</tool_call>"],
    ),
    Answer(
        "broken, then whole",
        H,
        '<tool_call>{"name": "get", "arguments": {1}}</tool_call>' + _hermes("get_time", "{}"),
        [Call("get", "{", complete=False), "1}}</tool_call>", TIME],
    ),
    Answer(
        "broken, and a whole one at once",
        H,
        '<tool_call>{"name": "get_weather", "arguments": {"city": ' + _hermes("get_time", "{}"),
        [Call("get_weather", '{"city": ', complete=False), TIME],
    ),
]

L = families.LLAMA
_LLAMA = [
    Answer("one", L, '{"name": "get_weather", "parameters": {"city": "Paris"}}', [PARIS]),
    Answer("space before", L, '\n{"name": "get_time", "parameters": {}}', ["\n", TIME]),
    Answer(
        "two",
        L,
        '{"name": "get_time", "parameters": {}}; {"name": "get", "parameters": {}}',
        [TIME, Call("get", {})],
    ),
    Answer(
        "python tag",
        L,
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
        [PARIS],
    ),
    Answer("python call", L, 'So: <|python_tag|>get_weather.call(city="Paris")', ["So: ", PARIS]),
    Answer("python code", L, x := "<|python_tag|>print(1)", [x]),
    Answer("unknown tool", L, x := '{"name": "Bob", "parameters": {"age": 3}}', [x]),
    Answer("in prose", L, x := 'Like {"name": "get_time", "parameters": {}}', [x]),
    Answer("other JSON", L, x := '{"a": {"name": "get_time"}} and more', [x]),
    Answer("cut", L, x := '{"name": "get_weather", "param', [x]),
]

Q = families.QWEN_XML
_PARIS_XML = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "</function>\n</tool_call>"
)


def _qwen(key: str, value: str) -> str:
    return (
        f"<tool_call>\n<function=get_weather>\n<parameter={key}>\n{value}\n</parameter>\n"
        "</function>\n</tool_call>"
    )


_QWEN = [
    Answer("one", Q, _PARIS_XML, [PARIS]),
    Answer("text before", Q, "Wait.\n\n" + _PARIS_XML, ["Wait.\n\n", PARIS]),
    Answer("two", Q, _PARIS_XML + "\n" + _PARIS_XML, [PARIS, PARIS]),
    Answer(
        "two functions in one pair of marks",
        Q,
        "<tool_call><function=get_time></function>\n<function=get>\n</function></tool_call>",
        [TIME, Call("get", {})],
    ),
    Answer("on one line", Q, _PARIS_XML.replace("\n", ""), [PARIS]),
    Answer("without the opening mark", Q, _PARIS_XML[len("<tool_call>\n") :], [PARIS]),
    Answer("without the function's end", Q, _PARIS_XML.replace("</function>\n", ""), [PARIS]),
    *(
        Answer(f"{key} is {value!r:.20}", Q, _qwen(key, value), [Call("get_weather", {key: meant})])
        for key, value, meant in [
            ("days", "3", 3),
            ("days", "three", "three"),
            ("days", "3.5", "3.5"),
            ("city", "3", "3"),
            ("city", '"Paris"', '"Paris"'),
            ("city", "\n a <b> \n\n", "\n a <b> \n\n"),
            ("city", "", ""),
            ("city", 'x = "\\n"\t# é', 'x = "\\n"\t# é'),
            ("alerts", "true", True),
            ("alerts", "False", False),
            ("near", '{"lat": 1.5}', {"lat": 1.5}),
            ("near", '{"lat": NaN}', '{"lat": NaN}'),
            ("tags", '\n["a", "b"]\n', ["a", "b"]),
            ("tags", '["</parameter>", "\\"</parameter>"]', ["</parameter>", '"</parameter>']),
            ("tags", '["never closed', '["never closed'),
            ("unit", "C", "C"),
            ("unit", "null", None),
            ("other", "3", "3"),
        ]
    ),
    Answer(
        "several arguments",
        Q,
        _PARIS_XML.replace(
            "</function>",
            "<parameter=days>\n2\n</parameter>\n<parameter=alerts>\ntrue\n</parameter>\n</function>",
        ),
        [Call("get_weather", {"city": "Paris", "days": 2, "alerts": True})],
    ),
    Answer("unknown tool", Q, x := _PARIS_XML.replace("get_w", "got_w"), [x]),
    Answer("the name in prose", Q, x := "Use <function=get_time> for it.", [x]),
    Answer("the mark in prose", Q, x := "Use <tool_call> for it.", [x]),
    Answer("cut before arguments", Q, x := "<tool_call>\n<function=get_weather>\n", [x]),
    Answer(
        "cut in a string",
        Q,
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
        [Call("get_weather", '{"city": "Par', complete=False)],
    ),
    Answer(
        "cut in a number",
        Q,
        "<tool_call>\n<function=get_weather>\n<parameter=days>\n12",
        [Call("get_weather", "{", complete=False), "<parameter=days>\n12"[len("<parameter=") :]],
    ),
    Answer(
        "broken between arguments",
        Q,
        _PARIS_XML.replace("</function>\n</tool_call>", "and so on"),
        [Call("get_weather", '{"city": "Paris"', complete=False), "\nand so on"],
    ),
]

G = families.GLM
_GLM = [
    Answer(
        "one",
        G,
        "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        ["\n", Call("get_weather", {"city": "Paris", "days": 2})],
    ),
    Answer(
        "on one line",
        G,
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"
        "<tool_call>get_time</tool_call>",
        [PARIS, TIME],
    ),
    Answer(
        "newlines belong to the value",
        G,
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>\nP\n</arg_value></tool_call>",
        [Call("get_weather", {"city": "\nP\n"})],
    ),
    Answer("longer name", G, x := "<tool_call>get_weathers</tool_call>", [x]),
    Answer("prose", G, x := "<tool_call>get the weather</tool_call>", [x]),
    Answer(
        "cut in the closing mark",
        G,
        "<tool_call>get_time\n</tool_c",
        [Call("get_time", {})],
    ),
    Answer(
        "cut before it is certain",
        G,
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a</arg_value><",
        [Call("get_weather", '{"city": "a"', complete=False), "<"],
    ),
    Answer(
        "no value",
        G,
        "<tool_call>get_weather<arg_key>city</arg_key>Paris</tool_call>",
        [Call("get_weather", "{", complete=False), "city</arg_key>Paris</tool_call>"],
    ),
]

_OTHER_TAGS = [
    Answer(
        "one",
        families.SEED,
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
        "</function>\n</seed:tool_call>",
        [PARIS],
    ),
    Answer(
        "two",
        families.MINIMAX,
        '\n<minimax:tool_call>\n<invoke name="get_weather">\n'
        '<parameter name="city">Paris</parameter>\n</invoke>\n<invoke name="get_time">\n'
        "</invoke>\n</minimax:tool_call>",
        ["\n", PARIS, TIME],
    ),
]

_LISTS = [
    Answer(
        "two",
        family,
        f'{family.marks[0]}[{{"{name}": "get_weather", "{arguments}": {{"city": "Paris"}}}}, '
        f'{{"{name}": "get_time", "{arguments}": {{}}, "id": "123456789"}}]{closing}',
        [PARIS, TIME],
    )
    for family, name, arguments, closing in [
        (families.MISTRAL_LIST, "name", "arguments", ""),
        (families.GRANITE, "name", "arguments", ""),
        (families.COMMAND, "tool_name", "parameters", "<|END_ACTION|>"),
        (families.NEMOTRON, "name", "arguments", "</TOOLCALL>"),
    ]
]
_LISTS += [
    Answer(
        "one unknown of two",
        families.MISTRAL_LIST,
        '[TOOL_CALLS][{"name": "get_time", "arguments": {}}, {"name": "rm", "arguments": {}}]',
        [TIME, ', {"name": "rm", "arguments": {}}]'],
    ),
    Answer("no list", families.MISTRAL_LIST, x := "[TOOL_CALLS] are [1, 2].", [x]),
]

M = families.MISTRAL
_MISTRAL = [
    *_named(M, "[TOOL_CALLS]", "[ARGS]", ""),
    Answer(
        "two",
        M,
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{}',
        [PARIS, TIME],
    ),
    Answer(
        "with an id", M, '[TOOL_CALLS]get_weather[CALL_ID]aB3456789[ARGS]{"city": "Paris"}', [PARIS]
    ),
    Answer("text after", M, "[TOOL_CALLS]get_time[ARGS]{} So.", [TIME, " So."]),
]

BEGINS, BEGIN, SEP, END, ENDS = (
    f"<\uff5ctool▁{words}\uff5c>"
    for words in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end")
)
_DEEPSEEK = [
    *_named(families.DEEPSEEK, BEGINS + BEGIN, SEP, END + ENDS),
    Answer(
        "two",
        families.DEEPSEEK,
        f'{BEGINS}{BEGIN}get_weather{SEP}{{"city": "Paris"}}{END}'
        f"{BEGIN}get_time{SEP}{{}}{END}{ENDS}",
        [PARIS, TIME],
    ),
    Answer("without the outer marks", families.DEEPSEEK, f"{BEGIN}get{SEP}{{}}", [Call("get", {})]),
    *_named(
        families.DEEPSEEK_FENCED,
        f"{BEGINS}{BEGIN}function{SEP}",
        "\n```json\n",
        f"\n```{END}{ENDS}",
    ),
]
_KIMI = [
    *_named(
        families.KIMI,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
        ":0<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
]
_FUNCTION_TAG = _named(families.FUNCTION_TAG, "<function=", ">", "</function>")

E = families.GEMMA
_PARIS_GEMMA = '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'
_GEMMA = [
    Answer("one", E, _PARIS_GEMMA, [PARIS]),
    Answer("two", E, _PARIS_GEMMA + _PARIS_GEMMA, [PARIS, PARIS]),
    Answer("text around", E, "So:" + _PARIS_GEMMA + " Yes.", ["So:", PARIS, " Yes."]),
    Answer("no arguments", E, "<|tool_call>call:get_time{}<tool_call|>", [TIME]),
    Answer(
        "all kinds of values",
        E,
        '<|tool_call>call:get_weather{city:<|"|>a "b",{c}\n<|"|>,days:-3,alerts:true,'
        'near:{lat:1.5,<|"|>l n<|"|>:{}},tags:[<|"|>a<|"|>,[],null],unit:C}<tool_call|>',
        [
            Call(
                "get_weather",
                {
                    "city": 'a "b",{c}\n',
                    "days": -3,
                    "alerts": True,
                    "near": {"lat": 1.5, "l n": {}},
                    "tags": ["a", [], None],
                    "unit": "C",
                },
            )
        ],
    ),
    Answer(
        "JSON's quotes", E, '<|tool_call>call:get_weather{"city": "Paris"}<tool_call|>', [PARIS]
    ),
    Answer("unknown tool", E, x := "<|tool_call>call:rm{}<tool_call|>", [x]),
    Answer("prose", E, x := "<|tool_call>call:get_weather (city)<tool_call|>", [x]),
    Answer(
        "cut in a string",
        E,
        '<|tool_call>call:get_weather{city:<|"|>Par<|',
        [Call("get_weather", '{"city": "Par', complete=False), "<|"],
    ),
    Answer(
        "cut in a number",
        E,
        "<|tool_call>call:get_weather{days:1",
        [Call("get_weather", '{"days": ', complete=False), "1"],
    ),
    Answer(
        "broken",
        E,
        "<|tool_call>call:get_weather{days:1;2]<tool_call|>",
        [Call("get_weather", '{"days": "1;2"', complete=False), "]<tool_call|>"],
    ),
    Answer(
        "one",
        families.FUNCTION_GEMMA,
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>",
        [PARIS],
    ),
]

P = families.PYTHONIC
_PYTHON = [
    Answer("one", P, '[get_weather(city="Paris")]', [PARIS]),
    Answer("two", P, '[get_weather(city="Paris"), get_time()]', [PARIS, TIME]),
    Answer(
        "all kinds of values",
        P,
        "[get_weather(city='a, (b)\\n', days=-3, alerts=True, near={'lat': 1.5}, "
        "tags=['a', \"]\"], unit=None)]",
        [
            Call(
                "get_weather",
                {
                    "city": "a, (b)\n",
                    "days": -3,
                    "alerts": True,
                    "near": {"lat": 1.5},
                    "tags": ["a", "]"],
                    "unit": None,
                },
            )
        ],
    ),
    Answer(
        "JSON's words", P, "[get_weather(alerts=true)]", [Call("get_weather", {"alerts": True})]
    ),
    Answer(
        "a block of code", P, 'So:\n```tool_code\nget_weather(city="Paris")\n```', ["So:\n", PARIS]
    ),
    Answer("unknown function", P, x := "[rm(x=1)]", [x]),
    Answer("a list", P, x := "[1, 2, 3]", [x]),
    Answer("prose", P, x := "[get_weather](https://example.org)", [x]),
    Answer("an argument without a name", P, x := '[get_weather("Paris")]', [x]),
    Answer("later in the text", P, x := "Like [get_time()]", [x]),
    Answer(
        "a name for a value",
        P,
        "[get_weather(city=here)]",
        [Call("get_weather", '{"city": ', complete=False), "here)]"],
    ),
    Answer(
        "cut",
        P,
        '[get_weather(city="Paris", days=1',
        [Call("get_weather", '{"city": "Paris", "days": ', complete=False), "1"],
    ),
    Answer(
        "one",
        families.LFM,
        'So <|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|> yes',
        ["So ", PARIS, " yes"],
    ),
]

GPT = families.HARMONY
_ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
_HARMONY = [
    Answer(
        "reasoning, then an answer",
        GPT,
        _ANALYSIS + "<|channel|>final<|message|>Hello.<|return|>",
        [Thought("Hm."), "Hello."],
    ),
    Answer(
        "reasoning, then a call",
        GPT,
        _ANALYSIS + "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "Paris"}<|call|>',
        [Thought("Hm."), PARIS],
    ),
    Answer(
        "the recipient first",
        GPT,
        ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>',
        [PARIS],
    ),
    Answer(
        "the recipient behind the role",
        GPT,
        _ANALYSIS + " to=functions.get_time<|channel|>commentary json<|message|>{}",
        [Thought("Hm."), TIME],
    ),
    Answer(
        "a preamble",
        GPT,
        "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.get_time<|message|>{}<|call|>",
        ["Wait.", TIME],
    ),
    Answer("without headers", GPT, x := "Hello <b> <|x|>.", [x]),
    Answer(
        "unknown tool",
        GPT,
        x := "<|channel|>commentary to=functions.rm<|message|>{}<|call|>",
        [x],
    ),
    Answer("cut in the header", GPT, x := "<|channel|>commentary to=functions.get_t", [x]),
    Answer("no header", GPT, x := "<|channel|>final<|end|>", [x]),
    Answer(
        "cut in the arguments",
        GPT,
        '<|channel|>commentary to=functions.get_weather<|message|>{"city": "P',
        [Call("get_weather", '{"city": "P', complete=False)],
    ),
    Answer("cut in the answer", GPT, "<|channel|>final<|message|>Hel", ["Hel"]),
]

ANSWERS = [
    *_HERMES,
    *_LLAMA,
    *_QWEN,
    *_GLM,
    *_OTHER_TAGS,
    *_LISTS,
    *_MISTRAL,
    *_DEEPSEEK,
    *_KIMI,
    *_FUNCTION_TAG,
    *_GEMMA,
    *_PYTHON,
    *_HARMONY,
]
