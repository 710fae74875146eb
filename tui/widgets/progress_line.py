"""Progress line: what is waited for, and how far it is."""

from textual.widgets import Static

_WIDTH = 24


class ProgressLine(Static):
    """Takes no room while nothing is waited for."""

    def on_mount(self) -> None:
        self.clear()

    def wait(self, what: str) -> None:
        """Nobody knows for how long."""
        self._say(f"{what} …")

    def show_share(self, what: str, done: int, total: int) -> None:
        """So much of it is done."""
        self._say(f"{bar(done, total)} {what} {done:,} of {total:,}")

    def show_percent(self, doing: str, percent: int) -> None:
        """So much of what is being done."""
        self._say(f"{bar(percent, 100)} {doing}: {percent} %")

    def clear(self) -> None:
        """Nothing is waited for."""
        self.display = False

    def _say(self, line: str) -> None:
        self.update(line)
        self.display = True


def bar(done: int, total: int) -> str:
    """A share as a bar."""
    full = round(_WIDTH * min(1.0, done / total)) if total else 0
    return "█" * full + "░" * (_WIDTH - full)
