"""Sidecars: which of the drafters beside a target are chosen, by the names of their files.

This is llama.cpp's rule for repositories: the deepest folder that a target and a sidecar share,
then the same quantisation, then the closest number of bits. A folder named after a kind, such as
MTP, counts as the one above it.
"""

import re
from collections.abc import Iterable, Mapping

from localspec.gguf.files import SIDECAR_KINDS, ModelFiles, group_sidecars, sidecar_kind

_BITS = re.compile(r"\d+")
_UNKNOWN_BITS = 99


def best_sidecars(files: Iterable[str], target: ModelFiles) -> Mapping[str, ModelFiles]:
    """Return the best sidecar of each kind. files: the paths of all files of a repository."""
    found: dict[str, ModelFiles] = {}
    usable = [each for each in group_sidecars(files) if _shares_folder(each, target)]
    for each in sorted(usable, key=lambda each: _rank(each, target)):
        found.setdefault(sidecar_kind(each.first) or "", each)
    return found


def is_named_like(sidecar: ModelFiles, target: ModelFiles) -> bool:
    """Whether a sidecar is named after a target, or after what the target was made from."""
    of, name = sidecar.base_name, target.base_name
    return bool(of) and f"{name}-".startswith(f"{of}-")


def _rank(sidecar: ModelFiles, target: ModelFiles) -> tuple[int, bool, int, str]:
    """The key of the best sidecar is the smallest."""
    difference = abs(_bits(sidecar) - _bits(target))
    other_quant = sidecar.quant is None or sidecar.quant != target.quant
    return -len(_folders(sidecar)), other_quant, difference, sidecar.first


def _shares_folder(sidecar: ModelFiles, target: ModelFiles) -> bool:
    """Whether a sidecar lies in the target's folder or in one above it."""
    folders = _folders(sidecar)
    return _folders(target)[: len(folders)] == folders


def _folders(model: ModelFiles) -> list[str]:
    folders = model.first.split("/")[:-1]
    return folders[:-1] if folders and folders[-1].lower() in SIDECAR_KINDS else folders


def _bits(model: ModelFiles) -> int:
    """The bits of a weight, as the quantisation is called."""
    found = _BITS.search(model.quant or "")
    return int(found[0]) if found else _UNKNOWN_BITS
