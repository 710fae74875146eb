"""Pictures and documents, which no model here reads, and which come again with every turn."""

from typing import Any

import pytest
from fakes.served import Served

QUESTION: Any = [{"role": "user", "content": "ls"}]
PICTURE: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"type": "image_url", "image_url": {"url": "data:,A"}},
    "/v1/responses": {"type": "input_image", "image_url": "data:,A"},
    "/v1/messages": {"type": "image", "source": {"type": "base64", "data": "A"}},
}
SAID_TEXT = {"/v1/responses": "input_text"}
each_path = pytest.mark.parametrize("path", list(PICTURE))


def asked(strict: Served, path: str, messages: list[Any]) -> Any:
    name = "input" if path == "/v1/responses" else "messages"
    return strict.post(path, {"max_tokens": 1, "max_output_tokens": 16, name: messages})


def with_picture(path: str, *more: dict[str, Any]) -> dict[str, Any]:
    text = {"type": SAID_TEXT.get(path, "text"), "text": "what is it"}
    return {"role": "user", "content": [*more, PICTURE[path], text]}


@each_path
def test_a_picture_of_an_earlier_turn_ends_no_conversation(strict: Served, path: str) -> None:
    for later in (
        [{"role": "assistant", "content": "I cannot see it."}, *QUESTION],
        [*QUESTION],  # the turn with the picture was refused, and the user goes on
    ):
        answer = asked(strict, path, [with_picture(path), *later])
        assert answer.status_code == 200, answer.text
        usage = answer.json()["usage"]
        # The tiny model has a token for each letter: the words for the picture are among them.
        read = usage.get("prompt_tokens") or usage["input_tokens"]
        assert read + usage.get("cache_read_input_tokens", 0) > 60


@each_path
def test_a_picture_that_the_user_sends_is_refused(strict: Served, path: str) -> None:
    for messages in (
        [with_picture(path)],
        [*QUESTION, {"role": "assistant", "content": "yes"}, with_picture(path)],
        [with_picture(path), {"role": "system", "content": "reminder"}],
    ):
        answer = asked(strict, path, messages)
        assert answer.status_code == 400
        assert "text; this model reads nothing else" in answer.json()["error"]["message"]


@each_path
def test_a_refused_message_that_a_client_joins_with_the_next_ends_no_conversation(
    strict: Served, path: str
) -> None:
    """Roo Code and others send neighbours of one role as one message."""
    refused = with_picture(path)["content"]
    later = {"type": SAID_TEXT.get(path, "text"), "text": "go on without it"}
    for parts in ([*refused, later], [*reversed(refused), later]):
        answer = asked(strict, path, [{"role": "user", "content": parts}])
        assert answer.status_code == 200, answer.text
    for parts in (refused, refused[::-1], [later, *reversed(refused)]):
        answer = asked(strict, path, [{"role": "user", "content": parts}])
        assert answer.status_code == 400


def test_what_comes_beside_the_result_of_a_tool_is_named(strict: Served) -> None:
    """Claude Code reads a PDF so; other agents send a tool's pictures as the user's."""
    call = {"id": "t", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    chat = [
        *QUESTION,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": [PICTURE["/v1/chat/completions"]]},
    ]
    shown = with_picture("/v1/chat/completions")
    for messages in (chat, [*chat, shown]):
        prompt = strict.post("/apply-template", {"messages": messages}).json()["prompt"]
        assert prompt.count("[image_url left out: this model reads text only]") == len(messages) - 2
    result = {"type": "tool_result", "tool_use_id": "t", "content": "read"}
    document = {"type": "document", "source": {"type": "base64", "data": "A" * 5000}}
    blocks = [
        *QUESTION,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read"}]},
        {"role": "user", "content": [result, document]},
    ]
    counted = strict.post("/v1/messages/count_tokens", {"messages": blocks})
    assert 40 < counted.json()["input_tokens"] < 300
    items = [
        *QUESTION,
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "read"},
        with_picture("/v1/responses"),
    ]
    assert asked(strict, "/v1/responses", items).status_code == 200


def test_a_document_of_plain_text_is_text(strict: Served) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "one\ntwo"}
    document = {"type": "document", "title": "notes.txt", "source": source}
    text = {"type": "text", "text": "notes.txt\none\ntwo"}

    def tokens(block: dict[str, Any]) -> int:
        call = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
        messages = [
            {"role": "user", "content": [block]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, block]},
        ]
        answer = strict.post("/v1/messages/count_tokens", {"messages": messages})
        assert answer.status_code == 200, answer.text
        assert asked(strict, "/v1/messages", messages[:1]).status_code == 200
        return int(answer.json()["input_tokens"])

    assert tokens(document) == tokens(text)
