"""TOML files of the user: read as editors write them."""

from pathlib import Path

from localspec.utils.toml_file import parse_toml, read_text


def test_a_byte_order_mark_is_no_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("ctx = 512\n", encoding="utf-8-sig")
    assert parse_toml(read_text(file), file.name) == {"ctx": 512}
