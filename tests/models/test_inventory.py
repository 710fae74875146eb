"""Every model on this disk: of the Hub's cache, of the user's models.toml, and the bundled pair."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from fakes.hub_disk import HubDisk, write_split

from localspec.models.inventory import all_models
from localspec.models.registry import bundled
from localspec.utils.paths import config_folder


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubDisk:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return HubDisk(tmp_path / "hub")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without pairs of their own."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


@pytest.fixture
def users_pairs() -> Iterator[Path]:
    file = config_folder() / "models.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    yield file
    file.unlink()


def test_the_bundled_pair_comes_after_the_hubs_cache(disk: HubDisk) -> None:
    disk.add("zoo/tiny-GGUF", {"tiny-Q8_0.gguf": b"eight"})
    names = [stored.name for stored in all_models()]
    assert names == ["zoo/tiny-GGUF:Q8_0", *(file.stem for file in bundled())]


def test_files_of_the_users_pairs_are_found(
    disk: HubDisk, tmp_path: Path, users_pairs: Path
) -> None:
    first, second = write_split(tmp_path / "mine-Q8_0")
    users_pairs.write_text(
        f'[pairs.mine]\ntarget = "{first}"\ndrafter = "{tmp_path / "nowhere.gguf"}"\n'
        f'[pairs.again]\ntarget = "{first}"\n'
    )
    [mine] = [stored for stored in all_models() if stored.files[0].parent == tmp_path]
    assert mine.name == str(first) and mine.repository is None
    assert mine.files == (first, second)
