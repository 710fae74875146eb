"""Chat templates that read a content as a list of parts only: no message is lost."""

from typing import Any

import pytest
from fakes import templates

from localspec.errors import InvalidValueError
from localspec.llama import chat_template
from localspec.llama.chat_template import Message, render

CALL = {"type": "function", "function": {"name": "ls", "arguments": {}}}
WRITTEN = '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>'
TURNS: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " What <b>is</b> it? "},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "a.py"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": ""},
    {"role": "assistant", "content": "One\nfile."},
]
BOTH = """{% for m in messages %}
{%- if m.content is string %}{{ m.content }}
{%- else %}{% for part in m.content %}{{ 'part ' ~ part.text }}{% endfor %}{% endif %}
{%- endfor %}"""
# Writes the letters of a text, and texts of parts.
LETTERS = "{% for m in messages %}{% for part in m.content %}{{ part.text or part }}{% endfor %}"
LETTERS += "{% endfor %}"
ONLY = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "_reads_only_parts", {})


def rendered(template: str, messages: list[Message], **options: Any) -> str:
    return render(template, messages, bos="<s>", eos="</s>", options=options)


def test_each_content_is_written() -> None:
    assert rendered(templates.PARTS, TURNS) == (
        "<turn>system: Be brief.</turn>\n"
        "<turn>user:  What <b>is</b> it? </turn>\n"
        f"<turn>assistant: {WRITTEN}</turn>\n"
        "<turn>tool: a.py</turn>\n"
        f"<turn>assistant: {WRITTEN}</turn>\n"
        "<turn>tool: </turn>\n"
        "<turn>assistant: One\nfile.</turn>\n"
        "<turn>assistant: "
    )
    assert rendered(templates.SELECTED_PARTS, TURNS[:2]) == (
        "SYSTEM: Be brief. USER:  What <b>is</b> it?  ASSISTANT:"
    )


def test_an_answer_may_be_left_open() -> None:
    text = rendered(templates.PARTS, TURNS, add_generation_prompt=False)
    assert text.endswith("<turn>assistant: One\nfile.</turn>\n")


def test_lists_stay_as_they_are() -> None:
    parts = [{"type": "image"}, {"type": "text", "text": "What?"}]
    text = rendered(templates.PARTS, [{"role": "user", "content": parts}])
    assert text.startswith("<turn>user:<image>What?</turn>\n")


@pytest.mark.parametrize("template", [BOTH, LETTERS, templates.CHATML, templates.LLAMA3])
def test_a_template_that_writes_texts_gets_texts(template: str) -> None:
    assert "What <b>is</b> it?" in rendered(template, TURNS[:2])
    assert "part" not in rendered(template, TURNS[:2])
    assert chat_template._reads_only_parts == {template: False}


def test_a_template_that_refuses_texts_gets_parts() -> None:
    refuses = "{% if messages[0].content is string %}{{ raise_exception('a text') }}{% endif %}"
    assert rendered(refuses + ONLY, TURNS[:1]) == "Be brief."


@pytest.mark.parametrize(
    "template", ["{{ messages[0].content | length }}", "{{ messages[0].content is string }}"]
)
def test_a_template_that_writes_no_content_gets_texts(template: str) -> None:
    assert rendered(template, TURNS[:1]) in ("9", "True")


def test_a_template_without_its_variables_is_asked_again() -> None:
    needs = "{{ 'for ' + persona + ': ' }}" + ONLY
    with pytest.raises(InvalidValueError, match="needs persona"):
        rendered(needs, TURNS[:1])
    assert rendered(needs, TURNS[:1], persona="a cat") == "for a cat: Be brief."


def test_it_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = chat_template._asked

    def counted(template: str, given: Any) -> Any:
        asked.append(template)
        return ask(template, given)

    monkeypatch.setattr(chat_template, "_asked", counted)
    for template, at_first in ((templates.CHATML, 2), (templates.PARTS, 3)):
        asked.clear()
        rendered(template, TURNS)
        assert len(asked) == at_first
        rendered(template, TURNS)
        assert len(asked) == at_first + 1
