"""Code blocks of Markdown texts."""

import pytest

from localspec_tui.code_blocks import code_blocks


@pytest.mark.parametrize(
    ("message", "blocks"),
    [
        ("no code", []),
        ("```python\na\n```\ntext\n```\nb\n\nc\n```\nend", ["a\n", "b\n\nc\n"]),
        ("an open one\n```\na\nb", ["a\nb"]),
        ("indented:\n\n    x = 1\n", ["x = 1\n"]),
    ],
)
def test_code_blocks(message: str, blocks: list[str]) -> None:
    assert code_blocks(message) == blocks
