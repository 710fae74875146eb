"""`/think`: reasoning is switched for models whose template can."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import ChatPilot, running_chat
from fakes.scripted import TEMPLATE, Script

from localspec.conversation.thinking import thinking_switch, thinking_variables

SWITCHED = TEMPLATE + (
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}"
)
# As Qwen3.5 and DeepSeek V3.1: the prompt opens the reasoning, or closes it.
OPENED = TEMPLATE + (
    "{% if add_generation_prompt %}"
    "{{ '<think>\n\n</think>\n\n' if enable_thinking is false else '<think>\n' }}{% endif %}"
)
QUIET = "<assistant><think>\n\n</think>\n\n"


@pytest.mark.slow
def test_reasoning_is_switched_from_the_next_answer_on(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["one", "two", "three", "four"], template=SWITCHED)
        async with running_chat(script, tmp_path) as chat:

            async def prompt_of(question: str) -> str:
                await chat.ask(question)
                [engine] = [each for each in script.engines if not each.closed]
                return b"".join(map(engine.model.piece, engine.slots.own._running.prompt)).decode()

            assert (await prompt_of("a")).endswith("<user>a\n<assistant>")
            await chat.send("/think off")
            assert "reasoning is off from the next answer on" in chat.text
            assert (await prompt_of("b")).endswith(f"<user>b\n{QUIET}")
            chat.app.engine_thread.enlarge(9000)
            assert (await prompt_of("c")).endswith(f"<user>c\n{QUIET}")
            await chat.send("/think on")
            assert (await prompt_of("d")).endswith("<user>d\n<assistant>")

    asyncio.run(body())


def test_what_cannot_be_switched_is_one_line(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.send("/think off")
            assert "has no switch for reasoning" in chat.text
            await chat.send("/think 5")
            assert "/think 5: say /think on or /think off" in chat.text

    asyncio.run(body())


@pytest.mark.slow
def test_how_much_is_said_where_the_template_knows_levels(tmp_path: Path) -> None:
    def lines(chat: ChatPilot) -> str:
        return " ".join(chat.text.split())

    async def body() -> None:
        leveled = "{% if reasoning_effort %}<{{ reasoning_effort }}>{% endif %}" + TEMPLATE
        script = Script(["one", "two"], template=leveled)
        async with running_chat(script, tmp_path) as chat:
            await chat.send("/think low")
            assert "reasoning effort is low from the next answer on" in lines(chat)
            await chat.ask("a")
            [engine] = [each for each in script.engines if not each.closed]
            prompt = b"".join(map(engine.model.piece, engine.slots.own._running.prompt)).decode()
            assert "<low>" in prompt
            assert not [note for note in chat.notes if "no effect" in note]
            await chat.send("/think off")
            assert "no switch for reasoning; /think low or /think high says how" in lines(chat)
            await chat.send("/think 5")
            assert "say /think on or /think off, or how much: low, medium, high" in lines(chat)
            kept = chat.app.archive.settings(chat.app.autosave.key or "")
            assert kept.session_options["template_options"]["reasoning_effort"] == "low"
        async with running_chat(Script(template=SWITCHED), tmp_path / "switched") as chat:
            await chat.send("/think low")
            assert "knows no levels of reasoning; say /think on or /think off" in lines(chat)

    asyncio.run(body())


def test_a_level_that_the_template_refuses_names_those_that_it_takes(tmp_path: Path) -> None:
    picky = "{% if reasoning_effort == 'max' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE

    async def body() -> None:
        async with running_chat(Script(["one"], template=picky), tmp_path) as chat:
            await chat.send("/think max")
            await chat.send("a")
            await chat.until(lambda: "takes no reasoning_effort max" in " ".join(chat.text.split()))
            assert "it takes none, minimal, low, medium" in " ".join(chat.text.split())

    asyncio.run(body())


@pytest.mark.parametrize("then", ["on", "off"])
def test_an_answer_goes_on_only_behind_the_prompt_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """As of Qwen3, whose prompt closes the reasoning or says nothing of it."""
    monkeypatch.setattr("fakes.scripted._BYTES_PER_TOKEN", 3)
    now, said = "off" if then == "on" else "on", "word " * 400
    line = f"was begun with reasoning {then}, and it is {now} now"

    async def stopped() -> None:
        async with running_chat(Script([said], template=SWITCHED, rate=100), tmp_path) as chat:
            if then == "off":
                await chat.send("/think off")
            await chat.send("a")
            await chat.until(lambda: chat.app.engine_thread.stats)
            await chat.until(lambda: chat.app.engine_thread.stats.generated_tokens > 5)
            await chat.press("escape")
            await chat.wait_idle()
            await chat.send(f"/think {now}")
            await chat.send("/continue")
            await chat.wait_idle()
            assert any(line in note for note in chat.notes)

    async def in_a_later_chat() -> None:
        script = Script(["and so on."], template=SWITCHED)
        switched = {"template_options": thinking_variables(on=now == "on")}
        async with running_chat(script, tmp_path, latest=True, session_options=switched) as chat:
            turn = chat.app.engine_thread.session.turns[-1]
            before = turn.content
            await chat.send("/continue")
            await chat.wait_idle()
            assert any(line in note for note in chat.notes) and turn.content == before
            await chat.send(f"/think {then}")
            await chat.send("/continue")
            await chat.wait_idle()
            assert before and turn.content == f"{before}and so on."

    asyncio.run(stopped())
    asyncio.run(in_a_later_chat())


def test_whether_reasoning_is_on_is_known_of_each_template() -> None:
    for template, default in ((SWITCHED, True), (OPENED, True), (TEMPLATE, None)):
        assert thinking_switch(template, {}) is default
        for on in (True, False):
            found = thinking_switch(template, thinking_variables(on))
            assert found is (None if default is None else on)
    asked = SWITCHED.replace("enable_thinking is defined and not enable_thinking", "not thinking")
    assert thinking_switch(asked, {"effort": 3}) is False
    assert thinking_switch(asked, {"thinking": True}) is True
    assert thinking_switch(None, {}) is None


@pytest.mark.slow
def test_an_answer_goes_on_only_with_the_reasoning_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The archive takes the tokens of no larger vocabulary.
    monkeypatch.setattr("fakes.scripted._BYTES_PER_TOKEN", 3)
    reasoning = "Hm, let me see. " * 40

    async def stopped() -> None:
        script = Script([reasoning], template=OPENED, rate=100)
        async with running_chat(script, tmp_path) as chat:
            await chat.send("a")
            await chat.until(lambda: chat.app.engine_thread.stats)
            await chat.until(lambda: chat.app.engine_thread.stats.generated_tokens > 5)
            await chat.press("escape")
            await chat.wait_idle()
            turn = chat.app.engine_thread.session.turns[-1]
            assert turn.thought and not turn.content and turn.stop_reason == "cancelled"
            before = turn.thought
            await chat.send("/think off")
            await chat.send("/continue")
            await chat.wait_idle()
            assert any("was begun with reasoning on, and it is off now" in n for n in chat.notes)
            assert (turn.thought, turn.content) == (before, "")
            assert turn.stop_reason == "cancelled"

    async def in_a_later_chat() -> None:
        script = Script(["and so on.</think>\n\nYes."], template=OPENED)
        off = {"session_options": {"template_options": thinking_variables(on=False)}}
        async with running_chat(script, tmp_path, latest=True, **off) as chat:
            turn = chat.app.engine_thread.session.turns[-1]
            before = turn.thought
            await chat.press("ctrl+g")
            await chat.wait_idle()
            assert any("was begun with reasoning on" in note for note in chat.notes)
            assert before and (turn.thought, turn.content) == (before, "")
            await chat.send("/think on")
            await chat.press("ctrl+g")
            await chat.wait_idle()
            assert turn.thought == f"{before}and so on." and turn.content == "Yes."
            assert turn.stop_reason == "eos"

    asyncio.run(stopped())
    asyncio.run(in_a_later_chat())
