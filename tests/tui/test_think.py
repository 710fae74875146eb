"""`/think`: reasoning is switched for models whose template can."""

import asyncio
from pathlib import Path

from fakes.pilot import running_chat
from fakes.scripted import TEMPLATE, Script

SWITCHED = TEMPLATE + (
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}"
)
QUIET = "<assistant><think>\n\n</think>\n\n"


def test_reasoning_is_switched_from_the_next_answer_on(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["one", "two", "three", "four"], template=SWITCHED)
        async with running_chat(script, tmp_path) as chat:

            async def prompt_of(question: str) -> str:
                await chat.ask(question)
                [engine] = [each for each in script.engines if not each.closed]
                return b"".join(map(engine.model.piece, engine.slot._running.prompt)).decode()

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
