"""Code blocks: finds the code in a Markdown text."""

from markdown_it import MarkdownIt

_CODE = ("fence", "code_block")


def last_code_block(markdown: str) -> str | None:
    """The text of the last code block, or None if there is none."""
    blocks = (each for each in MarkdownIt().parse(markdown) if each.type in _CODE)
    return next((block.content for block in reversed([*blocks])), None)
