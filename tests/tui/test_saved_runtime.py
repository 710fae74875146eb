"""A conversation goes on with the cache types and the rotations that it was begun with."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes.pilot import running_chat
from fakes.plain_chat import Chat
from fakes.scripted import TEMPLATE, Script

from localspec.cli.chat import chat as command
from localspec.conversation.turns import Turn
from localspec_tui.archive import Archive
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.plain import chat as plain
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.session_settings import SessionSettings

pytestmark = pytest.mark.usefixtures("home")
USUAL: dict[str, Any] = {
    "kv_type": "f16",
    "drafter_kv_type": "f16",
    "rope_scaling": None,
    "rope_scale": None,
    "rope_freq_base": None,
    "yarn_orig_ctx": None,
    "draft_rope_scale": None,
}
BEGUN = {**USUAL, "kv_type": "q8_0", "rope_scaling": "yarn", "rope_scale": 4.0}


def begun(file: Path, **given: Any) -> None:
    """Save a conversation that was begun with such options."""
    with closing(Archive(file)) as archive:
        key = archive.create("scripted", None, SessionSettings("suffix", **given))
        archive.save(key, [], Turn("user", "saved before"))


def loaded_with(script: Script) -> dict[str, Any]:
    return {name: script.engines[0].options.get(name) for name in USUAL}


def kept_in(file: Path) -> SessionSettings:
    with closing(Archive(file)) as archive:
        return archive.settings(archive.latest() or "")


def test_it_goes_on_as_it_was_begun(chat: Chat, file: Path) -> None:
    chat(Script(["One."]), "hi\n", runtime={**BEGUN, "threads": 3})
    assert kept_in(file).runtime == BEGUN
    script = Script(["Two."])
    # As the settings of the user may have them.
    done = chat(script, "and now?\n", latest=True, runtime={**USUAL, "drafter_kv_type": "q4_0"})
    assert loaded_with(script) == BEGUN == kept_in(file).runtime
    line = "--kv-type q8_0 --draft-kv-type f16 --rope-scaling yarn --rope-scale 4"
    assert f"({line}, as this conversation was begun)" in done.notes
    again = chat(Script(["Three."]), "and now?\n", latest=True, runtime=BEGUN)
    assert "begun" not in again.notes


def test_what_the_command_line_names_counts_and_a_line_says_so(chat: Chat, file: Path) -> None:
    begun(file, runtime=BEGUN)
    now = {**USUAL, "rope_scale": 2.0}
    script = Script(["Two."])
    done = chat(script, "hi\n", latest=True, runtime=now, named=frozenset({"rope_scale"}))
    assert loaded_with(script) == {**now, "kv_type": "q8_0"} == kept_in(file).runtime
    assert (
        "(this conversation was begun with --rope-scaling yarn --rope-scale 4)\n"
        "(--kv-type q8_0, as this conversation was begun)" in done.notes
    )
    begun(file, runtime=USUAL)
    done = chat(Script(["Two."]), "hi\n", latest=True, runtime=now, named=frozenset({"rope_scale"}))
    assert "(this conversation was begun with --rope-scaling model)" in done.notes


def test_it_goes_on_with_the_context_that_was_named(chat: Chat, file: Path) -> None:
    chat(Script(["One."]), "hi\n", runtime={**USUAL, "context": 16384})
    assert kept_in(file).runtime == {**USUAL, "context": 16384}
    for now in (None, 4096):  # as the settings of the user may have it
        script = Script(["Two."])
        done = chat(script, "and now?\n", latest=True, runtime={**USUAL, "context": now})
        assert script.engines[0].options["context"] == 16384
        assert "(--ctx 16384, as this conversation was begun)" in done.notes
    script = Script(["Three."])
    named: dict[str, Any] = {"runtime": {**USUAL, "context": 4096}, "named": frozenset({"context"})}
    done = chat(script, "hi\n", latest=True, **named)
    assert script.engines[0].options["context"] == 4096
    assert "(this conversation was begun with --ctx 16384)" in done.notes
    assert kept_in(file).runtime["context"] == 4096


def test_a_context_that_nobody_named_is_that_of_now(chat: Chat, file: Path) -> None:
    chat(Script(["One."]), "hi\n", runtime={**USUAL, "context": None})
    assert kept_in(file).runtime == USUAL
    script = Script(["Two."])
    done = chat(script, "hi\n", latest=True, runtime={**USUAL, "context": 4096})
    assert script.engines[0].options["context"] == 4096 and "begun" not in done.notes


def test_it_goes_on_with_its_adapters(chat: Chat, file: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "style.gguf"
    adapter.touch()
    begun_with = {**USUAL, "lora": [f"{adapter}:0.5"]}
    chat(Script(["One."]), "hi\n", runtime=begun_with)
    assert kept_in(file).runtime == begun_with
    script = Script(["Two."])
    done = chat(script, "hi\n", latest=True, runtime={**USUAL, "lora": []})
    assert script.engines[0].options["lora"] == [f"{adapter}:0.5"]
    assert f"(--lora {adapter}:0.5, as this conversation was begun)" in done.notes
    script, named = Script(["Three."]), frozenset({"lora"})
    done = chat(script, "hi\n", latest=True, runtime={**USUAL, "lora": []}, named=named)
    assert script.engines[0].options["lora"] == []
    assert f"(this conversation was begun with --lora {adapter}:0.5)" in done.notes
    done = chat(Script(["Four."]), "hi\n", latest=True, runtime=begun_with, named=named)
    assert "(this conversation was begun with --lora none)" in done.notes
    adapter.unlink()
    script = Script(["Five."])
    done = chat(script, "hi\n", latest=True, runtime={**USUAL, "lora": []})
    assert script.engines[0].options["lora"] == []
    gone = "style.gguf is not on this machine any more; this conversation goes on without it"
    assert gone in done.notes


def test_adapters_that_are_there_stay_on_without_those_that_are_gone(
    chat: Chat, file: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there.gguf"
    there.touch()
    for missing, said in (
        (["gone.gguf:1"], "gone.gguf is not on this machine any more; this conversation goes on "),
        (["gone.gguf:1", "lost.gguf"], "gone.gguf and lost.gguf are not on this machine any more"),
    ):
        begun(file, runtime={**USUAL, "lora": [missing[0], f"{there}:0.5", *missing[1:]]})
        script = Script(["Two."])
        done = chat(script, "hi\n", latest=True, runtime={**USUAL, "lora": []})
        assert script.engines[0].options["lora"] == [f"{there}:0.5"]
        assert said in done.notes
        assert f"(--lora {there}:0.5, as this conversation was begun)" in done.notes


def test_another_model_is_loaded_without_them(chat: Chat, file: Path) -> None:
    script = Script(["One."])
    chat(script, "hi\n/model other.gguf\nhi\n", runtime={**USUAL, "lora": ["style.gguf:0.5"]})
    assert kept_in(file).runtime["lora"] == []


def test_another_model_has_its_own(chat: Chat, file: Path) -> None:
    begun(file, runtime=BEGUN)
    script = Script(["Two."])
    chat(script, "hi\n", latest=True, model="other.gguf", runtime=USUAL)
    assert loaded_with(script) == USUAL


@pytest.mark.parametrize(
    "saved",
    [
        {"kv_type": "q9_9"},
        {"rope_scale": "4"},
        {"context": "4096"},
        {"context": 1},
        {"rope_scale": 0.5},
        {"rope_scaling": ["yarn"]},
        {"kv_type": 3},
        {"threads": 3},
        {"lora": "style.gguf"},
        {"lora": {"style.gguf": 1}},
        {"lora": [5]},
        ["kv_type"],
    ],
)
def test_what_cannot_be_used_is_left_out(saved: Any) -> None:
    text = SessionSettings("suffix", runtime=BEGUN).as_json()
    assert SessionSettings.parse(text).runtime == BEGUN
    damaged = SessionSettings("suffix", runtime={"x": 0}).as_json()
    found = SessionSettings.parse(damaged.replace('{"x": 0}', _json(saved)))
    assert (found.draft, dict(found.runtime)) == ("suffix", {})


def _json(value: Any) -> str:
    return str(value).replace("'", '"')


def test_the_way_back_to_the_models_own_template(chat: Chat, file: Path) -> None:
    other = TEMPLATE + " "
    chat(Script(["One."]), "hi\n", chat_template=other)
    script = Script(["Two."])
    done = chat(script, "hi\n", latest=True, named=frozenset({"chat_template"}))
    assert script.engines[0].options.get("chat_template") is None
    assert kept_in(file).chat_template is None
    assert "(this conversation was begun with another chat template)" in done.notes


def test_a_conversation_from_the_list_says_how_it_was_written(file: Path) -> None:
    async def body() -> None:
        begun(file, runtime=BEGUN, chat_template=TEMPLATE + " ")
        async with running_chat(Script(), file.parent, size=(120, 24), runtime=USUAL) as opened:
            await opened.press("ctrl+o")
            await opened.until(lambda: opened.is_on_top(SessionsScreen))
            await opened.press("enter")
            await opened.wait_idle()
            (note,) = opened.notes
            assert note.startswith(
                "this conversation was written with another chat template and --kv-type q8_0 "
                "--rope-scaling yarn --rope-scale 4; to go on with that: localspec chat --resume"
            )

    asyncio.run(body())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), set()),
        (
            ("--chat-template", "model", "--rope-scaling", "model"),
            {"chat_template", "rope_scaling"},
        ),
        (("--kv-type", "f16", "--threads", "2"), {"kv_type", "threads"}),
    ],
)
def test_the_chat_knows_what_its_command_line_names(
    words: tuple[str, ...], named: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[LaunchOptions] = []
    monkeypatch.setattr(plain, "run_plain", lambda options, _: found.append(options) or 0)
    CliRunner().invoke(command, ["--plain", *words], catch_exceptions=False, standalone_mode=False)
    (options,) = found
    assert options.named == named
    assert (options.chat_template, options.runtime["rope_scaling"]) == (None, None)
