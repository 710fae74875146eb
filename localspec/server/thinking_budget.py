"""Thinking budget: the most tokens of reasoning, in the words of several servers' clients."""

from collections.abc import Mapping

from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.tool_calls import family_of

# No limit, in the words of llama-server and Qwen.
NO_BUDGET = -1
_MOST = 2**31 - 1
# Two names of llama-server; that of Qwen and SGLang, which is also a variable of templates; vLLM's.
_VARIABLE = "thinking_budget"
_NAMES = ("thinking_budget_tokens", "reasoning_budget_tokens", _VARIABLE, "thinking_token_budget")
# Members that have it among others: of OpenRouter, and of Anthropic.
_WITHIN = (("reasoning", "max_tokens"), ("thinking", "budget_tokens"))


def thinking_budget(body: Fields, template: str | None) -> int | None:
    """The most tokens of reasoning that a request allows; NO_BUDGET: all; None: it does not say.

    template: the model's. Where it has the variable `thinking_budget` itself (Seed-OSS), the model
    is told what `chat_template_kwargs` say, and keeps to it. Raises ApiError, also where a budget
    cannot be kept.
    """
    budget, variables = named_budget(body), body.member("chat_template_kwargs")
    if budget is None and variables and _VARIABLE not in (template or ""):
        budget = variables.whole(_VARIABLE, NO_BUDGET, _MOST)
    if budget is None or budget < 1:
        return budget
    if body.text("grammar"):
        raise ApiError(
            400,
            f"the thinking budget is {budget}, and the grammar describes the whole text; leave one "
            "of them out",
        )
    if family_of(template).always_read:
        raise ApiError(
            400,
            f"the thinking budget is {budget}; this model reasons in channels, which have none: "
            "send reasoning_effort",
        )
    return budget


def refuse_budget(body: Fields) -> None:
    """Raise ApiError for a budget of a text that is continued: that has no reasoning."""
    if (budget := max(_named(body), default=0)) > 0:
        raise ApiError(
            400,
            f"the thinking budget is {budget}; only answers to messages have one: leave it out, or "
            "ask at /v1/chat/completions",
        )


def named_budget(body: Fields) -> int | None:
    """The budget that a member names, the first that is there. Raises ApiError."""
    return next(iter(_named(body)), None)


def _named(body: Fields) -> list[int]:
    """All budgets that are named."""
    found = [body.whole(name, NO_BUDGET, _MOST) for name in _NAMES]
    for name, inner in _WITHIN:
        if isinstance(value := body.values.get(name), Mapping):
            found.append(Fields(value, name).whole(inner, NO_BUDGET, _MOST))
    return [each for each in found if each is not None]
