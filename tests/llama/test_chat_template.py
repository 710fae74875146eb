"""Chat templates: programs out of a downloaded file, and what they may do."""

import re
from collections.abc import Iterator

import pytest

from localspec.engine import Engine, load
from localspec.errors import InvalidValueError
from localspec.llama.chat_template import render

HI = [{"role": "user", "content": "hi"}]


def rendered(template: str, messages: list[dict[str, str]] = HI) -> str:
    return render(template, messages, bos="<s>", eos="</s>")


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


def test_a_template_may_refuse_and_say_why() -> None:
    with pytest.raises(InvalidValueError, match=r"roles must alternate.*try a raw prompt"):
        rendered("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "template",
    [
        "{% if %}",
        "{{ messages[0].content",
        "{{ nothing.at.all }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{{ 'x' | no_such_filter }}",
        "{% include 'other' %}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ '%d' | format('x') }}",
        "{{ [][0].x }}",
    ],
)
def test_a_broken_template_is_one_clear_error(template: str) -> None:
    with pytest.raises(InvalidValueError, match="chat template") as caught:
        rendered(template)
    assert str(caught.value).endswith("try a raw prompt")


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
    with pytest.raises(InvalidValueError, match=r"no chat template.*--raw"):
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
