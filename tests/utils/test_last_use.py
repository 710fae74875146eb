"""When a model was used last: what is noted, and what is damaged."""

import time
from pathlib import Path

import pytest

from localspec.utils.last_use import last_use, note_use


def test_a_use_is_that_of_the_file_that_a_link_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    blob, link, other = (tmp_path / name for name in ("blob", "link.gguf", "other.gguf"))
    blob.touch()
    link.symlink_to(blob)
    began = int(time.time())
    assert last_use([blob, other]) is None
    note_use(link)
    found = last_use([other, blob])
    assert found is not None and began <= found <= time.time()
    assert last_use([other]) is None


@pytest.mark.parametrize("damage", ["", "null", "NaN", "1e999", "[]"])
def test_a_damaged_note_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    note_use(tmp_path / "model.gguf")
    (note,) = (tmp_path / "cache" / "last_use").iterdir()
    note.write_text(damage)
    assert last_use([tmp_path / "model.gguf"]) is None
