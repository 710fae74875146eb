"""StoredResponses: the last answers of /v1/responses, which a client may refer to by their ids."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from localspec.server.errors import JSON, ApiError

# The most answers, and their most bytes as JSON, all together.
_MOST, _MOST_BYTES = 256, 64 * 2**20
# The same of their items. A client may name each of a long conversation, to which a few hundred
# answers with the conversations before them belong.
_MOST_ITEMS, _MOST_ITEM_BYTES = 16_384, 64 * 2**20

_Value = TypeVar("_Value")


class _Stored(NamedTuple):
    """An answer, the conversation up to it, and the items that were sent for it."""

    messages: list[Mapping[str, Any]]
    response: JSON
    given: Sequence[JSON]


class StoredResponses:
    """The last answers of a server, with their conversations, and the items of more, in memory."""

    def __init__(self) -> None:
        self._responses = _Newest[_Stored](_MOST, _MOST_BYTES)
        self._items = _Newest[JSON](_MOST_ITEMS, _MOST_ITEM_BYTES)

    def add(
        self, messages: list[Mapping[str, Any]], response: JSON, given: Sequence[JSON] = ()
    ) -> None:
        """Keep an answer; the oldest ones are forgotten. given: the items that were sent for it."""
        self._responses.add(response["id"], _Stored(messages, response, given))
        self.add_items(response.get("output", ()))

    def forget(self, name: str) -> None:
        """Forget an answer and its items. Raises ApiError (404)."""
        for item in self.response(name).get("output", ()):
            self._items.forget(item["id"])
        self._responses.forget(name)

    def add_items(self, items: Iterable[JSON]) -> None:
        """Keep the items of an answer, which may have been stopped."""
        for item in items:
            self._items.add(item["id"], item)

    def conversation(self, name: str) -> list[Mapping[str, Any]]:
        """The messages up to an answer, and the answer. Raises ApiError (404)."""
        return self._get(name).messages

    def response(self, name: str) -> JSON:
        """An answer. Raises ApiError (404)."""
        return self._get(name).response

    def input_items(self, name: str) -> list[JSON]:
        """What was sent for an answer, behind the answers before it that are still kept.

        Raises ApiError (404).
        """
        found = list[JSON]()
        stored: _Stored | None = self._get(name)
        while stored:
            found = [*stored.given, *found]
            before = stored.response.get("previous_response_id")
            if stored := self._responses.get(before) if before else None:
                found = [*stored.response["output"], *found]
        return found

    def item(self, name: str) -> JSON:
        """An item of an answer. Raises ApiError (404)."""
        found = self._items.get(name)
        if found is None:
            raise ApiError(
                404,
                f"there is no item {name:.80} any more; send the item itself, not a reference "
                "(AI SDK: store: false)",
                param="input",
                code="item_not_found",
            )
        return found

    def _get(self, name: str) -> _Stored:
        found = self._responses.get(name)
        if found is None:
            raise ApiError(
                404,
                f"there is no response {name:.80} any more; send the conversation as input",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return found


class _Newest(Generic[_Value]):
    """The newest values by their names: so many, and so many bytes as JSON, at most."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._values: dict[str, _Value] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def get(self, name: str) -> _Value | None:
        return self._values.get(name)

    def add(self, name: str, value: _Value) -> None:
        """Keep a value; the oldest ones are forgotten."""
        self.forget(name)
        self._values[name] = value
        self._sizes[name] = len(json.dumps(value))
        self._bytes += self._sizes[name]
        while len(self._values) > self._most or self._bytes > self._most_bytes:
            self.forget(next(iter(self._values)))

    def forget(self, name: str) -> None:
        if name in self._values:
            del self._values[name]
            self._bytes -= self._sizes.pop(name)
