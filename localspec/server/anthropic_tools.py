"""AnthropicTools: the tools of a request in Anthropic's protocol, some of which a search finds.

A client with many tools defers most of them (`defer_loading`): the model is told of a tool that
searches, which the client runs, and what it finds comes back as references. The model is told of a
tool where a reference names it, and not at the top, so that all before it stays in a cache.
"""

import json
import re
from collections.abc import Iterable

from localspec.server.errors import JSON
from localspec.server.fields import Fields
from localspec.server.log import tell_once
from localspec.server.tool_use import ToolUse

# Anthropic's tools that clients run, whose schemas its own models have learnt.
_OF_CLIENTS = re.compile(r"(bash|text_editor|computer|memory)_\d+")
# Those by which its servers search.
_SEARCH = "tool_search_tool_"


class AnthropicTools:
    """The tools of a body. Raises ApiError.

    Deferred ones are listed with the others where nobody could find them: where Anthropic's servers
    would search, and where there are no others.
    """

    def __init__(self, body: Fields) -> None:
        self._choice = body.member("tool_choice")
        # In OpenAI's shape.
        self._listed: list[JSON] = []
        self._deferred: list[JSON] = []
        self._shown: set[str] = set()
        searches_elsewhere = False
        for tool in body.objects("tools"):
            kind, name = tool.text("type") or "", tool.text("name") or ""
            schema = tool.values.get("input_schema")
            if schema is None and _OF_CLIENTS.fullmatch(kind):
                wanted = "left out, and an input_schema given: no model here knows it"
                raise tool.wrong("type", wanted)
            if schema is None:  # a tool that Anthropic's own servers run
                tell_once(f"left out the tool {name!r:.40}, which has no input_schema")
                searches_elsewhere |= kind.startswith(_SEARCH)
                continue
            description = tool.text("description") or ""
            function = {"name": name, "description": description, "parameters": schema}
            shaped = {"type": "function", "function": function}
            (self._deferred if tool.flag("defer_loading") else self._listed).append(shaped)
        if searches_elsewhere or not self._listed:
            self._listed, self._deferred = [*self._listed, *self._deferred], []

    def show(self, names: Iterable[object]) -> str:
        """What the model reads in the place of references to these tools; it may call them then."""
        known = {_name(each): each["function"] for each in self._listed + self._deferred}
        told, missing = list[str](), list[str]()
        for name in names:
            if isinstance(name, str) and name in known:
                self._shown.add(name)
                function = dict(sorted(known[name].items()))
                told.append(f"<function>{json.dumps(function, ensure_ascii=False)}</function>")
            else:
                missing.append(f"There is no tool named {name!r:.80} in this request.")
        return "\n".join([*(["<functions>", *told, "</functions>"] if told else []), *missing])

    def use(self) -> ToolUse:
        """The tools, of which the model may call those that it was told of."""
        given, listed, unseen = self._choice, self._listed, self._deferred
        kind = given.one_of("type", ("auto", "any", "tool", "none")) if given else None
        name = (given and given.text("name")) or ""
        if kind == "tool" and name not in self._shown:  # nobody need find it
            listed = [*listed, *(each for each in unseen if _name(each) == name)]
            unseen = [each for each in unseen if _name(each) != name]
        return ToolUse.of(
            listed,
            "none" if kind == "none" else "required" if kind in ("any", "tool") else "auto",
            name if kind == "tool" else None,
            parallel=kind != "tool" and not (given and given.flag("disable_parallel_tool_use")),
            shown=[each for each in unseen if _name(each) in self._shown],
            unseen=[each for each in unseen if _name(each) not in self._shown],
        )


def _name(tool: JSON) -> str:
    found: str = tool["function"]["name"]
    return found
