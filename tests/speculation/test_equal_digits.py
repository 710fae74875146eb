"""A finding on digits as a line and as a record."""

import json

import pytest

from localspec.speculation.equal_digits import EqualDigits

FINDINGS = [
    (
        EqualDigits(((1, 2, 3, 4, 8),), 640),
        "drafts change no digit of scores (logits): the same in passes over 1-4, 8 tokens",
    ),
    (
        EqualDigits(((1,), (2, 3)), 640, company=False),
        "drafts may change last digits of scores (logits): "
        "the same in passes over 2-3 tokens, others over 1; "
        "other texts in the cache change last digits",
    ),
    (
        EqualDigits(((1, 2, 3), (4,), (5,), (8, 16)), 640, company=True),
        "drafts may change last digits of scores (logits): "
        "the same in passes over 1-3, and over 8, 16 tokens, others over 4-5; "
        "other texts in the cache change none",
    ),
    (
        EqualDigits(((1,), (4,)), 5),
        "drafts may change last digits of scores (logits): "
        "others in each of the passes over 1, 4 tokens",
    ),
]


@pytest.mark.parametrize(("found", "line"), FINDINGS)
def test_it_is_said_in_a_line_and_in_a_record(found: EqualDigits, line: str) -> None:
    assert str(found) == line
    record = json.loads(json.dumps(found.as_dict()))
    assert EqualDigits.of(record) == found
    assert record["by_width"] is (len(found.groups) == 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"equal_widths": []},
        {"equal_widths": [[]]},
        {"equal_widths": 3},
        {"in_company": "yes"},
        {"behind": None},
    ],
)
def test_another_record_is_refused(wrong: dict[str, object]) -> None:
    record = FINDINGS[0][0].as_dict() | wrong if wrong else {}
    with pytest.raises((KeyError, TypeError, ValueError)):
        EqualDigits.of(record)
