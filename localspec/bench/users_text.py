"""Users text: the figures of several users as table cells, for the terminal and for the page."""

from localspec.bench.report_text import speed_text, with_interval
from localspec.bench.users_summary import UsersSummary
from localspec.utils.format import counted

USER_COLUMNS = (
    "users",
    "drafter",
    "tok/s",
    "x in turn",
    "x plain",
    "each",
    "first",
    "in turn",
    "same text",
)
USER_LEGEND = (
    "tok/s: of all users together · x in turn: times as fast as the same texts one after the other "
    "· each: tok/s of one user from the first token on · first: time to a user's first token after "
    "all have asked; in turn: where they are served one after the other · ties: "
    "other texts, by rounding alone"
)


def user_cells(row: UsersSummary) -> tuple[str, ...]:
    """The text of each of the USER_COLUMNS."""
    return (
        str(row.users),
        row.configuration,
        speed_text(row.total.value),
        # One user's texts are one after the other anyway: the rest would be noise.
        with_interval(row.ratio) if row.users > 1 else "-",
        with_interval(row.plain_ratio) if row.plain_ratio else "-",
        speed_text(row.each.value) if row.each else "-",
        duration_text(row.first_token.value),
        duration_text(row.first_token_in_turn.value),
        _same_text(row),
    )


def duration_text(seconds: float) -> str:
    """A time in milliseconds, or in seconds from one on."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _same_text(row: UsersSummary) -> str:
    if not row.compared:
        return "-"
    if row.same == row.compared:
        return "yes"
    return f"{row.same} of {row.compared}, {counted(row.near_ties, 'tie')}"
