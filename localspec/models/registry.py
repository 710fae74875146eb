"""Registry: the curated pairs of models.toml."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

_BUNDLED = "bundled:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target and its drafter.

    prompt: how a prompt is taken when nothing is said: as a chat turn, or raw, to be continued.
    """

    name: str
    target: Path
    drafter: Path | None
    prompt: Literal["chat", "raw"]
    note: str


@cache
def pairs() -> tuple[Pair, ...]:
    """Every curated pair; the first is the one used when no model is named."""
    return tuple(_pair(name, entry) for name, entry in tomllib.loads(_text())["pairs"].items())


def default_pair() -> Pair:
    """The bundled pair."""
    return pairs()[0]


def pair_of(target: Path) -> Pair | None:
    """The curated pair this file is the target of."""
    return next((pair for pair in pairs() if pair.target.samefile(target)), None)


def _text() -> str:
    packaged = resources.files("localspec") / "models.toml"
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    # In a checkout it lies beside the package, where people look for it.
    return (Path(__file__).parents[2] / "models.toml").read_text(encoding="utf-8")


def _pair(name: str, entry: dict[str, str]) -> Pair:
    prompt = entry["prompt"]
    assert prompt in ("chat", "raw")
    drafter = entry.get("drafter")
    return Pair(
        name=name,
        target=_path(entry["target"]),
        drafter=_path(drafter) if drafter else None,
        prompt="raw" if prompt == "raw" else "chat",
        note=entry["note"],
    )


def _path(reference: str) -> Path:
    if not reference.startswith(_BUNDLED):
        raise ValueError(f"models.toml: {reference!r} is no bundled file")
    return Path(str(resources.files("localspec.bundled"))) / reference.removeprefix(_BUNDLED)
