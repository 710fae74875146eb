"""Head compatibility: whether a head fits a target, check by check, without loading them."""

import re

from localspec.errors import LocalspecError
from localspec.gguf.facts import Facts
from localspec.gguf.heads import kind_of, require_fitting
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.models.compatibility import memory_check, planned_context, rollback_check
from localspec.models.kinds import MEDUSA, MLP, MTP
from localspec.models.vocabulary_match import Check, CheckResult, vocabulary_checks

# What a file is made from, as converters write it.
_MADE_FROM = ("general.base_model.0.name", "general.basename", "general.name")
# A version, such as the 3.8 of Qwen3.8, and a size, such as 27B or the E4B of Gemma.
_VERSION = re.compile(r"\d+\.\d+(?![\d.]*[bm]\b)", re.IGNORECASE)
_SIZE = re.compile(r"(?<![\w.])[ae]?\d+(?:\.\d+)?[bm]\b", re.IGNORECASE)


def head_checks(target: Facts, head: Facts, context: int | None = None) -> list[Check]:
    """Check everything that the headers tell of a head and a target, what it is made for first.

    context: tokens of text, as in compatibility.checks.
    """
    kind = kind_of(head.header) or MTP
    vocabularies = HeaderVocabulary(target.header), HeaderVocabulary(head.header)
    n_ctx = planned_context(target, context)
    known = vocabulary_checks(*vocabularies, head=True) if vocabularies[1].n_vocab else ()
    if kind in (MEDUSA, MLP):
        # Their matrices are none of llama.cpp's; what they read is checked in the trial.
        return [_kind(kind), _checkpoint(target, head), rollback_check(target)]
    return [
        _kind(kind),
        _hidden_states(target, head),
        _checkpoint(target, head),
        *known,
        rollback_check(target),
        memory_check(target, head, n_ctx, fixed_context=context is not None),
    ]


def inside_checks(target: Facts) -> list[Check]:
    """Check the heads inside a target."""
    return [_kind(MTP), rollback_check(target)]


def _kind(kind: str) -> Check:
    return Check("kind", CheckResult.FITS, kind)


def _hidden_states(target: Facts, head: Facts) -> Check:
    """Check that the target has what the head reads; a wrong revision of a head shows here too."""
    name = "hidden states"
    try:
        require_fitting(head.files[0], head.header, target.files[0], target.header)
    except LocalspecError as error:
        return Check(name, CheckResult.UNFIT, str(error).partition(";")[0])
    return Check(name, CheckResult.FITS, "the target has the layers and widths that it reads")


def _checkpoint(target: Facts, head: Facts) -> Check:
    """Compare what both are named after: versions and sizes that differ are different models."""
    names = _named_after(target), _named_after(head)
    detail = f"named after {names[1]}, the target after {names[0]}"
    if any(_differ(pattern, *names) for pattern in (_VERSION, _SIZE)):
        detail += "; a head drafts badly for another checkpoint, which is tried out at first use"
        return Check("checkpoint", CheckResult.HARMLESS, detail)
    return Check("checkpoint", CheckResult.FITS, detail)


def _differ(pattern: re.Pattern[str], one: str, other: str) -> bool:
    """Whether both names have something of a pattern, and nothing in common."""
    found = [{each.lower() for each in pattern.findall(name)} for name in (one, other)]
    return bool(found[0] and found[1]) and found[0].isdisjoint(found[1])


def _named_after(model: Facts) -> str:
    known = (model.text(key) for key in _MADE_FROM)
    return next((each for each in known if each), model.files[0].stem)
