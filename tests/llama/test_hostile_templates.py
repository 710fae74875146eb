"""Chat templates that would never end, or fill the memory: refused in one line, within limits."""

from collections.abc import Iterator
from random import Random
from time import process_time

import psutil
import pytest
from fakes import hostile_templates, templates

from localspec.errors import InvalidValueError
from localspec.llama import chat_template
from localspec.llama.chat_template import mentions, render
from localspec.utils.worker_process import WorkerProcess

HI = [{"role": "user", "content": "hi"}]
SECONDS, MEMORY = 0.3, 200_000_000
COMPOSED = 20


@pytest.fixture(autouse=True, scope="module")
def strict_limits() -> Iterator[WorkerProcess]:
    """What exceeds less time and memory exceeds more of them, only later."""
    worker = WorkerProcess("localspec.llama.template_renderer", seconds=SECONDS, memory=MEMORY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template, "_renderer", worker)
        patch.setattr(chat_template, "_over_limits", {})
        yield worker
    worker.close()


def said(template: str) -> str:
    return render(template, HI, bos="<s>", eos="</s>")


@pytest.mark.parametrize("template", hostile_templates.HOSTILE)
def test_a_hostile_template_is_one_clear_error(template: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^the chat template ") as caught:
        said(template)
    assert str(caught.value).isprintable()
    assert str(caught.value).endswith(
        "try another template (chat_template), or a text as the prompt, not messages"
    )
    assert len(str(caught.value)) < 500
    assert said(templates.PLAIN) == "User: hi\nAssistant:"


def test_composed_templates_are_rendered_or_refused() -> None:
    outcomes = {
        hostile_templates.outcome(hostile_templates.composed(Random(number)))
        for number in range(COMPOSED)
    }
    assert "rendered" in outcomes
    assert any("needs more than" in outcome for outcome in outcomes)


@pytest.mark.parametrize("count", [10_000, 300_000])
def test_a_template_may_be_long_but_not_without_bound(count: int) -> None:
    template = "{% for m in messages %}{% for i in range(99999) %}abcd{% endfor %}{% endfor %}"
    messages = HI * (count // 10_000)
    if count == 10_000:
        assert len(render(template, messages, bos="", eos="")) == 4 * 99999
    else:
        with pytest.raises(InvalidValueError, match=r"needs more than \d{7} characters"):
            render(template, messages, bos="", eos="")


def test_long_conversations_are_rendered_whole() -> None:
    messages = [{"role": "user", "content": "word " * 20_000}] * 10
    assert len(render(templates.CHATML, messages, bos="", eos="")) > 10 * 100_000


def test_what_exceeded_the_limits_is_not_tried_again() -> None:
    template = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}!"
    for _ in range(2):
        with pytest.raises(InvalidValueError, match=r"needs more than 0\.3 s"):
            said(template)
    begun = process_time()
    assert chat_template._renderer._process is None
    for _ in range(100):
        with pytest.raises(InvalidValueError):
            said(template)
    assert chat_template._renderer._process is None
    assert process_time() - begun < 1


@pytest.mark.parametrize("brackets", ["()", "[]"])
def test_what_a_hostile_template_reads_is_bounded_too(brackets: str) -> None:
    deep = brackets[0] * 200_000 + "1" + brackets[1] * 200_000
    with pytest.raises(InvalidValueError, match="the chat template"):
        mentions(f"{{{{ {deep} }}}}", "content")


def test_the_worker_ends_with_its_owner(strict_limits: WorkerProcess) -> None:
    said(templates.PLAIN)
    process = strict_limits._process
    assert process is not None
    strict_limits.close()
    assert not psutil.pid_exists(process.pid)
    assert said(templates.PLAIN) == "User: hi\nAssistant:"


def test_a_conversation_that_takes_too_long_does_not_condemn_the_template() -> None:
    """Others may go on with it."""
    slow = "{% for m in messages %}{% for i in range(1000) %}{% endfor %}{% endfor %}said"
    with pytest.raises(InvalidValueError, match="needs more than"):
        render(slow, HI * 100_000, bos="", eos="")
    assert said(slow) == "said"
