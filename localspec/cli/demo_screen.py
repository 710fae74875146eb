"""Where the demo is watched: two panes on a terminal, else one text after the other."""

import sys
from contextlib import AbstractContextManager
from time import perf_counter

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from localspec.cli.demo_words import speed
from localspec.cli.output import Output, kind_of
from localspec.engine.generation import Token
from localspec.scaling.race import Lane, Race
from localspec.utils.format import printable

# Narrower, a pane holds too little of a line of code.
_LEAST_WIDTH = 64
_LEAST_HEIGHT = 12
_MOST_LINES = 24
# Lines that are no text: borders, the legend, and one to spare.
_OTHER_LINES = 4
# Border and padding, left and right.
_EDGES = 4
# Pictures per second while it runs.
_RATE = 12.0
_PROMPT_LINES = 4
# The styles of `output.Output`, in rich's words.
_STYLES = {
    "drafted": "underline green",
    "corrected": "bold red",
    "bonus": "italic cyan",
    "plain": "",
}


class Screen(AbstractContextManager["Screen"]):
    """Shows every token of a race; leaving the `with` leaves the whole on the screen."""

    def show(self, lane: Lane, token: Token) -> None:
        """A token was made in this lane."""
        raise NotImplementedError


class Lines(Screen):
    """One text after the other, each followed by its speed: for pipes and small screens."""

    def __init__(self, output: Output, race: Race, prompt: str) -> None:
        self._output = output
        self._race = race
        self._prompt = prompt
        self._lane: Lane | None = None

    def show(self, lane: Lane, token: Token) -> None:
        if lane is not self._lane:
            self._end_lane()
            self._lane = lane
            self._output.data(f"--- {lane.name}\n{_end_of(self._prompt)}")
        self._output.token(shown(token.text), token.origin)

    def __exit__(self, *_exc: object) -> None:
        self._end_lane()

    def _end_lane(self) -> None:
        if self._lane:
            self._output.data(f"\n--- {speed(self._lane, self._race)}\n\n")


class Panes(Screen):
    """Both texts side by side, tokens styled by origin, speeds live."""

    def __init__(self, console: Console, race: Race, prompt: str) -> None:
        self._console = console
        self._race = race
        self._prompt = prompt
        self._drawn = 0.0
        # No thread that draws: it would take time from what is measured.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> "Panes":
        self._live.start()
        self._draw()
        return self

    def show(self, lane: Lane, token: Token) -> None:
        if perf_counter() - self._drawn > 1 / _RATE:
            self._draw()

    def __exit__(self, *_exc: object) -> None:
        self._live.stop()
        self._console.print(self._picture())

    def _draw(self) -> None:
        lines = min(_MOST_LINES, self._console.height - _OTHER_LINES)
        self._live.update(self._picture(lines), refresh=True)
        self._drawn = perf_counter()

    def _picture(self, lines: int | None = None) -> Group:
        """Both panes and the legend. lines: show only so many, the last ones."""
        width = self._console.width // 2 - _EDGES
        bodies = [self._body(lane, width) for lane in self._race.lanes]
        rows = lines or max(map(len, bodies))
        grid = Table.grid(expand=True)
        for _ in bodies:
            grid.add_column(ratio=1)
        grid.add_row(
            *(
                self._pane(lane, body[-rows:], rows)
                for lane, body in zip(self._race.lanes, bodies, strict=True)
            )
        )
        return Group(grid, legend())

    def _body(self, lane: Lane, width: int) -> list[Text]:
        """The prompt's end and the text so far, in lines of that width."""
        prompt = (_end_of(self._prompt), "dim")
        body = Text.assemble(prompt, *((shown(t.text), style_of(t)) for t in lane.tokens))
        body.expand_tabs(4)
        return list(body.wrap(self._console, width))

    def _pane(self, lane: Lane, body: list[Text], rows: int) -> Panel:
        return Panel(
            Text("\n").join(body),
            title=lane.name,
            title_align="left",
            subtitle=speed(lane, self._race),
            subtitle_align="right",
            height=rows + 2,
        )


def screen_for(output: Output, race: Race, prompt: str) -> Screen:
    """Panes where there is room and colour for them, else lines."""
    if output.color and sys.stdout.isatty():
        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        if console.width >= _LEAST_WIDTH and console.height >= _LEAST_HEIGHT:
            return Panes(console, race, prompt)
    return Lines(output, race, prompt)


def legend() -> Text:
    """What the styles mean."""
    return Text.assemble(
        ("drafted", _STYLES["drafted"]),
        " guessed right · ",
        ("corrected", _STYLES["corrected"]),
        " guessed wrong · ",
        ("bonus", _STYLES["bonus"]),
        " one more · plain no guess",
    )


def style_of(token: Token) -> str:
    """How a token looks."""
    return _STYLES[kind_of(token.origin)]


def shown(text: str) -> str:
    """A token's text, without what would move the cursor."""
    return printable(text, also="\n\t", instead="\ufffd")


def _end_of(prompt: str) -> str:
    lines = prompt.split("\n")
    return "\n".join(lines if len(lines) <= _PROMPT_LINES else ["...", *lines[-_PROMPT_LINES:]])
