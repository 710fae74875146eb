"""Kinds: the kinds of drafters that `localspec train` trains."""

from collections.abc import Mapping

from localspec.training.draft_model_kind import DRAFT_MODEL_KIND
from localspec.training.drafter_kind import Kind

KINDS: Mapping[str, Kind] = {each.name: each for each in (DRAFT_MODEL_KIND,)}
