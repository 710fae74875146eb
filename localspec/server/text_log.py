"""Text log: what the log says of a text that has ended, and once of what a request asks in vain."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from localspec.server.reply import Reply

log = logging.getLogger("localspec.server")

# So many members of requests that have no effect are logged.
_MOST_TOLD = 256
_NO_MORE = "further ones; from now on only `localspec.not_used` of the answers names them"


class ToldOnce:
    """What was said of members of requests that have no effect, whichever model answers."""

    def __init__(self) -> None:
        self._told = set[str]()

    def log(self, lines: Iterable[str]) -> None:
        """Log those of the lines that are new."""
        for line in self.news([*lines]):
            log.warning("what is not used of a request: %s", line)

    def news(self, lines: Sequence[str]) -> list[str]:
        """Which of the lines are new. Behind many of them one more says that no others follow."""
        room = _MOST_TOLD - len(self._told)
        new = [line for line in dict.fromkeys(lines) if line not in self._told]
        said = new[: max(0, room)]
        if len(said) < len(new) and _NO_MORE not in self._told:
            said.append(_NO_MORE)
        self._told.update(said)
        return said


def facts_of(reply: Reply, waited: float) -> dict[str, Any]:
    """What the log says of a text, for programs."""
    stats = reply.stats
    return {
        "slot": reply.number,
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.prompt_cached,
        "generated_tokens": stats.generated_tokens,
        "tokens_per_second": stats.tokens_per_second,
        "acceptance_rate": stats.acceptance_rate,
        "waited_seconds": waited,
        "stop_reason": reply.stop_reason,
    }


def line_of(facts: Mapping[str, Any]) -> str:
    """The same for people."""
    rate, speed, waited = (
        facts[name] for name in ("acceptance_rate", "tokens_per_second", "waited_seconds")
    )
    parts = [
        f"slot {facts['slot']}",
        f"{facts['prompt_tokens']} + {facts['generated_tokens']} tokens",
        f"{facts['cached_tokens']} cached",
        f"{speed:.1f} tok/s" if speed else "",
        f"accept {rate:.0%}" if rate is not None else "plain",
        f"waited {waited:.1f} s" if waited > 0.05 else "",
        facts["stop_reason"] or "not begun",
    ]
    return ", ".join(part for part in parts if part)
