"""Chat templates: programs out of a downloaded file, and what they may do."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import pytest
from fakes import templates
from fakes.pycode import load

from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError
from localspec.llama.chat_template import Message, mentions, render

HI = [{"role": "user", "content": "hi"}]
DEEP = "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"


def rendered(template: str, messages: Sequence[Message] = HI, **settings: Any) -> str:
    return render(template, messages, bos="<s>", eos="</s>", **settings)


def test_messages_and_tokens_are_there() -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m['content'] }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    )
    messages = [*HI, {"role": "assistant", "content": "yes?"}]
    assert rendered(template, messages) == "<s>user: hi</s>assistant: yes?</s>assistant:"


def test_lines_of_blocks_leave_no_trace() -> None:
    template = """{% for m in messages %}
      {% if m %}
{{ m.role }}
      {% endif %}
    {% endfor %}
"""
    assert rendered(template) == "user\n"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ {'a': 'é<'} | tojson }}", '{"a": "é<"}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ 'é' | tojson(ensure_ascii=True) }}", '"\\u00e9"'),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
    ],
)
def test_what_templates_are_written_with(template: str, text: str) -> None:
    assert rendered(template) == text


def test_today_is_known() -> None:
    assert re.fullmatch(r"20\d\d-\d\d", rendered("{{ strftime_now('%Y-%m') }}"))


def test_a_conversation_may_keep_its_day() -> None:
    then = datetime(2024, 2, 29, 23, 59)
    assert rendered(templates.DATED, now=then).startswith("Today is 2024-02-29.\n")


def test_tools_are_handed_over() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    prompt = rendered(templates.QWEN3, tools=(MappingProxyType(tool),))
    assert '<tools>\n{"type": "function", "function": {"name": "f", ' in prompt


def test_further_variables() -> None:
    prompt = rendered(templates.QWEN3, options={"enable_thinking": False})
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert rendered(templates.NEEDY, options={"persona": "a cat"}).startswith("You are a cat.")
    assert rendered("{{ documents[0] }}", options={"documents": ["one"]}) == "one"


@pytest.mark.parametrize("family", ["CHATML", "LLAMA3", "GEMMA", "QWEN3", "R1", "PLAIN", "DATED"])
def test_the_answer_s_beginning_may_be_left_out(family: str) -> None:
    template = getattr(templates, family)
    history, prompt = (
        rendered(template, options={"add_generation_prompt": False}),
        rendered(template),
    )
    assert len(prompt) > len(history)
    assert prompt.startswith(history)


def test_a_template_keeps_nothing_from_one_time_to_the_next() -> None:
    template = "{% set ns = namespace(n=0) %}{% set ns.n = ns.n + messages | length %}{{ ns.n }}"
    assert [rendered(template, HI * count) for count in (1, 3, 1)] == ["1", "3", "1"]


@pytest.mark.parametrize("name", ["tools", "documents"])
def test_what_was_not_given_is_none(name: str) -> None:
    """Templates ask in all of these ways."""
    template = (
        f"{{% if {name} is not none %}}1{{% endif %}}{{% if {name} %}}2{{% endif %}}"
        f"{{% if not {name} is defined %}}3{{% endif %}}"
    )
    assert rendered(template) == ""


def test_other_missing_variables_are_empty() -> None:
    assert rendered("[{{ enable_thinking }}]{% if custom_tools is defined %}no{% endif %}") == "[]"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ strftime_now.__globals__['__builtins__'] }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ self._TemplateReference__context.eval_ctx.__class__.__mro__[1] }}",
        "{{ messages.append('x') }}",
        "{{ messages[0].update(role='system') }}",
        "{{ messages.clear() }}",
    ],
)
def test_the_sandbox_holds(template: str) -> None:
    with pytest.raises(InvalidValueError, match="chat template"):
        rendered(template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "{{ ''|attr('__class__')|attr('__mro__') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.__len__ }}",
        "{{ strftime_now.__code__ }}",
    ],
)
def test_what_the_sandbox_hides_is_empty(template: str) -> None:
    assert rendered(template) == ""


def test_the_caller_s_messages_are_left_alone() -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(InvalidValueError):
        rendered("{{ messages[0].pop('content') }}", messages)
    assert messages == HI


def test_a_message_is_passed_on_as_it_is() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        MappingProxyType({"role": "assistant", "content": None, "tool_calls": (call,)}),
    ]
    assert rendered("{{ messages[0].content[0].text }}", messages) == "hi"
    assert rendered("{{ messages[0].content is string }}", messages) == "False"
    assert rendered("{{ messages[1].content is none }}", messages) == "True"
    assert rendered("{{ messages[1] is mapping }}", messages) == "True"
    assert rendered("{{ messages[1].tool_calls | tojson }}", messages) == (
        '[{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]'
    )
    assert '<tool_call>\n{"name": "f", ' in rendered(templates.CHATML, messages[1:])


def test_a_template_may_refuse_and_say_why() -> None:
    with pytest.raises(InvalidValueError, match=r"roles must alternate.*\(chat_template\)"):
        rendered("{{ raise_exception('roles must alternate') }}")


def test_a_refusal_is_one_line() -> None:
    with pytest.raises(InvalidValueError) as caught:
        rendered("{{ raise_exception('no\\n\\x1b[2Jtools') }}")
    assert str(caught.value) == (
        "the chat template refuses these messages (no  [2Jtools); "
        "try another template (chat_template), or a text as the prompt, not messages"
    )


def test_turns_that_a_family_does_not_take() -> None:
    with pytest.raises(InvalidValueError, match="user and assistant must take turns"):
        rendered(templates.GEMMA, HI * 2)
    with pytest.raises(InvalidValueError, match="the role tool is unknown"):
        rendered(templates.MISTRAL, [{"role": "tool", "content": "1"}])


@pytest.mark.parametrize(
    "template",
    [
        templates.NEEDY,
        "{{ persona.at.all }}",
        "{{ persona() }}",
        "{{ persona[0][1] }}",
        "{{ 'I, ' + persona }}",
        "{{ persona | tojson }}",
        "{{ messages[0] | tojson }}{{ enable_thinking }}{{ range(persona) | list }}",
        "{{ documents }}{{ custom_tools }}{{ persona + 1 }}",
        "{% set who = persona %}{{ enable_thinking }}{{ who + 1 }}",
        "{% macro greet() %}{{ 1 + persona }}{% endmacro %}{{ greet() }}",
    ],
)
def test_what_is_missing_is_named(template: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        rendered(template, options={"enable_thinking": True})
    assert str(caught.value) == (
        "the chat template needs persona, which template_options did not give; "
        "try another template (chat_template), or a text as the prompt, not messages"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].name + persona | default('') }}",
        "{{ persona }}{{ raise_exception(\"'persona' is undefined\") }}",
        "{{ persona }}{{ raise_exception('Undefined') }}",
        "{{ persona }}{{ 1 / 0 }}",
    ],
)
def test_what_is_missing_is_not_blamed_for_other_things(template: str) -> None:
    with pytest.raises(InvalidValueError, match="refuses these messages"):
        rendered(template)


@pytest.mark.parametrize(
    ("template", "line"),
    [
        (templates.BROKEN, 2),
        ("{% if %}", 1),
        ("{{ messages[0].content", 1),
        ("hello\n\n{{ 'x' | no_such_filter }}", 3),
        ("hello\n{% endfor %}", 2),
    ],
)
def test_where_a_template_is_broken(template: str, line: int) -> None:
    broken = rf"chat template is broken in line {line} \(.+\); try .*\(chat_template\), or a text"
    with pytest.raises(InvalidValueError, match=broken):
        rendered(template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{% include 'other' %}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ '%d' | format('x') }}",
        "{{ [][0].x }}",
        "{{ messages[0].nothing.at.all }}",
        DEEP,
    ],
)
def test_whatever_goes_wrong_is_one_clear_error(template: str) -> None:
    with pytest.raises(InvalidValueError, match="chat template") as caught:
        rendered(template)
    assert str(caught.value).endswith(
        "try another template (chat_template), or a text as the prompt, not messages"
    )
    assert str(caught.value).isprintable()


def endless() -> dict[str, Any]:
    message: dict[str, Any] = {"role": "user"}
    message["content"] = [message]
    return message


@pytest.mark.parametrize(
    "content",
    [endless(), b"bytes", object(), {(1, 2): 3}],
    ids=["endless", "bytes", "an object", "a tuple as key"],
)
def test_messages_that_are_no_json_are_refused(content: object) -> None:
    with pytest.raises(InvalidValueError, match="cannot be given to a chat template") as caught:
        rendered(templates.CHATML, [{"role": "user", "content": content}])
    assert str(caught.value).endswith("use texts, numbers, lists and dicts")


# What a template reads.


@pytest.mark.parametrize(
    "read",
    [
        "{{ message.reasoning_content }}",
        "{{ message['reasoning_content'] }}",
        "{{ message.get('reasoning_content', '') }}",
        "{{ message | attr('reasoning_content') }}",
        "{% if 'reasoning_content' in message %}x{% endif %}",
        "{% if message.reasoning_content is defined %}x{% endif %}",
        "{% generation %}{{ message.reasoning_content }}{% endgeneration %}",
        "{% macro show(m) %}{{ m.reasoning_content }}{% endmacro %}{{ show(message) }}",
        templates.QWEN3,
    ],
)
def test_a_template_that_reads_it(read: str) -> None:
    loop = f"{{% for message in messages %}}{read}{{% break %}}{{% endfor %}}"
    assert mentions(loop, "reasoning_content")
    assert not mentions(loop, "reasoning")


@pytest.mark.parametrize(
    "template",
    [
        "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools }}",
        "{% set tools = tools | default([]) %}{{ tools }}",
        "{% if custom %}{% set tools = custom %}{% endif %}{{ tools }}",
        "{% macro show(tools) %}{{ tools }}{% endmacro %}{{ show(tools) }}",
        "{% for tools in tools %}{{ tools }}{% endfor %}",
        "{% with tools = tools %}{{ tools }}{% endwith %}",
        "{% block tools %}{{ tools }}{% endblock %}",
    ],
)
def test_a_template_that_assigns_what_it_is_given_reads_it(template: str) -> None:
    assert mentions(template, "tools")


@pytest.mark.parametrize(
    "template",
    [
        "{% set tools = [] %}{{ tools }}",
        "{% for tools in messages %}{{ tools }}{% endfor %}",
        "{% macro show(tools) %}{{ tools }}{% endmacro %}{{ show(1) }}",
    ],
)
def test_a_template_that_only_assigns_a_name_does_not_read_it(template: str) -> None:
    assert not mentions(template, "tools")


@pytest.mark.parametrize(
    "template",
    [
        "",
        "reasoning_content",
        "{# message.reasoning_content #}",
        "{% set reasoning_content = 1 %}{{ reasoning_content }}",
        "{{ 'the reasoning_content of it' }}",
        "{% raw %}{{ message.reasoning_content }}{% endraw %}",
        templates.CHATML,
        templates.R1,
    ],
)
def test_a_template_that_only_looks_like_it(template: str) -> None:
    assert not mentions(template, "reasoning_content")


@pytest.mark.parametrize("template", [templates.BROKEN, DEEP])
def test_of_a_broken_template_nobody_knows(template: str) -> None:
    with pytest.raises(InvalidValueError, match="the chat template"):
        mentions(template, "reasoning_content")


# The families the tests of conversations are written with.

TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " hi "},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes?"},
    {"role": "user", "content": "go"},
]


@pytest.mark.parametrize(
    ("family", "part"),
    [
        ("CHATML", "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n<think>\nhm\n"),
        ("LLAMA3", "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"),
        ("LLAMA3", "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"),
        ("GEMMA", "<s><start_of_turn>user\nBe brief.\n\nhi<end_of_turn>\n<start_of_turn>model"),
        ("MISTRAL", "<s>[INST]  hi [/INST] <think>\nhm\n</think>\n\nyes?</s>[INST] Be brief.\n\n"),
        ("QWEN3", "<|im_start|>assistant\nyes?<|im_end|>\n<|im_start|>user\ngo<|im_end|>\n"),
        ("R1", "<s>Be brief.<|User|> hi <|Assistant|>\n\nyes?</s><|User|>go<|Assistant|><think>"),
        ("PLAIN", "System: Be brief.\nUser:  hi \nAssistant: <think>\nhm\n</think>\n\nyes?\n"),
    ],
)
def test_habits_of_families(family: str, part: str) -> None:
    assert part in rendered(getattr(templates, family), TURNS)


def test_thoughts_of_the_last_round_are_kept() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    thought = {"role": "assistant", "content": None, "reasoning_content": "ask f"}
    round_ = [thought | {"tool_calls": [call]}, *[{"role": "tool", "content": x} for x in "12"]]
    kept = rendered(templates.QWEN3, [*HI, *round_])
    assert "assistant\n<think>\nask f\n</think>\n\n<tool_call>\n" in kept
    assert kept.count("<|im_start|>user\n<tool_response>") == 1
    assert "ask f" not in rendered(templates.QWEN3, [*HI, *round_, *HI])


# What the tokenizer makes of it.


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load(draft="none", threads=1) as engine:
        yield engine


def prompt_of(engine: Engine, monkeypatch: pytest.MonkeyPatch, template: str) -> int:
    """How many tokens the prompt has with this template in place of the model's own."""
    monkeypatch.setitem(vars(engine.model), "chat_template", template)
    return engine.generate(HI, max_tokens=1).stats.prompt_tokens


def test_bos_is_not_doubled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = prompt_of(engine, monkeypatch, "{{ messages[0].content }}")
    written = prompt_of(engine, monkeypatch, "{{ bos_token }}{{ messages[0].content }}")
    assert bare == written == len(engine.model.tokenize("hi"))
    assert engine.model.tokenize("hi")[0] == engine.model.bos


def test_a_model_without_a_template_says_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(engine.model), "chat_template", None)
    with pytest.raises(InvalidValueError, match=r"no chat template.*, or a text as the prompt"):
        engine.generate(HI, max_tokens=1)


def test_the_bundled_template_marks_the_turns(engine: Engine) -> None:
    template = engine.model.chat_template
    assert template is not None
    assert rendered(template) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_the_generation_block_of_transformers_is_only_a_mark() -> None:
    template = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    assert render(template, [{"role": "user", "content": "hi"}], bos="", eos="") == "hi"
