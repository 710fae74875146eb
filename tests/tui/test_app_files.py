"""What the chat keeps in the user's folder: what is remembered, and presets."""

from pathlib import Path

import pytest

from localspec.errors import InvalidValueError
from localspec_tui import presets
from localspec_tui.preferences import Preferences
from localspec_tui.presets import Preset


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def test_what_is_remembered_is_read_again() -> None:
    assert Preferences.read() == Preferences()
    Preferences().remember(theme="nord").remember(model="qwen3-8b")
    assert Preferences.read() == Preferences("nord", "qwen3-8b")


def test_what_did_not_change_is_not_written(home: Path) -> None:
    Preferences().remember(theme=None)
    assert not (home / "chat.json").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"theme": 3, "model": ["x"]}', "\xff"])
def test_what_cannot_be_read_counts_for_nothing(home: Path, text: str) -> None:
    (home / "chat.json").write_bytes(text.encode("latin-1"))
    assert Preferences.read() == Preferences()


def test_a_preset_that_was_added_is_found_and_the_rest_stays(home: Path) -> None:
    mine = '# mine\n[presets.short]\nsystem = "Be short."\ntemperature = 0.2\n'
    presets.presets_file().write_text(mine)
    odd = Preset('Say "ah\\oh",\nthen\t\x07\x7f 😀 stop.', {"top_k": 3, "stop": ["a", "b"]})
    presets.add("odd.one", odd)
    assert presets.presets_file().read_text().startswith(mine)
    assert presets.load_all() == {
        "short": Preset("Be short.", {"temperature": 0.2}),
        "odd.one": odd,
    }
    assert presets.load("short").system == "Be short."


def test_a_preset_without_a_system_prompt() -> None:
    presets.add("cold", Preset(None, {"temperature": 0.0}))
    assert presets.load("cold") == Preset(None, {"temperature": 0.0})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "'' is no name; letters, digits, dots, hyphens"),
        ("a b", "'a b' is no name; letters, digits, dots, hyphens"),
        ("there", "there is a preset 'there'; change it in "),
    ],
)
def test_names_that_are_refused(name: str, message: str) -> None:
    presets.add("there", Preset("x"))
    with pytest.raises(InvalidValueError) as refused:
        presets.add(name, Preset("y"))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[presets.a", "presets.toml is no TOML: "),
        ("[other]\n", "presets.toml: a preset begins with [presets.NAME]"),
        ("presets = 1", "presets.toml: a preset begins with [presets.NAME]"),
        ("[presets]\na = 1", "presets.toml: [presets.a] is no table"),
        ("[presets.a]\nsystem = 1", "presets.toml: [presets.a]: system is 1; it is a text"),
        ("[presets.a]\ntop_q = 1", "presets.toml: [presets.a]: there is no setting 'top_q'"),
        ("[presets.a]\ntop_p = 2", "presets.toml: [presets.a]: top_p is 2; it must be above 0"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, message: str) -> None:
    presets.presets_file().write_text(text)
    with pytest.raises(InvalidValueError) as refused:
        presets.load_all()
    assert message in str(refused.value)


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(InvalidValueError, match=r"presets\.toml has none"):
        presets.load("short")
    presets.add("long", Preset("Be long."))
    with pytest.raises(InvalidValueError, match=r"there is no preset 'short'; choose long"):
        presets.load("short")


def test_a_folder_in_its_place_is_said(home: Path) -> None:
    (home / "presets.toml").mkdir()
    with pytest.raises(InvalidValueError, match=r"presets\.toml cannot be read: "):
        presets.load_all()
