"""Code blocks: finds the code in a Markdown text."""

from markdown_it import MarkdownIt

_CODE = ("fence", "code_block")


def code_blocks(markdown: str) -> list[str]:
    """The texts of all code blocks, in order."""
    return [each.content for each in MarkdownIt().parse(markdown) if each.type in _CODE]
