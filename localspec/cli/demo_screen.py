"""What `localspec demo` shows of the comparison: two panes on a terminal, else text after text."""

import sys
from contextlib import AbstractContextManager
from time import perf_counter

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from localspec.cli.demo_comparison import Decoding, DemoComparison
from localspec.cli.demo_output import speed_text
from localspec.cli.output import ORIGIN_STYLES, Output, origin_kind
from localspec.engine.generation import Token
from localspec.utils.format import without_controls

# In letters: a narrower pane holds too little of a line of code.
_MIN_WIDTH = 64
_MIN_HEIGHT = 12
_MAX_LINES = 24
# Lines that are no text: borders, the legend, and one to spare.
_OTHER_LINES = 4
# Letters of border and padding, left and right.
_EDGES = 4
_FRAMES_PER_SECOND = 12.0
_PROMPT_LINES = 4


class Screen(AbstractContextManager["Screen"]):
    """Shows the tokens of a comparison; at the end of the `with` both texts stay on the screen."""

    def show(self, decoding: Decoding, token: Token) -> None:
        """Show a token of a decoding."""
        raise NotImplementedError


class Lines(Screen):
    """One text after the other, each followed by its speed: for pipes and small screens."""

    def __init__(self, output: Output, comparison: DemoComparison, prompt: str) -> None:
        self._output = output
        self._comparison = comparison
        self._prompt = prompt
        self._decoding: Decoding | None = None

    def show(self, decoding: Decoding, token: Token) -> None:
        if decoding is not self._decoding:
            self._end_decoding()
            self._decoding = decoding
            self._output.data(f"--- {decoding.name}\n{_end_of(self._prompt)}")
        self._output.token(safe_text(token.text), token.origin)

    def __exit__(self, *_exc: object) -> None:
        self._end_decoding()

    def _end_decoding(self) -> None:
        if self._decoding:
            self._output.data(f"\n--- {speed_text(self._decoding, self._comparison)}\n\n")


class Panes(Screen):
    """Both texts side by side, tokens styled by origin, speeds live."""

    def __init__(self, console: Console, comparison: DemoComparison, prompt: str) -> None:
        self._console = console
        self._comparison = comparison
        self._prompt = prompt
        self._drawn = 0.0
        # No thread that draws: it would take time from what is measured.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> "Panes":
        self._live.start()
        self._draw()
        return self

    def show(self, decoding: Decoding, token: Token) -> None:
        if perf_counter() - self._drawn > 1 / _FRAMES_PER_SECOND:
            self._draw()

    def __exit__(self, *_exc: object) -> None:
        self._live.stop()
        self._console.print(self._frame())

    def _draw(self) -> None:
        lines = min(_MAX_LINES, self._console.height - _OTHER_LINES)
        self._live.update(self._frame(lines), refresh=True)
        self._drawn = perf_counter()

    def _frame(self, lines: int | None = None) -> Group:
        """Return both panes and the legend. lines: show the last lines only, so many."""
        width = self._console.width // 2 - _EDGES
        bodies = [self._body(decoding, width) for decoding in self._comparison.decodings]
        rows = lines or max(map(len, bodies))
        grid = Table.grid(expand=True)
        for _ in bodies:
            grid.add_column(ratio=1)
        grid.add_row(
            *(
                self._pane(decoding, body[-rows:], rows)
                for decoding, body in zip(self._comparison.decodings, bodies, strict=True)
            )
        )
        return Group(grid, legend())

    def _body(self, decoding: Decoding, width: int) -> list[Text]:
        """Return the end of the prompt and the text so far, in lines of `width` letters."""
        prompt = (_end_of(self._prompt), "dim")
        body = Text.assemble(prompt, *((safe_text(t.text), style_of(t)) for t in decoding.tokens))
        body.expand_tabs(4)
        return list(body.wrap(self._console, width))

    def _pane(self, decoding: Decoding, body: list[Text], rows: int) -> Panel:
        return Panel(
            Text("\n").join(body),
            title=decoding.name,
            title_align="left",
            subtitle=speed_text(decoding, self._comparison),
            subtitle_align="right",
            height=rows + 2,
        )


def screen_for(output: Output, comparison: DemoComparison, prompt: str) -> Screen:
    """Return panes where stdout has room and colour for them, else lines."""
    if output.color and sys.stdout.isatty():
        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        if console.width >= _MIN_WIDTH and console.height >= _MIN_HEIGHT:
            return Panes(console, comparison, prompt)
    return Lines(output, comparison, prompt)


def legend() -> Text:
    """Return the explanation of the styles."""
    return Text.assemble(
        ("drafted", ORIGIN_STYLES["drafted"]),
        " guessed right · ",
        ("corrected", ORIGIN_STYLES["corrected"]),
        " guessed wrong · ",
        ("bonus", ORIGIN_STYLES["bonus"]),
        " one more · plain no guess",
    )


def style_of(token: Token) -> str:
    """Return the style of a token, in rich's words."""
    return ORIGIN_STYLES[origin_kind(token.origin)]


def safe_text(text: str) -> str:
    """Return a token's text without characters that would move the cursor."""
    return without_controls(text)


def _end_of(prompt: str) -> str:
    lines = prompt.split("\n")
    return "\n".join(lines if len(lines) <= _PROMPT_LINES else ["...", *lines[-_PROMPT_LINES:]])
