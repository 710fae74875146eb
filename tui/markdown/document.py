"""Document: Markdown that grows at its end, parsed into blocks."""

from localspec_tui.markdown.block_parser import BlockParser, LocatedBlock
from localspec_tui.markdown.blocks import Block, CodeBlock
from localspec_tui.markdown.open_fence import OpenFence


class Document:
    """Parses final blocks once, and only the open ones again when text is appended.

    final: blocks that no further text can change. open: the blocks after them.
    """

    def __init__(self) -> None:
        self.final: list[Block] = []
        self.open: list[Block] = []
        self._pieces: list[str] = []
        # The source of the open blocks.
        self._open_source = ""
        self._fence: OpenFence | None = None
        self._has_references = False

    @property
    def source(self) -> str:
        """All text that was appended."""
        return "".join(self._pieces)

    def append(self, text: str) -> None:
        """Add text at the end."""
        self._pieces.append(text)
        line = self._open_source.rfind("\n") + 1
        self._open_source += text
        if self._fence and not self._fence.is_closed(self._open_source, line):
            self.open = [self._fence.code_block(self._open_source)]
        else:
            self._parse()

    def finish(self) -> bool:
        """Make all blocks final; nothing will be appended.

        Returns whether blocks that were final have changed: a link reference that is defined at the
        end may be used anywhere.
        """
        changed = self._has_references
        if changed:
            self.final, self._open_source = [], self.source
        parser = BlockParser(self._open_source, ended=True)
        self.final += [each.block for each in parser.blocks()]
        self.open, self._open_source, self._fence, self._has_references = [], "", None, False
        return changed

    def _parse(self) -> None:
        parser = BlockParser(self._open_source, ended=False)
        blocks = list(parser.blocks())
        self._has_references = self._has_references or parser.has_references
        first_open = self._first_open(blocks)
        self.final += [each.block for each in blocks[:first_open]]
        self.open = [each.block for each in blocks[first_open:]]
        if blocks:
            self._drop_source_before(blocks[first_open])
        self._fence = None
        match self.open:
            case [CodeBlock(unfinished=True) as code] if (
                self._open_source.count("\n") > code.blank_before
            ):
                self._fence = OpenFence(self._open_source, code)
                self.open = [self._fence.code_block(self._open_source)]

    def _first_open(self, blocks: list[LocatedBlock]) -> int:
        """Index of the last block whose start no further text can change; those before are final.

        The start of a block is certain once the line after its first line is complete: `**` may
        become a rule, and a table row needs the line below it. The start of a code block is certain
        once its first line is complete.
        """
        complete_lines = self._open_source.count("\n")
        for number in range(len(blocks) - 1, 0, -1):
            first_line, block = blocks[number]
            is_fence = isinstance(block, CodeBlock) and block.unfinished
            if first_line + (1 if is_fence else 2) <= complete_lines:
                return number
        return 0

    def _drop_source_before(self, block: LocatedBlock) -> None:
        # The blank line before a block must stay, for `blank_before`.
        first = block.first_line - block.block.blank_before
        self._open_source = "\n".join(self._open_source.split("\n")[first:])
