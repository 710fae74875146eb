"""A finding on digits as a line and as a record."""

import json

import pytest

from localspec.speculation.equal_digits import EqualDigits

FINDINGS = [
    (EqualDigits(((1, 2, 3, 4, 8),), 640), "equal digits in passes of 1-4, 8 rows"),
    (
        EqualDigits(((1,), (2, 3)), 640, company=False),
        "equal digits in passes of 2-3 rows, but not 1; others beside other texts",
    ),
    (
        EqualDigits(((1, 2, 3), (4,), (5,), (8, 16)), 640, company=True),
        "equal digits in passes of 1-3 rows, and of 8, 16 rows, but not 4-5; "
        "the same beside other texts",
    ),
    (EqualDigits(((1,), (4,)), 5), "no two widths give equal digits (rows tried: 1, 4)"),
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
