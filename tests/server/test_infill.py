"""Filling in the middle: /infill as llama-server has it, and /v1/completions with a suffix."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.fim import Expected, write_fim_model
from fakes.served import Served, serving
from openai import OpenAI

import localspec
from localspec.engine.engine import Engine

AHEAD, BEHIND = "DEF F(X):\n  ", "\nPRINT(F)\n"
BODY: dict[str, Any] = {
    "input_prefix": AHEAD,
    "input_suffix": BEHIND,
    "n_predict": 24,
    "temperature": 0.7,
    "seed": 3,
    "ignore_eos": True,
}
SETTINGS: dict[str, Any] = {"max_tokens": 24, "temperature": 0.7, "seed": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fim_model(tmp_path_factory.mktemp("fim") / "fim.gguf")


@pytest.fixture(scope="module")
def expected(path: Path) -> Expected:
    return Expected(path)


@pytest.fixture(scope="module")
def editor(path: Path) -> Iterator[Served]:
    with serving(str(path), "--threads", "1", "--draft", "suffix", "--parallel", "2") as served:
        yield served


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[Engine]:
    with localspec.load(path, "none", threads=1, context=512) as engine:
        yield engine


def in_a_file(expected: Expected, ahead: str, behind: str) -> list[int]:
    """The prompt of /infill without other files."""
    repository = [expected["rep"], *expected.text("myproject\n")]
    file = [expected["sep"], *expected.text("filename\n")]
    return [*repository, *file, *expected.gap(ahead, behind)]


@pytest.mark.parametrize("depth", [0, 4])
def test_a_gap_is_filled(editor: Served, alone: Engine, expected: Expected, depth: int) -> None:
    prompt = in_a_file(expected, AHEAD, BEHIND)
    wanted = alone.generate(prompt, **SETTINGS)
    answer = editor.post("/infill", {**BODY, "localspec": {"depth": depth}}).json()
    assert answer["content"] == wanted.text
    assert answer["tokens_predicted"] == 24
    assert answer["tokens_evaluated"] == len(prompt)
    assert (answer["stop"], answer["stop_type"]) == (True, "limit")
    assert answer["prompt"].endswith(f"<|fim_prefix|>{AHEAD}<|fim_suffix|>{BEHIND}<|fim_middle|>")
    assert bool(answer["timings"].get("draft_n")) == bool(depth)


def test_a_gap_in_a_stream(editor: Served, alone: Engine, expected: Expected) -> None:
    wanted = alone.generate(in_a_file(expected, AHEAD, BEHIND), **SETTINGS)
    answer = editor.post("/infill", {**BODY, "stream": True, "return_tokens": True})
    events = [line for line in answer.text.split("\n\n") if line]
    parts = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(part["content"] for part in parts) == wanted.text
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [token for part in parts for token in part["tokens"]] == wanted.token_ids


def test_what_editors_send(editor: Served, alone: Engine, expected: Expected) -> None:
    """A request that reads ahead, then one that is cut to the members that are wanted."""
    ahead = {
        **BODY,
        "input_extra": [{"filename": "A.PY", "text": "X = 1\n"}, {"text": "Y = 2\n"}],
        "prompt": "RET",
        "n_predict": 0,
        "cache_prompt": True,
        "samplers": ["top_k", "top_p", "infill"],
        "t_max_prompt_ms": 500,
        "model": "",  # llama.vim's default
    }
    read = editor.post("/infill", ahead).json()
    assert (read["content"], read["tokens_predicted"]) == ("", 0)
    wanted = ["content", "timings/prompt_n", "timings/nothing", "nothing"]
    found = editor.post("/infill", {**ahead, "n_predict": 24, "response_fields": wanted}).json()
    assert list(found) == wanted[:2]
    assert found["timings/prompt_n"] == 1
    prompt = [
        *(expected["rep"], *expected.text("myproject\n")),
        *(expected["sep"], *expected.text("A.PY\nX = 1\n")),
        *(expected["sep"], *expected.text("tmp\nY = 2\n")),
        *(expected["sep"], *expected.text("filename\n")),
        *expected.gap(f"{AHEAD}RET", BEHIND),
    ]
    assert found["content"] == alone.generate(prompt, **SETTINGS).text


def test_it_ends_at_a_line_when_its_time_is_over(editor: Served, expected: Expected) -> None:
    newline = {str(expected.ids["Ċ"]): 3}  # a bias, so that lines end
    body = {**BODY, "n_predict": 300, "logit_bias": newline}
    whole = editor.post("/infill", body).json()
    cut = editor.post("/infill", {**body, "t_max_predict_ms": 0.001}).json()
    assert whole["content"].startswith(cut["content"])
    assert cut["content"].count("\n") == 1
    assert cut["stop_type"] == "limit"
    stopped = editor.post("/infill", {**body, "stop": ["\n"]}).json()
    assert stopped["content"] == cut["content"].partition("\n")[0]
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", "\n")


def test_it_ends_before_a_line_that_is_indented_less(editor: Served, expected: Expected) -> None:
    newline = {str(expected.ids["Ċ"]): 3}
    body = {**BODY, "n_predict": 300, "logit_bias": newline}
    whole = editor.post("/infill", body).json()["content"]
    cut = editor.post("/infill", {**body, "n_indent": 2}).json()
    first = re.search(r"\n[ \t]?(?![ \t])", whole)
    assert first and cut["content"] == whole[: first.end()]
    assert cut["stop_type"] == "limit" and cut["tokens_predicted"] < 300


def test_several_fillings_have_seeds_of_their_own(editor: Served) -> None:
    first, second = editor.post("/infill", {**BODY, "n": 2, "n_probs": 2}).json()
    assert first["content"] == editor.post("/infill", BODY).json()["content"]
    again = editor.post("/infill", {**BODY, "seed": BODY["seed"] + 1}).json()
    assert second["content"] == again["content"]
    assert len(first["completion_probabilities"]) == first["tokens_predicted"]


def test_completions_with_a_suffix(editor: Served, alone: Engine, expected: Expected) -> None:
    wanted = alone.generate(expected.gap(AHEAD, BEHIND), **SETTINGS)
    more = {"ignore_eos": True, "localspec": {"depth": 4}}
    with OpenAI(base_url=f"{editor.url}/v1", api_key="none", max_retries=0) as client:
        settings: dict[str, Any] = {
            "model": "localspec", "suffix": BEHIND, "max_tokens": 24, "temperature": 0.7, "seed": 3,
            "extra_body": more,
        }  # fmt: skip
        whole = client.completions.create(prompt=AHEAD, **settings)
        assert whole.choices[0].text == wanted.text
        assert whole.usage and whole.usage.prompt_tokens == len(expected.gap(AHEAD, BEHIND))
        ids = client.completions.create(prompt=expected.text(AHEAD), **settings)
        assert ids.choices[0].text == wanted.text
        echoed = client.completions.create(prompt=AHEAD, echo=True, **settings)
        assert echoed.choices[0].text == AHEAD + wanted.text
        parts = client.completions.create(prompt=AHEAD, stream=True, **settings)
        assert "".join(part.choices[0].text for part in parts) == wanted.text
        both = client.completions.create(prompt=[AHEAD, "X"], **settings)
        assert both.choices[0].text == wanted.text
        again = alone.generate(expected.gap("X", BEHIND), **SETTINGS)
        assert both.choices[1].text == again.text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"input_prefix": None}, "input_prefix is missing"),
        ({"input_suffix": 3}, "input_suffix is 3; it must be a string"),
        ({"input_extra": {}}, "input_extra is {}; it must be a list"),
        ({"input_extra": [{}]}, "input_extra[0].text is missing"),
        ({"input_extra": [{"text": 3}]}, "input_extra[0].text is 3"),
        ({"input_extra": [{"text": "a", "filename": 3}]}, "input_extra[0].filename is 3"),
        ({"prompt": ["a"]}, 'prompt is ["a"]; it must be a string'),
        ({"thinking_budget": 5}, "the thinking budget is 5"),
        ({"n": 2, "n_indent": 4}, "n_indent is 4"),
        ({"prompt": "XYZ" * 200, "n_predict": 9}, "prompt is too long"),
        ({"input_prefix": "\ud800"}, "no valid Unicode"),
    ],
    ids=[
        "none",
        "type",
        "map",
        "empty",
        "text",
        "name",
        "list",
        "budget",
        "several",
        "long",
        "unicode",
    ],
)
def test_what_cannot_be_filled(editor: Served, changed: dict[str, Any], said: str) -> None:
    content = json.dumps({**BODY, **changed})
    answer = httpx.post(f"{editor.url}/infill", content=content)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_a_model_that_was_not_taught(served: Served) -> None:
    for path, body in (
        ("/infill", BODY),
        ("/v1/completions", {"prompt": AHEAD, "suffix": BEHIND}),
        ("/v1/completions", {"prompt": AHEAD, "suffix": BEHIND, "stream": True}),
    ):
        answer = served.post(path, body)
        assert answer.status_code == 400
        assert "this model cannot fill in the middle" in answer.json()["error"]["message"]
