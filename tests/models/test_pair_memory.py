"""Whether a pair fits in memory, by what its files or models.toml say."""

from pathlib import Path

import psutil
import pytest
from fakes.hub_disk import HubDisk
from huggingface_hub import constants

from localspec.gguf.reader import read_header
from localspec.hub.reference import Repository
from localspec.memory.estimate import cache_bytes
from localspec.models import registry
from localspec.models.listed_drafter import ListedDrafter
from localspec.models.pair_memory import PairMemory, Room, memory_room, pair_memory
from localspec.models.registry import Pair

GB = 10**9
EAGLE = Repository("zoo/head-GGUF", "head.gguf")


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubDisk:
    """An empty cache of the Hub."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return HubDisk(tmp_path / "hub")


def listed(parameters: str, *drafters: ListedDrafter, size: float = 5.0) -> Pair:
    """A pair of which nothing is here."""
    target = Repository("zoo/none-GGUF", "Q4_K_M")
    sizes = {"Q4_K_M": size, "Q8_0": 2 * size} if size else {}
    return Pair(
        name="a",
        target=target,
        drafters=drafters,
        parameters=parameters,
        sizes=sizes,
        context=40960,
    )


@pytest.mark.parametrize(
    ("free", "most", "fit"),
    [
        (16, 16, "yes"),
        (15, 16, "tight"),  # once other programs end
        (11, 11, "tight"),  # without the drafter, and with a small context
        (10, 15, "no"),
    ],
)
def test_it_fits_with_less_or_not_at_all(free: int, most: int, fit: str) -> None:
    memory = PairMemory(target=10, drafter=2, cache=4, small_cache=1)
    assert memory.fit(Room(free, most)) == fit


def test_what_is_not_here_is_counted_by_models_toml() -> None:
    pair = listed("8.0B (3B active) + 1.6B", ListedDrafter(file=Repository("zoo/small", "Q8_0")))
    found = pair_memory(pair)
    assert found and found.target == 5 * GB
    assert found.drafter == int(1.6e9 * 17 / 16)
    # 131 kB per token of Llama 3.1 8B, 147 kB of Qwen3 8B.
    assert 131_000 * 8192 < found.cache < 170_000 * 8192 and found.small_cache == found.cache // 4
    assert found.needed == found.target + found.drafter + found.cache


def test_of_the_drafters_the_first_that_auto_takes_counts() -> None:
    loses = ListedDrafter(kind="dflash", file=EAGLE, size=9 * GB, loses="it is slower")
    eagle = ListedDrafter(kind="eagle3", file=EAGLE, size=GB)
    inside = ListedDrafter(kind="mtp")
    for drafters, size in {(loses, eagle): GB, (inside, eagle): 0, (loses,): 0, (): 0}.items():
        found = pair_memory(listed("8B", *drafters))
        assert found and found.drafter == size


def test_files_that_are_here_are_read() -> None:
    found = pair_memory(registry.pairs()["terminal"])
    target, drafter = (path.stat().st_size for path in registry.bundled())
    cache = cache_bytes(read_header(registry.bundled().target), 2048)
    assert found == PairMemory(target, drafter, cache or 0, cache or 0)


def test_without_a_size_nothing_is_known() -> None:
    assert pair_memory(listed("8B", size=0)) is None


def test_every_curated_pair_is_known() -> None:
    """The cache of a usual context takes less than the weights."""
    pairs = [each for each in registry.pairs().values() if isinstance(each.target, Repository)]
    assert pairs
    for pair in pairs:
        found = pair_memory(pair)
        assert found and found.cache < found.target, pair.name


def test_what_others_hold_may_be_freed() -> None:
    room = memory_room()
    assert 0 < room.free <= room.most
    assert room.most == room.free or room.most <= psutil.virtual_memory().total
