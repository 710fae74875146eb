"""Problem line: why the input of a screen was refused."""

from textual.widgets import Label


class ProblemLine(Label):
    """Hidden while there is no problem."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.display = False

    def show(self, problem: str) -> None:
        """Show a problem; an empty text hides the line."""
        self.update(problem)
        self.display = bool(problem)
        if problem:
            self.scroll_visible()
