"""Pairing: whether a drafter speaks the target's vocabulary."""

from typing import Protocol

# llama.cpp's own tolerances: padding differs between sizes of one family, and so may the first
# few (special) tokens.
MOST_SIZE_DIFFERENCE = 128
FIRST_TOKEN_COMPARED = 5


class Vocabulary(Protocol):
    """What of a model's vocabulary must agree."""

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


def mismatch(target: Vocabulary, drafter: Vocabulary) -> str | None:
    """Why the drafter cannot draft for the target, or None when it can."""
    if target.vocabulary_type != drafter.vocabulary_type:
        return (
            f"vocabulary type differs: target {target.vocabulary_type}, "
            f"drafter {drafter.vocabulary_type}"
        )
    for name in ("bos", "eos"):
        if reason := _special_mismatch(name, target, drafter):
            return reason
    if abs(target.n_vocab - drafter.n_vocab) > MOST_SIZE_DIFFERENCE:
        return (
            f"vocabulary size differs by more than {MOST_SIZE_DIFFERENCE}: "
            f"target {target.n_vocab:,}, drafter {drafter.n_vocab:,}"
        )
    return _text_mismatch(target, drafter)


def _special_mismatch(name: str, target: Vocabulary, drafter: Vocabulary) -> str | None:
    """BOS or EOS: whether it is added, and, where it is, which token it is."""
    adds = bool(getattr(target, f"adds_{name}")), bool(getattr(drafter, f"adds_{name}"))
    if adds[0] != adds[1]:
        return f"whether {name.upper()} is added differs: target {adds[0]}, drafter {adds[1]}"
    ids = getattr(target, name), getattr(drafter, name)
    if adds[0] and ids[0] != ids[1]:
        return f"{name.upper()} differs: target {ids[0]}, drafter {ids[1]}"
    return None


def _text_mismatch(target: Vocabulary, drafter: Vocabulary) -> str | None:
    for token in range(FIRST_TOKEN_COMPARED, min(target.n_vocab, drafter.n_vocab)):
        texts = target.token_text(token), drafter.token_text(token)
        if texts[0] != texts[1]:
            shown = [text.decode("utf-8", "replace") for text in texts]
            return (
                f"vocabulary differs at token {token:,}: target {shown[0]!r}, drafter {shown[1]!r}"
            )
    return None
