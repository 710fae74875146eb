"""StoredResponses: the last answers of /v1/responses, which a client may refer to by their ids."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from localspec.server.errors import JSON, ApiError

# The most answers, and their most bytes as JSON, all together.
_MOST, _MOST_BYTES = 256, 64 * 2**20
# The same of their items. A client may name each of a long conversation, to which a few hundred
# answers with the conversations before them belong.
_MOST_ITEMS, _MOST_ITEM_BYTES = 16_384, 64 * 2**20

_Value = TypeVar("_Value")


class StoredResponses:
    """The last answers of a server, with their conversations, and the items of more, in memory."""

    def __init__(self) -> None:
        self._responses = _Newest[tuple[list[Mapping[str, Any]], JSON]](_MOST, _MOST_BYTES)
        self._items = _Newest[JSON](_MOST_ITEMS, _MOST_ITEM_BYTES)

    def add(self, messages: list[Mapping[str, Any]], response: JSON) -> None:
        """Keep an answer; the oldest ones are forgotten."""
        self._responses.add(response["id"], (messages, response))
        self.add_items(response.get("output", ()))

    def add_items(self, items: Iterable[JSON]) -> None:
        """Keep the items of an answer, which may have been stopped."""
        for item in items:
            self._items.add(item["id"], item)

    def conversation(self, name: str) -> list[Mapping[str, Any]]:
        """The messages up to an answer, and the answer. Raises ApiError (404)."""
        return self._get(name)[0]

    def response(self, name: str) -> JSON:
        """An answer. Raises ApiError (404)."""
        return self._get(name)[1]

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

    def _get(self, name: str) -> tuple[list[Mapping[str, Any]], JSON]:
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
        self._forget(name)
        self._values[name] = value
        self._sizes[name] = len(json.dumps(value))
        self._bytes += self._sizes[name]
        while len(self._values) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._values)))

    def _forget(self, name: str) -> None:
        if name in self._values:
            del self._values[name]
            self._bytes -= self._sizes.pop(name)
