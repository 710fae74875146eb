"""Text log: what the log says of a text that has ended."""

from collections.abc import Mapping
from typing import Any

from localspec.server.reply import Reply


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
