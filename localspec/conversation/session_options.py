"""Session options: those of a session, checked, and those that have no effect on its answers."""

from collections.abc import Collection, Iterator, Mapping

from localspec.conversation.thinking import switched, thinking_variables
from localspec.conversation.transcript import Transcript
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig, require
from localspec.llama.chat_template import mentions
from localspec.loading.copy_sources import prediction_unused
from localspec.utils.option_names import have_no_effect, option
from localspec.utils.option_types import require_kind
from localspec.utils.reasoning_levels import EFFORT


def require_options(
    system: object, when_full: object, tools: object, template_options: object
) -> None:
    """Raise InvalidValueError for a value of another kind than `Session` takes."""
    require_kind("system", system, str | None, "a text")
    require_kind("template_options", template_options, Mapping | None, "a dict")
    require_kind("tools", tools, list | tuple | None, "a list of dicts")
    if when_full not in ("stop", "drop"):
        raise InvalidValueError(f"when_full is {when_full!r}; it must be stop or drop")


def checked_budget(tokens: int | None) -> int | None:
    """A thinking budget; None: no limit. Raises InvalidValueError for a wrong one."""
    return None if tokens is None else require("thinking_budget", tokens, 0)


def without_effect(
    transcript: Transcript,
    settings: GenerationConfig,
    thinking_budget: int | None,
    drafters: Collection[str],
) -> Iterator[str]:
    """Yield which options have no effect on an answer, and why, one line each.

    drafters: the names of those that are loaded.
    """
    yield from _useless_variables(transcript)
    if thinking_budget is not None and not settings.is_free:
        what = "schema" if settings.grammar is None else "grammar"
        whole = f"the {what} describes the whole answer"
        yield have_no_effect([option("thinking_budget")], whole)
    if settings.depth and not drafters:
        yield have_no_effect([option("depth")], "nothing drafts")
    if why := prediction_unused(settings, drafters):
        yield have_no_effect([option("prediction")], why)


def _useless_variables(transcript: Transcript) -> Iterator[str]:
    """Yield which variables for the chat template it does not read, as far as that is certain."""
    template, given = transcript.template, transcript.options

    def is_read(name: str) -> bool:
        return template is not None and mentions(template, name)

    on = switched(given)
    switches = () if on is None else thinking_variables(on)
    others = [name for name in given if name not in switches and not is_read(name)]
    tools = ["tools"] if transcript.tools and not is_read("tools") else []
    raw = "the text is continued without a chat template" if template is None else ""
    its = f"the chat template of {transcript.model.path.name}"
    # A level switches reasoning too; for a template that knows levels it is enough.
    reads_level = EFFORT in given and is_read(EFFORT)
    if switches and not reads_level and not any(map(is_read, switches)):
        switching = f"switching reasoning {'on' if on else 'off'}"
        way_out = f"; {EFFORT} says how much it is" if is_read(EFFORT) else ""
        yield have_no_effect([switching], raw or f"{its} has no switch for it{way_out}")
    if raw and (tools or others):
        yield have_no_effect([*tools, *(["template_options"] if others else [])], raw)
        return
    if others:
        named = [f"template_options {name}" for name in others]
        yield have_no_effect(named, f"{its} does not read {' and '.join(others)}")
    if tools:
        yield have_no_effect(tools, f"{its} reads no tools")
