"""Help screen: every key, and what it does."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rich.table import Table
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Label, Static

from localspec_tui.screens.dialog import Dialog
from localspec_tui.widgets.key_bar import KeyBar

# The bindings of each group, by its title.
KeyGroups = Mapping[str, Sequence[BindingType]]


def as_bindings(bindings: Iterable[BindingType]) -> Iterator[Binding]:
    """Bindings, where some may be tuples. One that has several keys stays one binding."""
    for each in bindings:
        yield each if isinstance(each, Binding) else Binding(*each)


def key_text(app: App[Any], binding: Binding) -> str:
    """All keys of a binding, as the footer writes them."""
    return " ".join(app.get_key_display(each) for each in binding.make_bindings([binding]))


class HelpScreen(Dialog[None]):
    """Lists the keys of each group, and what the commands do that are typed in the text box."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1", "dismiss", "Close"),
    ]

    def __init__(self, groups: KeyGroups, commands: Mapping[str, str]) -> None:
        super().__init__()
        self._groups, self._commands = groups, commands

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="page"):
            for title, bindings in self._groups.items():
                yield Label(title, classes="heading")
                yield Static(self._table(self._rows(bindings)), classes="keys")
            yield Label("Commands, typed in the text box (Tab completes)", classes="heading")
            yield Static(self._table(self._commands.items()), classes="keys")
        yield KeyBar()

    def _table(self, rows: Iterable[tuple[str, str]]) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(width=min(20, self.app.size.width // 4))
        table.add_column()
        for row in rows:
            table.add_row(*row)
        return table

    def _rows(self, bindings: Iterable[BindingType]) -> Iterator[tuple[str, str]]:
        for binding in as_bindings(bindings):
            tooltip = f" ({binding.tooltip})" if binding.tooltip else ""
            yield key_text(self.app, binding), binding.description + tooltip
