"""Transaction: several statements as one change."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block does, or roll it back on an exception. Nobody else writes meanwhile."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
