"""The option --users: how many users ask at the same time, one number or several."""

from collections.abc import Callable
from typing import Any

import click

from localspec.bench import MOST_USERS
from localspec.cli.options import comma_separated
from localspec.errors import InvalidValueError


def users_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --users; the command gets the numbers in order, none without the option."""
    return click.option(
        "--users",
        metavar="N,...",
        callback=lambda _context, _option, value: _counts(value),
        help=help_text,
    )


def _counts(value: str | None) -> list[int]:
    try:
        counts = sorted({int(each) for each in comma_separated(value or "")})
    except ValueError:
        counts = [0]
    if counts and not 1 <= counts[0] <= counts[-1] <= MOST_USERS:
        raise InvalidValueError(
            f"users is {value!r}; it must be numbers from 1 to {MOST_USERS} with commas between, "
            "such as 1,2,4,8"
        )
    return counts
