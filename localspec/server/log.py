"""Log: what the server says of what it does, on standard error."""

import json
import logging
import sys


def show_log(*, as_json: bool) -> None:
    """Write the log of the server, and of what it runs on, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("%(asctime)s %(message)s"))
    for name in ("localspec.server", "localspec.workers", "uvicorn.error", "asyncio"):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.propagate = False
    logging.getLogger("localspec.server").setLevel(logging.INFO)


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
