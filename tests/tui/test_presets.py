"""Presets: saved, read, and refused with a reason."""

from pathlib import Path

import pytest

from localspec.errors import InvalidValueError
from localspec_tui import presets
from localspec_tui.presets import Preset

pytestmark = pytest.mark.usefixtures("home")


def test_an_added_preset_is_read_back_and_the_rest_stays(home: Path) -> None:
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
        ("", "'' is no name of a preset; use letters, digits, dots and hyphens"),
        ("a b", "'a b' is no name of a preset; use letters, digits, dots and hyphens"),
        ("there", "there is a preset 'there' already; change it in "),
    ],
)
def test_bad_names_are_refused(name: str, message: str) -> None:
    presets.add("there", Preset("x"))
    with pytest.raises(InvalidValueError) as refused:
        presets.add(name, Preset("y"))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[presets.a", "presets.toml is not valid TOML: "),
        ("[other]\n", "presets.toml: a preset begins with [presets.NAME]"),
        ("presets = 1", "presets.toml: a preset begins with [presets.NAME]"),
        ("[presets]\na = 1", "presets.toml: [presets.a] is not a table"),
        ("[presets.a]\nsystem = 1", "presets.toml: [presets.a]: system is 1; it must be a text"),
        ("[presets.a]\ntop_q = 1", "presets.toml: [presets.a]: there is no setting 'top_q'"),
        ("[presets.a]\ntop_p = 2", "presets.toml: [presets.a]: top_p is 2; it must be above 0"),
    ],
)
def test_a_bad_file_is_one_error(text: str, message: str) -> None:
    presets.presets_file().write_text(text)
    with pytest.raises(InvalidValueError) as refused:
        presets.load_all()
    assert message in str(refused.value)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(InvalidValueError, match=r"presets\.toml has none"):
        presets.load("short")
    presets.add("long", Preset("Be long."))
    with pytest.raises(InvalidValueError, match=r"there is no preset 'short'; choose long"):
        presets.load("short")


def test_a_folder_in_place_of_the_file_is_an_error(home: Path) -> None:
    (home / "presets.toml").mkdir()
    with pytest.raises(InvalidValueError, match=r"presets\.toml cannot be read: "):
        presets.load_all()
