"""Metrics: what a server counts, in Prometheus's text format, and what an answer says of its text.

The names are those of llama-server and of vLLM, which dashboards know, and a few of our own.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from localspec.stats import Stats, sum_of

if TYPE_CHECKING:
    from localspec.server.reply import Reply


class Metrics:
    """Sums over all texts that have ended."""

    def __init__(self) -> None:
        self._requests = self._cancelled = 0
        self._waited = 0.0
        self._total = Stats()
        self._embedded_texts = self._embedded_tokens = 0
        self._embedding_seconds = 0.0

    def add(self, reply: "Reply", waited: float) -> None:
        """Add a text that has ended. waited: the seconds before it had its model and a slot."""
        self._requests += 1
        self._cancelled += reply.stop_reason in (None, "cancelled")
        self._waited += waited
        self._total = sum_of([self._total, reply.stats])

    def add_embeddings(self, texts: int, tokens: int, seconds: float) -> None:
        """Add a request that was answered with vectors, or with scores."""
        self._embedded_texts += texts
        self._embedded_tokens += tokens
        self._embedding_seconds += seconds

    def text(self, busy: int, waiting: int) -> str:
        """All of it for Prometheus. busy: slots in use. waiting: requests without one."""
        return "\n".join(self._lines(busy, waiting)) + "\n"

    def _lines(self, busy: int, waiting: int) -> Iterator[str]:
        total, prompt_seconds = self._total, self._total.seconds.prompt
        seconds = total.seconds.generate + total.seconds.waited
        cached = total.prompt_tokens - total.prompt_evaluated
        counters: dict[str, tuple[str, float]] = {
            "llamacpp:prompt_tokens_total": ("Evaluated prompt tokens.", total.prompt_evaluated),
            "llamacpp:prompt_seconds_total": ("Seconds of prompts.", prompt_seconds),
            "llamacpp:tokens_predicted_total": ("Generated tokens.", total.generated_tokens),
            "llamacpp:tokens_predicted_seconds_total": ("Seconds of generation.", seconds),
            "llamacpp:n_decode_total": ("Passes of the target.", total.steps),
            "localspec:requests_total": ("Texts that have ended.", self._requests),
            "localspec:requests_cancelled_total": ("Texts ended early.", self._cancelled),
            "localspec:queue_seconds_total": ("Seconds without a model or a slot.", self._waited),
            "localspec:cached_prompt_tokens_total": ("Prompt tokens that were in a cache.", cached),
            "localspec:shared_steps_total": (
                "Passes that shared a decode with other texts.",
                total.shared_steps,
            ),
            "localspec:embedded_texts_total": ("Texts with a vector.", self._embedded_texts),
            "localspec:embedded_tokens_total": ("Tokens of these.", self._embedded_tokens),
            "localspec:embedding_seconds_total": (
                "Seconds of requests for vectors.",
                self._embedding_seconds,
            ),
        }
        gauges = {
            "llamacpp:requests_processing": ("Texts being written.", busy),
            "llamacpp:requests_deferred": ("Requests that wait for a slot.", waiting),
            "llamacpp:predicted_tokens_seconds": (
                "Mean generated tokens per second.",
                _rate(total.generated_tokens, seconds),
            ),
            "llamacpp:prompt_tokens_seconds": (
                "Mean prompt tokens per second.",
                _rate(total.prompt_evaluated, prompt_seconds),
            ),
        }
        for family in ("llamacpp", "vllm"):
            name = f"{family}:spec_decode_num"
            counters[f"{name}_drafts_total"] = ("Drafts.", total.drafting_steps)
            counters[f"{name}_draft_tokens_total"] = ("Drafted tokens.", total.drafted)
            counters[f"{name}_accepted_tokens_total"] = ("Accepted tokens.", total.accepted)
            places = f"{name}_accepted_tokens_per_pos_total"
            yield from _heading(places, "Accepted tokens by place.", "counter")
            for place, count in enumerate(total.accepted_per_position):
                yield f'{places}{{position="{place}"}} {count}'
        for kind, listed in (("counter", counters), ("gauge", gauges)):
            for name, (about, value) in listed.items():
                yield from (*_heading(name, about, kind), f"{name} {value}")


def _heading(name: str, about: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def timings(stats: Stats) -> dict[str, Any]:
    """llama-server's `timings` of a text."""
    prompt, wrote = stats.seconds.prompt, stats.seconds.generate + stats.seconds.waited
    read, tokens = stats.prompt_evaluated, stats.generated_tokens
    found: dict[str, Any] = {
        "cache_n": stats.prompt_tokens - read,
        "prompt_n": read,
        "prompt_ms": 1e3 * prompt,
        "prompt_per_token_ms": 1e3 * prompt / read if read else None,
        "prompt_per_second": _rate(read, prompt),
        "predicted_n": tokens,
        "predicted_ms": 1e3 * wrote,
        "predicted_per_token_ms": 1e3 * wrote / tokens if tokens else None,
        "predicted_per_second": _rate(tokens, wrote),
    }
    if stats.drafted:
        found |= {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted}
    return found


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0


def speculation(*replies: "Reply") -> dict[str, Any]:
    """The members of an answer that say how it was written: `timings`, `metrics`, `localspec`.

    Of several texts they are sums; seed and slot are those of the first.
    """
    reply, stats = replies[0], sum_of(each.stats for each in replies)
    settings = reply.asked.settings
    reached = [stats.drafting_steps, *stats.accepted_per_position]
    per_draft = stats.accepted / stats.drafting_steps if stats.drafting_steps else 0.0
    return {
        "timings": timings(stats),
        "metrics": {
            "speculative_decoding": {
                "mean_acceptance_length": 1 + per_draft,
                "draft_acceptance_rate": stats.acceptance_rate or 0.0,
                "acceptance_histogram": [
                    here - deeper for here, deeper in zip(reached, [*reached[1:], 0], strict=True)
                ],
                "num_spec_steps": stats.drafting_steps,
                "num_accepted_draft_tokens": stats.accepted,
                "num_draft_tokens": stats.drafted,
                "num_spec_tokens": len(stats.accepted_per_position),
            }
        },
        "localspec": {
            "rule": settings.rule,
            "seed": settings.seed,
            "depth": settings.depth,
            "drafters": sorted(
                {origin for each in replies for origin in each.origins}
                - {"plain", "corrected", "bonus"}
            ),
            "steps": stats.steps,
            "tokens_per_step": stats.tokens_per_step,
            "shared_steps": stats.shared_steps,
            "thinking_budget_spent": any(each.budget_spent for each in replies),
            "not_enforced": [*settings.not_enforced],
            "not_used": reply.not_used,
            "slot": reply.number,
        },
    }
