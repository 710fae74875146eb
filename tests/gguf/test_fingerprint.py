"""Fingerprints of model files, whole ones and split ones."""

from itertools import pairwise
from pathlib import Path

import pytest

from localspec.gguf import fingerprint as module
from localspec.gguf.fingerprint import fingerprint


def test_every_part_counts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"owl-0000{number}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(b"GGUF")
    alone = fingerprint(first)
    second.write_bytes(b"weights")
    whole = fingerprint(first)
    second.write_bytes(b"Weights")
    assert len({alone, whole, fingerprint(first)}) == 3
    (tmp_path / "owl.gguf").write_bytes(b"another")
    second.write_bytes(b"weights")
    assert fingerprint(first) == whole


def test_copies_are_alike(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert fingerprint(tmp_path / "a.gguf") == fingerprint(tmp_path / "b.gguf")


def changed(path: Path, place: int) -> str:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"x")
    return fingerprint(path)


def test_small_files_count_whole(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(bytes(9 << 20))
    assert len({fingerprint(path), *(changed(path, place << 19) for place in range(18))}) == 19


@pytest.mark.parametrize("size", [(32 << 20) + 1, 1 << 30, 40 << 30])
def test_large_files_are_read_in_pieces(size: int) -> None:
    pieces = module._pieces(size)
    assert sum(count for _, count in pieces) < 32 << 20 and sum(pieces[-1]) == size
    gaps = [after[0] - sum(before) for before, after in pairwise(pieces)]
    assert min(gaps) >= 0 and max(gaps) <= size / 60


def test_of_large_files_pieces_from_all_over_count(tmp_path: Path) -> None:
    path, size = tmp_path / "large.gguf", 40 << 20
    path.write_bytes(bytes(size))
    pieces = module._pieces(size)
    places = [pieces[0][1] - 1, pieces[1][0], pieces[32][0], size - 1]
    assert len({fingerprint(path), *(changed(path, place) for place in places)}) == 5
