"""StoredResponses: the last answers of /v1/responses, which a client may refer to by their ids."""

import json
from collections.abc import Mapping
from typing import Any

from localspec.server.errors import JSON, ApiError

# The most answers, and their most bytes as JSON, all together.
_MOST, _MOST_BYTES = 256, 64 * 2**20


class StoredResponses:
    """The last answers of a server, with their conversations, in memory."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[list[Mapping[str, Any]], JSON]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, messages: list[Mapping[str, Any]], response: JSON) -> None:
        """Keep an answer; the oldest ones are forgotten."""
        name = response["id"]
        self._found[name] = (messages, response)
        self._sizes[name] = len(json.dumps(self._found[name]))
        while len(self._found) > _MOST or sum(self._sizes.values()) > _MOST_BYTES:
            oldest = next(iter(self._found))
            del self._found[oldest], self._sizes[oldest]

    def conversation(self, name: str) -> list[Mapping[str, Any]]:
        """The messages up to an answer, and the answer. Raises ApiError (404)."""
        return self._get(name)[0]

    def response(self, name: str) -> JSON:
        """An answer. Raises ApiError (404)."""
        return self._get(name)[1]

    def _get(self, name: str) -> tuple[list[Mapping[str, Any]], JSON]:
        if name not in self._found:
            raise ApiError(
                404,
                f"there is no response {name:.80} any more; send the conversation as input",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return self._found[name]
