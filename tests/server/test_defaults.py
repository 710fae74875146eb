"""Defaults of a server: what its options say counts where a request does not say otherwise."""

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.command_line import localspec
from fakes.served import Served, serving

GREETING = [{"role": "user", "content": "list files"}]
# A request of each protocol, and its member for the longest answer.
REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/chat/completions": ({"messages": GREETING}, "max_tokens"),
    "/v1/completions": ({"prompt": "ls"}, "max_tokens"),
    "/completion": ({"prompt": "ls"}, "n_predict"),
    "/v1/responses": ({"input": "list files"}, "max_output_tokens"),
    "/v1/messages": ({"messages": GREETING}, "max_tokens"),
    "/api/chat": ({"messages": GREETING, "stream": False}, "num_predict"),
    "/api/generate": ({"prompt": "list files", "stream": False}, "num_predict"),
}


@pytest.fixture(scope="module")
def seeded(own_cache: None) -> Iterator[Served]:
    options = ("--temperature", "1.5", "--top-k", "7", "--repeat-penalty", "1.25", "--seed", "11")
    more = ("--threads", "1", "--parallel", "2", "--ctx", "512", "--draft", "none")
    with serving(*options, *more, "--rule", "token", "--dry-sequence-breaker", "x") as served:
        yield served


def _request(path: str, **members: Any) -> dict[str, Any]:
    body, most = REQUESTS[path]
    if path.startswith("/api/"):
        return {**body, "options": {most: 4, **members}}
    return {**body, most: 4, **members}


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_has_them_unless_it_says_otherwise(seeded: Served, path: str) -> None:
    first, again = (seeded.post(path, _request(path)).json() for _ in range(2))
    assert first["localspec"]["seed"] == again["localspec"]["seed"] == 11
    assert first["localspec"]["rule"] == "token"
    own = seeded.post(path, _request(path, seed=12)).json()
    assert own["localspec"]["seed"] == 12


def test_each_of_them_is_one_and_a_request_may_name_any(seeded: Served) -> None:
    params = seeded.get("/props").json()["default_generation_settings"]["params"]
    names = ("temperature", "top_k", "repeat_penalty", "seed")
    assert [params[name] for name in names] == [1.5, 7, 1.25, 11]
    body = {"prompt": "ls", "n_predict": 1}
    used = seeded.post("/completion", body).json()["generation_settings"]
    assert [used[name] for name in names] == [1.5, 7, 1.25, 11]
    own = {"temperature": 0.5, "top_k": 0, "repeat_penalty": 1, "seed": 3}
    used = seeded.post("/completion", {**body, **own}).json()["generation_settings"]
    assert [used[name] for name in names] == [0.5, 0, 1, 3]
    # What neither says is the GGUF's.
    assert used["top_p"] == params["top_p"] == pytest.approx(0.95)


def test_what_has_no_effect_is_said_at_the_start(seeded: Served) -> None:
    assert "localspec: --rule has no effect: nothing drafts" in seeded.lines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--temperature", "-1"), "--temperature is -1"),
        (("--top-p", "0"), "--top-p is 0"),
        (("--rule", "none"), "--rule is 'none'"),
    ],
)
def test_a_wrong_one_is_refused_before_anything_is_loaded(
    arguments: tuple[str, ...], said: str
) -> None:
    done = localspec("serve", *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
