"""Files of models: those of a repository grouped to models, and the files of one model on disk."""

import os
import re
from collections.abc import Collection, Iterable, Sequence
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
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE)
# A file of huggingface_hub's cache.
_OF_HUB = re.compile(r"/models--([^/]+?)--([^/]+)/snapshots/[^/]+/(.+)$")
# Endings are in capitals too.
_ENDING = "*.[gG][gG][uU][fF]"
# Of models that are no GGUF.
_WEIGHTS = (".safetensors", ".bin")
_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d[A-Z0-9]*(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32"
    r"|FP16|FP32))(?=[-._/]|$)",
    re.IGNORECASE,
)
_OTHER_SPELLING = {"FP16": "F16", "FP32": "F32"}
# Labels that llama.cpp itself gives; one of them means no other quantisation that begins so. The
# second word is the one that its tool means by the first.
_WHOLE = re.compile(r"Q\d_[01]|Q\d_K(_[SML])?|IQ\d_[A-Z]+|TQ\d_\d|MXFP4_MOE|NVFP4|B?F16|F32")
_SHORT = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
# Rows for certain processors, which llama.cpp reads no longer.
_REPACKED = re.compile(r"Q4_0_\d_\d")
# Folders of image and audio encoders, and of importance matrices or what was quantised with one.
_ENCODERS, _IMATRIX = "mmproj", "imatrix"
# Drafters that lie beside their target begin with their kind, or are in a folder named after it.
SIDECAR_KINDS = ("mtp", "eagle3", "dflash", "dspark")
# What Gemma 4 has in the place of MTP heads, as its publisher calls it.
_ASSISTANT = re.compile(r"(gemma-?4-.*)-assistant(?=[-_. ]|$)")
# How the name of a head ends whose vocabulary was trimmed.
_TRIMMED = re.compile(r"-\d+-tokens$")


class NotListedError(ModelNotFoundError):
    """A repository does not have the model that is wanted."""


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
        return _spelled(found[-1])

    @property
    def base_name(self) -> str:
        """The name of the model: the file's, in lower case, without kind, quantisation and part.

        Nor has it the number of tokens that a trimmed head has left.
        """
        name = self.first.rpartition("/")[2].lower().removesuffix(".gguf")
        part = _PART.fullmatch(f"{name}.gguf")
        name = re.sub(r"[\s_-]+", "-", _QUANT.sub("", part[1] if part else name))
        name = _ASSISTANT.sub(r"\1", name)
        for kind in SIDECAR_KINDS:
            name = name.removeprefix(f"{kind}-")
        return _TRIMMED.sub("", name).strip("-. ")


def group_files(files: Iterable[str]) -> list[ModelFiles]:
    """Group the files of a repository to its language models, sorted by name.

    A split model is left out where a part is missing, or where the same model is there in one file
    too. Image and audio encoders (mmproj), sidecars and importance matrices are skipped.
    """
    return _grouped(file for file in files if sidecar_kind(file) is None)


def group_sidecars(files: Iterable[str]) -> list[ModelFiles]:
    """Group the files of a repository to its sidecars, sorted by name."""
    return _grouped(file for file in files if sidecar_kind(file))


def sidecar_kind(file: str) -> str | None:
    """The kind of a drafter that lies beside its target, by its path; None for other files."""
    folders, _, name = file.lower().rpartition("/")
    folder = folders.rpartition("/")[2]
    if _ASSISTANT.search(name):
        return "mtp"
    return next(
        (each for each in SIDECAR_KINDS if name.startswith(f"{each}-") or folder == each), None
    )


def _grouped(files: Iterable[str]) -> list[ModelFiles]:
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


def choose_model(
    files: Iterable[str], quant: str | None, where: str, *, exact: bool = False
) -> ModelFiles:
    """Choose the one model that a user means.

    files: the paths of all files of a repository. quant: in any case, a quantisation, or how some
    begin (Q4, of which the first of PREFERRED is taken); or the name of a file or a folder. None is
    the first of PREFERRED that is there, else the first model by name. where: the repository, for
    messages. exact: the beginning of a quantisation does not count. A sidecar is chosen by the name
    of its file, and where there is nothing else. Raises NotListedError where no model fits, and
    ModelNotFoundError where more than one does.
    """
    paths = list(files)
    found, sidecars = group_files(paths), group_sidecars(paths)
    if quant and (named := _fitting(sidecars, quant)) and _is_file(quant):
        return _only(named, where)
    found = found or sidecars
    if not found:
        if lacking := next(filter(None, (missing_parts(each, paths) for each in paths)), None):
            raise NotListedError(f"{where} has a split model that lacks {lacking[0]}")
        hint = "name a repository of GGUF files"
        if any(path.endswith(_WEIGHTS) for path in paths):
            hint += f", maybe {where}-GGUF; localspec convert makes one of a published head"
        raise NotListedError(f"{where} holds no GGUF model; {hint}")
    known = [] if exact else [model.quant for model in found]
    for label in [*PREFERRED, None] if quant is None else [quant, *labels_meant(quant, known)]:
        if fitting := _fitting(found, label):
            return _only(fitting, where)
    if quant is None:
        return found[0]
    if beside := [model for model in found if is_in_folder(model.first, quant)]:
        return _only(beside, where)
    listed = ", ".join(_labels(found))
    if quant in paths:
        raise NotListedError(f"{quant} of {where} is no language model; it has {listed}")
    raise NotListedError(f"{where} has no {quant}; it has {listed}")


def labels_meant(quant: str, known: Iterable[str | None]) -> list[str]:
    """Return the quantisations that begin so, the best first.

    For a whole label it is what that is short for. known: the quantisations that there are. The
    UD- of Unsloth's own mixtures may be left out.
    """
    wanted, labels = _spelled(quant), {label for label in known if label}
    if _is_file(quant):
        return []
    if _WHOLE.fullmatch(wanted):
        like = labels & {_SHORT.get(wanted, wanted)}
    else:
        like = {each for each in labels if _begins(each, wanted) and not _REPACKED.fullmatch(each)}
    order = {label: place for place, label in enumerate(PREFERRED)}
    return sorted(like - {wanted}, key=lambda label: (order.get(label, len(order)), label))


def preference(model: ModelFiles) -> tuple[bool, int]:
    """Return a number for each model; without a quantisation the smallest is chosen."""
    order = PREFERRED.index(model.quant) if model.quant in PREFERRED else len(PREFERRED)
    return sidecar_kind(model.first) is not None, order


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files of the model that this file on disk is of; several for a split model."""
    parts = tuple(path.with_name(name) for name in parts_of(path.name))
    return parts if path in parts and all(map(os.path.isfile, parts)) else (path,)


def gguf_files(folder: Path) -> list[str]:
    """Return the paths of the GGUF files below a folder, without links to files that are gone."""
    found = (path for path in folder.rglob(_ENDING) if os.path.isfile(path))
    return [path.relative_to(folder).as_posix() for path in found]


def download_again(path: str | os.PathLike[str]) -> str:
    """Return the way out of a damaged file; of one of the Hub's cache, with the command for it."""
    if not (found := _OF_HUB.search(Path(path).as_posix())):
        return "download it again"
    user, model, file = found.groups()
    return f"localspec pull {user}/{model}:{ModelFiles((file,)).quant or file} downloads it again"


def missing_parts(file: str, files: Collection[str]) -> list[str] | None:
    """Return the parts that a split model lacks; None for a file that is no part.

    file: one of its parts. files: the paths of all files beside it.
    """
    if not _PART.fullmatch(file):
        return None
    return [name for name in parts_of(file) if name not in files]


def parts_of(file: str) -> list[str]:
    """Return the paths of all parts of a split model; none for a file that is no part of one."""
    part = _PART.fullmatch(file)
    if not part:
        return []
    stem, _, count, ending = part.groups()
    return [f"{stem}-{number:05}-of-{count}{ending}" for number in range(1, int(count) + 1)]


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
    *folders, name = file.lower().split("/")
    if not name.endswith(".gguf") or _ENCODERS in name or _ENCODERS in folders:
        return False
    if _IMATRIX in name:
        return not _is_imatrix(name.removesuffix(".gguf"))
    return _IMATRIX not in folders or ModelFiles((name,)).quant is not None


def _is_imatrix(stem: str) -> bool:
    """Whether a file is an importance matrix, not a model that was quantised with one.

    What is hardly quantised needs none, so its name there is that of the model that was measured.
    """
    quant = ModelFiles((stem,)).quant
    ends = stem.startswith(_IMATRIX) or stem.endswith(_IMATRIX)
    return ends or quant in (None, "Q8_0", "BF16", "F16", "F32")


def _single(file: str) -> ModelFiles:
    return ModelFiles((file,))


def _is_file(label: str) -> bool:
    return label.lower().endswith(".gguf")


def is_in_folder(path: str, folder: str) -> bool:
    """Whether a file is in a folder, which may be written with other capitals."""
    return path.lower().startswith(f"{folder.lower()}/")


def _fitting(found: Sequence[ModelFiles], label: str | None) -> list[ModelFiles]:
    """Return the models of a quantisation, or that with a file of this name."""
    if label and _is_file(label):
        names = [(model, path) for model in found for path in model.paths]
        exact = [model for model, path in names if label in (path, path.rpartition("/")[2])]
        label, lower = label.lower(), [(model, path.lower()) for model, path in names]
        return exact or [each for each, path in lower if label in (path, path.rpartition("/")[2])]
    return [model for model in found if model.quant == (_spelled(label) if label else None)]


def _begins(label: str, wanted: str) -> bool:
    return any(f"{each}_".startswith(f"{wanted}_") for each in (label, label.removeprefix("UD-")))


def _spelled(label: str) -> str:
    """Return a quantisation as file names are read."""
    label = label.upper()
    return _OTHER_SPELLING.get(label, label)


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
