"""Kinds: the kinds of drafters that `localspec train` trains."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from localspec.conversion.target import TargetFile
from localspec.errors import LocalspecError
from localspec.models.kinds import DRAFT_MODEL, MEDUSA
from localspec.training.dflash_kind import DFLASH_KIND
from localspec.training.draft_model_kind import DRAFT_MODEL_KIND
from localspec.training.drafter_kind import Kind, KindOptions
from localspec.training.eagle3_kind import EAGLE3_KIND
from localspec.training.medusa_kind import MEDUSA_KIND
from localspec.training.mtp_kind import MTP_KIND

_ALL = (DRAFT_MODEL_KIND, EAGLE3_KIND, MEDUSA_KIND, DFLASH_KIND, MTP_KIND)
KINDS: Mapping[str, Kind] = {each.name: each for each in _ALL}


def smaller(target: TargetFile, kind: str, options: KindOptions, free: int) -> str:
    """The option with which a training fits in so many bytes; empty where none is known."""
    for option, (name, changed) in _smaller(target, kind, options):
        try:
            if KINDS[name].size(target, changed, ()).bytes <= free:
                return option
        except LocalspecError:
            continue  # the target has no drafter of this kind
    return ""


def _smaller(
    target: TargetFile, kind: str, options: KindOptions
) -> Iterator[tuple[str, tuple[str, KindOptions]]]:
    """Yield options that take less, with what they stand for: the largest first."""
    if kind == DRAFT_MODEL:
        for layers in range(target.layers - 1, 0, -1):
            yield f"--layers {layers}", (kind, replace(options, layers=layers, kept=()))
    if kind != MEDUSA:
        yield f"--kind {MEDUSA}", (MEDUSA, KindOptions())
