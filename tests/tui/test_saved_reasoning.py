"""A conversation goes on with the reasoning, its budget and the chat template that it had."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fakes.pilot import running_chat
from fakes.plain_chat import Chat, contents, prompt_of
from fakes.scripted import TEMPLATE, Script

from localspec.conversation.thinking import thinking_variables
from localspec.conversation.turns import Turn
from localspec_tui.archive import Archive
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.session_settings import SessionSettings

pytestmark = pytest.mark.usefixtures("home")
# The prompt opens the reasoning, or closes it.
OPENED = TEMPLATE + (
    "{% if add_generation_prompt %}"
    "{{ '<think>\n\n</think>\n\n' if enable_thinking is false else '<think>\n' }}{% endif %}"
)
BUDGET: dict[str, Any] = {"session_options": {"thinking_budget": 5}}


@pytest.fixture(autouse=True)
def short_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    # The archive takes the tokens of no larger vocabulary.
    monkeypatch.setattr("fakes.scripted._BYTES_PER_TOKEN", 3)


def test_an_answer_goes_on_with_its_budget_and_its_template(chat: Chat, file: Path) -> None:
    cut = {"sampling": {"max_tokens": 2}, "chat_template": OPENED, **BUDGET}
    done = chat(Script(["Hm, let me see."]), "go\n", **cut)
    assert (done.turns[-1].thought, done.turns[-1].content) == ("Hm, le", "")
    script = Script(["t me see. It is"])
    done = chat(script, "/continue\n", latest=True, sampling={"max_tokens": 99})
    assert "answer was begun" not in done.notes and script.engines[0].options["chat_template"]
    assert done.turns[-1].thought == "Hm, let me see."[: 5 * 3]
    with closing(Archive(file)) as archive:
        kept = archive.settings(archive.latest() or "")
    assert (kept.session_options, kept.chat_template) == (BUDGET["session_options"], OPENED)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"session_options": {"thinking_budget": 9}}, "with a thinking budget of 5, and there is"),
        (
            {"chat_template": f"{OPENED} "},
            "with another chat template, with other rotations (RoPE) or adapters (LoRA), or where",
        ),
    ],
)
def test_what_the_command_line_names_counts_and_such_an_answer_does_not_go_on(
    chat: Chat, given: dict[str, Any], line: str
) -> None:
    cut = {"sampling": {"max_tokens": 2}, "chat_template": OPENED, **BUDGET}
    chat(Script(["Hm, let me see."]), "go\n", **cut)
    done = chat(Script(["t me see."]), "/continue\n", latest=True, **given)
    assert f"(the last answer was begun {line}" in done.notes
    assert (done.turns[-1].thought, done.turns[-1].content) == ("Hm, le", "")


def test_the_reasoning_that_was_switched_off_stays_off(chat: Chat, file: Path) -> None:
    chat(Script(["One."], template=OPENED), "/think off\nhi\n")
    script = Script(["Two."], template=OPENED)
    done = chat(script, "and now?\n", latest=True)
    assert prompt_of(script).endswith("</think>\n\nTwo.") and contents(done)[-1] == "Two."

    async def with_a_screen() -> None:
        async with running_chat(Script(["Hm.</think>\n\nB."], template=OPENED), file.parent) as one:
            await one.ask("first")
            await one.press("ctrl+o")
            await one.until(lambda: one.is_on_top(SessionsScreen))
            await one.press("down", "enter")
            await one.wait_idle()
            session = one.app.engine_thread.session
            assert session and session.template_options == thinking_variables(on=False)
            await one.send("/think on")
            await one.ask("last")
            kept = one.app.archive.settings(one.app.autosave.key or "")
            assert kept.session_options == {"template_options": thinking_variables(on=True)}
            assert session.turns[-1].content == "B."

    asyncio.run(with_a_screen())


def test_a_conversation_with_another_template_is_a_note(file: Path) -> None:
    async def body() -> None:
        with closing(Archive(file)) as archive:
            key = archive.create("scripted", None, SessionSettings("suffix", chat_template=OPENED))
            archive.save(key, [], Turn("user", "saved before"))
        async with running_chat(Script(), file.parent, size=(120, 24)) as opened:
            await opened.press("ctrl+o")
            await opened.until(lambda: opened.is_on_top(SessionsScreen))
            await opened.press("enter")
            await opened.wait_idle()
            assert opened.notes == [
                "this conversation was written with another chat template; to go on with that: "
                f"localspec chat --resume {key[:8]}"
            ]

    asyncio.run(body())
