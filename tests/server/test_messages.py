"""Messages as clients send them, and as templates take them."""

from typing import Any

import pytest

from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.messages import messages_of
from localspec.server.responses_input import input_messages
from localspec.server.stored_responses import StoredResponses
from localspec.server.tool_names import ToolNames

PICTURE = {"type": "input_image", "image_url": "data:,A"}


def read(*messages: dict[str, Any]) -> list[Any]:
    return messages_of(Fields({"messages": list(messages)}))


def test_an_answer_has_no_words_in_the_place_of_what_it_is_not() -> None:
    """The model would take them for its own."""
    parts = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "refused_here", "data": [1]},
        {"type": "text", "text": "It"},
        {"text": "is"},
    ]
    [_, answer] = read({"role": "user", "content": "Q"}, {"role": "assistant", "content": parts})
    assert answer == {"role": "assistant", "content": "It\nis", "reasoning_content": "hm"}
    parts[0]["thinking"] = [{"type": "text", "text": "hm"}]
    [_, answer] = read({"role": "user", "content": "Q"}, {"role": "assistant", "content": parts})
    assert answer == {"role": "assistant", "content": "It\nis"}


def test_an_item_that_is_referred_to_says_who_spoke_last() -> None:
    stored = StoredResponses()
    said = {"type": "message", "role": "assistant", "id": "msg_1"}
    said["content"] = [{"type": "output_text", "text": "I cannot see it."}]  # type: ignore[assignment]
    stored.add([], {"id": "resp_1", "output": [said]})
    asked = {"role": "user", "content": [PICTURE, {"type": "input_text", "text": "what is it"}]}
    reference = {"type": "item_reference", "id": "msg_1"}
    found = input_messages(Fields({"input": [asked, reference]}), ToolNames(), stored)
    assert [each["role"] for each in found] == ["user", "assistant"]
    with pytest.raises(ApiError, match="reads nothing else"):
        input_messages(Fields({"input": [reference, asked]}), ToolNames(), stored)
