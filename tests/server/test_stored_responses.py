"""What is kept of answers: so many, and so many bytes."""

import pytest

from localspec.server import stored_responses
from localspec.server.errors import JSON, ApiError
from localspec.server.stored_responses import StoredResponses


def test_the_oldest_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_responses, "_MOST", 3)
    stored = StoredResponses()
    for number in range(5):
        stored.add([{"role": "user", "content": str(number)}], {"id": f"r{number}"})
    assert stored.conversation("r4") == [{"role": "user", "content": "4"}]
    assert stored.response("r2") == {"id": "r2"}
    with pytest.raises(ApiError, match="no response r1 any more"):
        stored.response("r1")


def test_large_ones_leave_no_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may be 32 MiB, of which an answer repeats a part."""
    monkeypatch.setattr(stored_responses, "_MOST_BYTES", 10_000)
    stored = StoredResponses()
    stored.add([], {"id": "small"})
    stored.add([], {"id": "first", "metadata": {"a": "x" * 6000}})
    assert stored.response("small")
    stored.add([], {"id": "second", "metadata": {"a": "x" * 6000}})
    assert stored.response("second")
    for name in ("small", "first"):
        with pytest.raises(ApiError):
            stored.response(name)
    stored.add([{"role": "user", "content": "x" * 20_000}], {"id": "huge"})
    with pytest.raises(ApiError):
        stored.response("huge")


def answer(number: int) -> JSON:
    return {"id": f"r{number}", "output": [{"id": f"i{number}", "type": "message"}]}


def test_items_are_kept_longer_than_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may name each of a conversation that has more answers than are kept."""
    monkeypatch.setattr(stored_responses, "_MOST", 1)
    monkeypatch.setattr(stored_responses, "_MOST_ITEMS", 3)
    stored = StoredResponses()
    for number in range(5):
        stored.add([], answer(number))
    assert stored.item("i2") == {"id": "i2", "type": "message"}
    with pytest.raises(ApiError, match="no item i1 any more"):
        stored.item("i1")


def test_items_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_responses, "_MOST_ITEM_BYTES", 100)
    stored = StoredResponses()
    for _ in range(5):  # the same one counts once
        stored.add([], answer(1))
    assert stored.item("i1")
    stored.add([], {"id": "r2", "output": [{"id": "i2", "text": "x" * 70}]})
    assert stored.item("i2")
    with pytest.raises(ApiError):
        stored.item("i1")
