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
        return [*unused_members(Fields(members))]

    assert lines(temprature=0, temperature=0, user="me", metadata={}, store=False) == [
        "temprature: there is no such member; did you mean temperature?"
    ]
    assert lines(nothing=None, id_slot=-1, cache_prompt=True) == []
    chosen = "a request gets the free slot that has read most of its prompt"
    assert lines(id_slot=0) == [f"id_slot: {chosen}"]
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


def test_ollamas_options_are_said(served: Served) -> None:
    options = {"num_predict": 1, "num_ctx": 409600, "fooo": 2}
    body = {"messages": GREETING, "stream": False, "options": options}
    assert served.post("/api/chat", body).json()["localspec"]["not_used"] == [
        "options.num_ctx is 409600, and the context has 1024 tokens; start with --ctx",
        "options.fooo: there is no such member",
    ]
