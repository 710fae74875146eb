"""Thinking: how much a request wants the model to reason, as variables for its chat template."""

from collections.abc import Mapping
from typing import Any

from localspec.conversation.thinking import SWITCHES, thinking_variables
from localspec.server.fields import Fields
from localspec.server.thinking_budget import named_budget
from localspec.utils.reasoning_levels import EFFORT, EFFORTS

# What OpenRouter has beside the effort, and what it is where it changes nothing.
_NOT_HERE: dict[str, tuple[Any, ...]] = {"exclude": (False,)}


class Effort(str):
    """A level of reasoning in a protocol's words, of which a template may know only some.

    Where the template refuses it, the nearest level that it takes stands in for it. A level among
    `chat_template_kwargs` is a plain string: it is given to the template as it is.
    """

    __slots__ = ()

    @property
    def nearest(self) -> list[str]:
        """The other levels, the nearest first and of two the lower; none for no reasoning."""
        levels = EFFORTS[1:]
        if self not in levels:
            return []
        place = levels.index(self)
        others = sorted(range(len(levels)), key=lambda at: (abs(at - place), at))
        return [levels[at] for at in others[1:]]


def usual_variables(options: Mapping[str, Any]) -> dict[str, Any]:
    """A server's variables for templates, with a level as one in a protocol's words."""
    level = options.get(EFFORT)
    return {**options, EFFORT: Effort(level)} if level in EFFORTS else {**options}


def beside(usual: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """A server's variables beside those of a request, which count more.

    A switch of the request takes the place of the server's under every name, and of a level that
    says the opposite; a level of the request that of the server's switch, too.
    """
    said = [asked[name] for name in SWITCHES if name in asked]
    left_out = {*SWITCHES} if said or EFFORT in asked else set[str]()
    if said and (usual.get(EFFORT) == "none") == bool(said[0]):
        left_out.add(EFFORT)
    return {**{name: usual[name] for name in usual if name not in left_out}, **asked}


def with_switches(options: Mapping[str, Any]) -> dict[str, Any]:
    """Variables for a template, with all names of a switch that they have."""
    on = options.get("enable_thinking")
    return {**(thinking_variables(on) if isinstance(on, bool) else {}), **options}


def thinking_options(body: Fields) -> Mapping[str, Any]:
    """The variables of how much to reason: in OpenAI's words, and in those of other servers.

    `enable_thinking` (vLLM, SGLang) and `thinking` (GLM, Kimi, DeepSeek) switch it, `reasoning`
    (OpenRouter) has a level or a switch. Raises ApiError.
    """
    effort, switches = body.one_of("reasoning_effort", EFFORTS), [body.flag("enable_thinking")]
    thinking, reasoning = (_switch_or_member(body, name) for name in ("thinking", "reasoning"))
    if isinstance(thinking, bool):
        switches.append(thinking)
    elif thinking:
        kind = thinking.one_of("type", ("enabled", "disabled", "adaptive", "auto"))
        switches.append(None if kind is None else kind != "disabled")
    if isinstance(reasoning, bool):
        switches.append(reasoning)
    elif reasoning:
        reasoning.refuse(_NOT_HERE)
        effort = effort or reasoning.one_of("effort", EFFORTS)
        switches.append(reasoning.flag("enabled"))
    if (budget := named_budget(body)) == 0:
        switches.append(False)
    elif budget and isinstance(reasoning, Fields) and "max_tokens" in reasoning:
        switches.append(True)  # as OpenRouter takes it
    options: dict[str, Any] = {}
    if effort:
        options["reasoning_effort"] = Effort(effort)
        switches.append(effort != "none")
    chosen = [switch for switch in switches if switch is not None]
    return {**options, "enable_thinking": chosen[0]} if chosen else options


def asked_variables(body: Fields) -> dict[str, Any]:
    """The variables that a request asks for: `thinking_options`, and those that it names itself.

    Raises ApiError.
    """
    given = body.member("chat_template_kwargs")
    return {**thinking_options(body), **(given.values if given else {})}


def _switch_or_member(body: Fields, name: str) -> bool | Fields | None:
    """A member that may be a plain switch, too."""
    return body.flag(name) if isinstance(body.values.get(name), bool) else body.member(name)
