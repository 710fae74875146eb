"""Heads elsewhere: where the heads are that a file lacks and its model was trained with."""

from localspec.gguf.facts import Facts
from localspec.gguf.reader import display_name
from localspec.hub import store
from localspec.imports import links
from localspec.models.kinds import ASSISTANT, MTP
from localspec.models.own_drafters import own_drafters
from localspec.models.pair_finder import lacks_heads, pair_of
from localspec.utils.option_names import options

# All models of these architectures were trained with heads of multi-token prediction.
_TRAINED_WITH_HEADS = ("qwen35", "qwen35moe")
# Drafters that are files named mtp-*.gguf.
_NAMED_MTP = (MTP, ASSISTANT)
_ENDING, _WITH_HEADS = "-GGUF", "-MTP-GGUF"


def missing(target: Facts) -> str:
    """Say that a target has no MTP heads inside, and what to do."""
    name = display_name(target.files[0].name)
    own = own_drafters(target.files[0], target)
    if near := next((each.file for each in own if each.kind in _NAMED_MTP and each.file), None):
        pass_it = f"pass {options(draft=str(near))}"
        return f"{name} has no MTP heads inside; beside it lies a file: {pass_it}"
    where = heads_elsewhere(target) or (
        f"{name} has no MTP heads inside; the file with heads may be in a repository whose name "
        "ends in -MTP-GGUF"
    )
    return f"{where}; use {options(draft='suffix')}, or a file mtp-*.gguf of its own repository"


def heads_elsewhere(target: Facts) -> str | None:
    """Say where the heads are that a target lacks; None where it should have none."""
    if target.has_mtp:
        return None
    path, name = target.files[0], target.files[0].name
    pair = pair_of(path)
    if pair and lacks_heads(path, pair):
        return f"{name} has no MTP heads inside; the file with heads is in {pair.target}"
    if target.header.architecture not in _TRAINED_WITH_HEADS:
        return None
    repository = store.repository_of(path) or links.repository_of(path) or ""
    if repository.endswith(_ENDING) and not repository.endswith(_WITH_HEADS):
        twin = repository.removesuffix(_ENDING) + _WITH_HEADS
        return f"{name} has no MTP heads inside; a file with heads may be in {twin}"
    return f"{name} has no MTP heads inside; files with heads are named {_WITH_HEADS}"
