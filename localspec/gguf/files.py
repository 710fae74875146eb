"""Files of models: those of a repository grouped to models, and the files of one model on disk."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelNotFoundError

# Without a quantisation the first of these that a repository has is chosen.
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
class ModelFiles:
    """One model of a repository. paths: of its files, in order; several for a split model."""

    paths: tuple[str, ...]

    @property
    def first(self) -> str:
        """The file to load."""
        return self.paths[0]

    @property
    def quant(self) -> str | None:
        """The quantisation in the file name, in capitals; None where the name has none."""
        part = _PART.fullmatch(self.first)
        name = part[1] if part else self.first.removesuffix(".gguf")
        found = _QUANT.findall(name)
        if not found:
            return None
        label: str = found[-1].upper()
        return _OTHER_SPELLING.get(label, label)


def group_files(files: Iterable[str]) -> list[ModelFiles]:
    """Group the files of a repository to its language models, sorted by name.

    A split model is left out where a part is missing, or where the same model is there in one file
    too. Image and audio encoders (mmproj), draft heads (mtp) and importance matrices are skipped.
    """
    single: list[str] = []
    split: dict[tuple[str, int], dict[int, str]] = {}
    for file in filter(_is_model, sorted(files)):
        if part := _PART.fullmatch(file):
            split.setdefault((part[1], int(part[3])), {})[int(part[2])] = file
        else:
            single.append(file)
    whole = [
        ModelFiles(tuple(parts[number] for number in range(1, count + 1)))
        for (stem, count), parts in split.items()
        if sorted(parts) == list(range(1, count + 1)) and f"{stem}.gguf" not in single
    ]
    return sorted([*map(_single, single), *whole], key=lambda model: model.first)


def choose_model(files: Iterable[str], quant: str | None, where: str) -> ModelFiles:
    """Choose the one model that a user means.

    files: the paths of all files of a repository. quant: a quantisation in any case, or the name of
    a file; None is the first of PREFERRED that is there, else the first model by name. where: the
    repository, for messages. Raises ModelNotFoundError where no model fits, or more than one.
    """
    found = group_files(files)
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
    """Return the files of the model that this file on disk is of; several for a split model."""
    try:
        beside = os.listdir(path.parent)
    except OSError:
        beside = []
    own = ModelFiles((path.name,))
    names = next((names for names in group_files(beside) if path.name in names.paths), own)
    return tuple(path.with_name(name) for name in names.paths)


def bytes_of(files: Iterable[Path]) -> int:
    """Return the bytes of the files that exist; several links to one file count once."""
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
    is_part = "mmproj" in name or "imatrix" in name or name.startswith("mtp-")
    return name.endswith(".gguf") and not is_part


def _single(file: str) -> ModelFiles:
    return ModelFiles((file,))


def _fitting(found: Sequence[ModelFiles], label: str | None) -> list[ModelFiles]:
    if label and label.lower().endswith(".gguf"):
        return [model for model in found if label in (model.first, model.first.rpartition("/")[2])]
    wanted = label.upper() if label else None
    return [model for model in found if model.quant == _OTHER_SPELLING.get(wanted or "", wanted)]


def _only(fitting: Sequence[ModelFiles], where: str) -> ModelFiles:
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(model.first for model in fitting)
    raise ModelNotFoundError(
        f"{where} has several models of that kind ({names}); name one as {where}:FILE"
    )


def _labels(found: Sequence[ModelFiles]) -> list[str]:
    """Return the quantisations that may be named; a file where its quantisation is not unique."""
    quants = [model.quant for model in found]
    return [
        quant if quant and quants.count(quant) == 1 else model.first
        for model, quant in zip(found, quants, strict=True)
    ]
