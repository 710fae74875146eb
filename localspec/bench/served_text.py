"""Served text: the figures of servers as table cells and a line, for the terminal and the page."""

from collections.abc import Sequence

from localspec.bench.report_text import speed_text, with_interval
from localspec.bench.served_summary import ServedSummary, fastest_peers
from localspec.bench.users_text import duration_text
from localspec.utils.format import counted

SERVED_COLUMNS = (
    "users",
    "server",
    "tok/s",
    "x plain",
    "ours / it",
    "each",
    "first",
    "accept",
)
SERVED_LEGEND = (
    "over HTTP, a server started for each measurement · tok/s: of all users together · ours / it: "
    "how many times as fast the last of ours is as this server · each: tok/s of one user from the "
    "first token on · first: time to a user's first token after all have asked"
)


def served_cells(row: ServedSummary) -> tuple[str, ...]:
    """The text of each of the SERVED_COLUMNS."""
    rate = row.acceptance_rate
    return (
        str(row.users),
        row.configuration,
        speed_text(row.total.value),
        with_interval(row.plain_ratio) if row.plain_ratio else "-",
        with_interval(row.ours) if row.ours else "-",
        speed_text(row.each.value) if row.each else "-",
        duration_text(row.first_token.value),
        "-" if rate is None else f"{rate:.0%}",
    )


def fastest_peer_lines(rows: Sequence[ServedSummary]) -> list[str]:
    """How ours compares with the fastest peer, a line for each number of users."""
    ours = [row.configuration for row in rows if not row.is_peer][-1:]
    return [
        f"{counted(row.users, 'user')}: {name} is {with_interval(row.ours)} "
        f"times as fast as {row.configuration}, the fastest of its kind"
        for name in ours
        for row in fastest_peers(rows)
        if row.ours
    ]
