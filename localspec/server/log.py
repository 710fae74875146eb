"""Log: what the server says of what it does, on standard error."""

import json
import logging
import sys

from localspec.server.errors import ApiError
from localspec.utils.format import printable

# Characters of a path or a reason in one line.
_LONGEST = 300
# So many lines that are said once are known; no further one is said.
_MOST_KNOWN = 256
_known: set[str] = set()
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


def tell_once(line: str, level: int = logging.WARNING) -> None:
    """Log what is true of many requests, unless the log has said it.

    Clients send the same with every request, and a model may be loaded again and again.
    """
    if line not in _known and len(_known) < _MOST_KNOWN:
        _known.add(line)
        log.log(level, "%s", line)


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
