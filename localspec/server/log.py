"""Log: what the server says of what it does, on standard error."""

import json
import logging
import sys

from localspec.server.errors import ApiError
from localspec.utils.format import printable

# Characters of a path or a reason in one line.
_LONGEST = 300
log = logging.getLogger("localspec.server")


def show_log(*, as_json: bool) -> None:
    """Write the log of the server, and of what it runs on, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("%(asctime)s %(message)s"))
    for name in ("localspec.server", "localspec.workers", "uvicorn.error", "asyncio"):
        each = logging.getLogger(name)
        each.handlers[:] = [handler]
        each.propagate = False
    log.setLevel(logging.INFO)


def log_refusal(error: ApiError, method: str, path: str) -> None:
    """Say which request was refused, and why: some clients do not show it."""
    reason = printable(error.message[:_LONGEST])
    log.info("%s %s: %d, %s", method, printable(path[:_LONGEST]), error.status, reason)


class _JsonLines(logging.Formatter):
    """A log record as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)
