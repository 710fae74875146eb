"""Vocabulary match: whether a drafter has its target's vocabulary, check by check."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from localspec.gguf.vocabulary import TOKENIZER_NAMES

# llama.cpp's own tolerances: padding differs between sizes of one family, and so may the first
# few (special) tokens.
MOST_SIZE_DIFFERENCE = 128
FIRST_TOKEN_COMPARED = 5
# Special tokens are written so; sizes and fine-tunes of a family name those anew that no text has.
_SPECIAL = re.compile(rb"<(?!0x[0-9A-F]{2}>)[^<>]+>|\[[A-Za-z0-9_]+\]")
# What is said of a draft model with another vocabulary.
THROUGH_TEXT_LINE = "different vocabulary: drafts go through text"
# Tokenizers that keep a text as it is: those of BERT and T5 change spaces and letters.
_LOSSLESS = {"SPM", "BPE", "RWKV", "PLaMo2"}


class Vocabulary(Protocol):
    """What is compared of a vocabulary; tokens are ids, -1 where the vocabulary has none."""

    n_vocab: int

    @property
    def vocabulary_type(self) -> int: ...

    @property
    def bos(self) -> int: ...

    @property
    def eos(self) -> int: ...

    @property
    def adds_bos(self) -> bool: ...

    @property
    def adds_eos(self) -> bool: ...

    def token_text(self, token: int) -> bytes: ...


class CheckResult(StrEnum):
    """What a check found. HARMLESS: the drafter works, but may be slower or less accurate.

    THROUGH_TEXT: its vocabulary is another one, and its drafts are spelled anew.
    """

    FITS = "fits"
    HARMLESS = "differs, harmless"
    THROUGH_TEXT = "differs, through text"
    UNFIT = "does not fit"


@dataclass(frozen=True, slots=True)
class Check:
    """One property of a target and a drafter. detail: both values, in one line."""

    name: str
    verdict: CheckResult
    detail: str


def mismatch(target: Vocabulary, drafter: Vocabulary, *, head: bool = False) -> str | None:
    """Return in one line why the drafter cannot draft for the target; None where it can.

    head: as in `vocabulary_checks`.
    """
    failed = failed_check(vocabulary_checks(target, drafter, head=head))
    return failed.detail if failed else None


def draft_model_checks(target: Vocabulary, drafter: Vocabulary) -> list[Check]:
    """The checks of `vocabulary_checks` for a draft model, whose drafts may go through the text."""
    found = list(vocabulary_checks(target, drafter))
    if not translates(target, drafter):
        return found
    return [
        replace(each, verdict=CheckResult.THROUGH_TEXT)
        if each.verdict is CheckResult.UNFIT
        else each
        for each in found
    ]


def goes_through_text(target: Vocabulary, drafter: Vocabulary) -> bool:
    """Whether a draft model drafts for this target, and with a vocabulary of its own."""
    return translates(target, drafter) and mismatch(target, drafter) is not None


def translates(target: Vocabulary, drafter: Vocabulary) -> bool:
    """Whether drafts can go through the text, where the vocabularies differ."""
    kinds = {TOKENIZER_NAMES[each.vocabulary_type] for each in (target, drafter)}
    return kinds <= _LOSSLESS


def failed_check(checks: Iterable[Check]) -> Check | None:
    """Return the first check that makes drafting impossible; None where there is none."""
    return next((check for check in checks if check.verdict is CheckResult.UNFIT), None)


def vocabulary_checks(
    target: Vocabulary, drafter: Vocabulary, *, head: bool = False
) -> Iterator[Check]:
    """Compare type, BOS, EOS, size and token texts of two vocabularies, the fastest first.

    head: whether the drafter is a head. It reads what its target has read, so BOS and EOS are the
    target's, whatever the head's file says of them.
    """
    yield _type(target, drafter)
    for name in ("bos", "eos"):
        added = _added(name, target, drafter)
        if head and added.verdict is CheckResult.UNFIT:
            detail = f"{added.detail}; the target's counts"
            added = replace(added, verdict=CheckResult.HARMLESS, detail=detail)
        yield added
    yield _count(target, drafter)
    yield _texts(target, drafter)


def _type(target: Vocabulary, drafter: Vocabulary) -> Check:
    types = target.vocabulary_type, drafter.vocabulary_type
    if types[0] != types[1]:
        detail = f"vocabulary type differs: target {types[0]}, drafter {types[1]}"
        return Check("vocabulary type", CheckResult.UNFIT, detail)
    if not types[0]:
        detail = "llama.cpp knows the tokenizer of neither"
        return Check("vocabulary type", CheckResult.UNFIT, detail)
    return Check("vocabulary type", CheckResult.FITS, f"both {TOKENIZER_NAMES[types[0]]}")


def _added(which: str, target: Vocabulary, drafter: Vocabulary) -> Check:
    """Compare BOS or EOS: whether prompts get it, and which token it is."""
    name = which.upper()
    adds = bool(getattr(target, f"adds_{which}")), bool(getattr(drafter, f"adds_{which}"))
    ids = getattr(target, which), getattr(drafter, which)
    if adds[0] != adds[1]:
        detail = f"whether {name} is added differs: target {adds[0]}, drafter {adds[1]}"
        return Check(name, CheckResult.UNFIT, detail)
    how = "added by both" if adds[0] else "added by neither"
    if ids[0] == ids[1]:
        return Check(name, CheckResult.FITS, f"both {token_name(ids[0])}, {how}")
    detail = f"{name} differs: target {token_name(ids[0])}, drafter {token_name(ids[1])}"
    if adds[0]:
        return Check(name, CheckResult.UNFIT, detail)
    return Check(name, CheckResult.HARMLESS, f"{detail}; {how}")


def token_name(token: int) -> str:
    """Return a token id as messages show it, "none" for a negative one."""
    return "none" if token < 0 else f"{token}"


def _count(target: Vocabulary, drafter: Vocabulary) -> Check:
    sizes = f"target {target.n_vocab:,}, drafter {drafter.n_vocab:,}"
    name, more = "vocabulary size", target.n_vocab - drafter.n_vocab
    if abs(more) > MOST_SIZE_DIFFERENCE:
        detail = f"vocabulary size differs by more than {MOST_SIZE_DIFFERENCE}: {sizes}"
        return Check(name, CheckResult.UNFIT, detail)
    if not more:
        return Check(name, CheckResult.FITS, f"both {target.n_vocab:,} tokens")
    owner = "target" if more > 0 else "drafter"
    detail = f"{sizes}; the {owner}'s last {abs(more)} are never drafted"
    return Check(name, CheckResult.HARMLESS, detail)


def _texts(target: Vocabulary, drafter: Vocabulary) -> Check:
    name, common = "token texts", min(target.n_vocab, drafter.n_vocab)
    differing = [
        token for token in range(common) if target.token_text(token) != drafter.token_text(token)
    ]
    counted = [token for token in differing if token >= FIRST_TOKEN_COMPARED]
    ordinary = [token for token in counted if not _is_special(token, target, drafter)]
    if ordinary or len(counted) > MOST_SIZE_DIFFERENCE:
        detail = f"vocabulary {_difference(ordinary or counted, target, drafter)}"
        return Check(name, CheckResult.UNFIT, detail)
    if counted:
        detail = f"{_difference(counted, target, drafter)}; special tokens may"
        return Check(name, CheckResult.HARMLESS, detail)
    if differing:
        detail = f"{_difference(differing, target, drafter)}; the first {FIRST_TOKEN_COMPARED} may"
        return Check(name, CheckResult.HARMLESS, detail)
    return Check(name, CheckResult.FITS, f"all {common:,} equal")


def _is_special(token: int, target: Vocabulary, drafter: Vocabulary) -> bool:
    """Whether a token is special in both vocabularies, by how it is written.

    Drafts are verified by ids, so such a token is at worst a wrong guess; and where it has the same
    role under another name, as the end of a turn has, it is a right one.
    """
    return all(_SPECIAL.fullmatch(each.token_text(token)) for each in (target, drafter))


def _difference(tokens: list[int], target: Vocabulary, drafter: Vocabulary) -> str:
    """Describe the first of these tokens, and count the others."""
    texts = target.token_text(tokens[0]), drafter.token_text(tokens[0])
    shown = [text.decode("utf-8", "replace") for text in texts]
    others = f" (and at {len(tokens) - 1:,} more)" if len(tokens) > 1 else ""
    return f"differs at token {tokens[0]:,}: target {shown[0]!r}, drafter {shown[1]!r}{others}"
