"""How far a prompt is read, in streams, as llama-server's `return_progress` asks for it."""

import json
from itertools import pairwise
from typing import Any

import pytest
from fakes.served import Served

SETTINGS: dict[str, Any] = {"max_tokens": 4, "n_predict": 4, "temperature": 0, "stream": True}


def parts_of(served: Served, path: str, **body: Any) -> list[dict[str, Any]]:
    text = served.post(path, {**SETTINGS, "return_progress": True, **body}).text
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def prompt_of(word: str) -> dict[str, Any]:
    """A prompt of about 800 tokens, for every protocol."""
    text = f"{word} " * 200
    return {
        "prompt": text,
        "messages": [{"role": "user", "content": text}],
    }


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/completion", "apple"),
        ("/v1/completions", "melon"),
        ("/v1/chat/completions", "grape"),
    ],
)
def test_a_stream_says_how_far_its_prompt_is_read(strict: Served, path: str, word: str) -> None:
    parts = parts_of(strict, path, **prompt_of(word))
    found = [part["prompt_progress"] for part in parts if "prompt_progress" in part]
    total = found[0]["total"]
    assert total > 400 and {each["total"] for each in found} == {total}
    assert found[0]["processed"] == found[0]["cache"] < 100 and found[-1]["processed"] == total
    assert all(one["processed"] < other["processed"] for one, other in pairwise(found))
    assert all(one["time_ms"] <= other["time_ms"] for one, other in pairwise(found))
    assert found[0]["time_ms"] < found[-1]["time_ms"]
    # It says nothing else, and comes before the text.
    written = [part for part in parts if "prompt_progress" not in part]
    assert parts[-len(written) + 1 :] == written[1:]
    timings = parts[-1]["timings"]
    assert found[-1]["cache"] == timings["cache_n"] == total - timings["prompt_n"]
    silent = parts_of(strict, path, **prompt_of(word), return_progress=False)
    assert "prompt_progress" not in str(silent)
    assert texts_of(silent) == texts_of(parts)
    whole = strict.post(path, {**SETTINGS, **prompt_of(word), "stream": False})
    assert "prompt_progress" not in whole.text and whole.status_code == 200
    again = parts_of(strict, path, **prompt_of(word))
    found = [part["prompt_progress"] for part in again if "prompt_progress" in part]
    assert found[0]["cache"] == found[0]["processed"] == total - 1  # only the last token is read


def texts_of(parts: list[dict[str, Any]]) -> str:
    return "".join(
        part.get("content", "")
        + "".join(
            choice.get("text") or choice.get("delta", {}).get("content") or ""
            for choice in part.get("choices", [])
        )
        for part in parts
    )


def test_texts_of_one_prompt_read_it_once(strict: Served) -> None:
    """The second begins when the first has read all of it, not when that says that it begins."""
    parts = parts_of(strict, "/completion", **prompt_of("lemon"), n_cmpl=2)
    first, second = (
        [part["prompt_progress"] for part in parts
         if "prompt_progress" in part and part["index"] == index]
        for index in (0, 1)
    )  # fmt: skip
    assert first[0]["cache"] < 100 and second[0]["cache"] == second[0]["total"] - 1


def test_a_prompt_that_is_only_read(strict: Served) -> None:
    *parts, last = parts_of(strict, "/completion", **prompt_of("olive"), n_predict=0)
    assert all("prompt_progress" in part for part in parts) and len(parts) > 1
    assert last["stop"] and last["content"] == ""
