"""`localspec plan --users`: the prompts for so many users, and what is shown of them."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle, groupby, islice
from typing import Any

from localspec.bench import Task
from localspec.bench.configurations import at_depth
from localspec.bench.report_text import speed_text, with_interval
from localspec.cli.table import table_text
from localspec.errors import InvalidValueError
from localspec.forecast.users import ENOUGH_GROUPS, UsersForecast, best_depth

# As many texts as a plan writes for one user.
_ANSWERS = 6
# The names of the columns are those of `bench --users`.
_HEADER = ("users", "drafter", "tok/s", "x plain", "slowest", "each", "accept", "groups")
_RIGHT = {"users", "tok/s", "each", "accept", "groups"}
_LEGEND = (
    "tok/s: of all users together, from the request to the last token · x plain: over plain "
    "decoding of as many users · slowest: the same of the text that gains least · each: tok/s of "
    "one user behind the prompts"
)
_ASSUMED = (
    "simulated from the texts above, one policy for each user; assumed: all ask at once, nothing "
    "of a prompt is shared, all prompts are read before the first token, a text that ends leaves "
    "the others"
)


def answers_for(answers: int | None, users: Sequence[int]) -> int:
    """How many texts to write: as asked, or whole groups of the most users.

    Raises InvalidValueError if fewer are asked for than there are users.
    """
    most = max(users, default=1)
    if answers is None:
        return -(-_ANSWERS // most) * most
    if users and answers < most:
        raise InvalidValueError(
            f"--answers is {answers}; it must be at least {most}, a text for each user"
        )
    return answers


def tasks_for(tasks: Sequence[Task], users: Sequence[int]) -> list[Task]:
    """One prompt for each user at least: as in `bench`, they are asked again in turn."""
    return list(islice(cycle(tasks), max(len(tasks), *users))) if users else list(tasks)


def users_lines(found: Sequence[UsersForecast], *, everything: bool) -> list[str]:
    """Return the table and its legend; nothing without users.

    everything: show every depth, not the best one only.
    """
    if not found:
        return []
    by_users = [list(rows) for _, rows in groupby(found, key=lambda each: each.users)]
    shown = [row for rows in by_users for row in (rows if everything else best_depth(rows))]
    lines = ["", table_text(_HEADER, [_cells(each) for each in shown], _RIGHT).rstrip("\n")]
    few = [plain.users for plain, *_ in by_users if plain.speed_up.low is None]
    if few:
        lines.append(
            f"no interval for {', '.join(map(str, few))} users: it takes {ENOUGH_GROUPS} groups of "
            f"texts, --answers {ENOUGH_GROUPS * few[-1]} and as many different prompts"
        )
    return [*lines, _LEGEND, _ASSUMED]


def users_record(found: Sequence[UsersForecast]) -> list[dict[str, Any]]:
    """Return every line for `--json`."""
    return [asdict(each) for each in found]


def _cells(row: UsersForecast) -> tuple[str, ...]:
    return (
        str(row.users),
        at_depth(row.drafter, row.depth),
        speed_text(row.tokens_per_second),
        with_interval(row.speed_up),
        with_interval(row.slowest),
        speed_text(row.each),
        "-" if row.acceptance is None else f"{row.acceptance:.0%}",
        str(row.groups),
    )
