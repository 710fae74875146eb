"""Help screen: every key, and what it does."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Label, Static

# The bindings of each group, by its title.
KeyGroups = Mapping[str, Sequence[BindingType]]


def as_bindings(bindings: Iterable[BindingType]) -> Iterator[Binding]:
    """Bindings, where some may be tuples. One that has several keys stays one binding."""
    for each in bindings:
        yield each if isinstance(each, Binding) else Binding(*each)


class HelpScreen(ModalScreen[None]):
    """Lists the keys of each group."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1", "dismiss", "Close"),
    ]

    def __init__(self, groups: KeyGroups) -> None:
        super().__init__()
        self._groups = groups

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="page"):
            for title, bindings in self._groups.items():
                yield Label(title, classes="heading")
                yield Static(self._table(bindings), classes="keys")
        yield Footer()

    def _table(self, bindings: Iterable[BindingType]) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(width=min(18, self.app.size.width // 4))
        table.add_column()
        for binding in as_bindings(bindings):
            tooltip = f" ({binding.tooltip})" if binding.tooltip else ""
            table.add_row(self._keys(binding), binding.description + tooltip)
        return table

    def _keys(self, binding: Binding) -> str:
        return " ".join(self.app.get_key_display(each) for each in binding.make_bindings([binding]))
