"""Compatibility: whether one model can draft for another, check by check, without loading them."""

from localspec.gguf.facts import Facts
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.llama.context_params import ContextParams
from localspec.memory.available import free_memory
from localspec.memory.estimate import DEFAULT_CONTEXT, default_context
from localspec.memory.memory_plan import best_plan
from localspec.memory.request import MemoryRequest
from localspec.models.speed_up import bytes_read
from localspec.models.vocabulary_match import (
    Check,
    CheckResult,
    draft_model_checks,
    token_name,
)
from localspec.utils.format import format_bytes


def checks(target: Facts, drafter: Facts, context: int | None = None) -> list[Check]:
    """Check everything that decides whether the drafter fits, the vocabularies first.

    context: tokens of text, as the user named them; None is the target's own context, up to
    DEFAULT_CONTEXT, and may become smaller where memory is short.
    """
    n_ctx = planned_context(target, context)
    vocabularies = HeaderVocabulary(target.header), HeaderVocabulary(drafter.header)
    vocabulary = draft_model_checks(*vocabularies)
    own = any(each.verdict is CheckResult.THROUGH_TEXT for each in vocabulary)
    return [
        *vocabulary,
        _special_tokens(*vocabularies),
        _template(target, drafter, own_vocabulary=own),
        _context(drafter, n_ctx),
        rollback_check(target, drafter),
        memory_check(target, drafter, n_ctx, fixed_context=context is not None),
        _size(target, drafter),
    ]


def planned_context(target: Facts, context: int | None) -> int:
    """Return how many tokens of text to plan for. context: as in `checks`."""
    return context or default_context(target.header.context_length)


def _special_tokens(target: HeaderVocabulary, drafter: HeaderVocabulary) -> Check:
    """Compare the tokens that end turns and texts; those of the target are used."""
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


def _template(target: Facts, drafter: Facts, *, own_vocabulary: bool) -> Check:
    name, both = "chat template", (target.chat_template, drafter.chat_template)
    if both[0] == both[1]:
        return Check(name, CheckResult.FITS, "the same" if both[0] else "none in both")
    if own_vocabulary and both[1]:
        return Check(name, CheckResult.HARMLESS, "differs; each reads a conversation in its own")
    alone = "" if both[1] else " (the drafter has none)"
    detail = f"differs{alone}; the target's is used, which the drafter may know less well"
    return Check(name, CheckResult.HARMLESS, detail)


def _context(drafter: Facts, n_ctx: int) -> Check:
    trained = drafter.header.context_length or DEFAULT_CONTEXT
    detail = f"{n_ctx:,} tokens; the drafter was made for {trained:,}"
    if trained >= n_ctx:
        return Check("context", CheckResult.FITS, detail)
    return Check("context", CheckResult.HARMLESS, f"{detail}, and guesses worse beyond")


def rollback_check(target: Facts, drafter: Facts | None = None) -> Check:
    """Say what taking rejected tokens back costs; it is possible with every kind of memory.

    drafter: None for a head, whose cache holds attention only.
    """
    both = {"target": target.memory_kind}
    if drafter:
        both["drafter"] = drafter.memory_kind
    kinds = ", ".join(dict.fromkeys(both.values()))
    states = [role for role, kind in both.items() if kind in ("hybrid", "recurrent")]
    if not states:
        return Check("rollback", CheckResult.FITS, f"{kinds}: any last tokens can be taken back")
    who = " and the ".join(states)
    detail = f"{kinds}: the {who} must copy a running state to take tokens back"
    return Check("rollback", CheckResult.HARMLESS, detail)


def memory_check(target: Facts, drafter: Facts, n_ctx: int, *, fixed_context: bool) -> Check:
    """Plan the memory as loading both models does."""
    free = free_memory()
    request = MemoryRequest(
        target=target,
        drafters=(drafter,),
        context=ContextParams(n_ctx),
        fixed_context=fixed_context,
    )
    plan = best_plan(request, free)
    if plan.notes and not plan.refusal:
        return Check("memory", CheckResult.HARMLESS, "; ".join(plan.notes))
    needed, total = format_bytes(plan.needed), format_bytes(free.total)
    detail = f"{needed} for both at {n_ctx:,} tokens, {total} free"
    return Check("memory", CheckResult.UNFIT if plan.refusal else CheckResult.FITS, detail)


def _size(target: Facts, drafter: Facts) -> Check:
    """Compare the bytes read per token: a drafter that is not smaller works, but is useless."""
    if drafter.files[0].samefile(target.files[0]):
        return Check("size", CheckResult.HARMLESS, "they are the same file: nothing to gain")
    reads = bytes_read(target, 1), bytes_read(drafter, 1)
    target_reads, drafter_reads = (format_bytes(int(size)) for size in reads)
    detail = f"reads {drafter_reads} per token, the target {target_reads}"
    if reads[1] < reads[0]:
        return Check("size", CheckResult.FITS, detail)
    return Check("size", CheckResult.HARMLESS, f"{detail}: nothing to gain")
