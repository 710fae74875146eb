"""Kinds: the kinds of drafters that `localspec train` trains."""

from collections.abc import Mapping

from localspec.training.dflash_kind import DFLASH_KIND
from localspec.training.draft_model_kind import DRAFT_MODEL_KIND
from localspec.training.drafter_kind import Kind
from localspec.training.eagle3_kind import EAGLE3_KIND
from localspec.training.medusa_kind import MEDUSA_KIND
from localspec.training.mtp_kind import MTP_KIND

_ALL = (DRAFT_MODEL_KIND, EAGLE3_KIND, MEDUSA_KIND, DFLASH_KIND, MTP_KIND)
KINDS: Mapping[str, Kind] = {each.name: each for each in _ALL}
