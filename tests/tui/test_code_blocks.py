"""Code blocks of Markdown texts."""

import pytest

from localspec_tui.code_blocks import last_code_block


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("no code", None),
        ("```python\na\n```\ntext\n```\nb\n\nc\n```\nend", "b\n\nc\n"),
        ("an open one\n```\na\nb", "a\nb"),
        ("indented:\n\n    x = 1\n", "x = 1\n"),
    ],
)
def test_the_last_code_block(message: str, code: str | None) -> None:
    assert last_code_block(message) == code
