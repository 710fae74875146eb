"""What is kept of answers: so many, and so many bytes."""

import pytest

from localspec.server import stored_responses
from localspec.server.errors import ApiError
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
