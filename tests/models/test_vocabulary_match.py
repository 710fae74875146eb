"""Whether a drafter fits, on vocabularies made up for it."""

from dataclasses import dataclass, field, replace

import pytest

from localspec.models.vocabulary_match import (
    MOST_SIZE_DIFFERENCE,
    CheckResult,
    failed_check,
    mismatch,
    vocabulary_checks,
)

BYTE_PAIR, SENTENCE_PIECE = 2, 1


@dataclass(frozen=True)
class Words:
    """A vocabulary whose token i is written `wi`, but for `changed`."""

    n_vocab: int = 1000
    vocabulary_type: int = BYTE_PAIR
    bos: int = 0
    eos: int = 2
    adds_bos: bool = True
    adds_eos: bool = False
    changed: dict[int, bytes] = field(default_factory=dict)

    def token_text(self, token: int) -> bytes:
        return self.changed.get(token, b"w%d" % token)


TARGET = Words()


def test_the_same_vocabulary_fits() -> None:
    assert mismatch(TARGET, Words()) is None


@pytest.mark.parametrize("difference", [-MOST_SIZE_DIFFERENCE, MOST_SIZE_DIFFERENCE])
def test_padding_may_differ(difference: int) -> None:
    assert mismatch(TARGET, Words(n_vocab=1000 + difference)) is None


@pytest.mark.parametrize("difference", [-MOST_SIZE_DIFFERENCE - 1, MOST_SIZE_DIFFERENCE + 1])
def test_sizes_too_far_apart(difference: int) -> None:
    reason = mismatch(TARGET, Words(n_vocab=1000 + difference))
    assert reason == (
        f"vocabulary size differs by more than 128: target 1,000, drafter {1000 + difference:,}"
    )


def test_large_numbers_are_readable() -> None:
    reason = mismatch(Words(n_vocab=151_936), Words(n_vocab=32_000))
    assert reason is not None
    assert "target 151,936, drafter 32,000" in reason


def test_another_kind_of_tokenizer() -> None:
    reason = mismatch(TARGET, Words(vocabulary_type=SENTENCE_PIECE))
    assert reason == "vocabulary type differs: target 2, drafter 1"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bos": 1}, "BOS differs: target 0, drafter 1"),
        ({"adds_bos": False}, "whether BOS is added differs: target True, drafter False"),
        ({"adds_eos": True}, "whether EOS is added differs: target False, drafter True"),
    ],
)
def test_special_tokens_that_stand_in_texts(changes: dict[str, int], reason: str) -> None:
    assert mismatch(TARGET, replace(TARGET, **changes)) == reason


def test_eos_counts_where_it_is_added() -> None:
    adding = Words(adds_eos=True)
    assert mismatch(adding, replace(adding, eos=3)) == "EOS differs: target 2, drafter 3"


def test_special_tokens_that_are_never_added_may_differ() -> None:
    silent = Words(adds_bos=False)
    assert mismatch(silent, replace(silent, bos=7, eos=9)) is None


@pytest.mark.parametrize("token", [5, 500, 999])
def test_one_token_too_many_is_named(token: int) -> None:
    reason = mismatch(TARGET, Words(changed={token: b"other"}))
    assert reason == f"vocabulary differs at token {token}: target 'w{token}', drafter 'other'"


def test_the_first_of_several_is_named() -> None:
    drafter = Words(n_vocab=1100, changed={900: b"late", 42: b"early", 43: b"next"})
    reason = mismatch(TARGET, drafter)
    assert reason is not None
    assert "at token 42:" in reason


def test_the_first_few_tokens_may_differ() -> None:
    assert mismatch(TARGET, Words(changed={token: b"special" for token in range(5)})) is None


def words(texts: dict[int, str], **others: object) -> Words:
    return replace(Words(changed={token: each.encode() for token, each in texts.items()}), **others)


# As in Qwen2.5 and DeepSeek's distillation of it, and in Llama 3.1 and 3.2.
NAMED = {990: "<|im_start|>", 991: "<|im_end|>", 992: "<|reserved_special_token_5|>", 993: "[INST]"}
RENAMED = {
    990: "<\uff5cUser\uff5c>",
    991: "<\uff5cAssistant\uff5c>",
    992: "<|python_tag|>",
    993: "<a>",
}


def test_special_tokens_may_have_other_names() -> None:
    target, drafter = words(NAMED), words(RENAMED)
    assert mismatch(target, drafter) is None
    *_, texts = vocabulary_checks(target, drafter)
    assert texts.verdict is CheckResult.HARMLESS
    assert texts.detail.endswith("(and at 3 more); special tokens may")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("<|im_end|>", "word"), ("word", "<|im_end|>"), ("<0x0A>", "<0x0B>"), ("<|a|>x", "<|b|>x")],
)
def test_tokens_of_texts_may_not(ours: str, theirs: str) -> None:
    """A token that is written like a byte is one."""
    reason = mismatch(words({**NAMED, 995: ours}), words({**RENAMED, 995: theirs}))
    assert reason and "at token 995:" in reason and "more" not in reason


def test_nor_may_many_special_tokens() -> None:
    names = ({token: f"<{which}{token}>" for token in range(500, 629)} for which in "ab")
    target, drafter = map(words, names)
    assert "(and at 128 more)" in (mismatch(target, drafter) or "")
    fewer = replace(drafter, changed={**drafter.changed, 628: target.changed[628]})
    assert mismatch(target, fewer) is None


@pytest.mark.parametrize("changes", [{"bos": 1}, {"adds_bos": False}, {"adds_eos": True}], ids=str)
def test_what_a_head_says_of_bos_and_eos_does_not_count(changes: dict[str, int]) -> None:
    head = replace(TARGET, **changes)
    assert mismatch(TARGET, head, head=True) is None
    details = [each.detail for each in vocabulary_checks(TARGET, head, head=True)]
    assert [each for each in details if each.endswith("; the target's counts")]
    assert mismatch(TARGET, replace(head, n_vocab=1200), head=True)


def test_tokens_only_one_of_them_has_may_be_anything() -> None:
    assert mismatch(TARGET, Words(n_vocab=1050, changed={1049: b"w7"})) is None


def test_a_token_that_is_no_text_can_be_shown() -> None:
    reason = mismatch(TARGET, Words(changed={7: b"\xff\xfe\n"}))
    assert reason is not None
    assert reason.isprintable()


def test_the_bundled_pair_fits(target_model, drafter_model) -> None:  # type: ignore[no-untyped-def]
    assert mismatch(target_model, drafter_model) is None
    assert mismatch(drafter_model, target_model) is None


def test_every_check_has_a_verdict() -> None:
    drafter = Words(n_vocab=1010, eos=3, changed={2: b"special", 900: b"other", 901: b"more"})
    verdicts = {check.name: check.verdict for check in vocabulary_checks(TARGET, drafter)}
    assert verdicts == {
        "vocabulary type": CheckResult.FITS,
        "BOS": CheckResult.FITS,
        "EOS": CheckResult.HARMLESS,
        "vocabulary size": CheckResult.HARMLESS,
        "token texts": CheckResult.UNFIT,
    }


def test_the_failure_is_the_mismatch() -> None:
    drafter = Words(changed={900: b"other", 901: b"more"})
    failed = failed_check(vocabulary_checks(TARGET, drafter))
    assert failed and failed.detail == mismatch(TARGET, drafter)
    assert failed.detail.endswith("(and at 1 more)")
    assert failed_check(vocabulary_checks(TARGET, Words())) is None


def test_two_tokenizers_nobody_knows_are_not_the_same() -> None:
    strange = Words(vocabulary_type=0)
    assert mismatch(strange, strange) == "llama.cpp knows the tokenizer of neither"
