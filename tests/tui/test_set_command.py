"""`/set`: sampling values are changed and listed without leaving the chat."""

import asyncio
from pathlib import Path

import pytest
from fakes.pilot import running_chat
from fakes.plain_chat import Chat
from fakes.scripted import Script
from textual.widgets import Input

from localspec.generation_config import GenerationConfig
from localspec_tui.screens.settings import SettingsScreen

OWN = {"general.sampling.temp": 0.6, "general.sampling.top_k": 40}


def settings_of(script: Script) -> list[GenerationConfig]:
    """Those of each answer."""
    return script.engines[0].slots.own.started


@pytest.mark.usefixtures("home")
def test_values_count_from_the_next_answer_on_and_are_kept(chat: Chat) -> None:
    script = Script(["one", "two", "three"])
    given = "/set Temperature=0.25\n/set top-k 7\na\n/set top_k default\n/set seed 5\nb\n"
    done = chat(script, given)
    first, second = settings_of(script)
    assert first.sampling == {"temperature": 0.25, "top_k": 7}
    assert (second.sampling, second.seed) == ({"temperature": 0.25}, 5)
    assert "(temperature from the next answer on: 0.25, set for this chat)" in done.notes
    assert "(top_k from the next answer on: 40, the default)" in done.notes
    script = Script(["three"])
    done = chat(script, "c\n/set seed\n", latest=True)
    (third,) = settings_of(script)
    assert (third.sampling, third.seed) == ({"temperature": 0.25}, 5)
    assert "(seed: 5, set for this chat)" in done.notes


@pytest.mark.usefixtures("home")
def test_the_list_says_where_each_value_comes_from(chat: Chat) -> None:
    done = chat(Script(metadata=OWN), "/set dry_multiplier 0.5\n/set max_tokens 99\n/set\n")
    for line in (
        "temperature     0.6, the model's",
        "top_k           40, the default",
        "min_p           0.05, the default",
        "max_tokens      99, set for this chat",
        "seed            random for each answer, the default",
        "dry_multiplier  0.5, set for this chat",
    ):
        assert f"{line}\n" in done.notes
    (others,) = [line for line in done.notes.split("\n") if line.startswith("as they are")]
    assert "mirostat_tau" in others and "dry_multiplier" not in others and "seed" not in others


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        *((f"/set {typed}", "/set: there is no setting =; there are ") for typed in ("=", " = ")),
        ("/set temprature 1", "/set: there is no setting temprature; did you mean temperature?"),
        ("/set temp 1", "/set: there is no setting temp; did you mean temperature?"),
        ("/set system hi", "/set: there is no setting system; /system is a command"),
        ("/set zzz 1", "/set: there is no setting zzz; there are temperature, top_k, "),
        ("/set temperature warm", "temperature is 'warm'; it must be a number"),
        ("/set seed 1.5", "seed is '1.5'; it must be a whole number"),
        ("/set temperature -1", "temperature is -1"),
        ("/set rule none", "rule is 'none'"),
        ("/temp 1", "there is no command /temp; /set temperature VALUE sets it. To send it as"),
        ("/sesions", "there is no command /sesions; did you mean /sessions?"),
        ("/temperature 1", "there is no command /temperature; /set temperature VALUE sets it."),
    ],
)
def test_what_cannot_be_set_is_told(chat: Chat, typed: str, line: str) -> None:
    """And changes nothing."""
    script = Script()
    done = chat(script, f"{typed}\nhi\n")
    assert f"({line}" in done.notes
    (settings,) = settings_of(script)
    assert settings.sampling == {}


def test_the_settings_show_what_the_model_recommends(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(metadata=OWN, listed={"min_p": 0, "top_p": 0.95})
        async with running_chat(script, tmp_path) as chat:
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            rows = {str(each.id): each.placeholder for each in chat.app.screen.query(Input)}
            assert rows["temperature"] == "0.6, the model's"
            assert (rows["min_p"], rows["top_p"]) == ("0, the pair's", "0.95")
            assert (rows["top_k"], rows["xtc_threshold"]) == ("40", "0.1")

    asyncio.run(body())
