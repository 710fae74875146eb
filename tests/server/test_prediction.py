"""Predicted outputs of OpenAI's clients: the text stays, and usage counts their tokens."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from fakes.served import Served, serving
from openai import OpenAI

from localspec.engine.engine import Engine

MODEL = "terminal-9m-q8_0"
QUESTION = [{"role": "user", "content": "How do I find large files?"}]
DEEP = {"localspec": {"depth": 6, "draft": "suffix"}}


def ask(client: OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(
        **{"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 60, **options}
    )


def counts(usage: Any) -> tuple[int, int]:
    details = usage.completion_tokens_details
    return details.accepted_prediction_tokens, details.rejected_prediction_tokens


def as_parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": part} for part in (text[:9], text[9:])]


@pytest.mark.parametrize("parts", [False, True])
def test_the_answer_comes_in_fewer_steps(client: OpenAI, alone: Engine, *, parts: bool) -> None:
    text = alone.generate(QUESTION, temperature=0, max_tokens=60).text
    content = as_parts(text) if parts else text
    given: Any = {"type": "content", "content": content}
    answer = ask(client, prediction=given, extra_body=DEEP)
    assert answer.choices[0].message.content == text
    accepted, rejected = counts(answer.usage)
    timings = answer.model_dump()["timings"]
    assert 0.8 * answer.usage.completion_tokens < accepted + answer.localspec["steps"]
    assert accepted <= timings["draft_n_accepted"]
    assert accepted + rejected <= timings["draft_n"]
    assert answer.localspec["not_used"] == []
    stream = [*ask(client, prediction=given, extra_body=DEEP, stream=True,
                   stream_options={"include_usage": True})]  # fmt: skip
    assert "".join(part.choices[0].delta.content or "" for part in stream[:-1]) == text
    assert counts(stream[-1].usage)[0] > 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1, "seed": 7}])
def test_no_prediction_changes_the_answer(
    client: OpenAI, alone: Engine, sampling: dict[str, Any]
) -> None:
    expected = alone.generate(QUESTION, **{"temperature": 0, "max_tokens": 60, **sampling}).text
    for content in (expected, "", expected[12:], "nothing of this", "\0", "word " * 20_000):
        answer = ask(client, prediction={"type": "content", "content": content}, **sampling)
        assert answer.choices[0].message.content == expected


def test_each_of_several_requests_has_its_own(client: OpenAI, alone: Engine) -> None:
    """One without a prediction beside one with it has none."""
    text = alone.generate(QUESTION, temperature=0, max_tokens=60).text

    def answer(number: int) -> Any:
        given: Any = {"prediction": {"type": "content", "content": text}} if number % 2 else {}
        return ask(client, extra_body=DEEP, **given)

    with ThreadPoolExecutor(3) as clients:
        answers = [*clients.map(answer, range(6))]
    assert {each.choices[0].message.content for each in answers} == {text}
    assert [counts(each.usage)[0] > 0 for each in answers] == [False, True] * 3


def test_several_answers_follow_one_prediction(client: OpenAI, alone: Engine) -> None:
    text = alone.generate(QUESTION, temperature=0, max_tokens=60).text
    given: Any = {"type": "content", "content": text}
    answer = ask(client, prediction=given, extra_body=DEEP, n=2)
    assert [each.message.content for each in answer.choices] == [text, text]
    assert counts(answer.usage)[0] > answer.usage.completion_tokens / 2


@pytest.mark.parametrize(
    ("prediction", "message"),
    [
        ("text", "prediction must be a JSON object"),
        ({"content": "a"}, "prediction.type is missing"),
        ({"type": "text", "content": "a"}, "prediction.type is 'text'; it must be one of content"),
        ({"type": "content"}, "prediction.content is missing"),
        (
            {"type": "content", "content": 5},
            "prediction.content is 5; it must be a text or a list of parts",
        ),
        ({"type": "content", "content": ["a"]}, "prediction.content[0] must be a JSON object"),
        (
            {"type": "content", "content": [{"type": "image_url"}]},
            "prediction.content[0].type is 'image_url'; it must be one of text",
        ),
        (
            {"type": "content", "content": [{"type": "text"}]},
            "prediction.content[0].text is missing",
        ),
        (
            {"type": "content", "content": [{"type": "text", "text": 5}]},
            "prediction.content[0].text is 5; it must be a string",
        ),
    ],
)
def test_what_is_no_prediction_is_refused(client: OpenAI, prediction: Any, message: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, prediction=prediction)
    said = caught.value.response.json()["error"]["message"]
    assert said.endswith(message)
    assert said.startswith("prediction")
    assert "\n" not in said


def test_null_is_none(served: Served) -> None:
    body = {"messages": QUESTION, "max_tokens": 3, "prediction": None}
    assert served.post("/v1/chat/completions", body).status_code == 200


def test_half_a_surrogate_pair_is_no_text(served: Served) -> None:
    given = {"type": "content", "content": [{"type": "text", "text": "\ud800"}]}
    body = {"messages": QUESTION, "max_tokens": 3, "prediction": given}
    reply = httpx.post(f"{served.url}/v1/chat/completions", content=json.dumps(body), timeout=60)
    assert reply.status_code == 200


@pytest.mark.parametrize("way", [{"depth": 0}, {"draft": "none"}, {"draft": "terminal-5m-q4_0"}])
def test_that_it_has_no_effect_is_said(client: OpenAI, way: dict[str, Any]) -> None:
    given: Any = {"type": "content", "content": "abc"}
    answer = ask(client, prediction=given, extra_body={"localspec": way}, max_tokens=5)
    [line] = answer.localspec["not_used"]
    assert line.startswith("prediction: ")
    assert counts(answer.usage) == (0, 0)


@pytest.mark.slow
def test_without_a_drafter_that_copies_it_is_accepted() -> None:
    body = {"messages": QUESTION, "max_tokens": 5, "temperature": 0}
    given = {"prediction": {"type": "content", "content": "abc"}}
    with serving("--threads", "1", "--ctx", "512", "--draft", "none") as served:
        found, plain = (
            served.post("/v1/chat/completions", each).json() for each in ({**body, **given}, body)
        )
    assert found["choices"] == plain["choices"]
    assert found["localspec"]["not_used"] == [
        "prediction: only suffix copies from it; add it to --draft"
    ]
    assert plain["localspec"]["not_used"] == []
