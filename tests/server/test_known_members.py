"""Members of requests that no protocol has: they are answered, and said to have no effect."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.served import Served, wait_for

import localspec.server
from localspec.server.fields import Fields
from localspec.server.known_members import KNOWN, unused_members, unused_options
from localspec.server.text_log import ToldOnce

SOURCES = Path(localspec.server.__file__).parent
# Of requests that ask for no text.
OTHERS = {f"{name}.py" for name in ("embeddings", "reranking", "ollama_models", "llama_server")}
READS = {*Fields.__dict__} - {"values", "wrong", "refuse", "place"}
GREETING = [{"role": "user", "content": "list files"}]


def names_read() -> Iterator[str]:
    """The members that are read of a body, or refused, as the sources have them."""
    for file in SOURCES.glob("*.py"):
        if file.name in OTHERS:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("body" | "fields"), attr=method),
                    args=[first, *_],
                ) if method in READS:
                    yield from texts(first)
                case ast.Assign(targets=[ast.Name("_NAMES" | "_LIMITS")], value=value) if (
                    file.name in ("thinking_budget.py", "ollama_chat.py")
                ):
                    yield from texts(value)
                case ast.AnnAssign(target=ast.Name("_NOT_HERE" | "_READERS"), value=ast.Dict(keys)):
                    if (file.name, node.target.id) not in NESTED:  # type: ignore[union-attr]
                        yield from (text for key in keys if key for text in texts(key))


# Tables of members within a member.
NESTED = [("constraint.py", "_NOT_HERE"), ("thinking.py", "_NOT_HERE")]


def texts(node: ast.expr) -> list[str]:
    constants = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return [each.value for each in constants if isinstance(each.value, str)]


def test_each_member_that_is_read_is_known() -> None:
    found = {*names_read()}
    assert len(found) > 100
    assert found - KNOWN == set()


def test_what_is_said_of_others() -> None:
    def lines(**members: Any) -> list[str]:
        return [*unused_members(Fields(members), "chat")]

    assert lines(temprature=0, temperature=0, user="me", metadata={}, store=False) == [
        "temprature: there is no such member; did you mean temperature?"
    ]
    assert lines(nothing=None, id_slot=-1, cache_prompt=True) == []
    chosen = "a request gets the free slot that has read most of its prompt"
    assert lines(id_slot=0) == [f"id_slot: {chosen}"]
    for protocol in ("embeddings", "reranking"):
        found = [*unused_members(Fields({"id_slot": 0}), protocol)]
        assert found == ["id_slot: this protocol has no slots"]
    assert lines(**{"\x1b[2J" + "x" * 99: 1}) == [f"?[2J{'x' * 36}: there is no such member"]
    assert len(lines(**{f"q{number}": 1 for number in range(99)})) == 16
    given = {"num_ctx": 4096, "num_gpu": 9, "zzz": 1, "top_k": 1}
    assert [*unused_options(Fields(given, "options"), 512)] == [
        "options.num_gpu: it is chosen when the server starts",
        "options.num_ctx is 4096, and the context has 512 tokens; start with --ctx",
        "options.zzz: there is no such member",
    ]
    assert [*unused_options(Fields({"num_ctx": 512, "num_gpu": None}, "options"), 512)] == []
    assert lines(verbosity="low", speed="fast") == [
        "verbosity: it has no effect here",
        "speed: it has no effect here",
    ]
    kept = Fields({"num_keep": 4}, "options")
    assert [*unused_options(kept, 512)] == ["options.num_keep: it has no effect here"]


def test_the_log_says_each_once_and_that_no_others_follow() -> None:
    told = ToldOnce()
    assert told.news(["a", "b", "a"]) == ["a", "b"]
    assert told.news(["b", "c"]) == ["c"]
    more = [f"name {number}" for number in range(300)]
    said = told.news(more)
    assert said[:-1] == more[:253]
    assert "localspec.not_used" in said[-1]
    assert told.news([*more, "another"]) == []


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": GREETING, "max_tokens": 1}),
    ("/v1/completions", {"prompt": "ls", "max_tokens": 1}),
    ("/completion", {"prompt": "ls", "n_predict": 1, "n_probs": 1}),
    ("/v1/responses", {"input": "ls", "max_output_tokens": 1}),
    ("/v1/messages", {"messages": GREETING, "max_tokens": 1}),
    ("/api/chat", {"messages": GREETING, "stream": False, "options": {"num_predict": 1}}),
    ("/api/generate", {"prompt": "ls", "stream": False, "options": {"num_predict": 1}}),
]


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_answers_of_all_protocols_say_it(served: Served, path: str, body: dict[str, Any]) -> None:
    assert served.post(path, body).json()["localspec"]["not_used"] == []
    name = f"qqqq{[each for each, _ in REQUESTS].index(path)}"
    for _ in range(2):
        answer = served.post(path, {**body, name: 1})
        assert answer.status_code == 200
        assert answer.json()["localspec"]["not_used"] == [f"{name}: there is no such member"]
    said = f"what is not used of a request: {name}: there is no such member"
    wait_for(lambda: any(said in line for line in served.lines))
    assert len([line for line in served.lines if said in line]) == 1


ABSENT = "this protocol has no such member"
WITHIN = "Ollama's protocol has it within options"
ELSEWHERE = [
    ("/api/chat", "temperature", 0, WITHIN),
    ("/api/generate", "num_gpu", 9, WITHIN),
    ("/api/chat", "max_tokens", 5, WITHIN),
    ("/api/chat", "system", "Be brief.", ABSENT),
    ("/api/chat", "reasoning_effort", "low", f"{ABSENT}; it has think"),
    ("/api/chat", "thinking", False, f"{ABSENT}; it has think"),
    ("/api/generate", "response_format", {"type": "text"}, f"{ABSENT}; it has format"),
    ("/v1/responses", "max_tokens", 5, f"{ABSENT}; it has max_output_tokens"),
    ("/v1/messages", "n", 2, ABSENT),
    ("/v1/messages", "instructions", "Hi", f"{ABSENT}; it has system"),
    ("/v1/chat/completions", "stop_sequences", ["x"], f"{ABSENT}; it has stop"),
    ("/v1/completions", "reasoning_effort", "low", ABSENT),
    ("/completion", "top_logprobs", 2, ABSENT),
]


@pytest.mark.parametrize(("path", "name", "value", "said"), ELSEWHERE)
def test_members_of_another_protocol_are_said(
    served: Served, path: str, name: str, value: Any, said: str
) -> None:
    body = {**next(body for at, body in REQUESTS if at == path), name: value}
    assert served.post(path, body).json()["localspec"]["not_used"] == [f"{name}: {said}"]


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_members_of_every_protocol_are_not_said(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    settings = {"temperature": 0, "top_k": 4, "seed": 3, "localspec": {"depth": 1}}
    options = {"options": {**body["options"], **settings}} if "options" in body else settings
    shared = {"user": "me", "metadata": {}, "store": False, "stream": False, "model": "localspec"}
    answer = served.post(path, {**body, **options, **shared}).json()
    assert answer["localspec"]["not_used"] == []


def test_ollamas_options_are_said(served: Served) -> None:
    options = {"num_predict": 1, "num_ctx": 409600, "fooo": 2, "think": False, "keep_alive": 5}
    body = {"messages": GREETING, "stream": False, "options": options}
    assert served.post("/api/chat", body).json()["localspec"]["not_used"] == [
        "options.num_ctx is 409600, and the context has 1024 tokens; start with --ctx",
        "options.fooo: there is no such member",
        "options.think: Ollama's protocol has it beside options",
        "options.keep_alive: Ollama's protocol has it beside options",
    ]


OFF: list[dict[str, Any]] = [
    {"enable_thinking": False},
    {"thinking": {"type": "disabled"}},
    {"reasoning": {"effort": "none"}},
    {"chat_template_kwargs": {"enable_thinking": False}},
]


@pytest.mark.parametrize("off", OFF, ids=str)
def test_responses_and_ollamas_options_switch_reasoning_off_in_all_words(
    strict: Served, off: dict[str, Any]
) -> None:
    def read(**switch: Any) -> int:
        asked = {"messages": GREETING, "max_tokens": 1, **switch}
        answer = strict.post("/v1/chat/completions", asked)
        tokens: int = answer.json()["usage"]["prompt_tokens"]
        return tokens

    expected = read(enable_thinking=False)
    assert read() != expected
    asked = {"input": GREETING, "max_output_tokens": 1, **off}
    answer = strict.post("/v1/responses", asked).json()
    assert (answer["usage"]["input_tokens"], answer["localspec"]["not_used"]) == (expected, [])
    options = {"num_predict": 1, **off}
    asked = {"messages": GREETING, "stream": False, "options": options}
    answer = strict.post("/api/chat", asked).json()
    assert (answer["prompt_eval_count"], answer["localspec"]["not_used"]) == (expected, [])
    answer = strict.post("/api/chat", {**asked, "think": True}).json()
    assert answer["prompt_eval_count"] == read(enable_thinking=True) != expected


@pytest.mark.parametrize(
    "budget", [{"thinking": {"budget_tokens": 5}}, {"reasoning": {"max_tokens": 9}}]
)
def test_a_budget_in_ollamas_options_is_not_said(strict: Served, budget: dict[str, Any]) -> None:
    options = {"num_predict": 1, **budget}
    body = {"messages": GREETING, "stream": False, "options": options}
    assert strict.post("/api/chat", body).json()["localspec"]["not_used"] == []
