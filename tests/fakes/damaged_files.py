"""Files as disks, other programs and other versions leave them: none of them what was written."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

ODD_VALUES: list[Any] = [
    None, True, "", "x", "\x1b]0;title\x07", -1, 0, 10**400, 1 << 63, 1e300, -1e300, float("nan"),
    float("inf"), [], {}, [[]], ["x"], {"x": 1}, "9" * 400, "nan", 0.5, [1, 2, 3],
]  # fmt: skip


def remove(path: Path) -> None:
    """Remove whatever lies at this path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _other_bytes(random: Random, written: bytes) -> bytes:
    noise = random.randbytes(random.randint(1, 200))
    at = random.randrange(len(written) + 1)
    flipped = bytearray(written or b"\0")
    for _ in range(random.randint(1, 8)):
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
    return random.choice(
        [
            b"", noise, bytes(flipped), bytes(flipped), bytes(flipped), written[:at],
            written[:at] + noise + written[at:], written * 2, b"\0" * len(written),
            b"[" * 100_000, b'{"a":' * 100_000, b"9" * 400, b"9" * 5000, b"1e999", b"null", b"\xff",
            b'"' + b"a" * 100_000 + b'"', b"[" + b"1," * 100_000 + b"1]",
        ]
    )  # fmt: skip


def odd_json(random: Random, written: bytes) -> bytes | None:
    """The JSON with one value replaced, or with a key more or less; None if it is no JSON."""
    try:
        record = json.loads(written)
    except ValueError:
        return None
    holders: list[tuple[Any, Any]] = [([record], 0)]
    for holder, key in holders:  # which grows
        value = holder[key]
        if isinstance(value, dict | list):
            keys = list(value) if isinstance(value, dict) else range(len(value))
            holders += [(value, each) for each in keys]
    holder, key = random.choice(holders)
    if isinstance(holder, dict) and random.random() < 0.2:
        holder[str(random.choice(ODD_VALUES))[:20]] = holder.pop(key)
    else:
        holder[key] = random.choice(ODD_VALUES)
    return json.dumps(holders[0][0][0]).encode()


def damage(path: Path, written: bytes, random: Random) -> None:
    """Put something else in the place of a file. written: what it held."""
    remove(path)
    kind = random.random()
    if kind < 0.05:
        os.mkfifo(path)
    elif kind < 0.1:
        path.mkdir()
        (path / "inside").touch(mode=0o600)
    elif kind < 0.13:
        path.symlink_to(random.choice([path.name, "/dev/zero", "nowhere", "/"]))
    else:
        odd = odd_json(random, written) if kind < 0.6 else None
        path.write_bytes(_other_bytes(random, written) if odd is None else odd)


def raised_by(
    read: Callable[[], object], path: Path, written: bytes, count: int, *, first: int = 0
) -> dict[int, str]:
    """What reading raised, by the number of the damage."""
    raised = {}
    for number in range(first, first + count):
        damage(path, written, Random(number))
        try:
            read()
        except Exception as error:
            raised[number] = f"{type(error).__name__}: {error}"[:200]
    remove(path)
    path.write_bytes(written)
    return raised
