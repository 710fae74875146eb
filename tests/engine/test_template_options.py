"""Variables for the chat template of one text."""

import asyncio
from collections.abc import Iterator

import pytest
from fakes.templates import QWEN3
from fakes.tiny import write_tiny

import localspec
from localspec.engine.engine import Engine
from localspec.engine.prompt import Chat
from localspec.errors import InvalidValueError

ASKED = [{"role": "user", "content": "abc"}]
OFF = {"enable_thinking": False}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    model = tmp_path_factory.mktemp("switch") / "switch.gguf"
    write_tiny(model, "llama", template=QWEN3)
    with localspec.load(model, "none", threads=1) as engine:
        yield engine


def test_each_way_to_write_a_text_takes_them(engine: Engine) -> None:
    closed = engine.stream(Chat(ASKED, OFF), max_tokens=1).result()
    usual = engine.generate(ASKED, max_tokens=1)
    assert closed.stats.prompt_tokens > usual.stats.prompt_tokens

    async def later() -> list[localspec.Result]:
        written = await engine.agenerate(ASKED, template_options=OFF, max_tokens=1)
        return [written, await engine.astream(ASKED, template_options=OFF, max_tokens=1)]

    found = [
        engine.generate(ASKED, template_options=OFF, max_tokens=1),
        engine.stream(ASKED, template_options=OFF, max_tokens=1).result(),
        *engine.generate([ASKED, ASKED], template_options=OFF, max_tokens=1),
        *asyncio.run(later()),
    ]
    assert {each.stats.prompt_tokens for each in found} == {closed.stats.prompt_tokens}


def test_those_of_a_chat_count_more(engine: Engine) -> None:
    on = {"enable_thinking": True}
    usual = engine.generate(ASKED, max_tokens=1)
    chat = engine.generate(Chat(ASKED, on), template_options=OFF, max_tokens=1)
    assert chat.stats.prompt_tokens == usual.stats.prompt_tokens


def test_a_text_that_is_continued_has_none(engine: Engine) -> None:
    for prompt in ("abc", [1, 2], ["abc", "abc"]):
        with pytest.raises(InvalidValueError, match="template_options are for messages"):
            engine.generate(prompt, template_options=OFF)
    with pytest.raises(InvalidValueError, match="template_options is 1; it must be a dict"):
        engine.generate(ASKED, template_options=1)  # type: ignore[call-overload]
    assert engine.generate("abc", template_options={}, max_tokens=1)
