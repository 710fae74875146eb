"""Pair memory: whether a pair fits in this machine's memory, before anything of it is fetched.

Files that are here are counted by their headers, others by what models.toml says. An estimate all
the same: a load plans with what is free then.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from localspec.errors import LocalspecError
from localspec.gguf.files import PREFERRED, bytes_of, files_of
from localspec.gguf.reader import read_header
from localspec.hub.reference import Repository
from localspec.memory.available import free_memory
from localspec.memory.estimate import cache_bytes, default_context
from localspec.models.locate import find_file
from localspec.models.own_drafters import OwnDrafter, listed_drafters
from localspec.models.registry import Pair
from localspec.utils.host_memory import installed_memory

Fit = Literal["yes", "tight", "no"]
# What models of 8B parameters keep per token, in bytes. It grows with their layers and width, and
# parameters with the product of both widths: models with four times as many keep twice as much.
_PARAMETERS, _BYTES_PER_TOKEN = 8e9, 150_000
# Bytes per parameter of a draft model of which only the parameters are known, in Q8_0.
_DRAFTER_BYTES = 17 / 16
_SMALL_CONTEXT = 2048
# The share of installed memory that the system leaves to programs.
_TO_PROGRAMS = 0.9
_UNITS = {"B": 1e9, "M": 1e6}


class Room(NamedTuple):
    """Bytes of memory: those that are free now, and those that other programs could free."""

    free: int
    most: int


@dataclass(frozen=True, slots=True)
class PairMemory:
    """The bytes that a pair takes: of its files, and of the cache of a context of usual size.

    small_cache: of a context of 2048 tokens.
    """

    target: int
    drafter: int
    cache: int
    small_cache: int

    @property
    def needed(self) -> int:
        """The bytes in all."""
        return self.target + self.drafter + self.cache

    def fit(self, room: Room) -> Fit:
        """Say whether the pair fits into what is free now.

        tight: not without leaving the drafter out and making the context smaller, or not until
        other programs end.
        """
        if self.needed <= room.free:
            return "yes"
        least = self.target + self.small_cache
        return "tight" if least <= room.free or self.needed <= room.most else "no"


def memory_room() -> Room:
    """Return the memory of this machine, that of its GPUs included."""
    free = free_memory().total
    return Room(free, max(free, int(_TO_PROGRAMS * installed_memory())))


def pair_memory(pair: Pair) -> PairMemory | None:
    """Return what a pair takes with the first drafter that `auto` may take; None: not known."""
    file = find_file(pair.target)
    target = bytes_of(files_of(file)) if file else stated_bytes(pair)
    if not target:
        return None
    parameters = _parameters(pair.parameters)
    per_token = _BYTES_PER_TOKEN * math.sqrt((parameters or [target])[0] / _PARAMETERS)
    context = default_context(pair.context)
    cache, small_cache = (
        (_cache(file, tokens) if file else None) or int(per_token * tokens)
        for tokens in (context, min(context, _SMALL_CONTEXT))
    )
    drafters = (each for each in listed_drafters(pair, file) if not each.objection)
    drafter = _drafter_bytes(next(drafters, None), parameters[1:])
    return PairMemory(target, drafter, cache, small_cache)


def stated_bytes(pair: Pair, quant: str = "") -> int:
    """Return the size of a pair's target in models.toml; 0 if it is not there.

    quant: a quantisation in place of the pair's own.
    """
    chosen = quant or (isinstance(pair.target, Repository) and pair.target.quant)
    for each in [str(chosen)] if chosen else PREFERRED:
        if each in pair.sizes:
            return int(1e9 * pair.sizes[each])
    return 0


def _parameters(words: str) -> list[float]:
    """Return how many parameters the target has, and a draft model. words: as in models.toml."""
    words = re.sub(r"\(.*?\)", "", words)  # those that each token uses
    return [float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([BM])", words)]


def _cache(file: Path, tokens: int) -> int | None:
    try:
        return cache_bytes(read_header(file), tokens)
    except LocalspecError:
        return None


def _drafter_bytes(drafter: OwnDrafter | None, parameters: list[float]) -> int:
    """Return the bytes of a drafter's file; 0 without one. parameters: of a draft model."""
    if drafter is None or drafter.reference is None:  # heads are part of the target
        return 0
    if drafter.file:
        return bytes_of(files_of(drafter.file))
    listed = drafter.listed.size if drafter.listed else 0
    return listed or int(_DRAFTER_BYTES * sum(parameters[:1]))
