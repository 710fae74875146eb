"""Messages as clients send them, and as templates take them."""

from base64 import b64decode, b64encode
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes.projectors import picture

from localspec.engine import media_parts
from localspec.engine.media_marks import media_mark
from localspec.errors import ModelLoadError, OutOfMemoryError
from localspec.server import anthropic_input
from localspec.server.anthropic_tools import AnthropicTools
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.responses_input import input_messages
from localspec.server.responses_items import given_items
from localspec.server.stored_responses import StoredResponses
from localspec.server.template_messages import messages_of
from localspec.server.tool_names import ToolNames

PICTURE = {"type": "input_image", "image_url": "data:,A"}


def read(*messages: dict[str, Any]) -> list[Any]:
    return messages_of(Fields({"messages": list(messages)}), None)


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
    found, _ = input_messages(Fields({"input": [asked, reference]}), ToolNames(), stored, None)
    assert [each["role"] for each in found] == ["user", "assistant"]
    with pytest.raises(ApiError, match="reads nothing else"):
        input_messages(Fields({"input": [reference, asked]}), ToolNames(), stored, None)


def test_a_file_that_several_turns_have_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for the stored answer."""
    decoded = list[str]()

    def decode(text: str, **options: Any) -> bytes:
        decoded.append(text)
        return b64decode(text, **options)

    monkeypatch.setattr(media_parts, "b64decode", decode)
    sent = b64encode(picture()).decode()
    turns = [
        {"role": "user", "content": [{"type": "input_image", "image_url": f"data:;base64,{sent}"}]}
        for _ in range(2)
    ]
    body, reader = Fields({"input": turns}), SimpleNamespace(reads_images=True, prepare=len)
    messages, marks = input_messages(body, ToolNames(), StoredResponses(), cast(Any, reader))
    items = given_items(cast(Any, SimpleNamespace(body=body, marks=marks)), "resp_1")
    mark = media_mark(picture())
    assert [each["content"] for each in messages] == [mark, mark]
    assert [each["content"][0]["image_url"] for each in items] == [f"data:;base64,{mark}"] * 2
    assert decoded == [sent]


@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
def test_a_message_without_its_content_is_refused(role: str) -> None:
    with pytest.raises(ApiError, match=r"messages\[1\] has no content; .*role, contents") as raised:
        read({"role": "user", "content": "Q"}, {"role": role, "contents": "hi"})
    assert raised.value.status == 400
    assert raised.value.param == "messages[1]"
    item = Fields({"input": [{"role": role, "contents": "hi"}]})
    with pytest.raises(ApiError, match=r"input\[0\] has no content"):
        input_messages(item, ToolNames(), StoredResponses(), None)
    if role != "developer":
        with pytest.raises(ApiError, match=r"messages\[0\] has no content"):
            list(
                anthropic_input._messages(
                    Fields({"messages": [{"role": role}]}), AnthropicTools(Fields({})), None
                )
            )
    # Clients send null.
    assert read({"role": role, "content": None})[0]["content"] == ""
    with pytest.raises(ApiError, match="content is 5; it must be a text or a list of parts"):
        read({"role": role, "content": 5})


def test_what_stands_for_the_content_of_an_answer() -> None:
    for said in ({"tool_calls": [{"id": "a"}]}, {"reasoning_content": "hm"}):
        [answer] = read({"role": "assistant", **said})
        assert answer == {"role": "assistant", "content": "", **said}
    [result] = read({"role": "tool", "tool_call_id": "a"})
    assert result["content"] == ""


def test_an_image_that_cannot_be_read_for_now_is_not_left_out() -> None:
    """One that never can is: else a conversation could not go on."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    turns = [{"role": "user", "content": [image]}, {"role": "assistant", "content": "It is"}]
    turns.append({"role": "user", "content": "And?"})

    def read_by(error: ModelLoadError) -> list[Any]:
        def prepare(_data: bytes) -> None:
            raise error

        reader: Any = SimpleNamespace(reads_images=True, reads_sounds=False, prepare=prepare)
        return messages_of(Fields({"messages": turns}), reader)

    left_out = read_by(ModelLoadError("it is broken"))[0]["content"]
    assert left_out == "[image_url left out: it cannot be read]"
    with pytest.raises(ApiError, match="close something") as caught:
        read_by(OutOfMemoryError("close something"))
    assert caught.value.status == 503
