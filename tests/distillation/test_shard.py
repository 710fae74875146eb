"""Shards: a file gives back what was read, and the disk holds no more than was asked for."""

from pathlib import Path

import numpy as np
import pytest
from fakes.shards import WIDTH, noted_reading, read, shard_of

from localspec.distillation.row_cache import RowCache
from localspec.distillation.shard import HalfRows, Shard, bytes_per_token
from localspec.distillation.texts import Text
from localspec.distillation.work_folder import WorkFolder

TEXTS = [Text((1, 5, 9, 7), 2), Text((2, 5), 2), Text((3, 4, 4, 4, 8), 1)]


def test_a_file_gives_back_the_shard() -> None:
    shard = shard_of(TEXTS)
    content = shard.to_bytes()
    again = Shard.from_bytes(bytes(content))
    assert list(again.texts) == TEXTS
    assert [place[1:] for place in again.places()] == [(0, 0), (4, 3), (6, 4)]
    np.testing.assert_array_equal(again.top.ids, shard.top.ids)
    np.testing.assert_array_equal(again.top.log_probs, shard.top.log_probs)
    for layer in (0, 3):
        expected = np.concatenate([read(each).hidden[layer] for each in TEXTS])
        np.testing.assert_allclose(again.hidden[layer].floats(), expected, rtol=1e-3)
    assert len(content) < bytes_per_token(WIDTH, 2) * 11 + 4096


def test_rows_that_do_not_fit_in_16_bits() -> None:
    rows = np.array([[1e6, -3e5, 1.0], [0.5, 2.0, -7.0], [0, 0, 0]], np.float32)
    half = HalfRows.of(rows)
    assert half.scale.tolist() == [32.0, 1.0, 1.0]
    np.testing.assert_allclose(half.floats(), rows, rtol=1e-3)


def test_no_more_on_the_disk_than_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    waves = [[Text((number, 1, 2), 1)] for number in range(1, 7)]
    folder, (reading, asked) = WorkFolder([1]), noted_reading()
    one = len(shard_of(waves[0]).to_bytes())
    cache = RowCache(folder, waves, reading, 2 * one + one // 2)
    for _ in range(2):
        for number in range(6):
            assert cache.shard(number).texts[0] == waves[number][0]
            files = [each for each in folder.path.iterdir() if each.name.startswith("rows")]
            assert len(files) <= 2
    assert len(asked) == 12 and cache.missing == [0, 1, 2, 3]
    again = RowCache(folder, waves, reading, 100 * one)
    for number in (*range(6), *range(6)):
        again.shard(number)
    assert asked[12:] == [1, 2, 3, 4] and again.missing == []
    again.delete()
    assert not list(folder.path.glob("rows*"))


@pytest.mark.parametrize("room", [1, 2, 3, 5])
def test_the_next_ones_are_read_with_one_that_is_missing(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the disk may hold, and nothing that is needed sooner makes way for them."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    waves = [[Text((number, 1, 2), 1)] for number in range(6)]
    folder, (reading, asked) = WorkFolder([1]), noted_reading()
    one = len(shard_of(waves[0]).to_bytes())
    cache = RowCache(folder, waves, reading, room * one + one // 2)
    for seed in range(8):
        order, turns, before = np.random.default_rng(seed).permutation(6).tolist(), 0, len(asked)
        for place, number in enumerate(order):
            shard = cache.kept(number)
            if shard is None:
                turns, begun = turns + 1, len(asked)
                already = [
                    each for each in order[place : place + room] if each not in cache.missing
                ]
                shard = cache.read(order[place:])
                # All that come next are here now; those that were here already were not read again.
                assert not set(order[place : place + room]) & set(cache.missing)
                assert not set(already) & set(asked[begun:])
            assert shard.texts[0] == waves[number][0]
            assert len([*folder.path.glob("rows*")]) <= room
        assert turns <= -(-6 // room) + (room > 1)
        assert len(asked) - before <= 6


def test_a_shard_that_is_too_large_for_the_disk_is_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    waves = [[Text((number, 1, 2), 1)] for number in range(3)]
    folder, (reading, asked) = WorkFolder([1]), noted_reading()
    cache = RowCache(folder, waves, reading, 1)
    assert cache.read([2, 0, 1]).texts[0] == waves[2][0]
    assert asked == [2] and cache.missing == [0, 1, 2]
