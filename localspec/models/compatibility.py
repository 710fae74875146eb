"""Fit: whether one model can draft for another, check by check, from their headers."""

import psutil

from localspec.gguf.facts import Facts
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.memory.estimate import DEFAULT_CONTEXT, cache_bytes, default_context
from localspec.models.speed_up import bytes_read
from localspec.models.vocabulary_match import Check, CheckResult, token_name, vocabulary_checks
from localspec.utils.format import format_bytes


def checks(target: Facts, drafter: Facts, context: int | None = None) -> list[Check]:
    """Everything that decides whether the drafter fits, vocabularies first.

    context: tokens of text that are wanted; None is the target's own, up to DEFAULT_CONTEXT.
    """
    wanted = context or default_context(target.header)
    vocabularies = HeaderVocabulary(target.header), HeaderVocabulary(drafter.header)
    return [
        *vocabulary_checks(*vocabularies),
        _special(*vocabularies),
        _template(target, drafter),
        _context(drafter, wanted),
        _rollback(target, drafter),
        _memory(target, drafter, wanted),
        _size(target, drafter),
    ]


def _special(target: HeaderVocabulary, drafter: HeaderVocabulary) -> Check:
    """The tokens that end turns and texts; it is the target's that do."""
    name, both = "special tokens", (target.special, drafter.special)
    differing = [
        f"{each.upper()} (target {token_name(both[0].get(each, -1))}, "
        f"drafter {token_name(both[1].get(each, -1))})"
        for each in dict.fromkeys([*both[0], *both[1]])
        if both[0].get(each) != both[1].get(each)
    ]
    if differing:
        detail = f"{', '.join(differing)}; the target's count"
        return Check(name, CheckResult.HARMLESS, detail)
    listed = ", ".join(f"{each.upper()} {token}" for each, token in both[0].items())
    return Check(name, CheckResult.FITS, listed or "none in both")


def _template(target: Facts, drafter: Facts) -> Check:
    name, both = "chat template", (target.chat_template, drafter.chat_template)
    if both[0] == both[1]:
        return Check(name, CheckResult.FITS, "the same" if both[0] else "none in both")
    alone = "" if both[1] else " (the drafter has none)"
    detail = f"differs{alone}; the target's is used, which the drafter may know less well"
    return Check(name, CheckResult.HARMLESS, detail)


def _context(drafter: Facts, wanted: int) -> Check:
    trained = _trained(drafter)
    detail = f"{wanted:,} tokens; the drafter was made for {trained:,}"
    if trained >= wanted:
        return Check("context", CheckResult.FITS, detail)
    return Check("context", CheckResult.HARMLESS, f"{detail}, and guesses worse beyond")


def _trained(model: Facts) -> int:
    return model.header.context_length or DEFAULT_CONTEXT


def _rollback(target: Facts, drafter: Facts) -> Check:
    """Every kind of memory can take rejected tokens back; what that takes is measured."""
    both = {"target": target.memory, "drafter": drafter.memory}
    kinds = ", ".join(dict.fromkeys(both.values()))
    states = [role for role, kind in both.items() if kind in ("hybrid", "recurrent")]
    if not states:
        return Check("rollback", CheckResult.FITS, f"{kinds}: any last tokens can be taken back")
    who = " and the ".join(states)
    detail = f"{kinds}: the {who} must copy a running state to take tokens back"
    return Check("rollback", CheckResult.HARMLESS, detail)


def _memory(target: Facts, drafter: Facts, context: int) -> Check:
    needed = sum(_resident(model, context) for model in (target, drafter))
    free = psutil.virtual_memory().available
    detail = f"{format_bytes(needed)} for both at {context:,} tokens, {format_bytes(free)} free"
    return Check("memory", CheckResult.FITS if needed <= free else CheckResult.UNFIT, detail)


def _resident(model: Facts, context: int) -> int:
    """Bytes of its weights and its cache."""
    return model.size + (cache_bytes(model.header, context) or 0)


def _size(target: Facts, drafter: Facts) -> Check:
    """A drafter that is not smaller works, and gains nothing."""
    if drafter.files[0].samefile(target.files[0]):
        return Check("size", CheckResult.HARMLESS, "they are the same file: nothing to gain")
    reads = bytes_read(target, 1), bytes_read(drafter, 1)
    detail = (
        f"reads {format_bytes(int(reads[1]))} per token, the target {format_bytes(int(reads[0]))}"
    )
    if reads[1] < reads[0]:
        return Check("size", CheckResult.FITS, detail)
    return Check("size", CheckResult.HARMLESS, f"{detail}: nothing to gain")
