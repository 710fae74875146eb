"""Progress line: what the engine is busy with, and how much of it is done."""

from textual.widgets import Static

_WIDTH = 24


class ProgressLine(Static):
    """Hidden while there is nothing to wait for."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)

    def on_mount(self) -> None:
        self.clear()

    def show_action(self, action: str) -> None:
        """Show an action whose length is not known."""
        self._show(f"{action} …")

    def show_count(self, items: str, done: int, total: int) -> None:
        """Show how many items are done."""
        self._show(f"{bar(done, total)} {items} {done:,} of {total:,}")

    def show_percent(self, action: str, percent: int) -> None:
        """Show how much of an action is done."""
        self._show(f"{bar(percent, 100)} {action}: {percent}%")

    def clear(self) -> None:
        """Hide the line."""
        self.display = False

    def _show(self, line: str) -> None:
        self.update(line)
        self.display = True


def bar(done: int, total: int) -> str:
    """A bar of 24 cells, filled up to done / total."""
    filled = round(_WIDTH * min(1.0, done / total)) if total else 0
    return "█" * filled + "░" * (_WIDTH - filled)
