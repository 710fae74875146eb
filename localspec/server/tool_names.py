"""ToolNames: one name, by which the model calls it, for each tool, also for those of namespaces.

Codex sends the tools of an MCP server as a namespace, and runs a call only where namespace and name
come back as two members.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

# Characters of a joined name; a `Tool` may have a few more.
_MOST = 120


class ToolNames:
    """The tools of a request by namespace and name.

    pairs: namespace and name; a tool of no namespace has an empty one and keeps its name.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._joined: dict[tuple[str, str], str] = {}
        self._pairs: dict[str, tuple[str, str]] = {}
        taken = Counter[str]()
        # Those of no namespace first: their names are given.
        for pair in sorted(dict.fromkeys(pairs), key=lambda each: each[0] != ""):
            joined = wanted = _joined(*pair)
            while joined in self._pairs:
                taken[wanted] += 1
                joined = f"{wanted}_{taken[wanted]}"
            self._joined[pair], self._pairs[joined] = joined, pair
        counts = Counter(name for _, name in self._joined)
        self._only = {
            name: joined for (_, name), joined in self._joined.items() if counts[name] == 1
        }

    def joined(self, namespace: str, name: str) -> str:
        """The one name of a tool.

        A call of a history may name no namespace; it is that of the only one that has such a tool.
        """
        found = self._joined.get((namespace, name))
        if found is None and not namespace:
            found = self._only.get(name)
        return found or _joined(namespace, name)

    def members(self, joined: str) -> dict[str, str]:
        """The members of a call that name its tool."""
        namespace, name = self._pairs.get(joined, ("", joined))
        return {"name": name, "namespace": namespace} if namespace else {"name": name}

    def chosen(self, choice: Any) -> Any:
        """A `tool_choice` with the names of `joined`."""
        match choice:
            case {"name": str(name), "namespace": str(namespace)}:
                return {**choice, "name": self.joined(namespace, name)}
            case {"name": str(name)}:
                return {**choice, "name": self.joined("", name)}
            case {"tools": [*named]}:
                return {**choice, "tools": [self.chosen(each) for each in named]}
        return choice


def _joined(namespace: str, name: str) -> str:
    if not namespace or not name:
        return name
    # Clients that join them have always done so with two; some namespaces end with them already.
    before = re.sub(r"[^\w.-]", "_", namespace.removesuffix("__"))
    return f"{before[: max(0, _MOST - len(name))]}__{name}"
