"""TOML files of the user: read as editors write them."""

from pathlib import Path

import pytest

from localspec.errors import InvalidValueError
from localspec.utils.toml_file import parse_toml, read_text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_it(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text("ctx = 512\n", encoding=encoding)
    assert parse_toml(read_text(file), file.name) == {"ctx": 512}


@pytest.mark.parametrize("path", [r"C:\models\x.gguf", r"d:\Users\x.gguf", r"\\server\models"])
def test_a_path_of_windows_belongs_in_single_quotes(path: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_toml(f'ctx = 512\nmodel = "{path}"\n', "config.toml")
    line = str(caught.value)
    assert line.startswith("config.toml is not valid TOML: ") and "(at line 2, " in line
    assert line.endswith(f"; put paths with \\ in single quotes: '{path}'")
    assert parse_toml(f"model = '{path}'", "config.toml") == {"model": path}


@pytest.mark.parametrize(
    "text", ["ctx = ", 'system = "50 \\% "', "[", 'a = "C:', 'a = "C:\\\\x" b']
)
def test_what_is_no_such_path_has_no_such_hint(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"; repair or move it$"):
        parse_toml(text, "config.toml")
