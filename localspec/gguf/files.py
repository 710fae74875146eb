"""Which file of a repository is meant: files to whole models, and a quantisation to one of them."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelNotFoundError

# What is taken when nothing is said: the best of these that is there.
PREFERRED = (
    *("Q4_K_M", "UD-Q4_K_M", "Q4_K_S", "UD-Q4_K_XL", "Q4_K_XL", "Q4_K_L", "Q4_K", "IQ4_XS"),
    *("IQ4_NL", "Q4_0", "Q4_1", "MXFP4", "MXFP4_MOE", "Q5_K_M", "Q5_K_S", "Q5_0", "Q5_1", "Q6_K"),
    *("Q8_0", "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_S", "IQ3_XS", "Q2_K", "BF16", "F16"),
    "F32",
)
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d[A-Z0-9]*(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32"
    r"|FP16|FP32))(?=[-._/]|$)",
    re.IGNORECASE,
)
_OTHER_SPELLING = {"FP16": "F16", "FP32": "F32"}


@dataclass(frozen=True, slots=True)
class Unit:
    """One model of a repository: its files in order (several if it is split), each by its path."""

    files: tuple[str, ...]

    @property
    def first(self) -> str:
        """The file it is loaded by."""
        return self.files[0]

    @property
    def quant(self) -> str | None:
        """Its quantisation, as far as its name says, in capitals."""
        part = _PART.fullmatch(self.first)
        name = part[1] if part else self.first.removesuffix(".gguf")
        found = _QUANT.findall(name)
        if not found:
            return None
        label: str = found[-1].upper()
        return _OTHER_SPELLING.get(label, label)


def units(files: Iterable[str]) -> list[Unit]:
    """The whole language models among a repository's files, sorted by name.

    Parts of a split model are one unit, left out where a part is missing or where the model lies
    beside them in one file. What only belongs to a model is skipped: encoders of images and sound
    (mmproj), draft heads (mtp) and importance matrices.
    """
    single: list[str] = []
    split: dict[tuple[str, int], dict[int, str]] = {}
    for file in filter(_is_model, sorted(files)):
        if part := _PART.fullmatch(file):
            split.setdefault((part[1], int(part[3])), {})[int(part[2])] = file
        else:
            single.append(file)
    whole = [
        Unit(tuple(parts[number] for number in range(1, count + 1)))
        for (stem, count), parts in split.items()
        if sorted(parts) == list(range(1, count + 1)) and f"{stem}.gguf" not in single
    ]
    return sorted([*map(_unit, single), *whole], key=lambda unit: unit.first)


def choose(files: Iterable[str], quant: str | None, where: str) -> Unit:
    """The one model that is meant.

    quant: a quantisation in any case, or the name of a file; None is the first of PREFERRED that is
    there, else the first by name. where: what the files are of, for messages.
    Raises ModelNotFoundError where there is none such, or more than one.
    """
    found = units(files)
    if not found:
        raise ModelNotFoundError(f"{where} holds no GGUF model; name a repository of GGUF files")
    wanted = [quant] if quant else [*PREFERRED, None]
    for label in wanted:
        if fitting := _fitting(found, label):
            return _only(fitting, where)
    if quant is None:
        return found[0]
    raise ModelNotFoundError(f"{where} has no {quant}; it has {', '.join(_labels(found))}")


def files_of(path: Path) -> tuple[Path, ...]:
    """Every file of the model a file on this disk belongs to: several if it is split and whole."""
    try:
        beside = os.listdir(path.parent)
    except OSError:
        beside = []
    unit = next((unit for unit in units(beside) if path.name in unit.files), Unit((path.name,)))
    return tuple(path.with_name(name) for name in unit.files)


def bytes_of(files: Iterable[Path]) -> int:
    """Bytes of the files that exist, each counted once, however often it is linked to."""
    sizes = {}
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def _is_model(file: str) -> bool:
    name = file.rpartition("/")[2].lower()
    aside = "mmproj" in name or "imatrix" in name or name.startswith("mtp-")
    return name.endswith(".gguf") and not aside


def _unit(file: str) -> Unit:
    return Unit((file,))


def _fitting(found: Sequence[Unit], label: str | None) -> list[Unit]:
    if label and label.lower().endswith(".gguf"):
        return [unit for unit in found if label in (unit.first, unit.first.rpartition("/")[2])]
    wanted = label.upper() if label else None
    return [unit for unit in found if unit.quant == _OTHER_SPELLING.get(wanted or "", wanted)]


def _only(fitting: Sequence[Unit], where: str) -> Unit:
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(unit.first for unit in fitting)
    raise ModelNotFoundError(
        f"{where} has several models of that kind ({names}); name one as {where}:FILE"
    )


def _labels(found: Sequence[Unit]) -> list[str]:
    """What may be asked for: quantisations where they tell the models apart, else files."""
    quants = [unit.quant for unit in found]
    return [
        quant if quant and quants.count(quant) == 1 else unit.first
        for unit, quant in zip(found, quants, strict=True)
    ]
